"""Batches: each a function of (seed, stream, k) alone."""

import hashlib

import numpy as np
import pytest
import torch
from conftest import GENERATED, TASKS
from trained import load

from rope_lab.train import config, data


@pytest.fixture(params=TASKS)
def task(request):
    return config.build_task(load(f"task={request.param}"))


GOLDEN = {
    ("arithmetic_addition", "length"): "29fb125257201ed8",
    ("substring_by_index", "length"): "9deb3a65a7ba892b",
    ("substring_by_prefix", "length"): "3d93c22635669843",
    ("arithmetic_addition", "paper"): "3d1949defced72bc",
    ("arithmetic_addition", "quick"): "f790061a107a78fa",
    ("substring_by_index", "paper"): "0221c6e199f79d33",
    ("arithmetic_addition", "reduced"): "a97d19690ab3f14f",
    ("substring_by_index", "reduced"): "49218a4d8f97f5f6",
    ("substring_by_index", "full_width"): "49218a4d8f97f5f6",
    ("substring_by_index", "quick"): "95c44aaeb8ebb12c",
    ("substring_by_prefix", "paper"): "810aecdb4f53b6ca",
    ("substring_by_prefix", "quick"): "3d93c22635669843",
    ("indirect_indexing", "quick"): "893eb15f6c6333f7",
}


@pytest.mark.parametrize(("name", "scale"), GENERATED)
def test_the_first_batches_are_what_they_were(name, scale):
    """The first three batches of seed 0, the last drawn first."""
    cfg = load(f"task={name}", f"scale={scale}")
    task = config.build_task(cfg)
    batches = [data.training_batch(task, 0, k, cfg.train.batch_size, cfg.train.seq_len) for k in (2, 1, 0)][::-1]
    digest = hashlib.sha256()
    for batch in batches:
        for tensor_BT in (batch.inputs_BT, batch.targets_BT):
            digest.update(tensor_BT.numpy().astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == GOLDEN.get((name, scale)), (
        f"{name} writes other training text than the runs that are recorded were trained on. If a recipe is new or its "
        "numbers were changed, put the new digest here. If the task's code was changed and you mean it, raise the "
        "task's `version` too, so that no checkpoint goes on with other text than it began with."
    )


HELD_OUT = {
    ("arithmetic_addition", "length"): "02d1261a62abf4dc",
    ("arithmetic_addition", "paper"): "71b50faee975a2da",
    ("arithmetic_addition", "quick"): "2327578fce9a4696",
    ("arithmetic_addition", "reduced"): "71b50faee975a2da",
    ("indirect_indexing", "quick"): "af7b859dc45ecf72",
    ("substring_by_index", "full_width"): "d7348f0f3a885f9e",
    ("substring_by_index", "length"): "0511b3239c115926",
    ("substring_by_index", "paper"): "d7348f0f3a885f9e",
    ("substring_by_index", "quick"): "606773ad07a9eb42",
    ("substring_by_index", "reduced"): "d7348f0f3a885f9e",
    ("substring_by_prefix", "length"): "1df45be440d9d587",
    ("substring_by_prefix", "paper"): "e82f257a502e3dff",
    ("substring_by_prefix", "quick"): "1df45be440d9d587",
}


@pytest.mark.parametrize(("name", "scale"), GENERATED)
def test_held_out_text_and_problems_are_what_they_were(name, scale):
    """Eight rows, and the first 200 problems."""
    cfg = load(f"task={name}", f"scale={scale}")
    task = config.build_task(cfg)
    text = data.evaluation_text(task, 8, cfg.train.seq_len)
    digest = hashlib.sha256()
    for tensor_BT in (text.inputs_BT, text.targets_BT):
        digest.update(tensor_BT.numpy().astype("<i8").tobytes())
    for problem in data.evaluation_problems(task, 200):
        digest.update(f"{problem.prompt}\n{problem.completion}\n{problem.attributes}\n".encode())
    assert digest.hexdigest()[:16] == HELD_OUT.get((name, scale)), (
        f"{name} evaluates on other problems or text than the runs that are recorded: see the test above"
    )


def test_targets_are_the_next_tokens_where_they_count(task):
    text = task.text(data.generator(0, data.TRAINING_TEXT, 0), 4, 101)
    batch = data.training_batch(task, 0, 0, 4, 100)
    assert batch.inputs_BT.tolist() == text.tokens[:, :-1].tolist()
    counted = batch.targets_BT != data.IGNORED
    assert counted.tolist() == text.counted[:, 1:].tolist()
    assert batch.targets_BT[counted].tolist() == text.tokens[:, 1:][text.counted[:, 1:]].tolist()


def test_evaluation_counts_answers_whatever_training_counts():
    for name in {name for name, _ in GENERATED}:
        texts = [
            data.evaluation_text(config.build_task(load(f"task={name}", f"task.loss_on={on}")), 4, 200)
            for on in ("all", "answer")
        ]
        assert torch.equal(texts[0].targets_BT, texts[1].targets_BT)
        assert (texts[0].targets_BT == data.IGNORED).any()


def test_streams_seeds_and_steps_do_not_meet():
    draws = {
        tuple(data.generator(seed, stream, k).integers(2**62, size=2))
        for seed in (0, 1, 5)
        for stream in range(4)
        for k in (0, 1, 2)
    }
    assert len(draws) == 3 * 4 * 3
    assert data.torch_seed(5, data.DROPOUT, 7) == data.torch_seed(5, data.DROPOUT, 7)
    assert len({data.torch_seed(5, data.DROPOUT, k) for k in range(100)}) == 100


def test_padding():
    assert data.pad([np.array([1, 2]), np.array([3])]).tolist() == [[1, 2], [3, 0]]
