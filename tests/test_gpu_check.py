"""scripts/gpu_check.py and what it shares with the benchmark, tried at tiny size on a CPU."""

import sys
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT
from trained import load

sys.path.insert(0, str(ROOT / "scripts"))
import gpu_check
import peers
import timing


def checked(monkeypatch, capsys, *arguments: str) -> tuple[str | int | None, str]:
    """How the script ends, and what it shows."""
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", *arguments])
    with pytest.raises(SystemExit) as end:
        gpu_check.main()
    return end.value.code, capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_without_a_gpu_that_is_all_it_says(monkeypatch, capsys):
    code, shown = checked(monkeypatch, capsys)
    assert shown == ""
    assert "no cuda device" in code
    assert "\n" not in code


def test_on_a_cpu_at_tiny_size_it_says_what_works_how_fast_and_for_how_long(monkeypatch, capsys):
    code, shown = checked(monkeypatch, capsys, "--device", "cpu", "--tiny", "--minutes", "0")
    assert code == 0
    assert "Works: 6 of 6" in shown  # linear attention has no scores for a bias
    rows = [line.rsplit(maxsplit=4) for line in shown.splitlines() if " false " in line]
    assert [row[0].strip() for row in rows] == list(gpu_check.SHAPES)
    assert all(float(row[2]) > 0 for row in rows)
    assert "96 runs" in shown
    assert max(map(len, shown.splitlines())) <= 82


def test_what_fails_is_named_and_it_exits_with_1(monkeypatch, capsys):
    update = gpu_check.update

    def wrong(trainer, step):
        if trainer.cfg.names.position == "t5_bias":
            raise RuntimeError("Expected all tensors to be on the same device\nand more")
        loss, *rest = update(trainer, step)
        return (loss * (1 + (trainer.cfg.train.precision == "bfloat16")), *rest)

    monkeypatch.setattr(gpu_check, "update", wrong)
    assert not gpu_check.what_works("cpu", ["rope", "t5_bias"])
    shown = capsys.readouterr().out
    assert "Works: 2 of 6" in shown
    assert "t5_bias softmax float32: RuntimeError: Expected all tensors to be on the same device\n" in shown
    assert "rope linear bfloat16: AssertionError: loss and gradient norm" in shown


def test_the_share_at_20m_is_held_against_what_is_asked(capsys):
    slow, fast = (gpu_check.Speed(0.1, 1, share) for share in (0.39, 0.41))
    gpu_check.judge({("20M Index", "false"): slow, ("quick", "false"): fast})
    assert "not reached" in capsys.readouterr().out
    gpu_check.judge({("20M Index", "false"): slow, ("20M Index", "true"): fast})
    shown = capsys.readouterr().out
    assert "41%" in shown
    assert "not reached" not in shown


def test_the_time_of_the_paper_table_is_that_of_its_steps_and_evaluations(capsys):
    """32 runs a task: 5,000 steps and 21 evaluations of Index and Addition, 4,096 and 33 of Prefix."""
    speeds = {(shape, "false"): gpu_check.Speed(0.01, 1, 0.1) for shape in gpu_check.SHAPES}
    gpu_check.paper_table(speeds, dict.fromkeys(gpu_check.SHAPES, 1.0))
    steps, evaluations = 32 * (5000 + 5000 + 4096) * 0.01 / 3600, 32 * (21 + 21 + 33) / 3600
    assert f"{steps:.1f} to train and at most {evaluations:.1f} to evaluate" in " ".join(
        capsys.readouterr().out.split()
    )
    gpu_check.paper_table({}, {})
    assert "no estimate" in capsys.readouterr().out


def test_flop_of_a_step_are_six_for_each_weight_and_token_and_attention():
    cfg = load("task=substring_by_index", "scale=paper")
    linear, whole = timing.flop(cfg, 40)
    weights, tokens = 12 * 512**2 * 6 + 512 * 40, 32 * 640
    assert linear == 6 * weights * tokens
    assert whole - linear == 3 * 4 * tokens * 320.5 * 512 * 6


def test_a_watch_says_who_else_was_at_work_and_what_was_uneven(monkeypatch):
    clock = iter([0.0, *(0.0, 1.0, 0.0, 1.0, 0.0, 9.0), 10.0])
    monkeypatch.setattr(timing, "busy_seconds", iter([100.0, 112.0]).__next__)
    monkeypatch.setattr(timing, "own_seconds", iter([5.0, 13.0]).__next__)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=clock.__next__))
    watch = timing.Watch(busy=timing.busy_seconds(), own=timing.own_seconds(), began=timing.time.perf_counter())
    calls = []
    assert watch.compare({"one": lambda: calls.append(1)}, 3, warm=0, what="step") == {"one": [1.0, 1.0, 9.0]}
    assert len(calls) == 3
    told = watch.disturbance()
    assert "0.40 cores" in told  # 12 core seconds of the machine, 8 of them ours, in 10
    assert "step one took 9.0 times" in told


def test_an_undisturbed_watch_says_nothing(monkeypatch):
    for name in ("busy_seconds", "own_seconds"):
        monkeypatch.setattr(timing, name, lambda: 1.0)
    watch = timing.Watch()
    watch.spreads = {"one": 1.4}
    assert watch.disturbance() is None


def test_nanogpt_is_causal_and_has_the_parameters_of_its_readme():
    """GPT-2's size: 124.3M parameters without biases, its embeddings tied."""
    with torch.device("meta"):
        model = peers.NanoGPT(50304, 768, 12, 12, 1024)
    assert sum(p.numel() for p in model.parameters()) == 50304 * 768 + 1024 * 768 + 12 * (12 * 768**2 + 2 * 768) + 768
    torch.manual_seed(0)
    model, tokens_BT = peers.NanoGPT(9, 16, 2, 2, 8), torch.arange(8).unsqueeze(0)
    other_BT = torch.cat([tokens_BT[:, :5], torch.zeros(1, 3, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(model(tokens_BT)[:, :5], model(other_BT)[:, :5])
    assert not torch.equal(model(tokens_BT)[:, 5:], model(other_BT)[:, 5:])
