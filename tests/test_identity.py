"""Which run a run is: by names and settings, whatever the code calls them, in records of any age."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCHEMES
from trained import load

from rope_lab import compat
from rope_lab.identity import Identity, differences, identify
from rope_lab.results import folders
from rope_lab.train import config, provenance
from rope_lab.train.trainer import resolve


def identity(*overrides: str) -> Identity:
    return config.identity(resolve(load("device=cpu", *overrides)))


@pytest.mark.parametrize(
    "same",
    [
        "threads=1",
        "wandb.mode=disabled",
        "out=/elsewhere",
        "fresh=true",
        "device=auto",
        "position.base=10000",
        "train.steps=1e3",
        "train.lr=0.002",
        f"train.precision={resolve(load('device=cpu')).train.precision}",
    ],
)
def test_what_changes_no_number_changes_no_id(same):
    assert identity(same) == identity()
    assert identity(same).run_id == identity().run_id


def test_what_changes_a_number_changes_the_id():
    others = ["seed=1", "position=rope", "train.lr=1e-3", "eval.problems=5", "task.string_length=7", "model.n_layers=2"]
    others += [
        "position.base=500",
        "model.dropout=0.1",
        "model.init=xavier",
        "eval.lengths=[5]",
        "position.value_base=9",
    ]
    others += ["position.value_fraction=0.5", "task.shortest=5", "eval.problems_at_end=600"]
    cuda = config.identity(dataclasses.replace(resolve(load()), device="cuda"))
    ids = {identity(other).run_id for other in others} | {cuda.run_id, identity().run_id}
    assert len(ids) == len(others) + 2
    other_class = identity("position=none", "position._target_=rope_lab.model.positions.Sinusoidal")
    assert other_class.run_id != identity("position=none").run_id


def test_runs_that_differ_in_scheme_and_seed_alone_may_be_compared():
    base = identity()
    assert identity("position=rope", "seed=4").recipe_id == base.recipe_id
    assert identity("position=rope", "seed=4").scheme_id == identity("position=rope").scheme_id
    assert identity("position.q=0").scheme_id != base.scheme_id
    for other in ("train.lr=1e-3", "eval.problems=5", "task=arithmetic_addition", "train.compile=true"):
        assert identity(other).recipe_id != base.recipe_id


def test_ids_are_those_of_today_for_ever():
    """Folders and kept rows are named by them: a change here makes every run another run."""
    base = identity("train.precision=float32", "position=randomized_rope", "seed=3")
    assert (base.run_id, base.recipe_id, base.scheme_id) == IDS


IDS = ("10bcaa560d79", "fd609224560a", "c12b42")


def test_a_setting_that_was_added_later_leaves_earlier_runs_what_they_were():
    """Also within a scheme of a scheme."""
    plain = config.recorded(resolve(load("device=cpu", "position=randomized_rope")))
    for key in compat.BACKFILLED:
        group, _, name = key.partition(".")
        plain[group].pop(name, None)
        plain["position"]["scheme"].pop(name, None)
    old = config.from_record(plain)
    assert (old.model.init, old.model.attention, old.eval.lengths) == ("pytorch", "softmax", [])
    now = identity("position=randomized_rope")
    assert config.identity(old) == identify("substring_by_index", "randomized_rope", 0, plain) == now
    assert not {"position.scheme.value_base", "model.init"} & set(now.settings)


def test_a_name_of_before_is_todays_name(monkeypatch):
    monkeypatch.setitem(compat.SETTINGS, "position.radix", "position.base")
    monkeypatch.setitem(compat.CLASSES, "rope_lab.schemes.Turning", "rope_lab.model.positions.Rotary")
    plain = config.recorded(resolve(load("device=cpu", "position=randomized_rope")))
    old = {key: value for key, value in plain["position"]["scheme"].items() if key != "base"}
    old |= {"radix": 10000.0, "_target_": "rope_lab.schemes.Turning"}
    recorded = plain | {"position": plain["position"] | {"scheme": old}}
    now = identity("position=randomized_rope")
    assert identify("substring_by_index", "randomized_rope", 0, recorded) == now
    assert config.identity(config.from_record(recorded)) == now
    flat = {"position.scheme.radix": 10000, "position.scheme._target_": "rope_lab.schemes.Turning"}
    assert identify("", "", 0, flat).settings == {"position.scheme.base": 10000, "position.scheme.class": "Rotary"}


def test_every_renamed_setting_and_class_leads_to_one_that_there_is():
    known = {key for scheme in SCHEMES for key in load(f"position={scheme}").position}
    assert {new.rpartition(".")[2] for new in compat.SETTINGS.values()} <= known


def test_differences_name_each_setting_with_both_values():
    found = differences(identity("train.lr=1e-3", "position=rope"), identity())
    assert "train.lr=0.001 (now 0.002)" in found
    assert "position=rope (now roper)" in found
    assert differences(identity(), identity()) == ""


def test_a_class_may_move_and_its_code_may_be_written_otherwise(monkeypatch):
    one = 'def f(x):\n    """Doubles."""\n    return x * 2  # twice\n'
    other = "def f(\n    x,\n): return (x * 2)\n"
    assert provenance.canonical(one) == provenance.canonical(other)
    assert provenance.canonical(one) != provenance.canonical(one.replace("2", "3"))
    assert provenance.canonical("class A:\n    'text'\n    b = 1") == provenance.canonical("class A:\n    b = 1")
    assert provenance.canonical("def f():\n    return None") != provenance.canonical("def f():\n    return")


def test_the_code_of_a_run_is_that_of_the_core_its_task_and_its_plug_in(tmp_path, monkeypatch):
    """And of a plug-in's whole module, of what its class inherits, and of schemes within it; as it was imported."""
    (tmp_path / "mine_base.py").write_text(
        "from rope_lab.model.positions import PositionScheme\nclass Base(PositionScheme): pass\n"
    )
    (tmp_path / "mine.py").write_text("from mine_base import Base\nX = 1\nclass Mine(Base): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    scheme = {"_target_": "mine.Mine", "_partial_": True}
    within = {"_target_": "rope_lab.model.positions.Randomized", "_partial_": True, "longest": 64, "scheme": scheme}

    def digest(position: dict) -> str:
        for module in ("mine", "mine_base"):
            sys.modules.pop(module, None)
        provenance._tree_of.cache_clear()
        recorded = config.recorded(load()) | {"position": position}
        return provenance.code_digest(config.from_record(recorded, ["mine", "mine_base"]))

    for position in (scheme, within):
        before = digest(position)
        (tmp_path / "mine.py").write_text("# a comment\nfrom mine_base import Base\nX = 1\nclass Mine(Base): pass\n")
        assert digest(position) == before
        for name, text in (("mine.py", "X = 2\n"), ("mine_base.py", "Y = 3\n")):
            path = tmp_path / name
            whole = path.read_text()
            path.write_text(whole + text)
            assert digest(position) != before
            path.write_text(whole)
        assert before.partition("+")[0] == provenance.code_digest(load())
    assert provenance.code_digest(load()) == provenance.code_digest(load("position=alibi", "seed=3"))
    assert provenance.code_digest(load()) != provenance.code_digest(load("task=arithmetic_addition"))


def test_the_digest_of_code_is_that_of_what_was_imported(monkeypatch):
    before = provenance.digest_of(["rope_lab.model.transformer"])
    monkeypatch.setattr(Path, "read_text", lambda path: "edited = True")
    assert provenance.digest_of(["rope_lab.model.transformer"]) == before


def test_every_version_of_python_gives_code_the_same_digest():
    """Of those that are here."""
    source = Path(provenance.__file__).read_text()
    begin, end = source.index("def canonical"), source.index("for _name in CORE")
    code = f"import ast, hashlib, sys\nfrom typing import Any\n{source[begin:end]}\n"
    code += "print(hashlib.sha256(canonical(open(sys.argv[1]).read()).encode()).hexdigest())"
    found = set()
    for python in ("python3.11", "python3.12", "python3.13", "python3.14", sys.executable):
        try:
            done = subprocess.run([python, "-c", code, provenance.__file__], capture_output=True, text=True, timeout=60)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            found.add(done.stdout)
    assert len(found) == 1


OLD = Path(__file__).parent / "run_of_format_1"  # the record of a run that commit 993e7a2 made


OLD_SETTINGS = {
    "task.string_length": 4,
    "model.d_model": 8,
    "model.n_layers": 1,
    "model.n_heads": 2,
    "train.steps": 4,
    "train.batch_size": 2,
    "train.seq_len": 48,
    "train.warmup": 2,
    "train.log_every": 2,
    "train.precision": "float32",
    "eval.every": 2,
    "eval.problems": 4,
    "eval.sequences": 1,
    "device": "cpu",
}


def test_a_run_folder_of_before_is_read_under_todays_names():
    """As commit 993e7a2 wrote it: `reach`, class paths, slices by `place`, an id that hashed all of that."""
    found, problems, checked = folders.read_run(OLD)
    now = identity("position=xpos", *(f"{key}={value}" for key, value in OLD_SETTINGS.items()))
    assert (found.run_id, found.recipe_id) == (now.run_id, now.recipe_id)
    assert found.run_id != json.loads((OLD / "run.json").read_text())["run_id"]
    assert found.position_settings["scale_base"] == 512
    assert "answer_position" in found.slices
    assert not problems
    assert checked
