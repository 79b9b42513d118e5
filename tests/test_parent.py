"""Runs initialised from a parent run (`init_from`), and the Muon optimizer."""

import json
import os
import shutil
import signal

import pytest
import torch
from builders import CATALOGUE
from conftest import TINY, flip, only_folder
from trained import assert_same_end, command, load, metrics_of, run, stopped_run

from rope_lab import files
from rope_lab.results.records import frame
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import keep
from rope_lab.results.records.setups import setups_of
from rope_lab.text import ConfigError
from rope_lab.train import checkpoint, loop
from rope_lab.train.config import identity
from rope_lab.train.load import load_run
from rope_lab.train.run_folder import read as content_of
from rope_lab.train.trainer import build, resolve, update

ROPE = [*TINY, "position=rope"]
PARENT = ("run_id", "recipe_id", "position", "scheme_id")


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """Folder of a finished RoPE run; do not modify."""
    out = tmp_path_factory.mktemp("parent")
    run([*ROPE, "train.lr=0.05", f"out={out}"])
    return only_folder(out)


def test_without_steps_a_parent_is_evaluated_under_the_new_settings(parent, tmp_path, capsys):
    """Its own settings reproduce its final metrics; without rotation the metrics differ."""
    words = [f"init_from={parent}", "train.steps=0", f"out={tmp_path}"]
    before, same, none = (
        content_of(parent),
        run([*ROPE, *words]),
        run([*TINY, "position=none", *words]),
    )
    ours = [
        {k: v for k, v in each["metrics"].items() if k.startswith("eval/")}
        for each in (before, same, none)
    ]
    assert ours[0] == ours[1] != ours[2]
    assert same["status"] == "finished"
    assert capsys.readouterr().out.count("try it") == 2
    assert run([*ROPE, *words])["run_id"] == same["run_id"]
    assert "fresh=true trains it again.\n" in capsys.readouterr().out
    assert same["slices"] == before["slices"]
    assert same["config"]["parent"].pop("weights")
    trained = {"steps": 6, "seq_len": before["config"]["train"]["seq_len"]}
    assert same["config"]["parent"] == {k: before[k] for k in PARENT} | trained
    assert str(parent.parent) not in json.dumps(same)
    assert f"init_from={parent.name}" in same["provenance"]["command"]
    assert len({each["run_id"] for each in (before, same, none)}) == 3
    assert same["recipe_id"] == none["recipe_id"] != before["recipe_id"]
    found, _ = read(tmp_path)
    assert sorted(each.position for each in found) == ["none", "rope"]
    _, _, model, _ = load_run(next(tmp_path.glob("*-none-*")), [])
    assert torch.equal(model.embedding.weight, checkpoint.load(parent)["model"]["embedding.weight"])


@pytest.mark.slow
def test_a_trained_run_is_evaluated_under_other_frequencies(parent, tmp_path):
    """Position interpolation and YaRN: the loss is unchanged at factor 1 and differs for each at
    factor 2.
    """
    words = [
        "-m",
        *ROPE,
        f"init_from={parent}",
        "train.steps=0",
        "eval.lengths=[13,26]",
        "position.factor=1,2",
    ]
    done = command([*words, "position.scaling=linear,yarn", "out=runs"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    contents = [content_of(path.parent) for path in tmp_path.glob("runs/*/run.json")]
    position = [
        (each["config"]["position"]["scaling"], each["config"]["position"]["factor"])
        for each in contents
    ]
    losses = dict(zip(position, (each["metrics"]["eval/loss"] for each in contents), strict=True))
    same = {loss for (_, factor), loss in losses.items() if factor == 1}
    assert same == {content_of(parent)["metrics"]["eval/loss"]}
    assert len({*losses.values()}) == 3
    assert {*contents[0]["slices"]["length"]} == {"13", "26"}
    assert len({each["recipe_id"] for each in contents}) == 1


def test_a_child_trains_on_new_batches_and_resumes_exactly(parent, tmp_path, monkeypatch):
    words = [*ROPE, "position.base=500", f"init_from={parent}"]
    made = build(resolve(load(*words)))
    fresh = build(resolve(load(*ROPE)))
    assert not torch.equal(made.model.embedding.weight, fresh.model.embedding.weight)
    asked, batches = [], made.batches
    made.batches = lambda k: asked.append(k) or batches(k)
    update(made, 0)
    assert asked == [6]  # the parent took 6 steps
    run([*words, f"out={tmp_path / 'whole'}"])
    parts = [*words, f"out={tmp_path / 'parts'}"]
    folder = stopped_run(parts, tmp_path / "parts", monkeypatch)
    assert run(parts)["status"] == "finished"
    assert_same_end(only_folder(tmp_path / "whole"), folder)
    assert [each["step"] for each in metrics_of(folder)] == [0, 2, 3, 4, 6]


def test_rotations_are_dropped_and_norms_added(parent, tmp_path):
    """DroPE: the weights of a RoPE run without positions, with gains of 1, and a new warm-up."""
    words = [*TINY, f"init_from={parent}", "train.steps=2", f"out={tmp_path}"]
    cfg = resolve(load(*words, "position=none", "model.qk_norm=true"))
    child, theirs = build(cfg), checkpoint.load(parent)["model"]
    assert not list(child.model.position.parameters())
    own = child.model.state_dict()
    assert all(torch.equal(own[name], weight) for name, weight in theirs.items())
    assert {name for name in own if name not in theirs} == {
        f"layers.0.attention.qk_norm.{part}.weight" for part in (0, 1)
    }
    arms = [run([*words, f"position={scheme}"]) for scheme in ("none", "rope")]
    assert arms[0]["recipe_id"] == arms[1]["recipe_id"]
    normed = run([*words, "position=none", "model.qk_norm=true"])
    (folder,) = tmp_path.glob(f"*{normed['run_id']}")
    with pytest.raises(ConfigError, match=r"is another model; set model\.qk_norm=true"):
        resolve(load(*TINY, "position=none", f"init_from={folder}"))


def test_children_of_other_seeds_are_of_one_recipe(parent, tmp_path):
    run([*ROPE, "train.lr=0.05", "seed=1", f"out={tmp_path}"])
    parents = enumerate((parent, only_folder(tmp_path)))
    first, second = (
        identity(resolve(load(*ROPE, f"seed={seed}", f"init_from={path}")))
        for seed, path in parents
    )
    assert (first.recipe_id, first.scheme_id) == (second.recipe_id, second.scheme_id)
    assert first.run_id != second.run_id
    assert first.scheme_id != identity(resolve(load(*ROPE))).scheme_id


def test_children_of_two_schemes_stand_apart_in_results(parent, tmp_path):
    """A child with its parent's scheme keeps the plain name; other children name their parent. Kept
    runs too.
    """
    run([*TINY, "position=roper", "train.lr=0.05", f"out={tmp_path / 'roper'}"])
    roper = only_folder(tmp_path / "roper")
    for scheme, folder in (
        ("rope", parent),
        ("none", parent),
        ("none", roper),
        ("rope", roper),
        ("roper", roper),
    ):
        run(
            [
                *TINY,
                f"position={scheme}",
                f"init_from={folder}",
                "train.steps=0",
                f"out={tmp_path / 'runs'}",
            ]
        )
    kept, scheme_id = tmp_path / "kept", content_of(roper)["scheme_id"]
    kept.mkdir()
    keep(read(tmp_path / "runs")[0], kept)
    parents = read(parent)[0]
    for folder in (tmp_path / "runs", kept):
        usual, children = setups_of([*read(folder)[0], *parents], CATALOGUE)
        assert usual.variant == ""
        assert children.variant.startswith("parent.recipe_id=")
        names = [
            f"none from rope-{content_of(parent)['scheme_id']}",
            f"none from roper-{scheme_id}",
        ]
        found = sorted({*frame.load(folder).scheme})
        assert found == [*names, "rope", f"rope from roper-{scheme_id}", "roper"]


@pytest.mark.parametrize("where", ["begin_or_resume", "by_length"])
def test_a_run_of_no_steps_is_evaluated_once(parent, tmp_path, monkeypatch, where):
    """By a signal before the evaluation, or an error after it."""
    words = [*ROPE, f"init_from={parent}", "train.steps=0", f"out={tmp_path}"]
    real = getattr(loop, where)

    def interrupted(*arguments):
        if where == "by_length":
            raise RuntimeError
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, where, interrupted)
        assert (
            command(words, tmp_path).returncode
            == {"begin_or_resume": 128 + signal.SIGTERM, "by_length": 1}[where]
        )
    assert run(words)["status"] == "finished"
    assert [each["step"] for each in metrics_of(only_folder(tmp_path))] == [0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.d_model=32"], "is another model; set model.d_model=16"),
        (["task.letters=abcdefgh"], "has another vocabulary; set its task.… too"),
        (["seed=1"], "is of seed 0; set seed=0"),
        (["train.steps=-1"], "train.steps=-1: must be greater than or equal to 0"),
    ],
)
def test_a_parent_that_does_not_fit_is_one_line(parent, tmp_path, words, said):
    done = command([*ROPE, f"init_from={parent}", "out=runs", *words], tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_unfinished_or_unreadable_parent_is_one_line(parent, tmp_path):
    copy = shutil.copytree(parent, tmp_path / "copy")
    (copy / "run.json").write_bytes(
        files.as_json(files.sealed(content_of(copy) | {"status": "interrupted"}))
    )
    os.truncate(shutil.copytree(parent, tmp_path / "cut") / "weights.safetensors", 100)
    run([*ROPE, "seed=1", f"out={tmp_path / 'runs2'}"])
    other = only_folder(tmp_path / "runs2")
    shutil.copy(
        other / "weights.safetensors",
        shutil.copytree(parent, tmp_path / "mixed") / "weights.safetensors",
    )
    shutil.copytree(other, tmp_path / "mixed2")
    shutil.copy(parent / "run.json", tmp_path / "mixed2" / "run.json")
    with pytest.raises(ConfigError, match="its checkpoint is of another run"):
        load_run(tmp_path / "mixed2", [])
    answers = {
        "copy": "this run is interrupted; ",
        "mixed": "is of another run, ",
        "nowhere": "is not a run folder",
        "cut": "s: cannot be read (",
    }
    for folder, said in answers.items():
        done = command([*ROPE, f"init_from={folder}", "out=runs"], tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True)


def test_a_scheme_of_another_class_keeps_its_own_initial_parameters(parent, tmp_path):
    """Also where both name them alike: learned positions and T5's bias have a `position.table`."""
    run([*TINY, "position=learned", "train.lr=0.05", f"out={tmp_path}"])
    words = [*TINY, "position=t5_bias"]
    child = build(resolve(load(*words, f"init_from={only_folder(tmp_path)}"))).model.state_dict()
    fresh = build(resolve(load(*words))).model.state_dict()
    same = {name for name in fresh if torch.equal(child[name], fresh[name])}
    assert "position.table.weight" in same
    assert "embedding.weight" not in same


@pytest.mark.parametrize(
    ("theirs", "ours", "takes"),
    [("fox | none", "fox | none", True), ("none | fox", "fox | none", False)],
)
def test_parameters_of_layers_are_taken_for_the_same_layers(tmp_path, theirs, ours, takes):
    """They are named by the number of their part."""
    layers = [*TINY, "position=layers", "model.n_layers=2"]
    run([*layers, f"position.pattern='{theirs}'", "train.lr=0.05", f"out={tmp_path}"])
    words = [*layers, f"position.pattern='{ours}'"]
    child = build(resolve(load(*words, f"init_from={only_folder(tmp_path)}"))).model.state_dict()
    fresh = build(resolve(load(*words))).model.state_dict()
    (gate,) = (name for name in fresh if name.endswith("gates.0.weight"))
    assert torch.equal(child[gate], fresh[gate]) != takes


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("position=repo position.first=1", "position.first=2"),
        ("position=layers position.pattern='fox | fox | none'", "position.from_last=true"),
    ],
)
def test_other_layers_keep_their_initial_parameters(tmp_path, words, change):
    layers = [*TINY, "model.n_layers=3", *words.split(maxsplit=1)]
    run([*layers, "train.lr=0.05", f"out={tmp_path}"])
    words = [*layers, change]
    child = build(resolve(load(*words, f"init_from={only_folder(tmp_path)}"))).model.state_dict()
    fresh = build(resolve(load(*words))).model.state_dict()
    own = [name for name in fresh if name.startswith("position.")]
    assert own
    assert all(torch.equal(child[name], fresh[name]) for name in own)


def test_a_child_without_value_projection_takes_queries_and_keys(parent):
    words = [*TINY, "position=kv_shared_back", f"init_from={parent}"]
    child = build(resolve(load(*words))).model.state_dict()
    _, _, theirs, _ = load_run(parent, [])
    for name, weight in theirs.state_dict().items():
        kept = 2 * len(weight) // 3 if ".qkv." in name else len(weight)
        assert torch.equal(child[name], weight[:kept]), name


def test_muon_updates_layer_matrices_and_adamw_the_rest():
    """Singular values of a matrix update are near lr · 0.2 · √max(rows, columns)."""
    words = [*TINY, "train.warmup=0", "train.decay=none", "train.weight_decay=0"]
    ours, theirs = (
        build(resolve(load(*words, f"train.optimizer={name}"))) for name in ("muon", "adamw")
    )
    before = {name: p.detach().clone() for name, p in ours.model.named_parameters()}
    for trainer in (ours, theirs):
        update(trainer, 0)
    after, others = dict(ours.model.named_parameters()), dict(theirs.model.named_parameters())
    matrices = [name for name, p in after.items() if name.startswith("layers.") and p.dim() == 2]
    assert len(matrices) >= 4
    for name, p in after.items():
        if name not in matrices:
            assert torch.equal(p, others[name]), name
            continue
        scale = ours.cfg.train.lr * 0.2 * max(p.shape) ** 0.5
        values = torch.linalg.svdvals((p.detach() - before[name]).double()) / scale
        assert 0.5 < values[: min(p.shape) // 2].min() <= values.max() < 1.3, name


def test_muon_is_another_run_and_resumes_exactly(tmp_path, monkeypatch):
    words = [*TINY, "train.optimizer=muon", "train.weight_decay=0.1"]
    whole = run([*words, f"out={tmp_path / 'whole'}"])
    assert (
        whole["run_id"]
        != run([*TINY, "train.weight_decay=0.1", f"out={tmp_path / 'adamw'}"])["run_id"]
    )
    parts = [*words, f"out={tmp_path / 'parts'}"]
    folder = stopped_run(parts, tmp_path / "parts", monkeypatch)
    assert run(parts)["status"] == "finished"
    assert_same_end(only_folder(tmp_path / "whole"), folder)


@pytest.mark.slow
def test_an_ended_child_of_a_retrained_parent_stays(tmp_path, monkeypatch, capsys):
    """Until it is replaced by fresh=true, also in a sweep. Its id is that of before."""
    first = run([*ROPE, f"out={tmp_path / 'parent'}"])
    folder = only_folder(tmp_path / "parent")
    words = [*ROPE, f"init_from={folder}", "train.steps=0", f"out={tmp_path / 'child'}"]
    old = run(words)
    run([*ROPE, f"out={tmp_path / 'parent'}", "fresh=true"])
    assert run(words) == old  # to the bit the same weights
    with monkeypatch.context() as patch:  # other code
        patch.setattr(loop, "update", lambda trainer, step: update(trainer, step + 100))
        again = run([*ROPE, f"out={tmp_path / 'parent'}", "fresh=true"])
    assert again["metrics"]["eval/loss"] != first["metrics"]["eval/loss"]
    with pytest.raises(ConfigError, match="began from other weights of init_from; fresh=true"):
        run(words)
    assert content_of(only_folder(tmp_path / "child")) == old
    assert command(["-m", *words, "fresh=true"], tmp_path).returncode == 0
    new = content_of(only_folder(tmp_path / "child"))
    assert new["run_id"] == old["run_id"]
    assert new["metrics"]["eval/loss"] == again["metrics"]["eval/loss"]
    capsys.readouterr()
    assert run(words) == new


def test_damaged_weights_of_a_parent_are_named(tmp_path, parent):
    copy = shutil.copytree(parent, tmp_path / parent.name)
    flip(copy / "weights.safetensors")
    done = command([*ROPE, f"init_from={copy}", "out=runs"], tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "weights.safetensors: was changed or damaged" in done.stderr
