"""Helpers of the tests that judge from outside: commands in this process, a plan in a repository of
its own, and what a page says.
"""

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from builders import make_run, table_rows

from rope_lab.__main__ import MODULES

MINE = "from rope_lab.model.positions import Rotary\n\n\nclass Mine(Rotary):\n    pass\n"
PLAN = """
studies:
  mine:
    hypothesis: The first scheme has more problems right.
    rows: kept
    task: substring_by_index
    scale: quick
    settings: {threads: 1}
    seeds: {roper: 0-5, rope: 0-5}
    higher_is_better: true
    diverged: 0
    primary:
      - {name: last, schemes: [roper, rope], test: sign_flip, metric: eval/accuracy}
"""
SEEDS = range(6)  # the fewest of which a sign-flip test can be significant: p = 2 / 64
LOW = [0.30, 0.32, 0.31, 0.33, 0.30, 0.31]
HIGH = [0.60, 0.63, 0.61, 0.66, 0.62, 0.60]


def main_of(command: str) -> Callable[[list[str]], None]:
    """The function that `rope-lab COMMAND` calls."""
    return importlib.import_module(f"rope_lab.{MODULES[command]}").main


def said(capsys, command: str, *words: str | Path) -> str:
    """What a command prints, without bold type and the spaces that align tables."""
    capsys.readouterr()
    main_of(command)([*map(str, words)])
    return re.sub(" +", " ", capsys.readouterr().out.replace("**", ""))


def results_in(folder: Path, patch) -> Path:
    """Let the commands use `folder` in place of results/, for this test."""
    main_of("results")
    for name, module in list(sys.modules.items()):
        if name.startswith("rope_lab") and hasattr(module, "RESULTS"):
            patch.setattr(module, "RESULTS", folder)
    return folder


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.check_output(["git", *who, *words], cwd=folder, text=True)


def commit(folder: Path, *files: str) -> str:
    """Commit these files, in a repository that is made if needed; the commit, as runs record it."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    git(folder, "add", *files)
    git(folder, "commit", "-q", "--allow-empty", "-m", "a commit")
    return git(folder, "rev-parse", "HEAD").strip()


def runs_of(
    folder: Path, scheme: str, ends: list[float], code: str | None, dirty: bool = False, **changes
) -> None:
    """A run folder for each end, of seeds 0, 1, …, by the commit `code`; None: without git."""
    state = {"commit": code, "dirty": dirty if code else None}
    for seed, end in enumerate(ends):
        make_run(folder, scheme, seed, end, provenance__git=state, **changes)


def keep(folder: Path, into: Path, *words: str) -> None:
    main_of("results")([str(folder), "--keep", "--into", str(into), *words])


def planned_page(plan: Path) -> str:
    """The page that `rope-lab plan` writes, without bold type."""
    main_of("plan")([str(plan)])
    return plan.with_suffix(".md").read_text().replace("**", "")


def outcome_of(page: str) -> str:
    """The outcome of the one primary comparison; empty if the page has none."""
    outcomes = [row["outcome"] for row in table_rows(page) if "outcome" in row]
    return outcomes[0] if outcomes else ""
