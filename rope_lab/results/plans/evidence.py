"""Was a study planned? Its digest in each run says so, or the plan at the commits of its runs."""

import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from rope_lab.results.plans.find import Runs
from rope_lab.results.plans.study import Plan, Study, from_yaml
from rope_lab.results.records.run import MIXED, Run
from rope_lab.text import ConfigError

LATE = "not planned before its runs"
EDITED = "planned, but not as committed"
OTHER_CODE = "planned, but with other code"
REPLACED = "planned, but runs were replaced"
UNKNOWN = "not shown to be planned"
WORST_FIRST = (LATE, EDITED, OTHER_CODE, REPLACED, UNKNOWN)


class Flaw(NamedTuple):
    """A reason why a study does not count as planned: one of WORST_FIRST, and the case."""

    word: str
    line: str


def flaws(path: Path, study: Study, found: Runs) -> list[Flaw]:
    """Why a study of the plan at `path`, with its runs `found`, does not count as planned:
    the worst first.

    If runs record a plan's digest, that is the evidence, in any repository or none; else the
    commits of the plan are. The plan names the digest of each of the user's own files.
    """
    has_digests = any(run.plan for run in found.values())
    every = list(_by_digests(study, found) if has_digests else _by_commits(path, study, found))
    for (scheme, seed), run in found.items():
        every += _of_files(study, run)
        for numbers in run.replaced:
            every.append(Flaw(REPLACED, f"{scheme} seed {seed}: {numbers}"))
    named = [Flaw(word, f"{study.name}: {line}") for word, line in dict.fromkeys(every)]
    return sorted(named, key=lambda flaw: WORST_FIRST.index(flaw.word))


def removed(path: Path) -> list[str]:
    """A line for each study that an earlier commit of the plan had, and the plan has no longer."""
    log = _git(path, "log", "--format=%h", "--abbrev=12", "--", f"./{path.name}") or b""
    last: dict[str, str] = {}
    for commit in log.decode().split():
        for name in _names(_git(path, "show", f"{commit}:./{path.name}") or b""):
            last.setdefault(name, commit)
    now = _names(path.read_bytes())
    return [
        f"{name}: was planned in commit {commit}, and is no longer in the plan"
        for name, commit in last.items()
        if name not in now
    ]


def _by_commits(path: Path, study: Study, found: Runs) -> Iterator[Flaw]:
    """The plan at the commits of runs. A commit of changed code ends in +."""
    commits = {commit for run in found.values() for commit in run.commit.split(MIXED)}
    for commit in sorted(commits):
        held = _studies_at(path, commit.rstrip("+"))
        at = f"commit {commit} of its runs does not hold the study"
        if held is None:
            yield Flaw(UNKNOWN, f"git cannot show the plan at commit {commit}")
        elif study.name not in held:
            yield Flaw(LATE, f"{at} at all")
        elif study != held[study.name]:
            yield Flaw(EDITED, f"{at} as it stands now")
        elif commit.endswith("+"):
            yield Flaw(OTHER_CODE, f"the code of its runs was changed after commit {commit[:-1]}")


def _by_digests(study: Study, found: Runs) -> Iterator[Flaw]:
    """The plan that each run was made for, and the code of rope_lab."""
    for (scheme, seed), run in found.items():
        if not run.plan:
            yield Flaw(LATE, f"{scheme} seed {seed} was not run for a plan")
        elif run.plan != study.digest:
            was = "was run for the plan as it was before a change"
            yield Flaw(EDITED, f"{scheme} seed {seed} {was}")
        for commit in run.commit.split(MIXED):
            if commit.endswith("+"):
                yield Flaw(OTHER_CODE, f"rope_lab was changed after commit {commit[:-1]}")


def _of_files(study: Study, run: Run) -> Iterator[Flaw]:
    """The user's own files that a run used, beside those of the plan."""
    if run.plugin and not run.files:
        name = run.position if "position" in run.plugin else run.task
        yield Flaw(UNKNOWN, f"the files of {name} are in no record of its runs")
    for line in run.files:
        file, _, recorded = line.rpartition(" ")
        if file.endswith(".py") and study.code.get(file) != recorded:
            unlike = f"{file} of its runs, {recorded}, is not what the plan names under code"
            yield Flaw(OTHER_CODE, unlike)


@functools.cache
def _studies_at(path: Path, commit: str) -> dict[str, Study] | None:
    """The studies of a plan, by their names, as a commit has them: none if it has no such file;
    None if git cannot show it.
    """
    if _git(path, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return None
    text = _git(path, "show", f"{commit}:./{path.name}")
    if text is None:
        return {}
    try:
        return from_yaml(Plan, text.decode("utf-8", "replace"), path.name).studies
    except ConfigError:
        return None


def _names(text: bytes) -> list[str]:
    """The names of the studies in the text of a plan; none if it cannot be read."""
    try:
        return [str(name) for name in yaml.safe_load(text)["studies"]]
    except (yaml.YAMLError, TypeError, KeyError):
        return []


def _git(path: Path, *words: str) -> bytes | None:
    """The output of git in the folder of a file; None if it fails. The environment names no other
    repository.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    where = {"cwd": path.resolve().parent, "env": environment}
    try:
        done = subprocess.run(["git", *words], capture_output=True, timeout=10, **where)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
