"""Training runs end to end: records, bitwise reproducibility, resuming, failures and sampling."""

import functools
import hashlib
import json
import os
import re
import resource
import signal
from operator import itemgetter

import pytest
import safetensors.torch
import torch
from conftest import KINDS, TINY, only_folder
from killed import killed_after
from trained import assert_same_end, command, load, metrics_of, raising_signal_at, run, stopped_run

from rope_lab import sample
from rope_lab.identity import NUMERICS
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, config, data, provenance, run_folder, stop
from rope_lab.train import loop as train
from rope_lab.train.generate import likeliest
from rope_lab.train.trainer import build, build_model, resolve

RECORD = {"step", "sequences", "tokens", "seconds"}
WILD = ["train.lr=1e30", "train.warmup=0", "train.clip=1e30"]


def dying_at(step: int, update):
    """`update` that fails after `step` steps."""

    def die(trainer, at):
        if at == step:
            raise ArithmeticError("killed")
        return update(trainer, at)

    return die


def test_a_run_records_what_the_contract_says(tiny, tmp_path):
    run([*tiny, "eval.problems=128"])
    folder = only_folder(tmp_path / "runs")
    content = run_folder.read(folder)
    names = {
        "task": "substring_by_index",
        "position": "roper",
        "scale": "quick",
        "seed": 0,
        "status": "finished",
    }
    assert content.items() >= names.items()
    assert content["progress"].pop("seconds") > 0
    assert content["progress"] == {"steps": 6, "sequences": 6 * 4, "tokens": 6 * 4 * 64}
    assert content["run_id"] in folder.name
    assert content["recipe_id"]
    assert content["config"]["train"]["steps"] == 6
    assert content["parameters"] == sum(
        v.numel() for v in checkpoint.load(folder)["model"].values()
    )
    assert len(content["samples"]) == 8
    assert content["floor"]["loss"] == 0
    assert content["slices"].keys() == {"answer_position", "index", "suffix_length"}
    assert sum(count for count, _ in content["slices"]["index"].values()) == 128
    assert {"numerics", "plugin", "git", "versions", "hardware", "start", "end"} <= content[
        "provenance"
    ].keys()

    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [0, 2, 3, 4, 6]
    assert all(record.keys() >= RECORD for record in records)
    assert all(
        r["sequences"] == r["step"] * 4 and r["tokens"] == r["step"] * 4 * 64 for r in records
    )
    assert [record["step"] for record in records if "eval/accuracy" in record] == [0, 3, 6]
    assert records[-1].keys() == RECORD | {
        *("train/loss", "train/lr", "train/grad_norm"),
        *("eval/loss", "eval/accuracy", "eval/score", "eval/token_accuracy"),
    }
    assert content["metrics"] == {k: v for record in records for k, v in record.items() if "/" in k}
    with safetensors.safe_open(folder / "weights.safetensors", "pt") as file:
        assert file.metadata()["run_id"] == content["run_id"]
        assert json.loads(file.metadata()["config"]) == content["config"]
    weights, trained = (
        safetensors.torch.load_file(folder / "weights.safetensors"),
        checkpoint.load(folder)["model"],
    )
    assert weights.keys() == trained.keys()
    assert all(torch.equal(weight, trained[name]) for name, weight in weights.items())


@pytest.mark.parametrize(
    ("decay", "factors"), [("none", [1, 1]), ("linear", [1, 1 / 2]), ("cosine", [1, 1 / 2])]
)
def test_the_loop_is_these_few_lines_of_plain_torch(tiny, tmp_path, decay, factors):
    """Batches 0, 1, …, the schedule, clipping and AdamW: weights are bit-identical."""
    settings = [
        "train.steps=4",
        "train.warmup=2",
        "train.lr=1e-2",
        f"train.decay={decay}",
        "train.clip=0.05",
    ]
    settings += ["train.beta1=0.8", "train.beta2=0.9", "seed=5"]
    run([*tiny, *settings])
    cfg = load(*tiny, *settings)
    task = config.build_task(cfg)
    model = build_model(cfg, len(task.alphabet))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1.0, betas=(0.8, 0.9), weight_decay=0.0, fused=True
    )
    losses, norms = [], []
    for k, lr in enumerate([0.005, 0.01, *(0.01 * f for f in factors)]):
        batch = data.training_batch(task, 5, k, 4, 64)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            model(batch.inputs_BT).flatten(0, 1), batch.targets_BT.flatten()
        )
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05).item())
        optimizer.step()
        losses.append(loss.item())
    assert min(norms) > 0.05
    folder = only_folder(tmp_path / "runs")
    for name, value in checkpoint.load(folder)["model"].items():
        torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=0)
    records = [record for record in metrics_of(folder) if "train/loss" in record]
    assert [record["step"] for record in records] == [2, 4]
    assert [record["train/loss"] for record in records] == pytest.approx(
        [sum(losses[:2]) / 2, sum(losses[2:]) / 2]
    )
    assert [record["train/grad_norm"] for record in records] == pytest.approx([norms[1], norms[3]])
    assert [record["train/lr"] for record in records] == pytest.approx([0.01, 0.01 * factors[1]])


def test_every_scheme_sees_the_same_batches(tiny):
    seen = set()
    for scheme in KINDS:
        made, read = build(resolve(load(*tiny, f"position={scheme}"))), hashlib.sha256()
        made.model.register_forward_pre_hook(
            lambda _, inputs, read=read: read.update(inputs[0].numpy().tobytes())
        )
        for step in range(3):
            train.update(made, step)
        seen.add(read.hexdigest())
    assert len(seen) == 1


def test_dropout_drops_in_training_alone_and_anew_at_each_step(tiny, monkeypatch):
    made = build(load(*tiny, "model.dropout=0.5"))
    made.optimizers["optimizer"].step = lambda: None
    batch = data.training_batch(made.task, 0, 0, 4, 64)
    monkeypatch.setattr(data, "training_batch", lambda *_: batch)
    losses = [train.update(made, step)[0] for step in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    assert train.evaluate_now(made).metrics == train.evaluate_now(made).metrics
    assert made.model.training


def test_evaluation_has_no_influence_on_training(tiny, tmp_path):
    for name, problems in (("few", 3), ("many", 40)):
        run(
            [
                *tiny,
                f"out={tmp_path / name}",
                f"eval.problems={problems}",
                f"eval.every={problems // 3}",
            ]
        )
    few, many = (checkpoint.load(only_folder(tmp_path / name))["model"] for name in ("few", "many"))
    assert all(torch.equal(value, many[name]) for name, value in few.items())


def test_a_run_repeats_and_resumes_exactly(tiny, tmp_path, monkeypatch):
    settings = [*tiny, "model.dropout=0.2", "train.warmup=5", "train.decay=cosine", "seed=7"]
    for name in ("one", "two"):
        run([*settings, f"out={tmp_path / name}"])
    whole = only_folder(tmp_path / "one")
    assert_same_end(whole, only_folder(tmp_path / "two"))
    for stop_at in (1, 3, 4):  # 3: at an evaluation
        overrides = [*settings, f"out={tmp_path / f'stopped-{stop_at}'}"]
        folder = stopped_run(overrides, tmp_path / f"stopped-{stop_at}", monkeypatch, stop_at)
        content = run_folder.read(folder)
        assert (content["status"], content["progress"]["steps"]) == ("interrupted", stop_at)
        assert run(overrides)["status"] == "finished"
        assert_same_end(whole, folder)


def test_a_run_that_fails_between_checkpoints_resumes_to_the_bit(
    tiny, finished, tmp_path, monkeypatch
):
    """Metrics after the last checkpoint are dropped, including a half-written line."""
    with monkeypatch.context() as patch:
        patch.setattr(train, "update", dying_at(5, train.update))
        with pytest.raises(ArithmeticError):
            run(tiny)
    folder = only_folder(tmp_path / "runs")
    assert run_folder.read(folder)["status"] == "failed"
    assert "ArithmeticError: killed" in run_folder.read(folder)["error"]
    assert metrics_of(folder)[-1]["step"] == 4  # the last checkpoint is of step 3
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "sequ')
    resumed = run(tiny)
    assert resumed["status"] == "finished"
    assert "error" not in resumed
    assert_same_end(finished, folder)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
def test_a_run_killed_between_any_writes_resumes_exactly(tiny, finished, tmp_path, first):
    """Kills before each rename, unlink and metrics line in turn, until a run completes."""
    whole, outcome = run_folder.read(finished), itemgetter("status", "metrics", "slices", "samples")
    writes = [(os, "replace"), (run_folder, "_line"), (run_folder.Path, "unlink")]
    for survived in range(first, 100, 4):
        out = tmp_path / str(survived)
        with killed_after(survived, *writes) as process:
            run([*tiny, f"out={out}"])
        assert outcome(run([*tiny, f"out={out}"])) == outcome(whole)
        assert_same_end(finished, only_folder(out))
        if not process.dead:
            break
    assert 20 < survived < 99


def test_a_finished_run_is_returned_and_fresh_starts_over(
    tiny, tmp_path, capsys, caplog, monkeypatch
):
    first = run(tiny)
    folder = only_folder(tmp_path / "runs")
    written, shown = (folder / "run.json").stat().st_mtime_ns, capsys.readouterr().out
    assert run(tiny) == first
    assert (folder / "run.json").stat().st_mtime_ns == written
    said, _, summary = capsys.readouterr().out.partition("finished after")
    assert "has already finished; fresh=true trains it again" in said
    assert summary == shown.partition("finished after")[2]
    assert not caplog.text
    made = []
    monkeypatch.setattr(
        train,
        "update",
        lambda lab, step, update=train.update: made.append(step) or update(lab, step),
    )
    again = run([*tiny, "fresh=true"])
    assert made == [0, 1, 2, 3, 4, 5]
    assert again["metrics"] == first["metrics"]
    assert again["provenance"]["earlier"] == []


def test_other_code_is_refused_unless_the_run_is_finished(tiny, tmp_path, monkeypatch, caplog):
    stopped_run(tiny, tmp_path / "runs", monkeypatch)
    monkeypatch.setattr(provenance, "code", lambda cfg: {"numerics": 99, "plugin": {}})
    with pytest.raises(
        ConfigError, match=r"started with different code.*fresh=true starts over, other_code=true"
    ):
        run(tiny)
    assert run([*tiny, "other_code=true"])["status"] == "finished"
    monkeypatch.setattr(provenance, "code", lambda cfg: {"numerics": 100, "plugin": {}})
    source = run(tiny)["provenance"]
    assert source["numerics"] == 99
    assert [earlier["numerics"] for earlier in source["earlier"]] == [NUMERICS]
    assert "it was run by other code, numerics 99 (now 100)" in caplog.text


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_non_finite_number_stops_before_the_step(tiny, monkeypatch, where, capsys):
    before = {}

    def poison(trainer, step, update=train.update):
        if step == 4:
            before.update({k: v.clone() for k, v in trainer.model.state_dict().items()})
            if where == "loss":
                loss = torch.nn.functional.cross_entropy
                patch.setattr(
                    torch.nn.functional,
                    "cross_entropy",
                    lambda *a, **k: loss(*a, **k) * float("nan"),
                )
            else:
                first = next(trainer.model.parameters())
                first.register_hook(lambda g: g.index_fill(0, torch.tensor([0]), float("inf")))
        try:
            return update(trainer, step)
        finally:
            before["after"] = trainer.model.state_dict()

    with monkeypatch.context() as patch:
        patch.setattr(train, "update", poison)
        content = run(tiny)
    assert content["status"] == "diverged"
    said = (
        r"step 4 was not taken: loss (.*), gradient norm (.*), learning rate .*, batch 4 of seed 0"
    )
    found = re.search(said, content["error"])
    assert [g in ("nan", "inf") for g in found.groups()].index(True) == ["loss", "gradient"].index(
        where
    )
    after = before.pop("after")
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert "diverged after 4 steps" in capsys.readouterr().out
    assert run(tiny) == content  # divergence is a final outcome


def test_a_model_not_finite_at_an_evaluation_has_diverged(
    tmp_path,
):
    done = command([*TINY, *WILD, "out=runs", "train.steps=1"], tmp_path)
    assert done.returncode == 3
    assert "diverged after 1 steps" in done.stdout
    folder = only_folder(tmp_path / "runs")
    assert run_folder.read(folder)["error"] in (
        "the held-out loss is nan",
        "the norm of the weights is inf",
    )
    assert "NaN" not in (folder / "run.json").read_text() + (folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("step", "number"),
    [(6, signal.SIGTERM), *((3, number) for number in stop.SIGNALS if number != signal.SIGTERM)],
)
def test_each_signal_has_its_exit_status(tmp_path, monkeypatch, number, step):
    monkeypatch.setattr(train, "update", raising_signal_at(step, train.update, number))
    assert command([*TINY, "out=runs"], tmp_path).returncode == 128 + number
    folder = only_folder(tmp_path / "runs")
    assert run_folder.read(folder)["status"] == ("interrupted" if step == 3 else "finished")
    assert checkpoint.load(folder)["step"] == step


@pytest.mark.parametrize(
    "where", ["begin_or_resume", "evaluate_now", "RunFolder.export", "write_samples"]
)
def test_a_signal_outside_of_a_step_harms_nothing(tiny, tmp_path, monkeypatch, where):
    name, _, method = where.partition(".")
    owner = getattr(train, name) if method else train
    real = getattr(owner, method or name)

    def interrupted(*arguments, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method or name, interrupted)
        assert command(tiny, tmp_path).returncode == 128 + signal.SIGTERM
    content = run_folder.read(only_folder(tmp_path / "runs"))
    assert content["status"] == (
        "interrupted" if where in ("begin_or_resume", "evaluate_now") else "finished"
    )
    assert (
        content["checkpoint"]
        == content["progress"]["steps"]
        == {"begin_or_resume": 0, "evaluate_now": 1}.get(where, 6)
    )
    assert run(tiny)["status"] == "finished"


@pytest.mark.parametrize("where", ["update", "build"])
def test_code_that_exits_with_status_0_is_a_failure(tmp_path, monkeypatch, where):
    """E.g. a hook that calls exit(): the run did not finish, so the exit status is 1."""
    monkeypatch.setattr(train, where, lambda *_, **__: exit(0))
    done = command([*TINY, "out=runs"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("SystemExit: 0\n")
    if where != "build":
        assert run_folder.read(only_folder(tmp_path / "runs"))["status"] == "failed"


def out_of_memory(kind: str) -> None:
    if kind == "python":
        raise MemoryError
    if kind == "cuda":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    torch.empty(2**62, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("kind", "where"), [("python", "build"), ("cuda", "update"), ("cpu", "update")]
)
def test_out_of_memory_is_one_line_with_a_remedy(tmp_path, monkeypatch, kind, where):
    monkeypatch.setattr(train, where, lambda *_: out_of_memory(kind))
    done = command([*TINY, "out=runs"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "out of memory on cpu: lower train.batch_size=4, train.seq_len=64, model.d_model=16"
    )
    assert done.stderr.count("\n") == 1


def test_a_full_disk_through_the_command_line(tmp_path):
    """A file size limit that fits the metrics but no checkpoint: one line, status `failed`, no
    leftover files.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        done = command([*TINY, "out=runs"], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert re.search(
        r"the run stopped: .*runs/.*\.pt: File too large; its checkpoints stay valid", done.stderr
    )
    folder = only_folder(tmp_path / "runs")
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "run.json"]
    assert run_folder.read(folder)["status"] == "failed"
    again = command([*TINY, "out=runs"], tmp_path)
    assert again.returncode == 0
    assert "finished after 6 steps" in again.stdout


def test_a_long_wait_for_an_evaluation_is_cut_by_checkpoints(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "SAVE_SECONDS", -1)
    monkeypatch.setattr(train, "update", dying_at(5, train.update))
    with pytest.raises(ArithmeticError):
        run([*tiny, "eval.every=1000"])
    assert checkpoint.load(only_folder(tmp_path / "runs"))["step"] == 5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from torch.compile
@pytest.mark.parametrize(
    "override",
    ["train.precision=bfloat16", pytest.param("train.compile=true", marks=pytest.mark.slow)],
)
def test_other_ways_to_compute(tiny, tmp_path, monkeypatch, override):
    without_compiler = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", without_compiler)
    plain = run([*tiny, "position=pope_roper", f"out={tmp_path / 'plain'}"])
    other = run([*tiny, "position=pope_roper", override])
    assert other["run_id"] != plain["run_id"]
    assert other["metrics"]["eval/loss"] == pytest.approx(plain["metrics"]["eval/loss"], rel=0.02)
    assert other["metrics"]["eval/loss"] != plain["metrics"]["eval/loss"]


@pytest.mark.parametrize(
    "extra",
    [
        ["position=randomized_rope"],
        pytest.param(["train.precision=bfloat16"], marks=pytest.mark.slow),
    ],
)
def test_a_sample_of_a_run_comes_from_its_weights(tiny, tmp_path, capsys, extra):
    tiny = [*tiny, *extra]
    content = run([*tiny, "train.lr=1e-1", "train.steps=12"])
    sample.main([str(only_folder(tmp_path / "runs")), "-n", "8"])
    shown = capsys.readouterr().out
    assert all(row["prompt"] + " → " + row["written"] in shown for row in content["samples"])
    cfg, first = load(*tiny), content["samples"][0]
    task = config.build_task(cfg)
    untrained = build_model(cfg, len(task.alphabet))
    assert sample.complete(cfg, task, untrained, first["prompt"], likeliest) != first["written"]


def test_mistakes_of_sampling_are_one_line(folder):
    parent = folder.parent
    for arguments, message in (
        ([str(folder), "é"], "not in the task's alphabet"),
        ([str(folder), "a" * 65], "must have 1 to 64"),
        (
            [str(parent)],
            "is not a run folder, it has no run.json; `rope-lab list` names your runs",
        ),
    ):
        with pytest.raises(SystemExit) as exit:
            sample.main(arguments)
        assert message in str(exit.value.code)


@pytest.mark.parametrize("words", [["-n", "5"], ["--top-k", "3"], ["--seed", "1"]])
def test_sampling_options_that_would_do_nothing_are_refused(folder, capsys, words):
    with pytest.raises(SystemExit):
        sample.main([str(folder), "a", *words])
    assert f"{words[0]}" in capsys.readouterr().err


def test_more_and_longer_problems_are_graded_at_the_end(tiny, capsys):
    longer = ["task.string_length=6", "eval.lengths=[6,12]", "position=randomized_rope"]
    content = run([*tiny, "eval.problems_at_end=20", *longer])
    shown = capsys.readouterr().out
    assert "% of 20 held-out problems" in shown
    assert re.search(r"accuracy at 6: \d+\.\d% · 12: \d+\.\d%", shown)
    assert sum(count for count, _ in content["slices"]["index"].values()) == 20
    assert {n: count for n, (count, _) in content["slices"]["length"].items()} == {"6": 8, "12": 8}
    context = run([*tiny, "task=substring_by_prefix", "eval.lengths=[64,128]"])
    assert context["slices"]["length_loss"].keys() == {"64", "128"}
