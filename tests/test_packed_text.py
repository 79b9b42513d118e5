"""Windows of several documents, parsed from their text."""

import re

import numpy as np
import pytest
import torch
from conftest import TINY
from trained import load

from rope_lab.text import ConfigError
from rope_lab.train import data
from rope_lab.train.trainer import build, evaluate_now, resolve, update
from tasks.packed_text import PackedText


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "numbers.txt"
    file.write_text("".join(f"{number:05d};" for number in range(6000)))
    return file


def documents_of(row: str) -> list[str]:
    """The passages of a row: within one, each number follows the one before by 1."""
    begins, before = [0], None
    for found in re.finditer(r"\d{5}(?=;)", row):
        if before is not None and int(found[0]) != before + 1:
            begins.append(found.start())
        before = int(found[0])
    return begins


def make(path, **settings) -> PackedText:
    return PackedText(str(path), context=60, shortest=12, longest=30, **settings)


@pytest.mark.parametrize("held_out", [False, True])
def test_documents_are_passages_of_their_side(path, held_out):
    task = make(path)
    corpus = task.decode(task.parts[held_out])
    text = task.text(np.random.default_rng(0), 40, 61, held_out)
    assert text.tokens.shape == text.positions.shape == text.documents.shape == (40, 61)
    lengths = set()
    for tokens, positions, numbers in zip(text.tokens, text.positions, text.documents, strict=True):
        assert numbers[0] == 0
        for number in range(numbers[-1] + 1):
            own = numbers == number
            assert task.decode(tokens[own]) in corpus
            assert positions[own].tolist() == list(range(own.sum()))
            lengths |= {int(own.sum())} if number < numbers[-1] else set()
        assert np.array_equal(numbers, np.sort(numbers))
    assert (min(lengths), max(lengths)) == (12, 30)
    assert np.array_equal(text.answer_position, text.positions)


def test_documents_are_no_longer_passages_across_borders(path):
    """They come from different places."""
    task = make(path)
    text = task.text(np.random.default_rng(0), 20, 61)
    borders = [len(documents_of(task.decode(row))) - 1 for row in text.tokens]
    assert 1 <= np.mean(borders) <= 61 / 12


def test_attention_and_count_are_settings(path):
    text = make(path, attention="across", count="running").text(np.random.default_rng(0), 2, 61)
    assert (text.positions, text.documents) == (None, None)
    task = make(path, attention="across")
    assert data.training_batch(task, 0, 0, 2, 60).given.keys() == {"pos"}


def test_training_counts_all_but_first_tokens(path):
    """Their number in its document is 0."""
    batch = data.training_batch(make(path), 0, 0, 8, 60)
    text = make(path).text(data.generator(0, data.TRAINING_TEXT, 0), 8, 61)
    counted = batch.targets_BT != data.IGNORED
    assert counted.tolist() == (text.positions[:, 1:] > 0).tolist()


def test_a_problem_is_one_document(path):
    (problem,) = make(path).problems(np.random.default_rng(0), 1)
    text = problem.prompt + problem.completion
    assert len(documents_of(text)) == 1
    assert problem.positions is None


def test_what_cannot_be_is_refused(path):
    with pytest.raises(ConfigError, match=r"set eval.lengths=\[\]"):
        make(path).of_length(100)
    with pytest.raises(ConfigError, match="longest=10000: is more than the"):
        PackedText(str(path), longest=10_000).text(np.random.default_rng(0), 2, 9, held_out=True)


@pytest.mark.parametrize("position", ["roper", "alibi"])
def test_a_step_within_documents_is_that_of_each_alone(path, position):
    words = [*TINY, "task=packed_text", f"task.path={path}", f"position={position}"]
    trainer = build(resolve(load(*words, "task.longest=40")))
    batch, model = trainer.batches(0), trainer.model
    sums, counted = 0.0, 0
    for inputs, targets, numbers in zip(batch.inputs_BT, batch.targets_BT, batch.documents_BT):  # noqa: B905
        for number in numbers.unique():
            own = numbers == number
            logits = model(inputs[own][None])[0]
            losses = torch.nn.functional.cross_entropy(
                logits, targets[own], ignore_index=data.IGNORED, reduction="sum"
            )
            sums, counted = sums + losses.item(), counted + (targets[own] >= 0).sum().item()
    assert update(trainer, 0)[0] == pytest.approx(sums / counted, rel=1e-5)
    assert "eval/bits_per_byte" in evaluate_now(trainer).metrics


def test_linear_attention_has_no_documents(path):
    words = [*TINY, "task=packed_text", f"task.path={path}", "model.attention=linear"]
    with pytest.raises(ConfigError, match="has no scores"):
        build(resolve(load(*words)))
