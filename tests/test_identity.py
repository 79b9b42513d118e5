"""Run identity from names and settings, and the digest of a user's own files."""

import dataclasses
import importlib
import importlib.metadata
import json
from pathlib import Path

import pytest
import torch
from conftest import SCHEMES, TASKS
from sources import SCHEME
from trained import load

from rope_lab.identity import BACKFILLED, NUMERICS, Identity, identify
from rope_lab.model import schemes
from rope_lab.train import config, modules, plugin, provenance
from rope_lab.train.trainer import resolve

GOLDEN = Path(__file__).with_name("identities.json")


def identity(*overrides: str) -> Identity:
    return config.identity(resolve(load("device=cpu", *overrides)))


def test_what_changes_no_number_changes_no_id():
    local = ["threads=1", "wandb.mode=disabled", "out=/elsewhere", "fresh=true", "device=auto"]
    defaults = ["position.base=10000", "train.steps=1e3", "train.lr=0.002"]
    precision = resolve(load("device=cpu")).train.precision
    assert identity(*local, *defaults, f"train.precision={precision}").run_id == identity().run_id


def test_what_changes_a_number_changes_the_id():
    others = [
        "seed=1",
        "position=rope",
        "train.lr=1e-3",
        "eval.problems=5",
        "task.string_length=7",
        "model.n_layers=2",
    ]
    others += [
        "position.base=500",
        "model.dropout=0.1",
        "model.init=xavier",
        "eval.lengths=[5]",
        "task.shortest=5",
    ]
    others += ["position.value_base=9", "position.value_fraction=0.5", "eval.problems_at_end=600"]
    cuda = config.identity(dataclasses.replace(resolve(load()), device="cuda"))
    ids = {identity(other).run_id for other in others} | {cuda.run_id, identity().run_id}
    assert len(ids) == len(others) + 2
    other_class = identity("position=none", "position._target_=rope_lab.model.schemes.Sinusoidal")
    assert other_class.run_id != identity("position=none").run_id


def test_runs_that_differ_in_scheme_and_seed_are_comparable():
    base = identity()
    assert identity("position=rope", "seed=4").recipe_id == base.recipe_id
    assert identity("position=rope", "seed=4").scheme_id == identity("position=rope").scheme_id
    assert identity("position.q=0").scheme_id != base.scheme_id
    for other in (
        "train.lr=1e-3",
        "eval.problems=5",
        "task=arithmetic_addition",
        "train.compile=true",
    ):
        assert identity(other).recipe_id != base.recipe_id


def test_ids_are_those_of_today_for_ever():
    """They name folders and kept records: a change here gives every run another identity."""
    base = identity("train.precision=float32", "position=randomized_rope", "seed=3")
    assert (base.run_id, base.recipe_id, base.scheme_id) == (
        "10bcaa560d79",
        "fd609224560a",
        "c12b42",
    )


def test_the_run_id_contains_a_users_file():
    plain = identity()
    mine = dataclasses.replace(plain, code={"position": "1f2e"})
    assert (
        len({plain.run_id, mine.run_id, dataclasses.replace(plain, code={"task": "1f2e"}).run_id})
        == 3
    )
    assert (mine.recipe_id, mine.scheme_id) == (plain.recipe_id, plain.scheme_id)


def ids_of(overrides: str) -> dict[str, str]:
    """Ids of a configuration, whatever this machine has: device and precision are fixed."""
    found = config.identity(load("device=cpu", "train.precision=float32", *overrides.split()))
    return {"run_id": found.run_id, "recipe_id": found.recipe_id, "scheme_id": found.scheme_id}


@pytest.mark.parametrize(
    "overrides",
    [*(f"position={scheme}" for scheme in SCHEMES), *(f"task={task}" for task in TASKS)],
)
def test_new_settings_do_not_change_kept_run_ids(overrides):
    """A new scheme or task gets its line in identities.json by `python tests/test_identity.py`."""
    golden = json.loads(GOLDEN.read_text())
    assert ids_of(overrides) == golden[overrides], (
        "a setting was added or a default changed: name it in BACKFILLED in rope_lab/identity.py, "
        "with the value that earlier runs had"
    )


def test_a_setting_added_later_leaves_earlier_ids():
    """Also within a scheme that another one wraps."""
    plain = config.recorded(resolve(load("device=cpu", "position=randomized_rope")))
    for key in BACKFILLED:
        group, _, name = key.partition(".")
        plain[group].pop(name, None)
        plain["position"]["scheme"].pop(name, None)
    old = config.from_record(plain)
    assert (old.model.init, old.model.attention, old.eval.lengths) == ("pytorch", "softmax", [])
    now = identity("position=randomized_rope")
    assert (
        config.identity(old) == identify("substring_by_index", "randomized_rope", 0, plain) == now
    )
    assert not {"position.scheme.value_base", "model.init"} & set(now.settings)


def test_ours_has_numerics_and_no_digest():
    for overrides in (
        ["position=alibi"],
        ["position=lerope"],
        ["position=randomized_rope", "task=text"],
    ):
        code = provenance.code(load(*overrides))
        assert code == {"numerics": NUMERICS, "plugin": {}, "files": []}


def test_a_plug_ins_code_is_its_file_and_local_imports(tmp_path, monkeypatch):
    """Includes indirect imports and packages, also if one of our schemes wraps the plug-in; no
    other files.
    """
    texts = {
        "mine_own.py": "from helper_own import GAIN\n"
        "from rope_lab.model.hooks import PositionScheme\n"
        "import numpy\nclass Mine(PositionScheme): pass\n",
        "helper_own.py": "def late():\n    from parts_own import other\nGAIN = 1\n",
        "parts_own/__init__.py": "",
        "parts_own/other.py": "from . import third\nX = 1\n",
        "parts_own/third.py": "X = 1\n",
        "beside.py": "Y = 1\n",
    }
    (tmp_path / "parts_own").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    scheme = {"_target_": "mine_own.Mine"}
    within = {"_target_": "rope_lab.model.schemes.Randomized", "longest": 64, "scheme": scheme}

    def digest(position: dict) -> str:
        plugin.forget_files()
        recorded = config.recorded(load()) | {"position": position}
        found = provenance.code(config.from_record(recorded, [str(tmp_path / "mine_own.py")]))
        assert found["numerics"] == NUMERICS
        return found["plugin"]["position"]

    (tmp_path / "mine_own").mkdir()  # a folder of that name, for a plan
    before = digest(scheme)
    assert digest(within) == before
    for name, text in texts.items():
        (tmp_path / name).write_text(text + "Z = 2\n")
        assert (digest(scheme) == before) == (name == "beside.py"), name
        (tmp_path / name).write_text(text)
    assert digest(scheme) == before


REACHES = {
    "in the working directory": "from helper_own import GAIN",
    "on a line with another": "import sys; from helper_own import GAIN",
    "by its name": "import importlib\nGAIN = importlib.import_module('helper_own').GAIN",
    "after a byte-order mark": "\ufefffrom helper_own import GAIN",
    "within a function": "def late():\n    import helper_own",
    "from a package": "from theirs_own.parts import GAIN",
}


@pytest.fixture
def digest_of(write, tmp_path, monkeypatch):
    """Digest the plug-in lab/reach_own.py of this source, loaded again."""
    monkeypatch.syspath_prepend(tmp_path)
    for folder in ("lab", "theirs_own", "site-packages"):
        (tmp_path / folder).mkdir()

    def digest_of(source: str) -> str:
        write("lab/reach_own.py", source + "\n" + SCHEME)
        plugin.forget_files()
        cfg = config.load("position=lab/reach_own.py")
        return provenance.code(cfg)["plugin"]["position"]

    yield digest_of
    plugin.forget_files()


@pytest.mark.parametrize("source", REACHES.values(), ids=REACHES)
def test_the_digest_covers_each_way_to_import_a_helper(write, digest_of, source):
    write("theirs_own/parts.py", "from helper_own import GAIN")
    write("helper_own.py", "GAIN = 1")
    before = digest_of(source)
    assert digest_of(source) == before
    write("helper_own.py", "GAIN = 2  # longer")
    assert digest_of(source) != before


def test_the_digest_covers_the_version_of_an_installed_base(
    write, digest_of, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    info = tmp_path / "site-packages" / "basis_own-1.0.dist-info"
    info.mkdir()
    write("site-packages/basis_own.py", "class Base: pass")
    (info / "top_level.txt").write_text("basis_own\n")
    digests = []
    for version in ("1.0", "1.1"):
        (info / "METADATA").write_text(f"Name: basis-own\nVersion: {version}\n")
        modules._distributions.cache_clear()
        digests.append(digest_of("from basis_own import Base"))
    assert digests[0] != digests[1]


def test_the_digest_is_of_what_was_loaded(write, digest_of, tmp_path):
    """Not of a later edit, and the same in a process that has loaded other files."""
    write("helper_own.py", "GAIN = 1")
    before = digest_of("from helper_own import GAIN")
    write("helper_own.py", "GAIN = 2  # longer")
    cfg = config.load("position=lab/reach_own.py")
    assert provenance.code(cfg)["plugin"]["position"] == before
    write("helper_own.py", "GAIN = 1")
    plugin.forget_files()
    write("other_own.py", "import helper_own\n" + SCHEME)
    config.load("position=other_own.py")
    assert provenance.code(config.load("position=lab/reach_own.py"))["plugin"]["position"] == before


def test_torch_is_recorded_under_the_version_that_it_says_itself(monkeypatch):
    """Package metadata may lack the suffix +cu130. The record is a plain str, which checkpoints may
    hold.
    """
    monkeypatch.setattr(importlib.metadata, "version", lambda package: "0")
    found = provenance.provenance(load(), torch.device("cpu"), None)["versions"]["torch"]
    assert (found, type(found)) == (torch.__version__, str)


@pytest.mark.parametrize("former", ["positions", "more_positions", "biases", "shared", "content"])
def test_former_modules_of_schemes_still_serve(former):
    """Users' files import from them, and run.json of older runs names them."""
    assert importlib.import_module(f"rope_lab.model.{former}").KerpleLog is schemes.KerpleLog
    now = identity("position=kerple_log")
    assert (
        identity("position=kerple_log", f"position._target_=rope_lab.model.{former}.KerpleLog")
        == now
    )


def main() -> None:
    """Add the ids of new schemes and tasks; those of others stay as they are."""
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for group, names in (("position", SCHEMES), ("task", TASKS)):
        for name in names:
            known.setdefault(f"{group}={name}", ids_of(f"{group}={name}"))
    lines = [f"{json.dumps(key)}: {json.dumps(ids)}" for key, ids in sorted(known.items())]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
