"""Every scheme trains, is evaluated and generates on the simulated GPU of pretended.py, with the
CPU's numbers.
"""

import pretended  # before any backward pass
import pytest
from conftest import TINY, only_folder, schemes_by_class
from pretended import pretending, resolved
from trained import assert_same_end, load, raising_signal_at

from rope_lab.model import device
from rope_lab.train import loop as train
from rope_lab.train.trainer import build, evaluate_now, resolve, update, write_samples

SMALL = [*TINY, "eval.problems=3", "eval.sequences=1", "task.string_length=6", "train.seq_len=32"]


def settings(scheme: str = "roper", attention: str = "softmax", *more: str) -> list[str]:
    return [*SMALL, f"position={scheme}", f"model.attention={attention}", *more]


@pytest.mark.slow
def test_linear_attention_has_cpu_numbers_and_one_wait_per_step():
    check_device("roper", "linear")


@pytest.mark.parametrize("scheme", schemes_by_class(fast=["roper", "t5_bias"]))
def test_the_device_has_cpu_numbers_and_one_wait_per_step(scheme):
    check_device(scheme, "softmax")


def check_device(scheme: str, attention: str) -> None:
    """Over two training steps, an evaluation and completions."""
    words = settings(scheme, attention)
    cpu = build(resolve(load(*words)))
    expected = [update(cpu, k) for k in range(2)]
    with pretending() as seen:
        made = build(resolved(load(*words)))
        for k, numbers in enumerate(expected):
            seen.clear()
            assert update(made, k) == pytest.approx(numbers, rel=2e-6), "other numbers"
            assert seen == ["to the CPU"], f"waits: {seen}"  # loss and norms, read together
        found = evaluate_now(made).metrics
        seen.clear()
        samples = write_samples(made)
        assert len(seen) <= made.cfg.train.seq_len + 20  # one per token, some per batch
    assert found["eval/loss"] == pytest.approx(evaluate_now(cpu).metrics["eval/loss"], rel=1e-6)
    assert samples == write_samples(cpu)


@pytest.mark.parametrize("scheme", ["sinusoidal", "xpos", "randomized_rope", "alibi", "pope_roper"])
def test_a_device_without_float64_takes_its_angles_from_the_cpu(scheme, monkeypatch):
    """Such as MPS."""
    monkeypatch.setattr(device, "WITHOUT_FLOAT64", {pretended.NAME})
    expected = update(build(resolve(load(*settings(scheme)))), 0)
    with pretending():
        assert update(build(resolved(load(*settings(scheme)))), 0) == pytest.approx(
            expected, rel=2e-6
        )


@pytest.mark.slow
def test_a_whole_run_is_stopped_resumed_and_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "resolve", resolved)
    monkeypatch.setattr(
        pretended.Pretended, "__reduce_ex__", lambda x, protocol: x.inner.__reduce_ex__(protocol)
    )
    with pretending():
        for out, stop in (("whole", False), ("parts", True)):
            cfg = load(
                *settings("roper", "softmax", "model.dropout=0.1", "eval.lengths=[13]"),
                f"out={tmp_path / out}",
            )
            if stop:
                with monkeypatch.context() as patch:
                    patch.setattr(train, "update", raising_signal_at(4, train.update))
                    train.train(cfg)
            content = train.train(cfg)
            assert content["status"] == "finished"
            assert content["slices"]["length"]["13"][0] == 3
    assert_same_end(*(only_folder(tmp_path / out) for out in ("whole", "parts")))
