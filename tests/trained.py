"""Runs that train in a moment, in this process or in their own.

A Python process that imports torch takes some 3 seconds of a core. Use `command`, which calls the
command line in this process, unless the test is about signals, kills or descriptors.
"""

import contextlib
import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import torch
import yaml
from conftest import SCHEMES, only_folder
from torch.utils._pytree import tree_leaves

from rope_lab.launch.command import main as train_command
from rope_lab.model.schemes import Dims, PositionScheme
from rope_lab.train import checkpoint, config, instantiate, stop
from rope_lab.train import loop as train

composed = functools.cache(config.load)


def load(*overrides: str) -> config.Config:
    """`config.load`, but Hydra composes only once for calls that differ only in `out` or the name
    of a scheme.
    """
    out = [override.removeprefix("out=") for override in overrides if override.startswith("out=")]
    scheme = [word for word in overrides if re.match(r"[+~]*position\b", word)]
    if len(scheme) != 1 or (name := scheme[0].removeprefix("position=")) not in SCHEMES:
        name, scheme = None, []
    cfg = composed(*(o for o in overrides if o not in scheme and not o.startswith("out=")))
    if name:
        node = yaml.safe_load((config.CONF / "position" / f"{name}.yaml").read_text())
        position, names = (
            instantiate.check_arguments("position", node, []),
            replace(cfg.names, position=name),
        )
        cfg = replace(cfg, position=position, names=names, overrides=overrides)
    return replace(cfg, out=out[-1]) if out else cfg


def make_scheme(name: str, dims: Dims, *overrides: str) -> PositionScheme:
    """The scheme of conf/position/`name`.yaml."""
    return config.build_position(load(f"position={name}", *overrides), dims)


def run(overrides: list[str]) -> dict:
    """Train, resume or return a run in this process; returns the content of its run.json."""
    return train.train(load(*overrides))


def metrics_of(folder: Path) -> list[dict]:
    """The metric records of a run, without seconds."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same_end(a: Path, b: Path) -> None:
    """Assert that two run folders hold the same metrics and bit-identical weights and optimizer
    states.
    """
    assert metrics_of(a) == metrics_of(b)
    ours, theirs = checkpoint.load(a), checkpoint.load(b)
    assert ours["step"] == theirs["step"]
    for name, value in ours["model"].items():
        assert torch.equal(value, theirs["model"][name]), name
    states = (
        tree_leaves([saved[name] for name in ("muon", "optimizer") if name in saved])
        for saved in (ours, theirs)
    )
    assert all(
        torch.equal(x, y) if torch.is_tensor(x) else x == y for x, y in zip(*states, strict=True)
    )


def raising_signal_at(step: int, update, number: int = signal.SIGTERM):
    """Wrap `update` to raise two signals, `number` and SIGINT, in the call that completes step
    `step`.
    """

    def interrupted(trainer, at):
        if at == step - 1:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGINT)
        return update(trainer, at)

    return interrupted


def stopped_run(overrides: list[str], out: Path, monkeypatch, stop_at: int = 4) -> Path:
    """The folder of a run interrupted by a signal after step `stop_at`."""
    with monkeypatch.context() as patch:
        patch.setattr(train, "update", raising_signal_at(stop_at, train.update))
        assert run(overrides)["status"] == "interrupted"
    return only_folder(out)


def command(
    overrides: list[str], folder: Path, main: Callable[[list[str]], None] = train_command
) -> SimpleNamespace:
    """Call `python -m rope_lab.train` in `folder` and in this process; returns its exit status and
    output.

    overrides: its arguments
    main:      the entry point, for another command
    """
    stdout, stderr, status = io.StringIO(), io.StringIO(), 0
    out, err = contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr)
    with same_process(), contextlib.chdir(folder), out, err:
        try:
            main(overrides)
        except SystemExit as end:
            status = end.code or 0
    return SimpleNamespace(returncode=status, stdout=stdout.getvalue(), stderr=stderr.getvalue())


@contextlib.contextmanager
def same_process() -> Iterator[None]:
    """Restore signal handlers and mask; a command leaves them changed, as its process would end."""
    handlers = {number: signal.getsignal(number) for number in stop.SIGNALS}
    held_back = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)


def spawn(overrides: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess:
    """Run `python -m rope_lab.train` in its own process."""
    arguments = [sys.executable, "-m", "rope_lab.train", *overrides]
    environment = os.environ | {"PYTHONWARNINGS": ""} | environment
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
