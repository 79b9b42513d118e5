"""Commands: output that survives a closed pipe, the list of commands and its completion, `list`,
`rm`, and an unsuitable Python.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from conftest import ROOT, TINY, only_folder
from trained import run, same_process

import rope_lab
from rope_lab import __main__ as commands
from rope_lab import completion, files, rm
from rope_lab import list as listed
from rope_lab.exporting.command import TARGETS
from rope_lab.results.records.folders import read
from rope_lab.train.run_folder import RunFolder

PROGRAM = f"{sys.executable} -P -m rope_lab"
KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ASCII = "LANG=C LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
SCREENS = {  # shell lines; {} is the command
    "stderr closed": "{} 2>&-",
    "stdout closed": "{} >&-",
    "all full": "{} >/dev/full 2>&1",
    "ASCII": ASCII + " {}",
}
SHOWING = """
import logging, time, tqdm, warnings
from rope_lab import command
command.begin()
for _ in range(3):
    print("rotate 1 · −2 → \\udcff", flush=True)
    logging.warning("a warning · −2 → \\udcff")
    warnings.warn("another · −2 → \\udcff")
    for _ in tqdm.tqdm(range(3), desc="·−→", mininterval=0): pass
    time.sleep(0.05)
print("left in the buffer · " * 10_000, end="")
open("done", "w").close()
"""


def in_shell(line: str, folder) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "how", [h if h == "ASCII" else pytest.param(h, marks=pytest.mark.slow) for h in SCREENS]
)
def test_nothing_shown_stops_a_command(tmp_path, how):
    (tmp_path / "showing.py").write_text(SHOWING)
    done = in_shell(SCREENS[how].replace("{}", f"{sys.executable} showing.py", 1), tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "done").exists()
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if how == "ASCII":
        assert done.stdout.startswith("rotate 1 ? ?2 ? ?\n")


@pytest.mark.slow
def test_a_run_goes_on_where_nobody_reads(tmp_path):
    """Called as `python -m rope_lab train`; the reader of its pipe exits at once."""
    call = shlex.join([sys.executable, "-m", "rope_lab", "train", *TINY, "out=runs"])
    done = in_shell(f"{call} 2>&1 | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert done.returncode == 0
    content = json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())
    assert content["status"] == "finished"
    assert content["metrics"] == run([*TINY, f"out={tmp_path / 'again'}"])["metrics"]


@pytest.mark.parametrize("name", commands.MODULES)
def test_each_command_is_listed_and_completed_as_its_help_says(name, capsys):
    assert f"rope-lab {name} " in commands.usage()
    with same_process(), suppress(SystemExit):
        commands.run([name, "--help"])
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) > 2
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown)) | {"--help"}
    assert options == {*completion.options(name)}


@pytest.mark.parametrize(
    ("name", "missing"), [("table", "TABLE"), ("score", "SCHEME"), ("sample", "FOLDER")]
)
def test_only_what_is_required_is_missed(name, missing, capsys):
    with same_process(), pytest.raises(SystemExit):
        commands.run([name])
    assert capsys.readouterr().err.endswith(f"are required: {missing}\n")


def test_a_mistyped_command_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as ended:
        commands.run(["trian"])
    assert ended.value.code == 2
    assert "did you mean train?" in capsys.readouterr().err
    commands.run(["--version"])
    assert capsys.readouterr().out == f"rope-lab {rope_lab.__version__}\n"


OFFERED = {
    "rope-lab tra": ["train"],
    "rope-lab  tra": ["train"],
    "rope-lab show rope_m": ["rope_mixed", "rope_mixed_roper"],
    "rope-lab score ./mine.py train.be": ["train.beta1=", "train.beta2="],
    "rope-lab export ro": ["rope", "roper"],
    "rope-lab extend RUN --at": ["--at-most"],
    "rope-lab table quick --l": ["--list"],
    "rope-lab --v": ["--version"],
    "rope-lab train pos": ["position="],
    "rope-lab train position=roper_f": ["position=roper_fast"],
    "rope-lab sweep position=rope,ali": ["position=rope,alibi"],
    "rope-lab sweep scale=quick task=need": ["task=needle"],
    "rope-lab train position=xpos position.s": ["position.scale_base="],
    "rope-lab train task=needle task.n": ["task.needle="],
    "rope-lab train position.value_b": ["position.value_base="],
    "rope-lab table sch": ["schemes"],
    "rope-lab results --into": ["--into"],
    "rope-lab probe FOLDER --al": ["--allow"],
    "rope-lab export roper --to ": list(TARGETS),
    "rope-lab compare roper rope --task need": ["needle"],
    "rope-lab show rope --html ro": [],
    "rope-lab ladder position=rope,roper --to ": [],
    "rope-lab train position=./mine.py lr=": [],
    "rope-lab nothing --h": [],
}


@pytest.mark.parametrize("line", OFFERED)
def test_commands_options_settings_and_values_are_completed(line, capsys):
    completion.main(["--line", line])
    assert capsys.readouterr().out.split() == OFFERED[line]


IN_SHELLS = {
    # Bash splits words at `=`, and replaces what stands behind it.
    "bash": """
        source ./script; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}
        _rope_lab rope-lab 'ali' 2>/dev/null; echo $COMPREPLY
    """,
    "fish": "source ./script; complete -C '{line}'",
    "zsh": """
        compset() {{ }}; _files() {{ }}; compadd() {{ print ${{argv:#-*}} }}
        words=({line}); CURRENT=$#words; PREFIX=$words[-1]; source ./script
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", IN_SHELLS)
def test_a_shell_completes_by_its_script(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(completion.SCRIPTS[shell])
    (tmp_path / "rope-lab").write_text(f'#!/bin/sh\n{PROGRAM} "$@"')
    (tmp_path / "rope-lab").chmod(0o755)
    line = "rope-lab sweep position=rope,ali"
    code = f"PATH={tmp_path}:$PATH\n" + IN_SHELLS[shell].format(line=line)
    if shell == "fish":
        code = f"set -x PATH {tmp_path} $PATH\n" + IN_SHELLS[shell].format(line=line)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [shell, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.split()[-1].endswith("alibi"), done.stderr


OTHER_MODULES = ["results", "sample", "probe", "report", "check"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("train", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.torture) for name in OTHER_MODULES),
    ],
)
def test_a_command_is_a_module_too(name, tmp_path):
    done = in_shell(f"{sys.executable} -m rope_lab.{name} --help", tmp_path)
    assert done.returncode == 0
    assert f"rope-lab {name}" in done.stdout


def test_runs_are_listed_newest_first(folder, tmp_path, capsys):
    second = shutil.copytree(folder, folder.parent / "deeper" / "other")
    os.utime(folder / "run.json", (0, 0))
    content = json.loads((folder / "run.json").read_text())
    # A task with loss as its main metric.
    content |= {
        "status": "running",
        "task": "substring_by_prefix",
    }
    # Its progress; run.json is from its start.
    (second / "metrics.jsonl").write_text('{"step": 2}\n')
    content["progress"]["steps"] = 0
    (second / "run.json").write_bytes(files.as_json(files.sealed(content)))
    listed.main([str(folder.parent)])
    _, newest, oldest = capsys.readouterr().out.splitlines()
    assert newest.split()[:4] == [
        "interrupted?",
        "2/6",
        "loss",
        f"{content['metrics']['eval/loss']:.4f}",
    ]
    assert "other" in newest
    assert oldest.startswith("finished ")
    assert f"accuracy {content['metrics']['eval/accuracy']:.3f}" in oldest
    assert folder.name in oldest
    (second / "metrics.jsonl").write_text('{"step": 2}\n{"st')  # killed while writing
    listed.main([str(folder.parent)])
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["interrupted?", "2/6"]
    with RunFolder(second):
        listed.main([str(folder.parent)])
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["running", "2/6"]
    for damaged in ("{", '{"format": 1}'):
        (second / "run.json").write_text(damaged)
        listed.main([str(folder.parent)])
        assert capsys.readouterr().out.splitlines()[1].startswith("unreadable ")
    (tmp_path / "empty").mkdir()
    listed.main([str(tmp_path / "empty")])
    assert "there are no runs" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="nowhere: is not a folder"):
        listed.main([str(tmp_path / "nowhere")])


@pytest.mark.slow
def test_a_run_without_a_sign_of_life_is_interrupted(folder, capsys):
    content = json.loads((folder / "run.json").read_text()) | {"status": "running"}
    (folder / "run.json").write_bytes(files.as_json(files.sealed(content)))
    training = "import sys; from pathlib import Path; from rope_lab.train.run_folder import claim; "
    training += f"lock = claim(Path(sys.argv[1])); {KILL}"
    subprocess.run([sys.executable, "-c", training, str(folder)], cwd=ROOT)
    for age, status in ((5, "running"), (65, "interrupted?")):
        then = time.time() - age
        os.utime(folder / ".lock", (then, then))
        listed.main([str(folder.parent)])
        assert capsys.readouterr().out.splitlines()[1].split()[0] == status


@pytest.fixture
def two_rates(folder) -> list[str]:
    """Beside `folder` a run at another learning rate; the names of both folders."""
    other = folder.with_name(folder.name.replace("-s0-", "-s1-"))
    shutil.copytree(folder, other)
    content = json.loads((other / "run.json").read_text()) | {"run_id": "0" * 12}
    content["config"]["train"]["lr"] = 0.5
    (other / "run.json").write_bytes(files.as_json(files.sealed(content)))
    return [folder.name, other.name]


def test_a_list_tells_runs_apart_by_their_settings(folder, two_rates, capsys):
    listed.main([str(folder.parent)])
    lines = capsys.readouterr().out.splitlines()[1:]
    rates = {name: line.split()[-1] for line in lines for name in two_rates if name in line}
    assert rates == dict(zip(two_rates, ["train.lr=0.002", "train.lr=0.5"], strict=True))


def test_a_list_fits_into_the_terminal(folder, two_rates, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.chdir(folder.parent.parent)
    listed.main(["runs"])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert f"runs/{folder.name}  train.lr=0.002" in shown
    monkeypatch.setenv("COLUMNS", "40")
    listed.main(["runs"])
    narrow = capsys.readouterr().out
    assert narrow.split() == shown.split()
    assert "\n      train.lr=0.002\n" in narrow


def test_a_run_reached_by_a_link_is_listed_once(folder, tmp_path, capsys):
    (tmp_path / "chosen").mkdir()
    for name in ("first", "again"):
        (tmp_path / "chosen" / name).symlink_to(folder)
    listed.main([str(tmp_path / "chosen")])
    assert capsys.readouterr().out.count("finished") == 1
    assert len(read(tmp_path / "chosen")[0]) >= 1  # `results` counts it too


def test_records_about_to_be_replaced_are_not_listed(folder, capsys):
    shutil.copytree(folder, folder / ".aside")
    listed.main([str(folder.parent)])
    assert capsys.readouterr().out.count("finished") == 1


def test_an_empty_name_deletes_nothing(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit, match="name the folder of a run"):
        rm.main(["--yes", ""])
    assert (folder / "run.json").exists()


def test_only_run_folders_are_deleted_and_only_what_is_ours(folder, tmp_path, capsys):
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "run.json").write_text("{}")
    for path in ("link", "theirs", folder.name):
        with pytest.raises(SystemExit, match="is a link, or has no readable"):
            rm.main(["--yes", str(folder), str(tmp_path / path)])
    with pytest.raises(SystemExit, match="nothing was deleted; --yes"):
        rm.main([str(folder)])
    with RunFolder(folder), pytest.raises(SystemExit, match="is in use"):
        rm.main([str(folder), "--yes"])
    assert (folder / "weights.safetensors").exists()
    (folder / "notes.txt").write_text("mine")
    rm.main([str(folder), f"{folder}/../{folder.name}", "--yes"])
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert capsys.readouterr().out.count("files that are not ours stay") == 1


@pytest.mark.slow
def test_a_missing_package_is_two_lines(tmp_path):
    code = "sys.modules['hydra'] = None; from rope_lab.__main__ import main; main(['train'])"
    done = in_shell(shlex.join([sys.executable, "-c", f"import sys; {code}"]), tmp_path)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("hydra is not installed for")
    assert "make setup" in second


@pytest.mark.parametrize("name", ["list", "train", "--help"])
def test_a_deleted_working_directory_is_one_line(name, tmp_path):
    (tmp_path / "gone").mkdir()
    done = in_shell(f"rmdir {tmp_path}/gone; {PROGRAM} {name}", tmp_path / "gone")
    assert done.returncode == 1
    assert done.stderr == "the working directory was deleted: change to another one\n"


def test_a_checkout_whose_code_does_not_run_is_told(tmp_path):
    (tmp_path / "rope_lab").mkdir()
    (tmp_path / "rope_lab" / "__main__.py").touch()
    (tmp_path / "runs").mkdir()
    for folder in (tmp_path, tmp_path / "runs"):
        (warning,) = in_shell(f"{PROGRAM} --help", folder).stderr.splitlines()
        assert f"{tmp_path}/rope_lab" in warning
        assert f"{ROOT}/rope_lab" in warning
    assert in_shell(f"{PROGRAM} --help", ROOT / "docs").stderr == ""


def test_an_old_python_is_named_with_the_remedy(tmp_path):
    code = "import sys; sys.version_info = (3, 10); import rope_lab"
    done = in_shell(shlex.join([sys.executable, "-c", code]), tmp_path)
    assert "needs Python 3.11 or newer" in done.stderr.splitlines()[-1]
    assert "make setup" in done.stderr.splitlines()[-1]
