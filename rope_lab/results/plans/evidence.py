"""Was it planned: whether the commits of a study's runs hold the study."""

import subprocess
from pathlib import Path

from rope_lab.results.plans.find import Runs
from rope_lab.results.plans.study import Plan, Study, from_yaml
from rope_lab.results.records.run import MIXED
from rope_lab.text import ConfigError


def unplanned(path: Path, found: list[tuple[Study, Runs]]) -> list[str]:
    """A line per commit of runs that lacks their study as it is or their code, or that git cannot
    show.
    """
    problems = []
    for study, runs in found:
        commits = {commit for run in runs.values() for commit in run.commit.split(MIXED)}
        for commit in sorted(commits):
            problem = _problem(path, study, commit)
            if problem:
                problems.append(f"{study.name}: {problem}")
    return problems


def _problem(path: Path, study: Study, commit: str) -> str:
    """What is wrong with a commit of the study's runs; empty if nothing is."""
    held = _at(path, commit)
    if held is None:
        return f"git cannot show the plan at commit {commit}"
    if study != held.get(study.name):
        return f"commit {commit} of its runs does not hold the study as it stands now"
    if commit.endswith(("+", "?")):
        return f"the code of its runs was changed after commit {commit[:-1]}, or may be"
    return ""


def _at(path: Path, commit: str) -> dict[str, Study] | None:
    """The studies of a plan, by their names, as a commit has them; None if git cannot show it."""
    show = ["git", "show", f"{commit.rstrip('+?')}:./{path.name}"]
    try:
        done = subprocess.run(
            show, cwd=path.resolve().parent, capture_output=True, text=True, timeout=10
        )
        return from_yaml(Plan, done.stdout, path.name).studies if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ConfigError):
        return None
