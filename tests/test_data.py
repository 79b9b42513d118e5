"""Batches: each depends on (seed, stream, k) alone."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import GENERATED, TASKS, TEXTS
from trained import load

from rope_lab.train import config, data

# Two digests each: the first three training batches of seed 0; eight held-out rows and the first
# 200 problems.
GOLDEN = json.loads(Path(__file__).with_name("batches.json").read_text())


@pytest.mark.parametrize(("name", "scale"), GENERATED)
def test_batches_held_out_text_and_problems_are_what_they_were(name, scale):
    cfg = load(f"task={name}", f"scale={scale}")
    task, t, digests = config.build_task(cfg), cfg.train, (hashlib.sha256(), hashlib.sha256())
    # The last one first.
    batches = [data.training_batch(task, 0, k, t.batch_size, t.seq_len) for k in (2, 1, 0)][::-1]
    held_out = data.evaluation_text(task, 8, t.seq_len)
    for digest, found in zip(digests, (batches, [held_out.batch]), strict=True):
        for text in found:
            for tokens in (text.inputs_BT, text.targets_BT):
                digest.update(tokens.numpy().astype("<i8").tobytes())
    for problem in data.evaluation_problems(task, 200):
        digests[1].update(
            f"{problem.prompt}\n{problem.completion}\n{problem.attributes}\n".encode()
        )
    assert [digest.hexdigest()[:16] for digest in digests] == GOLDEN.get(f"{name} {scale}"), (
        f"{name} writes other text or problems than those of recorded runs. If a recipe is new or "
        "its numbers were changed, put the new digests into batches.json. If the task's code was "
        "changed and you mean it, raise its `version` too, so that no checkpoint is resumed with "
        "other text than it was trained on."
    )


@pytest.mark.parametrize("name", sorted({*TASKS} - TEXTS))
@pytest.mark.parametrize("loss_on", ["all", "answer"])
def test_targets_are_the_next_tokens_where_they_count(name, loss_on):
    """In training by `loss_on`; in evaluation, only answers count."""
    task = config.build_task(load(f"task={name}"))
    task.loss_on = loss_on
    text = task.text(data.generator(0, data.TRAINING_TEXT, 0), 4, 101)
    batch = data.training_batch(task, 0, 0, 4, 100)
    assert batch.inputs_BT.tolist() == text.tokens[:, :-1].tolist()
    counted = (text.answer_position > 0) | (loss_on == "all")
    assert (
        batch.targets_BT.tolist()
        == np.where(counted, text.tokens.astype(int), data.IGNORED)[:, 1:].tolist()
    )
    held_out = data.evaluation_text(task, 4, 100)
    assert torch.equal(held_out.batch.targets_BT != data.IGNORED, held_out.answer_position_BT > 0)
    answers = held_out.answer_position_BT[:, :-1] > 0
    assert torch.equal(
        held_out.batch.inputs_BT[:, 1:][answers], held_out.batch.targets_BT[:, :-1][answers]
    )


def test_streams_seeds_and_steps_do_not_meet():
    parts = [(seed, stream, k) for seed in (0, 1, 5) for stream in range(5) for k in (0, 1, 2)]
    assert len({tuple(data.generator(*part).integers(2**62, size=2)) for part in parts}) == len(
        parts
    )
    assert data.torch_seed(5, data.DROPOUT, 7) == data.torch_seed(5, data.DROPOUT, 7)
    assert len({data.torch_seed(5, data.DROPOUT, k) for k in range(100)}) == 100
