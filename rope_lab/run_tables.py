"""Run tables by their name: ours, a study of a plan, or a file."""

import json
from pathlib import Path

from rope_lab.blocks import Block, RunTable
from rope_lab.files import digest
from rope_lab.places import CONF
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.study import Plan, Study
from rope_lab.shipped import choices
from rope_lab.text import ConfigError, flat, nearest, show
from rope_lab.train import config
from rope_lab.train.overrides import typed
from rope_lab.train.plugin import FILE, sources_of


def find(name: str) -> list[RunTable]:
    """A table of ours, a study of results/plan.yaml by its name, or a table or the studies of a
    plan in a file. Raises ConfigError.
    """
    tables = choices("table")
    path = Path(name)
    planned = studies.load().studies if studies.PLAN.exists() else {}
    if name in planned:
        return [of_study(planned[name])]
    if name in tables:
        path = CONF / "table" / f"{name}.yaml"
    if not path.is_file():
        hint = nearest(name, [*tables, *planned], "")
        raise ConfigError(f"{show(name)}: there is no such table; {hint}")
    text = path.read_text("utf-8", "replace")
    if "\nstudies:" in f"\n{text}":
        return list(map(of_study, studies.from_yaml(Plan, text, path.name).studies.values()))
    return [studies.from_yaml(RunTable, text, path.name)]


def of_study(study: Study) -> RunTable:
    """The runs of a planned study. Raises ConfigError."""
    _check_code(study)
    _check_task(study)
    settings = [f"{key}={typed(value)}" for key, value in study.settings.items()]
    block = Block(study.task, study.scale, study.seeds, settings)
    return RunTable(study.hypothesis, [block], study.digest)


def _check_task(study: Study) -> None:
    """Raises ConfigError unless the plan names every setting of the user's own task."""
    if not FILE.fullmatch(study.task):
        return
    every = flat({"task": config.load(f"task={study.task}").task})
    lacking = {key: each for key, each in every.items() if key not in study.settings}
    lacking.pop("task._target_", None)
    if lacking:
        line = ", ".join(f"{key}: {json.dumps(each)}" for key, each in lacking.items())
        raise ConfigError(f"{study.name}: the plan does not fix its task; add {line} to settings")


def _check_code(study: Study) -> None:
    """Raises ConfigError unless the plan names the digest of each of the user's own files."""
    given = [name.partition(" ")[0] for name in (study.task, *study.seeds)]
    for file, content in sources_of(given).items():
        if study.code.get(file) != digest(content):
            line = f"code: {{{file}: {digest(content)}}}"
            raise ConfigError(f"{study.name}: the plan does not fix {file}; write {line}")
