"""User schemes and tasks in files: training, comparison, sampling and error messages."""

import json
import re
import subprocess
import sys
from operator import itemgetter
from pathlib import Path

import pytest
from conftest import TINY, only_folder, tree
from sources import SCHEME, TASK
from trained import command, raising_signal_at

import rope_lab
from rope_lab.model.hooks import Dims
from rope_lab.results import __main__ as results
from rope_lab.sample import main as sample
from rope_lab.train import config, loop, plugin, provenance
from rope_lab.train.config import ConfigError

IN_WORKERS = pytest.param(
    ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], marks=pytest.mark.slow
)


@pytest.mark.parametrize("launcher", [[], IN_WORKERS])
def test_a_file_is_a_scheme_compared_under_its_name(write, tmp_path, launcher):
    """In a sweep with a built-in scheme, also in worker processes; needs no yaml file and no
    allowed package.
    """
    write("own_slope.py", SCHEME), write("own_task.py", TASK)
    sweep = [
        "-m",
        *launcher,
        "position=./own_slope.py,rope",
        "task=own_task.py",
        "seed=0,1",
        *TINY,
        "out=runs",
    ]
    done = command(sweep, tmp_path)
    assert done.returncode == 0, done.stderr
    contents = (json.loads(path.read_text()) for path in tmp_path.glob("runs/*/run.json"))
    found = sorted(contents, key=itemgetter("seed", "position"))
    assert [(each["task"], each["position"]) for each in found] == [
        ("own_task", n) for n in ("own_slope", "rope")
    ] * 2
    mine, rope = (each["provenance"] for each in found[:2])
    assert mine["numerics"] == rope["numerics"]
    assert mine["plugin"].keys() == {"position", "task"}
    assert rope["plugin"] == {"task": mine["plugin"]["task"]}
    assert mine["command"].startswith(
        "python -m rope_lab.train position=own_slope.py task=own_task.py seed=0 "
    )
    assert str(tmp_path) not in json.dumps(found)
    results.main([str(tmp_path / "runs")])
    page = (tmp_path / "runs" / "README.md").read_text()
    assert re.search(r"\| own_slope +\| \d\.\d+ .*n=2", page)


def in_a_new_process(words: list[str], folder: Path):
    """A command that imports the user's files anew, as a process of its own would."""
    plugin.forget_files()
    return command([*words, *TINY, "out=runs"], folder)


@pytest.mark.slow
def test_an_edited_file_is_a_new_run(write, tmp_path):
    write("own_slope.py", SCHEME)
    sweep = ["-m", "position=own_slope.py,rope", "seed=0,1"]
    assert in_a_new_process([*sweep[:2], "seed=0"], tmp_path).returncode == 0
    (old,) = (tmp_path / "runs").glob("*own_slope-s0-*")
    before = tree(old)
    write("own_slope.py", SCHEME.replace("self.slope = slope", "self.slope = 2 * slope"))
    done = in_a_new_process([*sweep, "fresh=true"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "runs").glob("*own_slope-s0-*"))) == 2
    assert tree(old) == before
    assert re.search(r"\nown_slope.py +2 ", done.stdout)
    alone = in_a_new_process(["position=own_slope.py"], tmp_path)
    assert "has already finished" in alone.stdout
    write("own_slope.py", SCHEME)  # the first code again, and its run
    again = in_a_new_process(["position=own_slope.py"], tmp_path)
    assert "has already finished" in again.stdout
    assert f"records: runs/{old.name}" in again.stdout


def test_an_edited_file_may_have_another_class(write):
    for name in ("Slope", "Steep"):
        plugin.forget_files()
        path = write("own_class.py", SCHEME.replace("Slope", name))
        assert config.load(f"position={path}").position["_target_"] == f"own_class.{name}"


def test_a_file_is_the_scheme_of_some_layers(write, tmp_path, capsys):
    """Settings, window and class as those of ours; an edited file is another run."""
    (tmp_path / "schemes").mkdir()
    path = write("schemes/own_part.py", SCHEME + "\nclass Steep(Slope):\n    pass\n")
    words = ["position=layers", f"position.pattern={path}:Steep slope:3 window:8 *2 | none"]
    words[1] = words[1].replace(str(tmp_path), ".")
    assert in_a_new_process(words, tmp_path).returncode == 0
    folder = only_folder(tmp_path / "runs")
    content = json.loads((folder / "run.json").read_text())
    recorded = "own_part.py:Steep slope:3 window:8 *2 | none"
    assert content["config"]["position"]["pattern"] == recorded
    assert content["provenance"]["plugin"].keys() == {"position"}
    assert "schemes/" not in json.dumps(content)
    with pytest.raises(SystemExit, match=r"own_part\.py:Steep: there is no such file.*--allow"):
        sample([str(folder)])
    sample([str(folder), "--allow", str(path)])
    scheme = config.build_position(config.load(*words), Dims(16, 2, 64, n_layers=3))
    assert [(scheme.in_layer(i).window, type(scheme.in_layer(i)).__name__) for i in (1, 2)] == [
        (8, "Steep"),
        (None, "PositionScheme"),
    ]
    assert scheme.in_layer(0).slope == 3.0
    path.write_text(path.read_text() + "\n# edited\n")
    assert in_a_new_process(words, tmp_path).returncode == 0
    assert len(list((tmp_path / "runs").glob("*layers-s0-*"))) == 2


def test_a_scheme_around_another_takes_its_name_or_file(write):
    named = config.load("position=kv_shift", "position.scheme=alibi")
    assert named.position["scheme"]["_target_"].endswith(".Alibi")
    rope = config.load("position=kv_shift", "position.scheme='rope base:1e4'").position
    assert rope == config.load("position=kv_shift").position
    path = write("own_inner.py", SCHEME)
    own = config.load("position=kv_shift", f"position.scheme={path}").position["scheme"]
    assert own == {"_target_": "own_inner.Slope", "slope": 1.0}
    for several in ("rope | none", "rope *2", "rope window:4"):
        with pytest.raises(ConfigError, match="must be one scheme"):
            config.load("position=kv_shift", f"position.scheme='{several}'")


def test_annotations_that_are_text_are_checked_too(write):
    write("own_later.py", "from __future__ import annotations\n" + SCHEME)
    with pytest.raises(ConfigError, match=r"position\.slope=steep: must be a valid number"):
        config.load("position=own_later.py", "position.slope=steep")


def test_an_interrupted_run_of_an_unchanged_file_resumes(write, tmp_path, monkeypatch):
    write("own_slope.py", SCHEME)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", raising_signal_at(3, loop.update))
        assert in_a_new_process(["position=own_slope.py"], tmp_path).returncode > 128
    done = in_a_new_process(["position=own_slope.py"], tmp_path)
    assert "resumes at step 3" in done.stdout
    assert only_folder(tmp_path / "runs")


def test_two_files_of_one_name_are_two_runs(write, tmp_path):
    for folder, slope in (("a", "1.0"), ("b", "2.0")):
        (tmp_path / folder).mkdir()
        write(f"{folder}/own_same.py", SCHEME.replace("= 1.0", f"= {slope}"))
        file = f"{folder}/own_same.py"
        done = in_a_new_process([f"position={file}", "+position.slope=3.0"], tmp_path)
        assert "finished after" in done.stdout, done.stderr
    assert len(list((tmp_path / "runs").glob("*own_same-s0-*"))) == 2


def test_a_run_is_read_with_the_file_that_is_allowed(write, tmp_path, capsys):
    file = write("own_slope.py", SCHEME)
    assert command([f"position={file.name}", *TINY, "out=runs"], tmp_path).returncode == 0
    folder = only_folder(tmp_path / "runs")
    with pytest.raises(SystemExit, match=r"is not in rope_lab or tasks; .*--allow own_slope\.py"):
        sample([str(folder)])
    sample([str(folder), "--allow", str(file)])
    assert "of 8 right" in capsys.readouterr().out


def test_settings_are_the_arguments_of_the_class(write):
    write("own_slope.py", SCHEME.replace("slope: float = 1.0", "slope: float = 1.0, *, power: int"))
    assert config.load("position=own_slope.py", "position.power=2").position["slope"] == 1.0
    with pytest.raises(ConfigError, match=r"position\.power: not set"):
        config.load("position=own_slope.py")


def test_one_of_several_classes_is_named_by_both(write, tmp_path):
    write("own_two.py", SCHEME + "\nclass Steep(Slope):\n    pass\n")
    assert config.load("position=own_two.py:Steep").names.position == "own_two-Steep"
    typed = provenance.typed(
        config.load(f"position={tmp_path / 'own_two.py:Steep'}", "seed=3", "out=x")
    )
    assert typed == ["position=own_two.py:Steep", "seed=3"]
    spaced = config.load("position=rope", "init_from='/tmp/my runs/one-2'")
    assert provenance.typed(spaced) == ["position=rope", "init_from='one-2'"]
    assert provenance.typed(config.load("position=rope", "~position.k"))[1:] == ["~position.k"]
    with pytest.raises(ConfigError, match=r"has several classes .*, :Slope or :Steep"):
        config.load("position=own_two.py")


@pytest.mark.parametrize("name", ["nan", "1e5", "null"])
def test_a_file_named_like_a_number_is_a_scheme(write, name):
    path = write(f"{name}.py", SCHEME)
    assert config.load(f"position={path}").names.position == name


# file name: source and expected message
UNUSABLE = {
    "own_a.py": (
        "import no_such_thing",
        r"cannot be imported, own_a\.py:1: ModuleNotFoundError: No module named",
    ),
    "own_b.py": (
        "x = 1\ny = (",
        r"cannot be imported, own_b\.py:2: SyntaxError: '\(' was never closed",
    ),
    "json.py": (SCHEME, r"there is a module json already; give the file another name"),
    "own.c.py": (
        SCHEME,
        r"a name is up to 61 of a to z, digits, _ and -; give the file another name",
    ),
    "größe.py": (SCHEME, r"a name is up to 61 of a to z"),
    f"{62 * 'o'}.py": (SCHEME, r"a name is up to 61 of a to z"),
    "own_d.py": (
        SCHEME.replace("dims, slope: float = 1.0", "slope, dims"),
        r"__init__ of Slope must take dims first",
    ),
    "roper.py": (SCHEME, r"conf/position/ has a roper; give the file another name"),
    "own_g.py": (
        SCHEME.replace(
            "def bias", "def heads(self, qkv, at):\n        a, b = 1, 2, 3\n\n    def bias"
        ),
        r"own_g\.py:10: ValueError: too many values to unpack",
    ),
    "own_r.py": (
        SCHEME.replace("        self.slope", "        raised, other = [1]\n        self.slope"),
        r"own_r\.py:7: ValueError: not enough values to unpack",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_that_cannot_be_used_is_one_line(write, tmp_path, name):
    source, message = UNUSABLE[name]
    write(name, source)
    done = command([f"position={name}", *TINY, "out=runs"], tmp_path)
    assert done.returncode == 2
    assert re.search(message, done.stderr.splitlines()[0])
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_rope_lab_imports_modules_beside_a_file(write, tmp_path):
    """In the working directory, which an installed command does not have on its path."""
    write("own_beside.py", "SLOPE = 2.0\n")
    write("own_j.py", "from own_beside import SLOPE\n" + SCHEME)
    assert not {"", str(tmp_path)} & {*sys.path}
    done = command(["position=own_j.py", *TINY, "out=runs"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_breaks_in_training_is_sent_to_the_check(write, tmp_path):
    """A wrong shape that fails only in the model's own arithmetic."""
    write("own_i.py", SCHEME + "\n    def heads(self, qkv, at):\n        return qkv[..., :4]\n")
    done = command(["position=own_i.py", *TINY, "out=runs"], tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("rope-lab check position=own_i.py says more")


def test_a_task_that_is_not_whole_says_what_it_lacks(write):
    path = write("own_h.py", TASK.partition("    def write")[0])
    with pytest.raises(ConfigError, match=r"has no class that is a Task; Own lacks write"):
        config.load(f"task={path}")


NOT_BEYOND = """
from rope_lab.model.hooks import PositionScheme

class NotBeyond(PositionScheme):
    def prepare(self, pos, dtype):
        return pos

    def embed(self, x_BTD, at):
        return x_BTD.masked_fill((at >= 60)[..., None], float("nan"))
"""


@pytest.mark.parametrize(
    "task",
    [
        ["task.string_length=6", "eval.lengths=[6,70]"],
        ["task=substring_by_prefix", "task.context=40", "eval.lengths=[40,80]"],
    ],
)
def test_non_finite_outputs_at_longer_lengths_are_a_divergence(write, tmp_path, task):
    """Also when the command is repeated."""
    write("own_beyond.py", NOT_BEYOND)
    words = ["position=own_beyond.py", *TINY, "train.seq_len=60", *task, "out=runs"]
    for _ in range(2):
        done = command(words, tmp_path)
        assert (done.returncode, done.stderr) == (3, "")
        content = json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())
        assert content["status"] == "diverged"
        assert "not finite" in content["error"]


@pytest.mark.slow
def test_a_file_named_as_our_package_is_own_code(write):
    """An edit of ./tasks.py makes another run, as that of any file; elsewhere it is imported."""
    code = "from rope_lab.train import config, provenance as p; "
    code += "print(p.code(config.load('position=./tasks.py')))"
    found = []
    for slope in ("1.0", "2.0"):
        write("tasks.py", SCHEME.replace("1.0", slope))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "'files': ['tasks.py " in done.stdout, done.stderr
        found.append(done.stdout)
    assert found[0] != found[1]


def test_an_edited_scheme_is_read_again(tmp_path, monkeypatch):
    """Also one that can no longer be read: null bytes, of UTF-16, are said in a line."""
    monkeypatch.chdir(tmp_path)
    source = "from rope_lab.model.schemes import Rotary\n\nclass Own(Rotary):\n    mark = {}\n"
    source += "    def __init__(self, dims):\n        super().__init__(dims, q=1, k=1)\n"
    for mark in (1, 22):
        (tmp_path / "read_again.py").write_text(source.format(mark))
        assert rope_lab.scheme("./read_again.py", 64, 4).mark == mark
    (tmp_path / "read_again.py").write_bytes(source.encode("utf-16"))
    with pytest.raises(ConfigError, match="null bytes"):
        rope_lab.scheme("./read_again.py", 64, 4)


def test_a_comparison_copies_a_file_named_as_our_package(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "tasks", raising=False)  # which other tests import
    (tmp_path / "tasks.py").write_text("SLOPE = 1.0\n")
    (tmp_path / "mine.py").write_text("import rope_lab\nfrom tasks import SLOPE\n")
    assert sorted(plugin.sources(tmp_path / "mine.py")) == ["mine.py", "tasks.py"]
    assert list(plugin.sources(tmp_path / "tasks.py")) == ["tasks.py"]


def test_a_clone_that_is_a_package_itself_is_ours(monkeypatch):
    """Imported from the folder around it, its place is the clone's root."""
    monkeypatch.setattr(plugin, "places_of", lambda name: [plugin.HERE.parent])
    assert plugin._is_ours("rope_lab")
    monkeypatch.setattr(plugin, "places_of", lambda name: [plugin.HERE.parent.parent])
    assert not plugin._is_ours("rope_lab")
