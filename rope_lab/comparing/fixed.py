"""The settings that the plan of a comparison fixes."""

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
from rope_lab.train.overrides import key_of, parse

CORPUS = "corpus"  # the group of conf/ that names texts


def settings(order: Order, runs: list[Run]) -> Settings:
    """The settings that the plan fixes: those that were given, and those that the runs of the
    search resolved. Raises ConfigError if these differ.
    """
    first = runs[0]
    given = [key for word in order.overrides for key in _set_by(word)]
    fixed = {key: first.settings[key] for key in given if key in first.settings}
    fixed.pop("task.path", None)
    if first.settings.get("task.corpus"):
        fixed["task.corpus"] = first.settings["task.corpus"]
    fixed |= _of_a_machine(first)
    for run in runs:
        for key, value in _of_a_machine(run).items():
            if fixed[key] != value:
                remedy = f"set {key}=…, and begin another comparison with --out"
                raise ConfigError(f"{key}: the runs of the search differ in it; {remedy}")
    return fixed


def _set_by(word: str) -> list[str]:
    """The settings that an override gives a value: those of a text if it names one."""
    (override,) = parse([word])
    if override.key_or_group != CORPUS:
        return [key_of(word)]
    return [f"task.{key}" for key in shipped(f"{CORPUS}/{override.value()}")]


def _of_a_machine(run: Run) -> Settings:
    """What `auto` leaves to the machine."""
    return {key: run.settings[key] for key in OF_A_MACHINE} | {"threads": run.threads}


def check_overrides(order: Order, study: Study) -> None:
    """Raises ConfigError for a setting or a measure that is not the plan's."""
    # of two values the last counts
    given = {override.key_or_group: override for override in parse(order.overrides)}
    for key, override in given.items():
        if key in ("task.path", CORPUS) or key.startswith("wandb."):
            continue
        if key not in study.settings or override.value() not in (study.settings[key], "auto"):
            raise other_folder(override.input_line, "is not in the frozen plan")
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
