"""The settings that the plan of a comparison fixes."""

from typing import Any, NamedTuple

from rope_lab.comparing.order import Order
from rope_lab.launch.jobs import Job
from rope_lab.results.comparisons.score_columns import OF_A_MACHINE
from rope_lab.results.plans.named_measure import measure_of
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.plans.study import Study
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import Run
from rope_lab.shipped import shipped
from rope_lab.text import ConfigError, Settings
from rope_lab.train.overrides import parse

CORPUS = "corpus"  # the group of conf/ that names texts


class Given(NamedTuple):
    """The value of a setting, and the override that gives it."""

    value: Any
    word: str


def settings(order: Order, runs: list[Run]) -> Settings:
    """The settings that the plan fixes: those that were given, and those that the runs of the
    search resolved. Raises ConfigError if these differ.
    """
    first = runs[0]
    given = _given(order)
    fixed = {key: first.settings[key] for key in given if key in first.settings}
    if first.settings.get("task.corpus"):
        fixed["task.corpus"] = first.settings["task.corpus"]
    fixed |= _of_a_machine(first)
    for run in runs:
        for key, value in _of_a_machine(run).items():
            if fixed[key] != value:
                remedy = f"set {key}=…, and begin another comparison with --out"
                raise ConfigError(f"{key}: the runs of the search differ in it; {remedy}")
    return fixed


def _given(order: Order) -> dict[str, Given]:
    """The settings that are given, but for the path of a text: of two for one the last counts, and
    before those of a named text any single one, as in Hydra.
    """
    given, of_text = {}, {}
    for override in parse(order.overrides):
        key, value = override.key_or_group, override.value()
        if key == CORPUS:
            named = shipped(f"{CORPUS}/{value}")
            of_text = {f"task.{name}": Given(named[name], override.input_line) for name in named}
        else:
            given[key] = Given(value, override.input_line)
    given = of_text | given
    given.pop("task.path", None)
    return given


def _of_a_machine(run: Run) -> Settings:
    """What `auto` leaves to the machine."""
    return {key: run.settings[key] for key in OF_A_MACHINE} | {"threads": run.threads}


def check_overrides(order: Order, study: Study) -> None:
    """Raises ConfigError for a setting or a measure that is not the plan's."""
    for key, (value, word) in _given(order).items():
        if key.startswith("wandb."):
            continue
        if key not in study.settings or value not in (study.settings[key], "auto"):
            raise other_folder(word, "is not in the frozen plan")
    test = study.primary[0]
    report = Catalogue().report(recorded_name(order.task), {test.metric}, {})
    measure = measure_of(report, order.measure)
    if (measure.metric, measure.at) != (test.metric, test.at):
        raise other_folder(f"--measure {order.measure}", f"the plan compares {test.metric}")


def check_text(study: Study, job: Job) -> None:
    """Raises ConfigError if a run of the plan would read another text than the plan names."""
    planned = study.settings.get("task.corpus")
    read = job.resolved.task.get("corpus")
    if planned and read not in (None, planned):
        raise ConfigError(f"task.path: is another text than the plan's, {planned}")


def other_folder(asked: object, held: str) -> ConfigError:
    return ConfigError(f"{asked}: {held}; --out names another folder")
