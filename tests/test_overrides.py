"""What people type: a mistake is answered in one line with the remedy, before anything runs; never with a traceback."""

import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import TINY
from trained import command, spawn

from rope_lab import __main__ as commands
from rope_lab.text import ConfigError
from rope_lab.train import config, overrides
from rope_lab.train.config import ROOT

# what is typed, and what the answer has to hold
MISTAKES = {
    # names
    "positon=rope": "did you mean position?",
    "lr=1e-3": "did you mean train.lr?",
    "steps=10": "did you mean train.steps?",
    "learning_rate=1": "did you mean train.lr?",
    "warmup_steps=5": "did you mean train.warmup?",
    "size=3": "did you mean train.batch_size?",
    "train/lr=1e-3": "did you mean train.lr?",
    "epochs=3": "--help",
    "wandb=off": "wandb.mode",
    "=rope": "names no setting",
    # what is chosen
    "position=rop": "did you mean rope?",
    "position=RoPE": "did you mean rope?",
    "position=rope.yaml": "did you mean rope?",
    "position=conf/position/rope.yaml": "did you mean rope?",
    "position=sin": "sinusoidal or sinusoidal_product?",
    "position=xyz": "there are alibi, ",
    "position=": "there are alibi, ",
    "position=null": "did you mean none?",
    "position=5": "there are alibi, ",
    "task=null": "there are arithmetic_addition, ",
    "task=addition": "did you mean arithmetic_addition?",
    "task=index": "substring_by_index",
    "scale=null": "there are full_width, length, paper, quick, reduced",
    "scale=small": "there are full_width, length, paper, quick, reduced",
    "scale=paper task=indirect_indexing": "task=indirect_indexing has quick",
    "-m position=rope,rop": "position=rop: there is no such file in conf/position/; did you mean rope?",
    "--cfg job position=rop": "did you mean rope?",
    "+position=rope": "choose another with position=rope",
    "~position": "a run needs one",
    # settings of a task or scheme
    "position=alibi position.q=1": "position=alibi has no such setting; it has none",
    "position.q=1 position=alibi": "position=alibi has no such setting",
    "position.qq=1": "position=roper has no such setting; did you mean position.q?",
    "-m position=rope,alibi position.q=1": "position=alibi has no such setting",
    "position=randomized_rope position.scheme.bse=3": "did you mean position.scheme.base?",
    "task.string_lenght=3": "did you mean task.string_length?",
    # form
    "position = rope": "write it without spaces: position=rope",
    "position =rope": "write it without spaces: position=rope",
    "position= rope": "write it without spaces: position=rope",
    "-m seed=0, 1": "write it without spaces: seed=0,1",
    "eval.lengths=[6, 8, 10] seed=1": "write it without spaces: eval.lengths=[6,8,10]",
    "--position rope": "write position=rope",
    "--position=rope": "write position=rope",
    "-position=rope": "write position=rope",
    "--batch-size 4": "write train.batch_size=4",
    "--lr --fresh": "write train.lr=…",
    "-n 5": "-n: there is no such option",
    "rope": "did you mean position=rope?",
    "RoPE": "did you mean position=rope?",
    "length": "did you mean scale=length?",
    "position rope": "did you mean position=…?",
    "task/substring_by_index": "did you mean task=substring_by_index?",
    "position:rope": "did you mean position=rope?",
    "position==rope": "did you mean position=rope?",
    "help": "--help",
    "train.lr=1e-3,": "did you mean train.lr=1e-3?",
    "train.lr=10^-3": "must be a number",
    "'eval.lengths=(6,8)'": "did you mean eval.lengths=[6,8]?",
    "'out=a=b'": "did you mean \"out='a=b'\"?",
    "'out=a(b)'": "needs quotes",
    f"eval.lengths={[*range(1, 20_000)]}".replace(" ", ""): "at most 10,000 are read",
    # several values
    "position=rope,roper": "several values are a sweep, add -m",
    "position=[rope,roper]": "write -m position=rope,roper",
    "-m position=[rope,roper]": "write -m position=rope,roper",
    "seed=0 seed=1 seed=2": "write -m seed=0,1",
    "'seed=range(0,3)'": "several values are a sweep, add -m",
    "seed=[0,1]": "-m seed=0,1",
    "position.base=[10,100]": "-m position.base=10,100",
    "seed=0-4": "-m 'seed=range(0,5)'",
    "eval.lengths=6,8": "as a list: eval.lengths=[6,8]",
    # values
    "seed=a": "seed=a: must be a number",
    "seed=-1": "seed=-1: must be greater than or equal to 0",
    "train.lr=fast": "train.lr=fast: must be a number",
    "eval.lengths=null": "[] for none",
    "device=gpu": "'cuda'",
    "wandb.mode=on": "'offline'",
}


def answer(line: str) -> config.Config | None:
    """The configuration that a command line gives, if it is not one of a sweep. Raises ConfigError."""
    settings = config.described()
    given, _ = overrides.read_arguments(shlex.split(line), settings)
    overrides.check_overrides(given.overrides, [config.CONF], settings, given.multirun)
    return None if given.multirun else config.load(*given.overrides)


@pytest.mark.parametrize("line", MISTAKES, ids=[line[:60] for line in MISTAKES])
def test_a_mistake_is_answered_with_the_remedy_in_one_line(line):
    with pytest.raises(ConfigError) as caught:
        answer(line)
    message = str(caught.value)
    assert MISTAKES[line] in message
    assert "\n" not in message
    assert len(message) < 350


def test_of_two_mistakes_the_first_is_answered_with_its_own_reason_alone():
    with pytest.raises(ConfigError, match=r"^train\.steps=0: must be greater than or equal to 1$"):
        answer("train.lr=fast train.steps=0")


def test_no_group_of_settings_and_no_setting_is_taken_for_another():
    """Each can be given by its whole name at its default value."""
    defaults = config.load()
    for key in config.described():
        value = defaults
        for part in key.split("."):
            value = getattr(value, part)
        if key not in ("task", "position"):
            assert answer(f"{key}={'null' if value is None else value}".replace(" ", "")) is not None
    with pytest.raises(ConfigError, match=r"train is a group of settings: train\.steps, "):
        answer("train=5")


@pytest.mark.parametrize(
    ("line", "group", "key", "value"),
    [
        ("train.steps=1e3", "train", "steps", 1000),
        ("eval.lengths=26", "eval", "lengths", [26]),
        ("eval.lengths=2.6e1", "eval", "lengths", [26]),
        ("eval.problems_at_end=1e3", "eval", "problems_at_end", 1000),
        ("task.string_length=1e1", "task", "string_length", 10),
        ("position.v=2.0", "position", "v", 2),
        ("'eval.lengths=[6, 8]'", "eval", "lengths", [6, 8]),
    ],
)
def test_a_number_may_be_written_in_other_ways(line, group, key, value):
    found = getattr(answer(line), group)
    found = found[key] if isinstance(found, dict) else getattr(found, key)
    assert found == value
    assert all(type(each) is int for each in (found if isinstance(found, list) else [found]))


def test_options_may_stand_anywhere():
    """Hydra reads them before the overrides alone."""
    for line in ("position=rope -m seed=0,1 train.lr=1e-3", "position=rope seed=0,1 train.lr=1e-3 --multirun"):
        _, words = overrides.read_arguments(line.split(), {})
        assert words[0] in ("-m", "--multirun")
        assert words[1:] == ["position=rope", "seed=0,1", "train.lr=1e-3"]
    given, words = overrides.read_arguments(["out=a", "--cfg", "job", "out=b", "-cd", "folder"], {})
    assert (given.cfg, given.config_dir, given.overrides) == ("job", "folder", ["out=a", "out=b"])
    assert words == ["--cfg", "job", "-cd", "folder", "out=a", "out=b"]


def test_a_folder_of_ones_own_is_searched_for_names_too(tmp_path):
    (tmp_path / "position").mkdir()
    (tmp_path / "position" / "mine.yaml").write_text((config.CONF / "position" / "rope.yaml").read_text())
    settings = config.described()
    overrides.check_overrides(["position=mine", "position.q=2"], [config.CONF, tmp_path], settings)
    overrides.check_overrides(["position=theirs", "hydra.searchpath=[/theirs]"], [config.CONF], settings)
    with pytest.raises(ConfigError, match="did you mean mine"):
        overrides.check_overrides(["position=mime"], [config.CONF, tmp_path], settings)


# what is typed beside a run's settings, and what stderr has to hold
OF_HYDRA = {
    "hydra.nothing=5": "Could not override 'hydra.nothing'; look at hydra.nothing=5",
    "-m hydra/launcher=jobli seed=0,1": "basic joblib",
    "-m hydra.launcher.n_jobs=2 seed=0,1": "may need hydra/launcher=joblib",
    "-m hydra.sweep.subdir=/dev/null/x seed=0,1": "look at hydra.sweep.subdir=/dev/null/x",
    "-m 'hydra.sweep.subdir=${nothing}' seed=0,1": "'nothing' not found; look at hydra.sweep.subdir",
    "--resolve": "--resolve flag",
    "--config-dir /nowhere": "'/nowhere' not found",
    "position=rope,rop": "several values",
    "~scale": "a run needs one",
}


@pytest.mark.parametrize("line", OF_HYDRA)
def test_what_hydra_refuses_is_one_line_too(line, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = command([*tiny, *shlex.split(line)], tmp_path)
    assert done.returncode in (1, 2)
    (said,) = done.stderr.splitlines()
    assert OF_HYDRA[line] in said
    assert not (tmp_path / "runs").exists()


def test_what_goes_wrong_in_a_run_is_shown_from_there_on(tiny, tmp_path, monkeypatch):
    def fail(*_):
        raise LookupError("a mistake of ours")

    monkeypatch.setattr("rope_lab.launch.main.train", fail)
    done = command(tiny, tmp_path)
    assert done.returncode == 1
    assert "LookupError: a mistake of ours" in done.stderr
    assert 'in fail\n    raise LookupError("a mistake of ours")' in done.stderr
    assert "site-packages/hydra" not in done.stderr


def test_a_sweep_with_its_option_in_the_middle_runs(tiny, tmp_path):
    assert command([*tiny, "position=rope", "-m", "seed=0,1"], tmp_path).returncode == 0
    assert len(list((tmp_path / "runs").glob("substring_by_index-rope-s[01]-*/run.json"))) == 2


def test_a_launcher_that_cannot_be_is_one_line(tmp_path):
    """In a process of its own: a launcher of workers changes how that takes signals."""
    done = spawn([*TINY, "out=runs", "seed=0,1", "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0"], tmp_path)
    assert done.returncode == 1
    assert "n_jobs == 0" in done.stderr
    assert "look at hydra/launcher=joblib hydra.launcher.n_jobs=0" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_commands_are_listed(capsys):
    assert commands.main([]) == 0
    shown = capsys.readouterr().out
    files = [
        path.relative_to(ROOT)
        for path in (ROOT / "rope_lab").rglob("*.py")
        if 'if __name__ == "__main__"' in path.read_text()
    ]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__main__") for path in files} - {"rope_lab"}
    assert len(modules) > 8
    for module in modules:
        assert f"python -m {module} " in shown
    assert commands.main(["train", "position=rope"]) == 2
    assert "did you mean python -m rope_lab.train position=rope?" in capsys.readouterr().err


WITHOUT = "import sys; sys.argv = ['-m']; sys.path.insert(0, {root!r}); {before}; import rope_lab; import {module}"


@pytest.mark.parametrize(
    ("before", "module", "said"),
    [
        ("sys.modules['hydra'] = None", "rope_lab.train", "hydra is not installed for"),
        ("sys.modules['pandas'] = None", "rope_lab.results", "pandas is not installed for"),
        ("sys.version_info = (3, 10)", "rope_lab.train", "needs Python 3.11 or newer"),
    ],
)
def test_another_python_than_that_of_the_checkout_is_two_lines(before, module, said):
    code = WITHOUT.format(root=str(ROOT), before=before, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert said in first
    assert "make setup" in second
    assert "source .venv/bin/activate" in second


def test_an_installation_without_conf_says_how_to_install(tmp_path):
    for package in ("rope_lab", "tasks"):  # what `pip install .` copies
        shutil.copytree(ROOT / package, tmp_path / package)
    done = subprocess.run([sys.executable, "-m", "rope_lab.train"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "no conf/" in line
    assert "pip install -e ." in line
