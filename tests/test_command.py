"""Nothing that is shown, nor that it cannot be shown, stops a command."""

import dataclasses
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TINY, only_folder
from test_signals import StopAtLook
from trained import load, run

from rope_lab import command
from rope_lab.train import config
from rope_lab.train import loop as train

ASCII = "LANG=C LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
SCREENS = {  # how a shell starts a command: {}
    "stderr closed": "{} 2>&-",
    "stdout closed": "{} >&-",
    "all closed": "{} <&- >&- 2>&-",
    "nobody reads": "{} | true; exit ${PIPESTATUS[0]}",
    "nobody reads errors": "{ {} 2>&1 >&3 | true; exit ${PIPESTATUS[0]}; } 3>&1",
    "stdout full": "{} >/dev/full",
    "all full": "{} >/dev/full 2>&1",
    "not to be written": "{} 1</dev/null 2</dev/null",
    "ASCII": ASCII + " {}",
    "encoding": "PYTHONIOENCODING=ascii:strict {}",
    "all at once": ASCII + " {} <&- 2>&- | true; exit ${PIPESTATUS[0]}",
    "no terminal": "env -u TERM COLUMNS=10 {}",
}
SHOWING = """
import sys; sys.argv = ["-m"]  # as Python has it when it begins a module's command
import rope_lab, logging, os, subprocess, time, tqdm, warnings
assert open(os.devnull).fileno() > 2
for _ in range(3):
    print("rotate 1 · −2 → \\udcff", flush=True)
    print("an error · −2 → \\udcff", file=sys.stderr, flush=True)
    logging.warning("a warning · −2 → \\udcff")
    warnings.warn("another · −2 → \\udcff")
    for _ in tqdm.tqdm(range(3), desc="·−→", mininterval=0): pass
    time.sleep(0.05)
print("left in the buffer · " * 10_000, end="")
subprocess.run([sys.executable, "-c", "import sys; sys.stdout.fileno(), sys.stderr.fileno()"], check=True)
open("done", "w").write(str(sys.stdout.encoding))
"""


def in_shell(how: str, command: list[str], folder: Path) -> subprocess.CompletedProcess:
    line = SCREENS[how].replace("{}", shlex.join(command), 1)
    environment = os.environ | {"PYTHONPATH": str(config.ROOT), "PYTHONWARNINGS": "default"}
    return subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("how", SCREENS)
def test_nothing_shown_stops_a_command(tmp_path, how):
    (tmp_path / "showing.py").write_text(SHOWING)
    done = in_shell(how, [sys.executable, "showing.py"], tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "done").exists()
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if how == "stdout full":
        assert "nothing more is shown here: No space left on device" in done.stderr
    if how in ("ASCII", "encoding"):
        assert (tmp_path / "done").read_text() != "utf-8"
        assert done.stdout.startswith("rotate 1 ? ?2 ? ?\n")


def test_nothing_shown_stops_a_run(tiny, tmp_path):
    """One that warns, too, where all that may fail does at once."""
    settings = ["train.warmup=10", f"out={tmp_path / 'runs'}"]
    done = in_shell("all at once", [sys.executable, "-m", "rope_lab.train", *TINY, *settings], tmp_path)
    assert done.returncode == 0
    content = json.loads((only_folder(tmp_path / "runs") / "run.json").read_text())
    assert content["status"] == "finished"
    assert content["metrics"] == run([*tiny, *settings, f"out={tmp_path / 'plain'}"])["metrics"]


@pytest.mark.parametrize("name", ['it\'s a "run" of $HOME', "-n"])
def test_the_line_to_try_a_run_can_be_pasted(tiny, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    train.train(dataclasses.replace(load(*tiny), out=name))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "rope_lab.sample" in line]
    pasted = line.split("try it")[1].replace(
        "-m rope_lab.sample", f"-c {shlex.quote('import sys; print(sys.argv[1])')}"
    )
    shown = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True)
    assert (tmp_path / shown.stdout.rstrip("\n")).resolve() == only_folder(tmp_path / name)
    assert not shown.stdout.startswith("-")


def test_a_run_without_a_checkpoint_is_not_one_to_try(tiny, tmp_path, capsys):
    with pytest.raises(SystemExit):
        train.train(load(*tiny), StopAtLook(1))
    shown = capsys.readouterr().out
    assert "interrupted after 0 steps" in shown
    assert "rope_lab.sample" not in shown


def test_what_is_unbuffered_is_written_by_the_line():
    """Of PYTHONUNBUFFERED=1 too; or what clears a progress bar would come after the line that takes its place."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    stream = command._safe(writer, io.TextIOWrapper(io.BytesIO(), write_through=True))
    stream.write("\r")
    assert os.read(reader, 9) == b"\r"
    stream.write("a line\n")
    assert os.read(reader, 9) == b"a line\n"
    stream.detach()
    os.close(reader)
    os.close(writer)
