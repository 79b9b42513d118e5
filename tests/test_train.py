"""Runs from the outside: what they record, that they repeat to the bit, and that they go on where they stopped."""

import functools
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import types
from itertools import pairwise

import pytest
import safetensors.torch
import torch
from conftest import SCHEMES, TINY, only_folder
from trained import assert_same_end, command, load, metrics_of, raising_signal_at, run, spawn, stopped_run

from rope_lab import sample
from rope_lab.launch import main
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, config, data, provenance, tracking
from rope_lab.train import loop as train
from rope_lab.train import run as runs
from rope_lab.train.generate import likeliest
from rope_lab.train.lease import Lease
from rope_lab.train.trainer import build, build_model
from tasks.substring_by_index import SubstringByIndex

ROW = {"step", "sequences", "tokens", "seconds"}


def test_a_run_records_what_the_contract_says(tiny, tmp_path):
    run([*tiny, "eval.problems=128"])
    folder = only_folder(tmp_path / "runs")
    content = json.loads((folder / "run.json").read_text())
    assert content["status"] == "finished"
    assert (content["task"], content["position"], content["scale"]) == ("substring_by_index", "roper", "quick")
    assert content["seed"] == 0
    assert content["progress"].keys() == {"steps", "sequences", "tokens", "seconds"}
    assert content["progress"]["steps"] == 6
    assert content["progress"]["sequences"] == 6 * 4
    assert content["progress"]["tokens"] == 6 * 4 * 64
    assert content["run_id"] in folder.name
    assert len(content["samples"]) == 8
    assert content["floor"]["loss"] == 0
    assert content["slices"].keys() == {"answer_position", "index", "suffix_length"}
    assert sum(count for count, _ in content["slices"]["index"].values()) == 128
    assert content["recipe_id"]
    assert content["config"]["train"]["steps"] == 6
    assert content["parameters"] == sum(v.numel() for v in checkpoint.load(folder)["model"].values())
    assert {"code", "git", "versions", "hardware", "start", "end"} <= content["provenance"].keys()
    assert content["provenance"]["git"].keys() == {"commit", "dirty"}
    assert content["provenance"]["hardware"]["threads"] == 1

    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 2, 3, 4, 6]
    assert all(row.keys() >= ROW for row in rows)
    assert all(row["sequences"] == row["step"] * 4 and row["tokens"] == row["step"] * 4 * 64 for row in rows)
    evaluated = [row["step"] for row in rows if "eval/accuracy" in row]
    assert evaluated == [0, 3, 6]
    assert rows[-1].keys() == ROW | {
        *("train/loss", "train/lr", "train/grad_norm"),
        *("eval/loss", "eval/accuracy", "eval/score", "eval/token_accuracy"),
    }
    assert content["metrics"] == {k: v for row in rows for k, v in row.items() if "/" in k}


def test_the_first_loss_is_that_of_a_model_that_knows_nothing(tiny, tmp_path):
    """And the first training loss is what its first batches cost the initial model, computed by hand."""
    run([*tiny, "train.log_every=1", "train.steps=1"])
    rows = metrics_of(only_folder(tmp_path / "runs"))
    cfg = load(*tiny)
    task = config.build_task(cfg)
    model = build_model(cfg, len(task.alphabet))
    batch = data.training_batch(task, 0, 0, 4, 64)
    chosen = batch.targets_BT != data.IGNORED
    nats = -model(batch.inputs_BT).log_softmax(-1)[chosen].gather(1, batch.targets_BT[chosen][:, None])
    assert rows[-1]["train/loss"] == pytest.approx(nats.mean().item(), rel=1e-5)


@pytest.mark.parametrize(("decay", "factors"), [("none", [1, 1]), ("linear", [1, 1 / 2]), ("cosine", [1, 1 / 2])])
def test_the_loop_is_these_few_lines_of_plain_torch(tiny, tmp_path, decay, factors):
    """Batches 0, 1, …, the schedule, clipping, AdamW with its betas and weight decay: weights agree to the bit."""
    settings = ["train.steps=4", "train.warmup=2", "train.lr=1e-2", f"train.decay={decay}", "train.clip=0.05"]
    settings += ["train.weight_decay=0.3", "train.beta1=0.8", "train.beta2=0.9", "seed=5"]
    run([*tiny, *settings])
    cfg = load(*tiny, *settings)
    task = config.build_task(cfg)
    torch.set_num_threads(1)
    model = build_model(cfg, len(task.alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.8, 0.9), weight_decay=0.3, fused=True)
    losses, norms = [], []
    for k, lr in enumerate([0.005, 0.01, *(0.01 * f for f in factors)]):
        batch = data.training_batch(task, 5, k, 4, 64)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch.inputs_BT).flatten(0, 1), batch.targets_BT.flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05).item())
        optimizer.step()
        losses.append(loss.item())
    assert min(norms) > 0.05
    folder = only_folder(tmp_path / "runs")
    for name, value in checkpoint.load(folder)["model"].items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=0)
    rows = [row for row in metrics_of(folder) if "train/loss" in row]
    assert [row["step"] for row in rows] == [2, 4]
    assert [row["train/loss"] for row in rows] == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:]) / 2])
    assert [row["train/grad_norm"] for row in rows] == pytest.approx([norms[1], norms[3]])
    assert [row["train/lr"] for row in rows] == pytest.approx([0.01, 0.01 * factors[1]])


def test_every_scheme_sees_the_same_batches(tiny, tmp_path, monkeypatch):
    seen = []

    def watched(lab, step, update=train.update):
        hook = lab.model.register_forward_pre_hook(lambda module, inputs: seen[-1].update(inputs[0].numpy().tobytes()))
        try:
            return update(lab, step)
        finally:
            hook.remove()

    monkeypatch.setattr(train, "update", watched)
    for scheme in SCHEMES:
        seen.append(hashlib.sha256())
        run([*tiny, f"position={scheme}"])
    assert len({digest.hexdigest() for digest in seen}) == 1


def test_dropout_drops_in_training_alone_and_anew_at_each_step(tiny, monkeypatch):
    cfg = load(*tiny, "model.dropout=0.5")
    made = build(cfg)
    made.optimizer.step = lambda: None
    batch = data.training_batch(made.task, 0, 0, 4, 64)
    monkeypatch.setattr(data, "training_batch", lambda *_: batch)
    losses = [train.update(made, step)[0] for step in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    assert train.evaluate_now(made).metrics == train.evaluate_now(made).metrics
    assert train.write_samples(made) == train.write_samples(made)
    assert made.model.training


@pytest.mark.parametrize("extra", [[], ["model.dropout=0.2", "train.warmup=5", "train.decay=cosine", "seed=7"]])
def test_a_run_repeats_to_the_bit_and_goes_on_from_any_step_to_the_bit(tiny, tmp_path, extra, monkeypatch):
    for name in ("one", "two"):
        run([*tiny, *extra, f"out={tmp_path / name}"])
    whole = only_folder(tmp_path / "one")
    assert_same_end(whole, only_folder(tmp_path / "two"))

    for stop_at in range(1, 6):
        out = f"out={tmp_path / f'stopped-{stop_at}'}"
        with monkeypatch.context() as patch:
            patch.setattr(train, "update", raising_signal_at(stop_at, train.update))
            with pytest.raises(SystemExit) as exit:
                run([*tiny, *extra, out])
        assert exit.value.code == 128 + signal.SIGTERM
        folder = only_folder(tmp_path / f"stopped-{stop_at}")
        content = json.loads((folder / "run.json").read_text())
        assert (content["status"], content["progress"]["steps"]) == ("interrupted", stop_at)
        assert run([*tiny, *extra, out])["status"] == "finished"
        assert_same_end(whole, folder)


def test_a_run_killed_between_checkpoints_goes_on_to_the_bit(tiny, finished, tmp_path, monkeypatch):
    """It dies after metrics of later steps were written than the last checkpoint has."""

    def die(lab, step, update=train.update):
        if step == 5:
            raise ArithmeticError("killed")
        return update(lab, step)

    with monkeypatch.context() as patch:
        patch.setattr(train, "update", die)
        with pytest.raises(ArithmeticError):
            run(tiny)
    folder = only_folder(tmp_path / "runs")
    content = json.loads((folder / "run.json").read_text())
    assert content["status"] == "failed"
    assert "ArithmeticError: killed" in content["error"]
    assert metrics_of(folder)[-1]["step"] == 4  # the last checkpoint is of step 3
    content["status"] = "running"  # as after a power cut: nobody said that it failed
    (folder / "run.json").write_text(json.dumps(content))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "sequ')
    resumed = run(tiny)
    assert resumed["status"] == "finished"
    assert "error" not in resumed
    assert_same_end(finished, folder)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_run_killed_at_its_very_end_still_has_everything(tiny, tmp_path, dropout):
    """The last checkpoint was written, and the process died before run.json was."""
    tiny.append(f"model.dropout={dropout}")
    whole = run(tiny)
    folder = only_folder(tmp_path / "runs")
    left = {k: v for k, v in whole.items() if k not in ("slices", "samples")} | {"status": "running"}
    (folder / "run.json").write_text(json.dumps(left))
    again = run(tiny)
    for key in ("status", "metrics", "slices", "samples", "progress"):
        assert again[key] == whole[key]


def test_a_finished_run_is_returned_and_fresh_begins_anew(tiny, tmp_path, capsys, caplog, monkeypatch):
    first = run(tiny)
    folder = only_folder(tmp_path / "runs")
    written = (folder / "run.json").stat().st_mtime_ns
    assert run(tiny) == first
    assert (folder / "run.json").stat().st_mtime_ns == written
    assert "has already finished; fresh=true trains it again" in capsys.readouterr().out
    assert not caplog.text
    made = []
    monkeypatch.setattr(train, "update", lambda lab, step, update=train.update: made.append(step) or update(lab, step))
    again = run([*tiny, "fresh=true"])
    assert made == [0, 1, 2, 3, 4, 5]
    assert again["metrics"] == first["metrics"]
    assert again["provenance"]["earlier"] == []


def test_fresh_begins_anew_once_however_often_a_queue_begins_its_job(tiny, tmp_path, monkeypatch):
    """What was begun before the job was asked for is deleted, what itself has begun is resumed."""
    made, real = [], train.update
    monkeypatch.setattr(train, "update", lambda trainer, step: made.append(step) or real(trainer, step))
    fresh, job = load(*tiny, "fresh=true"), "2026-01-01T00:00:01+00:00"
    monkeypatch.setattr(provenance, "now", lambda: "2026-01-01T00:00:00+00:00")
    run(tiny)
    monkeypatch.setattr(provenance, "now", lambda: "2026-01-01T00:00:02+00:00")
    with monkeypatch.context() as patch:
        patch.setattr(train, "update", raising_signal_at(4, train.update))
        with pytest.raises(SystemExit):
            train.train(fresh, since=job)
    train.train(fresh, since=job)
    train.train(fresh, since=job)  # returned
    assert made == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]


def test_other_code_is_warned_of_when_finished_and_refused_when_not(tiny, tmp_path, monkeypatch, caplog):
    today = provenance.code_digest(load(*tiny))
    with monkeypatch.context() as patch:
        patch.setattr(train, "update", raising_signal_at(3, train.update))
        with pytest.raises(SystemExit):
            run(tiny)
    monkeypatch.setattr(provenance, "code_digest", lambda cfg: "another")
    with pytest.raises(ConfigError, match=r"begun by other code .*fresh=true starts over, other_code=true"):
        run(tiny)
    assert run([*tiny, "other_code=true"])["status"] == "finished"
    monkeypatch.setattr(provenance, "code_digest", lambda cfg: "a third")
    source = run(tiny)["provenance"]
    assert source["code"] == "another"
    assert [earlier["code"] for earlier in source["earlier"]] == [today]
    assert "it was run by other code (another, now a third)" in caplog.text


def test_a_model_that_is_not_finite_at_an_evaluation_has_diverged(tiny, tmp_path):
    content = run([*tiny, "train.lr=1e30", "train.warmup=0", "train.clip=1e30", "train.steps=1"])
    assert content["status"] == "diverged"
    assert content["error"] in ("the held-out loss is nan", "the norm of the weights is inf")
    folder = only_folder(tmp_path / "runs")
    assert "NaN" not in (folder / "run.json").read_text() + (folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize("where", ["loss", "gradient", "weight"])
def test_what_is_not_finite_stops_the_run_before_the_step(tiny, tmp_path, monkeypatch, where, capsys):
    before = {}

    def poison(lab, step, update=train.update):
        if step == 4:
            if where == "weight":  # one that nothing is seen of: its ReLU gives 0, and so is its gradient
                with torch.no_grad():
                    lab.model.layers[0].up.bias[0] = -torch.inf
            before.update({k: v.clone() for k, v in lab.model.state_dict().items()})
            if where == "loss":
                patch.setattr(
                    torch.nn.functional,
                    "cross_entropy",
                    lambda *a, f=torch.nn.functional.cross_entropy, **k: f(*a, **k) * float("nan"),
                )
            elif where == "gradient":
                next(lab.model.parameters()).register_hook(lambda g: g.index_fill(0, torch.tensor([0]), float("inf")))
        if step == 5:
            raise AssertionError("the run went on")
        try:
            return update(lab, step)
        finally:
            before["after"] = lab.model.state_dict()

    with monkeypatch.context() as patch:
        patch.setattr(train, "update", poison)
        content = run(tiny)
    assert content["status"] == "diverged"
    found = re.search(
        r"step 4 was not taken: loss (.*), gradient norm (.*), weight norm (.*), learning rate .*, batch 4 of seed 0",
        content["error"],
    )
    assert [g in ("nan", "inf") for g in found.groups()].index(True) == ["loss", "gradient", "weight"].index(where)
    after = before.pop("after")
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert "diverged after 4 steps" in capsys.readouterr().out
    assert run(tiny) == content  # an outcome like another: it stays


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_each_signal_has_an_exit_status_of_its_own(tiny, tmp_path, monkeypatch, number):
    monkeypatch.setattr(train, "update", raising_signal_at(3, train.update, number))
    with pytest.raises(SystemExit) as exit:
        run(tiny)
    assert exit.value.code == 128 + number
    folder = only_folder(tmp_path / "runs")
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert checkpoint.load(folder)["step"] == 3


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"status": 5}', "\0" * 100, None])
@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_a_damaged_record_is_made_whole_again_from_the_checkpoint(tiny, finished, tmp_path, monkeypatch, name, damage):
    folder = stopped_run(tiny, tmp_path / "runs", monkeypatch)
    (folder / name).unlink() if damage is None else (folder / name).write_text(damage)
    content = run(tiny)
    assert content["status"] == "finished"
    assert_same_end(finished, folder)
    assert [earlier["command"] for earlier in content["provenance"]["earlier"]] == ["python -m rope_lab.train"]


@pytest.mark.parametrize("damage", ["", "[]", "cut", None])
def test_the_curve_of_a_finished_run_is_made_whole_again_too(tiny, tmp_path, damage):
    whole = run(tiny)
    folder = only_folder(tmp_path / "runs")
    curve = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").unlink()
    if damage is not None:
        (folder / "metrics.jsonl").write_text(curve[: len(curve) // 2] if damage == "cut" else damage)
    again = run(tiny)
    assert (again["status"], again["metrics"]) == ("finished", whole["metrics"])
    assert (folder / "metrics.jsonl").read_text() == curve


def test_beginning_anew_forgets_first_that_there_was_a_run(tiny, tmp_path, monkeypatch):
    """Whatever `fresh=true` is cut off in, nothing is left that says that it has finished."""
    run(tiny)
    folder = only_folder(tmp_path / "runs")
    with monkeypatch.context() as patch:
        remove = Lease.remove
        patch.setattr(Lease, "remove", lambda self, path: remove(self, path) if path.name == "run.json" else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run([*tiny, "fresh=true"])
    assert not (folder / "run.json").exists()
    assert run(tiny)["status"] == "finished"


def test_checkpoints_that_are_gone_are_not_made_up_for_in_silence(tiny, tmp_path, monkeypatch):
    folder = stopped_run(tiny, tmp_path / "runs", monkeypatch)
    for path in checkpoint.checkpoints(folder):
        path.unlink()
    with pytest.raises(ConfigError, match="its checkpoints are gone: fresh=true starts over"):
        run(tiny)


@pytest.mark.parametrize("where", ["write_samples", "Run.export", "evaluate_now"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_outside_of_a_step_harms_nothing(tiny, tmp_path, monkeypatch, where, number):
    """At the first or the last things that a run does: it ends in order, and the next call finds what it should."""
    name, _, method = where.partition(".")
    owner = getattr(train, name) if method else train
    real = getattr(owner, method or name)

    def interrupted(*arguments):
        os.kill(os.getpid(), number)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method or name, interrupted)
        with pytest.raises(SystemExit) as exit:
            run(tiny)
    assert exit.value.code == 128 + number
    content = runs.read(only_folder(tmp_path / "runs"))
    assert content["status"] == ("interrupted" if where == "evaluate_now" else "finished")
    assert run(tiny)["status"] == "finished"


def test_a_weight_that_nothing_shows_is_found_at_the_end(tiny, monkeypatch):
    def poison(lab, step, update=train.update):
        result = update(lab, step)
        if step == 5:
            with torch.no_grad():
                lab.model.layers[0].up.bias[0] = -torch.inf
        return result

    monkeypatch.setattr(train, "update", poison)
    content = run(tiny)
    assert (content["status"], content["error"]) == ("diverged", "the norm of the weights is inf")


def test_the_checkpoint_before_is_gone_on_from_where_the_last_is_damaged(tiny, finished, tmp_path, monkeypatch, caplog):
    folder = stopped_run(tiny, tmp_path / "runs", monkeypatch)
    checkpoint.checkpoints(folder)[0].write_bytes(b"PK")
    assert run(tiny)["status"] == "finished"
    assert "is damaged and passed over" in caplog.text
    assert_same_end(finished, folder)


def test_nothing_begins_from_zero_where_all_checkpoints_are_damaged_unless_asked(tiny, tmp_path, monkeypatch):
    folder = stopped_run(tiny, tmp_path / "runs", monkeypatch)
    for path in checkpoint.checkpoints(folder):
        path.write_bytes(path.read_bytes()[:-1])
    before = (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="none of its 2 checkpoints is whole; fresh=true starts over"):
        run(tiny)
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert run([*tiny, "fresh=true"])["status"] == "finished"


def test_a_checkpoint_of_other_settings_is_refused_and_they_are_named(tiny, tmp_path, monkeypatch):
    folder = stopped_run(tiny, tmp_path / "runs", monkeypatch)
    other = [*tiny, "train.lr=0.125", "position=rope", f"out={tmp_path / 'other'}"]
    with monkeypatch.context() as patch:
        patch.setattr(train, "update", raising_signal_at(2, train.update))
        with pytest.raises(SystemExit):
            run(other)
    for path in checkpoint.checkpoints(folder):
        shutil.copy(path, only_folder(tmp_path / "other"))
    with pytest.raises(ConfigError, match=r"of other settings: .*position\.v=1 .*train\.lr=0\.00\d \(now 0\.125\)"):
        run(other)
    for owner, name, message in (
        (SubstringByIndex, "version", r"of other settings: task version 2 \(now 99\)"),
        (runs, "FORMAT", r"no such run .*format 3 \(now 99\)"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, 99)
            with pytest.raises(ConfigError, match=f"{message}.*; fresh=true starts over"):
                run([*tiny, "other_code=true"])
    assert run(tiny)["status"] == "finished"


def test_a_disk_that_gives_out_is_said_in_one_line_and_costs_nothing(tiny, finished, tmp_path, monkeypatch):
    """The folder vanishes, as a network drive may; then it is back, and the run goes on to the bit."""
    there = tmp_path / "runs" / config.identity(load(*tiny)).run_name

    def vanish(lab, step, update=train.update):
        if step == 4:
            there.rename(tmp_path / "away")
        return update(lab, step)

    with monkeypatch.context() as patch:
        patch.setattr(train, "update", vanish)
        with pytest.raises(train.Unusable, match=r"cannot be used any more \(No such file .*same command again"):
            run(tiny)
    assert not there.exists()
    (tmp_path / "away").rename(there)
    assert run(tiny)["status"] == "finished"
    assert_same_end(finished, there)


def test_a_full_disk_through_the_command_line(tmp_path):
    """No file may grow beyond what holds the metrics and not a checkpoint: one line, a status of its own, no litter."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        done = command([*TINY, "out=runs"], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert re.search(r"runs/.* cannot be used any more \(File too large\)", done.stderr)
    folder = only_folder(tmp_path / "runs")
    assert sorted(path.name for path in folder.iterdir()) == [".lease-00000001", ".lock", "metrics.jsonl", "run.json"]
    assert json.loads((folder / "run.json").read_text())["status"] == "failed"
    again = command([*TINY, "out=runs"], tmp_path)
    assert again.returncode == 0
    assert "finished after 6 steps" in again.stdout


def test_a_clock_that_jumps_back_changes_nothing(tiny, finished, tmp_path, monkeypatch):
    folder = stopped_run(tiny, tmp_path / "runs", monkeypatch)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(provenance, "now", lambda: "1970-01-01T00:00:00+00:00")
    for path in folder.iterdir():
        os.utime(path, (2**31, 2**31))
    assert run(tiny)["status"] == "finished"
    assert_same_end(finished, folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(a["seconds"] <= b["seconds"] for a, b in pairwise(rows))


def test_final_weights_are_there_for_other_programs(tiny, tmp_path):
    content = run(tiny)
    folder = only_folder(tmp_path / "runs")
    with safetensors.safe_open(folder / "weights.safetensors", "pt") as file:
        assert file.metadata()["run_id"] == content["run_id"]
        assert json.loads(file.metadata()["config"]) == content["config"]
    weights, trained = safetensors.torch.load_file(folder / "weights.safetensors"), checkpoint.load(folder)["model"]
    assert weights.keys() == trained.keys()
    assert all(torch.equal(weight, trained[name]) for name, weight in weights.items())


def test_a_long_wait_for_an_evaluation_is_cut_by_checkpoints(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "SAVE_SECONDS", -1)

    def die(lab, step, update=train.update):
        if step == 5:
            raise ArithmeticError("killed")
        return update(lab, step)

    monkeypatch.setattr(train, "update", die)
    with pytest.raises(ArithmeticError):
        run([*tiny, "eval.every=1000"])
    assert checkpoint.load(only_folder(tmp_path / "runs"))["step"] == 5


def test_time_adds_up_over_resumes(tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(train, "update", raising_signal_at(3, train.update))
        with pytest.raises(SystemExit):
            run(tiny)
    folder = only_folder(tmp_path / "runs")
    saved = checkpoint.load(folder)
    checkpoint.save(folder, 3, saved | {"seconds": 1000.0})
    assert run(tiny)["progress"]["seconds"] > 1000


def test_a_signal_in_the_last_step_is_not_lost(tiny, monkeypatch):
    monkeypatch.setattr(train, "update", raising_signal_at(6, train.update))
    with pytest.raises(SystemExit) as exit:
        run(tiny)
    assert exit.value.code == 128 + signal.SIGTERM


def test_evaluation_has_no_influence_on_training(tiny, tmp_path):
    for name, problems in (("few", 3), ("many", 40)):
        run([*tiny, f"out={tmp_path / name}", f"eval.problems={problems}", f"eval.every={problems // 3}"])
    few, many = (checkpoint.load(only_folder(tmp_path / name))["model"] for name in ("few", "many"))
    assert all(torch.equal(value, many[name]) for name, value in few.items())


def test_two_processes_do_not_train_one_run(tiny, tmp_path):
    from rope_lab.train.run import Run

    run(tiny)
    folder = only_folder(tmp_path / "runs")
    with Run(folder), pytest.raises(ConfigError, match="another process is training this run"):
        run([*tiny, "fresh=true"])


def test_training_learns(tmp_path):
    """Within seconds from guessing to most tokens right."""
    model = ["model.d_model=32", "model.n_layers=2", "model.n_heads=4", "task=arithmetic_addition", "task.digits=1"]
    steps = ["train.steps=100", "train.warmup=20", "train.lr=5e-3", "train.batch_size=16", "eval.every=100"]
    run([*TINY, *model, *steps, f"out={tmp_path}"])
    first, last = (row for row in metrics_of(only_folder(tmp_path)) if "eval/loss" in row)
    assert first["eval/token_accuracy"] < 0.2
    assert last["eval/token_accuracy"] > 0.7


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it compiles
@pytest.mark.parametrize("override", ["train.precision=bfloat16", "train.compile=true"])
def test_other_ways_to_compute(tiny, tmp_path, monkeypatch, override):
    monkeypatch.setattr(
        torch, "compile", functools.partial(torch.compile, backend="aot_eager")
    )  # without a C++ compiler
    plain = run([*tiny, "position=pope_roper", f"out={tmp_path / 'plain'}"])
    other = run([*tiny, "position=pope_roper", override])
    assert other["status"] == "finished"
    assert other["run_id"] != plain["run_id"]
    assert other["metrics"]["eval/loss"] == pytest.approx(plain["metrics"]["eval/loss"], rel=0.02)
    assert other["metrics"]["eval/loss"] != plain["metrics"]["eval/loss"]


def test_the_command_line(tmp_path):
    done = command([*TINY, "out=runs"], tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("substring_by_index · roper · quick · seed 0 · ")
    assert sum(line.startswith("step ") for line in lines) == 3
    assert lines[5].startswith("finished after 6 steps")
    assert f"runs/{only_folder(tmp_path / 'runs').name}" in done.stdout
    again = command([*TINY, "out=runs"], tmp_path)
    assert again.returncode == 0
    assert "has already finished" in again.stdout


def test_a_signal_ends_a_run_with_a_checkpoint(tmp_path):
    """In a process of its own: nothing is left where it stands, and W&B, which is slow, is not imported."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "wandb.py").write_text("raise AssertionError")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'path'}:{config.ROOT}", "PYTHONWARNINGS": ""}
    arguments = [sys.executable, "-m", "rope_lab.train", *TINY, "out=runs", "train.steps=100000", "eval.every=50000"]
    process = subprocess.Popen(
        arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if line.startswith("step"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "interrupted after" in output
    assert errors == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["path", "runs"]
    folder = only_folder(tmp_path / "runs")
    content = json.loads((folder / "run.json").read_text())
    assert content["status"] == "interrupted"
    assert content["provenance"]["command"].startswith("python -m rope_lab.train model.d_model=16")
    assert checkpoint.load(folder)["step"] == content["progress"]["steps"] > 0


def test_a_sweep_runs_every_cell_and_goes_on_past_a_bad_one(tmp_path):
    done = command(["-m", *TINY, "out=runs", "model.d_model=16,10", "position=rope,roper"], tmp_path)
    assert done.returncode != 0
    assert "even number" in done.stderr
    assert "sweep: 2 of 4 runs finished" in done.stdout
    begun = [line.split(" · ") for line in done.stdout.splitlines() if line.startswith("run ")]
    assert begun[:2] == [["run 1 of 4", "model.d_model=16 rope"], [begun[1][0], "model.d_model=16 roper"]]
    assert re.fullmatch(r"run 2 of 4, \d+ s left", begun[1][0])
    assert done.stdout.count("not run, model.d_model=10") == 2
    assert "Traceback" not in done.stderr
    contents = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/run.json")]
    assert sorted(c["position"] for c in contents if c["status"] == "finished") == ["rope", "roper"]
    assert len({c["recipe_id"] for c in contents}) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs"]


def test_a_diverged_run_is_an_outcome_of_a_sweep_and_its_own_exit_status_alone(tmp_path):
    wild = [*TINY, "out=runs", "train.lr=1e30", "train.warmup=0", "train.clip=1e30", "train.steps=20"]
    alone = command(wild, tmp_path)
    assert alone.returncode == 3
    assert "diverged after" in alone.stdout
    done = command(["-m", *wild, "seed=0,1"], tmp_path)
    assert done.returncode == 0
    assert "sweep: 0 of 2 runs finished" in done.stdout
    assert done.stdout.count("  diverged: ") == 2


def test_a_signal_ends_a_whole_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "update", raising_signal_at(3, train.update, signal.SIGINT))
    done = command(["-m", *TINY, "out=runs", "seed=0,1,2"], tmp_path)
    assert done.returncode == 128 + signal.SIGINT
    assert "sweep: 0 of 3 runs finished; 2 were not begun" in done.stdout
    assert json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())["status"] == "interrupted"


def test_a_sweep_that_began_anew_does_not_ask_to_be_said_again_like_that(tmp_path, monkeypatch):
    update, fresh = train.update, ["-m", *TINY, "out=runs", "seed=0,1", "fresh=true"]
    monkeypatch.setattr(train, "update", raising_signal_at(3, update, signal.SIGINT))
    done = command(fresh, tmp_path)
    assert "the same command without fresh=true resumes it" in done.stdout
    assert "the same command without fresh=true runs what is missing" in done.stdout
    monkeypatch.setattr(train, "update", update)
    done = command(fresh[:-1], tmp_path)
    assert "sweep: 2 of 2 runs finished" in done.stdout
    records = [path.read_text() for path in tmp_path.glob("runs/*/run.json")]
    assert ["fresh" in record for record in records] == [False, False]  # the command that is recorded resumes


def test_a_job_that_is_begun_again_remembers_when_it_was_first(tmp_path, monkeypatch):
    """As a queue begins it again, in the same sweep."""
    moments, asked = iter(["first", "second", "third"]), []
    monkeypatch.setattr(provenance, "now", lambda: next(moments))
    monkeypatch.setattr("rope_lab.launch.main.train", lambda *given: asked.append(given[-1]) or {})

    def twice(cfg, stopping=None):
        for _ in range(2):
            with pytest.raises(KeyError):
                job(cfg, stopping)

    job = main.job
    monkeypatch.setattr(main, "job", twice)
    command(["-m", *TINY, "out=runs", "seed=0"], tmp_path)
    assert asked == ["first", "first"]


def test_a_run_is_one_offline_run_of_wandb_however_often_it_is_made(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    run_id = run(tiny)["run_id"]
    ids = (run_id, f"roper-s0-{run_id}", "0" * 12)  # of before, of today, of others
    folders = [tmp_path / "runs" / "wandb" / f"offline-run-2026-{id}" for id in ids]
    for folder in folders:
        folder.mkdir(parents=True)
    run([*tiny, "wandb.mode=offline", "fresh=true"])
    assert [folder.exists() for folder in folders] == [False, False, True]


@pytest.mark.parametrize("key", ["a" * 40, pytest.param(None, marks=pytest.mark.torture)])
def test_without_a_network_or_a_key_wandb_online_warns_and_training_goes_on(tmp_path, monkeypatch, key):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_API_KEY", key) if key else monkeypatch.delenv("WANDB_API_KEY", raising=False)
    done = spawn([*TINY, "out=runs", "wandb.mode=online"], tmp_path)
    assert done.returncode == 0
    assert "W&B could not start" in done.stderr
    assert "W&B records offline instead" in done.stderr
    assert json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())["status"] == "finished"


def test_wandb_that_is_not_installed_is_a_warning(tiny, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert run([*tiny, "wandb.mode=offline"])["status"] == "finished"
    assert "W&B could not start" in caplog.text
    without = metrics_of(only_folder(tmp_path / "runs"))
    run([*tiny, f"out={tmp_path / 'disabled'}"])
    assert without == metrics_of(only_folder(tmp_path / "disabled"))


@pytest.mark.parametrize("call", ["init", "log", "finish"])
def test_wandb_that_does_not_answer_is_not_waited_for(tiny, tmp_path, monkeypatch, caplog, call):
    """One of its calls sleeps for an hour: it is waited for once and not for long, and the numbers are the same."""

    def nothing(*_, **__):
        pass

    answer = types.SimpleNamespace(log=nothing, finish=nothing, define_metric=nothing, summary={})
    slow = types.SimpleNamespace(
        init=lambda **_: answer,
        Settings=nothing,
        Table=lambda **_: types.SimpleNamespace(bind_to_run=nothing),
        teardown=nothing,
    )
    setattr(slow if call == "init" else answer, call, lambda *_, **__: time.sleep(3600))
    monkeypatch.setitem(sys.modules, "wandb", slow)
    monkeypatch.setattr(tracking, "PATIENCE", 0.2)
    run([*tiny, "wandb.mode=offline"])
    assert caplog.text.count("no answer within 0.2 s") == 1
    with_it = metrics_of(only_folder(tmp_path / "runs"))
    run([*tiny, f"out={tmp_path / 'disabled'}"])
    assert with_it == metrics_of(only_folder(tmp_path / "disabled"))


def test_the_address_of_a_run_that_is_online_is_recorded(tiny, tmp_path, monkeypatch):
    def nothing(*_, **__):
        pass

    answer = types.SimpleNamespace(log=nothing, finish=nothing, define_metric=nothing, summary={}, offline=False)
    answer.url = "https://wandb.ai/someone/rope_lab/runs/abc"
    table = types.SimpleNamespace(bind_to_run=nothing)
    fake = types.SimpleNamespace(init=lambda **_: answer, Settings=nothing, Table=lambda **_: table)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run([*tiny, "wandb.mode=online"])
    record = only_folder(tmp_path / "runs") / "run.json"
    assert json.loads(record.read_text())["wandb"] == answer.url
    answer.offline = True
    run([*tiny, "wandb.mode=offline", "fresh=true"])
    assert "wandb" not in json.loads(record.read_text())


def test_wandb_failing_in_the_middle_changes_nothing(tiny, tmp_path, monkeypatch, caplog):
    logged = []

    def log(row, **_):
        logged.append(row)
        if len(logged) == 3:
            raise RuntimeError("gone")

    def nothing(*_, **__):
        pass

    answer = types.SimpleNamespace(log=log, finish=nothing, define_metric=nothing, summary={})
    failing = types.SimpleNamespace(
        init=lambda **_: answer,
        Settings=nothing,
        Table=lambda **_: types.SimpleNamespace(bind_to_run=nothing),
        teardown=nothing,
    )
    monkeypatch.setitem(sys.modules, "wandb", failing)
    run([*tiny, "wandb.mode=offline"])
    assert len(logged) == 3
    assert caplog.text.count("W&B failed and is left out; metrics.jsonl is still written: gone") == 1
    with_it = metrics_of(only_folder(tmp_path / "runs"))
    run([*tiny, f"out={tmp_path / 'disabled'}"])
    assert with_it == metrics_of(only_folder(tmp_path / "disabled"))


@pytest.mark.parametrize("extra", [[], ["position=randomized_rope"], ["train.precision=bfloat16"]])
def test_talking_to_a_trained_run_is_talking_to_its_weights(tiny, tmp_path, capsys, extra):
    tiny = [*tiny, *extra]
    content = run([*tiny, "train.lr=1e-1", "train.steps=12"])
    sample.main([str(only_folder(tmp_path / "runs")), "-n", "8"])
    shown = capsys.readouterr().out
    assert all(row["prompt"] + " → " + row["written"] in shown for row in content["samples"])
    cfg, first = load(*tiny), content["samples"][0]
    task = config.build_task(cfg)
    untrained = build_model(cfg, len(task.alphabet))
    assert sample.complete(cfg, task, untrained, first["prompt"], likeliest) != first["written"]


def test_talking_to_a_run(tiny, tmp_path, capsys):
    run(tiny)
    folder = str(only_folder(tmp_path / "runs"))
    sample.main([folder, "-n", "3"])
    shown = capsys.readouterr().out
    assert shown.count("WRONG") == 3
    assert "0 of 3 right" in shown
    sample.main([folder, "?s='abc"])
    assert "?s='abc → " in capsys.readouterr().out
    for arguments, message in (
        ([folder, "é"], "not in the task's alphabet"),
        ([folder, "a" * 65], "must have 1 to 64"),
        ([folder, ""], "must have 1 to 64"),
        ([folder, "-n", "0"], "-n 0: must be at least 1"),
        ([str(tmp_path)], f"is no run's folder, it has no readable run.json; did you mean {folder}?"),
        ([f"{folder}/run.json"], f"did you mean {folder}?"),
        ([str(tmp_path / "runs" / "mistyped")], f"did you mean {folder}?"),
        ([str(tmp_path / "nowhere" / "else")], "`python -m rope_lab.train` makes one"),
    ):
        with pytest.raises(SystemExit) as exit:
            sample.main(arguments)
        assert message in str(exit.value.code)


def test_more_problems_are_graded_at_the_end(tiny, capsys):
    content = run([*tiny, "eval.problems_at_end=20"])
    assert "% of 20 held-out problems" in capsys.readouterr().out
    assert sum(count for count, _ in content["slices"]["index"].values()) == 20
    with pytest.raises(config.ConfigError, match=r"problems_at_end=5: must be at least eval\.problems=8"):
        run([*tiny, "eval.problems_at_end=5"])


def test_problems_of_other_lengths_are_graded_at_the_end(tiny, capsys):
    content = run([*tiny, "task.string_length=6", "eval.lengths=[6,12]", "position=randomized_rope"])
    assert {n: count for n, (count, _) in content["slices"]["length"].items()} == {"6": 8, "12": 8}
    assert re.search(r"accuracy at 6: \d+\.\d% · 12: \d+\.\d%", capsys.readouterr().out)
    context = run([*tiny, "task=substring_by_prefix", "eval.lengths=[64,128]"])
    assert context["slices"]["length_loss"].keys() == {"64", "128"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["position=learned", "eval.lengths=[13,60]"], "position=learned: .* positions are more than the 64"),
        (["position=randomized_rope", "position.longest=100", "eval.lengths=[60]"], "position.longest=100: must be at"),
        (["task=substring_by_prefix", "eval.lengths=[20]"], "eval.lengths=.*20.*: context=20: must be at least"),
        (["eval.lengths=[0]"], "eval.lengths=0: must be"),
        (["eval.lengths=[26,13]"], "must be in rising order"),
        (["model.attention=linear", "position=alibi"], "model.attention=linear: Alibi adds to attention scores"),
    ],
)
def test_lengths_and_attention_that_cannot_be_are_one_clear_message(tiny, settings, message):
    with pytest.raises(config.ConfigError, match=message):
        run([*tiny, *settings])
