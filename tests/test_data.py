"""Batches: each a function of (seed, stream, k) alone."""

import hashlib

import numpy as np
import pytest
import torch
from conftest import GENERATED, TASKS
from trained import load

from rope_lab.train import config, data

GOLDEN = {  # of the first three training batches of seed 0; of eight held-out rows and the first 200 problems
    ("arithmetic_addition", "length"): ("29fb125257201ed8", "02d1261a62abf4dc"),
    ("arithmetic_addition", "paper"): ("3d1949defced72bc", "71b50faee975a2da"),
    ("arithmetic_addition", "quick"): ("f790061a107a78fa", "2327578fce9a4696"),
    ("arithmetic_addition", "reduced"): ("a97d19690ab3f14f", "71b50faee975a2da"),
    ("copy_string", "length"): ("611558e726c4bf62", "ac543eb67cc1f3ac"),
    ("copy_string", "quick"): ("611558e726c4bf62", "ac543eb67cc1f3ac"),
    ("flip_flop", "paper"): ("f65ee8ad1ea3b22b", "bd504df89c27f02c"),
    ("flip_flop", "quick"): ("04f998b8ca17e6f0", "bd504df89c27f02c"),
    ("indirect_indexing", "quick"): ("893eb15f6c6333f7", "af7b859dc45ecf72"),
    ("mqar", "paper"): ("764e89b5f9788b44", "03b849b13e029493"),
    ("mqar", "quick"): ("4bcdc7ad6b329152", "2ff7006e84d98dd9"),
    ("needle", "length"): ("b50aeab07ef6b050", "b6507ccc0c041bff"),
    ("needle", "quick"): ("b50aeab07ef6b050", "b6507ccc0c041bff"),
    ("reverse_string", "length"): ("3476371161b79f9a", "65806486b01df6fc"),
    ("reverse_string", "quick"): ("3476371161b79f9a", "65806486b01df6fc"),
    ("sort_string", "length"): ("97bff0e58ca4af25", "697ebceb7f38b4e9"),
    ("sort_string", "quick"): ("97bff0e58ca4af25", "697ebceb7f38b4e9"),
    ("state_tracking", "length"): ("4d30dd3f5aa7c6f4", "7d1a151db6afa01e"),
    ("state_tracking", "quick"): ("4d30dd3f5aa7c6f4", "7d1a151db6afa01e"),
    ("substring_by_index", "full_width"): ("49218a4d8f97f5f6", "d7348f0f3a885f9e"),
    ("substring_by_index", "length"): ("9deb3a65a7ba892b", "0511b3239c115926"),
    ("substring_by_index", "paper"): ("0221c6e199f79d33", "d7348f0f3a885f9e"),
    ("substring_by_index", "quick"): ("95c44aaeb8ebb12c", "606773ad07a9eb42"),
    ("substring_by_index", "reduced"): ("49218a4d8f97f5f6", "d7348f0f3a885f9e"),
    ("substring_by_prefix", "length"): ("3d93c22635669843", "1df45be440d9d587"),
    ("substring_by_prefix", "paper"): ("810aecdb4f53b6ca", "e82f257a502e3dff"),
    ("substring_by_prefix", "quick"): ("3d93c22635669843", "1df45be440d9d587"),
}


@pytest.mark.parametrize(("name", "scale"), GENERATED)
def test_batches_held_out_text_and_problems_are_what_they_were(name, scale):
    cfg = load(f"task={name}", f"scale={scale}")
    task, t, digests = config.build_task(cfg), cfg.train, (hashlib.sha256(), hashlib.sha256())
    batches = [data.training_batch(task, 0, k, t.batch_size, t.seq_len) for k in (2, 1, 0)][::-1]  # the last one first
    held_out = data.evaluation_text(task, 8, t.seq_len)
    for digest, found in zip(digests, (batches, [held_out]), strict=True):
        for text in found:
            for tokens in (text.inputs_BT, text.targets_BT):
                digest.update(tokens.numpy().astype("<i8").tobytes())
    for problem in data.evaluation_problems(task, 200):
        digests[1].update(f"{problem.prompt}\n{problem.completion}\n{problem.attributes}\n".encode())
    assert tuple(digest.hexdigest()[:16] for digest in digests) == GOLDEN.get((name, scale)), (
        f"{name} writes other text or problems than those of recorded runs. If a recipe is new or its numbers were "
        "changed, put the new digests here. If the task's code was changed and you mean it, raise its `version` too, "
        "so that no checkpoint is resumed with other text than it was trained on."
    )


@pytest.mark.parametrize("name", sorted({*TASKS} - {"text"}))
@pytest.mark.parametrize("loss_on", ["all", "answer"])
def test_targets_are_the_next_tokens_where_they_count(name, loss_on):
    """In training as `loss_on` says, in evaluation those of answers."""
    task = config.build_task(load(f"task={name}"))
    task.loss_on = loss_on
    text = task.text(data.generator(0, data.TRAINING_TEXT, 0), 4, 101)
    batch = data.training_batch(task, 0, 0, 4, 100)
    assert batch.inputs_BT.tolist() == text.tokens[:, :-1].tolist()
    counted = (text.answer_position > 0) | (loss_on == "all")
    assert batch.targets_BT.tolist() == np.where(counted, text.tokens.astype(int), data.IGNORED)[:, 1:].tolist()
    held_out = data.evaluation_text(task, 4, 100)
    assert torch.equal(held_out.targets_BT != data.IGNORED, held_out.answer_position_BT > 0)
    answers = held_out.answer_position_BT[:, :-1] > 0
    assert torch.equal(held_out.inputs_BT[:, 1:][answers], held_out.targets_BT[:, :-1][answers])


def test_streams_seeds_and_steps_do_not_meet():
    parts = [(seed, stream, k) for seed in (0, 1, 5) for stream in range(5) for k in (0, 1, 2)]
    assert len({tuple(data.generator(*part).integers(2**62, size=2)) for part in parts}) == len(parts)
    assert data.torch_seed(5, data.DROPOUT, 7) == data.torch_seed(5, data.DROPOUT, 7)
    assert len({data.torch_seed(5, data.DROPOUT, k) for k in range(100)}) == 100
