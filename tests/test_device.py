"""Every scheme trains, is evaluated and writes on a device that is none, where it meets what it would on a GPU.

The numbers are compared with the CPU's. Planted faults show that what fails on a GPU, or keeps it waiting, fails here.
pretended.py has the device.
"""

import platform
import queue
import resource
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pretended  # before anything goes backward
import pytest
import torch
import torch.nn.functional as F
from conftest import SCHEMES, TINY, only_folder
from pretended import NOT_HERE, pretending, resolved
from torch import nn
from trained import assert_same_end, load, raising_signal_at

from rope_lab.model import attention, device, positions
from rope_lab.model import transformer as model
from rope_lab.model.hooks import PositionScheme
from rope_lab.train import checkpoint, config, data, trainer
from rope_lab.train import loop as train
from rope_lab.train.trainer import Trainer, build, evaluate_lengths, evaluate_now, resolve, update, write_samples

SMALL = [*TINY, "eval.problems=3", "eval.sequences=1"]
ALL_COMBINATIONS = [(s, a, p) for s in SCHEMES for a in ("softmax", "linear") for p in ("float32", "bfloat16")]
FEW = [
    *((scheme, "softmax", "float32") for scheme in SCHEMES),
    *(("roper", *rest) for rest in (("linear", "float32"), ("linear", "bfloat16"), ("softmax", "bfloat16"))),
    *((scheme, "softmax", "bfloat16") for scheme in ("t5_bias", "pope_roper")),
]
WAITED = "wait: to the CPU"  # for the loss and norms of a step, which are read together


def settings(scheme: str = "roper", attention: str = "softmax", precision: str = "float32", *more: str) -> list[str]:
    return [*SMALL, f"position={scheme}", f"model.attention={attention}", f"train.precision={precision}", *more]


def there(overrides: list[str]) -> Trainer:
    return build(resolved(load(*overrides)))


def here(overrides: list[str]) -> Trainer:
    return build(resolve(load(*overrides)))


def check(scheme: str, attention: str, precision: str) -> None:
    """Two steps, an evaluation and completions: the CPU's numbers, and one wait a step."""
    overrides = settings(scheme, attention, precision)
    exact = precision == "float32"
    cpu = here(overrides)
    expected = [update(cpu, k) for k in range(2)]
    with pretending() as seen:
        made = there(overrides)
        for k, numbers in enumerate(expected):
            seen.clear()
            assert update(made, k) == pytest.approx(numbers, rel=2e-6 if exact else 2e-3), "other numbers"
            waits = Counter(each for each in seen if each != "copy")
            assert waits == {WAITED: 1}, f"waits: {waits}"
        with trainer.autocast(made.cfg, made.device):
            computed = made.model(made.text.inputs_BT).dtype
        assert computed == getattr(torch, precision), computed
        found = evaluate_now(made).metrics
        seen.clear()
        samples = write_samples(made)
        tokens = made.cfg.train.seq_len
        assert sum(each != "copy" for each in seen) <= tokens + 20  # one a token, some for a batch
    assert found["eval/loss"] == pytest.approx(evaluate_now(cpu).metrics["eval/loss"], rel=1e-6 if exact else 1e-3)
    if exact:
        assert samples == write_samples(cpu)
    assert all(sample["written"] for sample in samples)


@pytest.mark.parametrize(("scheme", "attention", "precision"), FEW)
def test_the_device_has_the_numbers_of_the_cpu_and_is_waited_for_once_a_step(scheme, attention, precision):
    check(scheme, attention, precision)


@pytest.mark.torture
@pytest.mark.parametrize(("scheme", "attention", "precision"), [each for each in ALL_COMBINATIONS if each not in FEW])
def test_the_device_has_the_numbers_of_the_cpu_in_every_combination(scheme, attention, precision):
    try:
        check(scheme, attention, precision)
    except config.ConfigError as error:
        if "linear attention" not in str(error):
            raise


@pytest.mark.parametrize("scheme", ["sinusoidal", "xpos", "randomized_rope", "alibi", "pope_roper"])
def test_a_device_without_float64_takes_its_angles_from_the_cpu(scheme, monkeypatch):
    """As MPS."""
    monkeypatch.setattr(device, "WITHOUT_FLOAT64", {pretended.NAME})
    expected = update(here(settings(scheme)), 0)
    with pretending():
        assert update(there(settings(scheme)), 0) == pytest.approx(expected, rel=2e-6)


def test_a_run_with_dropout_and_longer_problems_is_trained_and_evaluated(monkeypatch):
    with pretending():
        made = there(settings("rope", "softmax", "bfloat16", "model.dropout=0.1", "eval.lengths=[13]"))
        norms = [update(made, 0)[1] for _ in range(2)]
        slices = evaluate_lengths(made)
    assert all(0 < norm < 10 for norm in norms)
    assert slices["length"]["13"][0] == 3


def test_a_whole_run_is_stopped_resumed_and_finished(tmp_path, monkeypatch):
    """Checkpoints are read as on a GPU: straight to the device. Only their pickling is the CPU's."""
    monkeypatch.setattr(train, "resolve", resolved)
    load_on_cpu = checkpoint.load

    def load_there(folder, where="cpu"):
        saved = load_on_cpu(folder)
        return saved and pretended.tree_map_only(torch.Tensor, lambda x: x.to(where), saved)

    monkeypatch.setattr(checkpoint, "load", load_there)
    monkeypatch.setattr(pretended.Pretended, "__reduce_ex__", lambda x, protocol: x.inner.__reduce_ex__(protocol))
    with pretending():
        for out, stop in (("whole", False), ("parts", True)):
            cfg = load(*settings(), f"out={tmp_path / out}")
            if stop:
                with monkeypatch.context() as patch:
                    patch.setattr(train, "update", raising_signal_at(4, train.update))
                    with pytest.raises(SystemExit):
                        train.train(cfg)
            assert train.train(cfg)["status"] == "finished"
    assert_same_end(*(only_folder(tmp_path / out) for out in ("whole", "parts")))


# Planted faults: each is something that a GPU would not bear, or would be kept waiting by.
FAULTS = []


def fault(fails: str, scheme: str = "rope", precision: str = "float32") -> Callable:
    """Marks what plants a fault into runs of a scheme, and how `check` fails then."""

    def mark(plant: Callable) -> Callable:
        FAULTS.append(pytest.param(plant, scheme, precision, fails, id=plant.__name__))
        return plant

    return mark


@fault("waits")
def tables_are_copied_by_each_step(patch):
    patch.setattr(PositionScheme, "_apply", nn.Module._apply)


@fault(NOT_HERE, "alibi")
def a_table_stays_on_the_cpu(patch):
    bias = positions.Alibi.bias
    patch.setattr(positions.Alibi, "bias", lambda self, at_T, at_S: bias(self, at_T.cpu(), at_S.cpu()))


@fault(NOT_HERE, "learned")
def positions_are_made_on_the_cpu(patch):
    patch.setattr(positions.Learned, "prepare", lambda self, pos, dtype: torch.arange(len(pos)))


@fault("waits", "randomized_rope")
def random_positions_are_copied_by_each_step(patch):
    patch.setattr(positions, "send", lambda x, device: x)


@fault(NOT_HERE)
def a_mask_is_made_on_the_cpu(patch):
    def scaled_dot_product(q_BHTK, k_BHSK, v_BHSK, bias):
        future_TS = torch.ones(q_BHTK.shape[2], k_BHSK.shape[2], dtype=torch.bool).triu(1)
        scores = (q_BHTK @ k_BHSK.transpose(-1, -2)).masked_fill(future_TS, -torch.inf)
        return (scores.softmax(-1) @ v_BHSK).transpose(1, 2)

    patch.setattr(attention, "scaled_dot_product", scaled_dot_product)


@fault("waits")
def a_number_is_read_in_a_layer(patch):
    feed_forward = model.Layer.feed_forward

    def checked(self, x_BTD):
        assert x_BTD.sum().item() < 1e9
        return feed_forward(self, x_BTD)

    patch.setattr(model.Layer, "feed_forward", checked)


@fault("waits")
def targets_are_chosen_by_truth_values(patch):
    cross_entropy = F.cross_entropy

    def of_counted(logits_NV, targets_N, ignore_index):
        counted = targets_N != ignore_index
        return cross_entropy(logits_NV[counted], targets_N[counted])

    patch.setattr(F, "cross_entropy", of_counted)


@fault("waits")
def gradients_are_clipped_in_python(patch):
    def clip(parameters, most):
        for parameter in parameters:
            if (norm := parameter.grad.norm()) > most:
                parameter.grad *= most / norm
        return norm

    patch.setattr(nn.utils, "clip_grad_norm_", clip)


@fault(NOT_HERE)
def a_batch_stays_on_the_cpu(patch):
    patch.setattr(data.Batch, "to", lambda batch, device: batch)


@fault("waits")
def a_batch_is_not_pinned(patch):
    for module in (data, device):
        patch.setattr(module, "pinned", lambda x, device: x)


@fault("waits")
def a_batch_is_waited_for(patch):
    patch.setattr(data, "send", lambda x, device: x.to(device))


@fault(NOT_HERE)
def the_kv_cache_is_on_the_cpu(patch):
    def new_cache(self, rows, slots, k_width, v_width):
        return attention.KVCache(*(torch.zeros(rows, self.n_heads, slots, width) for width in (k_width, v_width)))

    patch.setattr(model.Attention, "new_cache", new_cache)


@fault(NOT_HERE)
def the_optimizer_keeps_its_state_on_the_cpu(patch):
    step = torch.optim.AdamW.step

    def step_and_forget(self):
        step(self)
        for parameter, state in self.state.items():
            state["exp_avg"] = torch.zeros(parameter.shape)

    patch.setattr(torch.optim.AdamW, "step", step_and_forget)


@fault("other numbers", "pope")
def scores_are_scaled_by_the_width_of_keys(patch):
    attend = F.scaled_dot_product_attention
    patch.setattr(F, "scaled_dot_product_attention", lambda *args, scale, **kwargs: attend(*args, **kwargs))


@fault("other numbers", "t5_bias")
def the_bias_learns_nothing(patch):
    attend = attention.scaled_dot_product
    patch.setattr(attention, "scaled_dot_product", lambda q, k, v, bias: attend(q, k, v, bias.detach()))


@fault("float32", precision="bfloat16")
def autocast_is_that_of_the_cpu(patch):
    patch.setattr(trainer, "autocast", lambda cfg, device: torch.autocast("cpu", torch.bfloat16))


@pytest.mark.parametrize(("plant", "scheme", "precision", "fails"), FAULTS)
def test_a_planted_fault_is_found(plant, scheme, precision, fails, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError), match=fails):
        check(scheme, "softmax", precision)


def test_nothing_is_seen_of_the_device_elsewhere():
    """Other tests of this process meet a torch without accelerator."""
    assert not torch.accelerator.is_available()
    with pretending():
        assert torch.accelerator.is_available()
        torch.zeros(2, device=pretended.NAME)
    assert torch.inference_mode is not torch.no_grad
    with torch.random.fork_rng():
        torch.manual_seed(0)
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.zeros(2, device=pretended.NAME)


def test_batches_made_ahead_are_those_made_one_by_one():
    """In any order of k; and what making one raises is raised where it is asked for."""
    task, asked = config.build_task(load()), []

    def make(k):
        asked.append(k)
        if k == 9:
            raise ValueError("no such batch")
        return data.training_batch(task, 0, k, 2, 100)

    made = device.ahead(make)
    for k in (0, 1, 2, 7, 8):
        assert torch.equal(made(k).inputs_BT, data.training_batch(task, 0, k, 2, 100).inputs_BT)
    with pytest.raises(ValueError, match="no such batch"):
        made(9)
    assert asked[:7] == [0, 1, 2, 3, 7, 8, 9]  # each once


def test_the_next_batch_is_made_before_it_is_asked_for():
    made = queue.SimpleQueue()
    device.ahead(made.put)(4)
    assert [made.get(timeout=60), made.get(timeout=60)] == [4, 5]


def test_an_evaluation_reads_as_many_tokens_at_once_as_a_gpu_has_memory_for(monkeypatch):
    read, gib, cpu = [], 2**30, torch.device("cpu")
    for total in (8 * gib, 64 * gib, 10_000 * gib):
        found = SimpleNamespace(total_memory=total)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, found=found: found)
        read.append(device.tokens_at_once(torch.device("cuda"), 40_000))
        assert device.room(torch.device("cuda"), 1) == total // 8
    assert read == [gib // 40_000, 8 * gib // 40_000, 2**18]
    assert (device.tokens_at_once(cpu, 40_000), device.room(cpu, 1)) == (2**14, 1)  # as kept runs were evaluated


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_memory_that_is_freed_is_kept_for_what_comes_next():
    def pages_cleared() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(10 * 2**20)  # 40 MiB: glibc would return them at once
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    device.keep_freed_memory()
    assert [pages_cleared() for _ in range(32)][-4:] == [0] * 4
