"""The plan of a comparison, made from its search: rates, fresh seeds, number of pairs and test."""

import itertools
from collections.abc import Collection, Sequence

import yaml

from rope_lab.results.plans.study import NAME, Plan, Study, from_yaml
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.measures import Measure, in_words
from rope_lab.text import ConfigError, Record

FIRST_SEED = 200
ROWS = "kept"


def fresh_seeds(pairs: int, known: Collection[int]) -> list[int]:
    """So many seeds from FIRST_SEED that no known run has."""
    unused = (seed for seed in itertools.count(FIRST_SEED) if seed not in known)
    return list(itertools.islice(unused, pairs))


def plan_text(name: str, study: Record, seeds: Sequence[int]) -> str:
    """The text of a plan.yaml with one study.

    study: with a list of its schemes at `seeds`
    seeds: of each of them
    """
    study = study | {"seeds": dict.fromkeys(study["seeds"], _seeds(seeds))}
    given = {key: value for key, value in study.items() if value not in ({}, [])}
    content = {"studies": {name: given}}
    return HEAD + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def tests_of(schemes: list[str], measure: Measure, report: TaskReport) -> Record:
    """The primary and the secondary tests of a plan, as plan.yaml has them.

    schemes: as plans call them, `mine train.lr=0.002`
    """
    compared = {"schemes": schemes, "metric": measure.metric}
    compared |= {"times": measure.times, "unit": measure.unit}
    title = f"{in_words(measure.metric)} after the last step"
    if measure.is_log:
        title = f"steps to {in_words(measure.metric)} {measure.reaches:g}"
        compared |= {"value": "log_steps", "reaches": measure.reaches}
    return {
        "primary": [{"name": title, "test": "sign_flip", **compared}],
        "secondary": _described(measure, report, [*schemes]),
    }


HEAD = """\
# Written by `rope-lab compare` after its search and before the first of these runs. Every run
# records a digest of this study: after a change no run counts for it.

"""


def study_of(text: str) -> Study:
    """The one study of a plan's text. Raises ConfigError."""
    studies = list(from_yaml(Plan, text, NAME).studies.values())
    if len(studies) != 1:
        raise ConfigError(f"{NAME}: must have one study, not {len(studies)}")
    return studies[0]


def _described(measure: Measure, report: TaskReport, schemes: list[str]) -> list[Record]:
    """Secondary tests: steps to the task's first threshold, and how many runs end beyond it."""
    if report.first_threshold is None or measure.is_log:
        return []
    name, threshold = report.first_threshold
    if threshold.higher_is_better != measure.higher_is_better:
        return []
    common = {"schemes": schemes, "metric": threshold.metric, "reaches": threshold.reaches}
    steps = {"test": "sign_flip", "value": "log_steps", "unit": "log steps"}
    described = [{"name": f"steps: {name}", **steps, **common}]
    if threshold.share:
        described.append({"name": f"runs that end beyond: {name}", "test": "mcnemar", **common})
    return described


def _seeds(seeds: Sequence[int]) -> str | list[int]:
    """`200-211` if none is left out."""
    first = seeds[0]
    last = seeds[-1]
    return f"{first}-{last}" if last - first + 1 == len(seeds) else list(seeds)
