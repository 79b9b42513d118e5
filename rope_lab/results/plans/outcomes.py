"""The families of planned tests, and their results from kept runs."""

from collections.abc import Iterable
from pathlib import Path

from rope_lab.results.comparisons.answers import Comparison, Family, Result, answer, samples
from rope_lab.results.plans import evidence
from rope_lab.results.plans.find import Runs, find, untested
from rope_lab.results.plans.names import arm_name, recorded_name
from rope_lab.results.plans.study import NAME, PlannedTest, Study, load, of_rows
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.kept import RunsAndProblems, read_kept
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm


def of_study(
    study: Study, runs: list[Run], catalogue: Catalogue, plan: Path | None = None
) -> list[Result]:
    """The results of a study's primary, then of its secondary tests; none has a number before the
    last run has ended. Raises ConfigError for two runs of one cell.

    runs: those kept in its folder
    plan: its file, if its commits are to be looked at
    """
    found = find(study, runs)
    flaws = evidence.flaws(plan, study, found) if plan else []
    primary = [_comparison(study, test, found, catalogue) for test in study.primary]
    secondary = [_comparison(study, test, found, catalogue) for test in study.secondary]
    reason = untested(study, found) or _unrecorded([*primary, *secondary])
    results = []
    for comparisons, corrected in ((primary, True), (secondary, False)):
        family = Family(
            comparisons=comparisons,
            several="planned tests",
            one="one planned test",
            corrected=corrected,
            untested=reason,
            study=study,
            found=found,
            flaws=flaws,
        )
        results += answer(family)
    return results


def _unrecorded(asked: Iterable[Comparison]) -> str:
    """Metrics or curves that comparisons use and a run has no record of."""
    lacking = {
        f"{each.measure.metric} of {arm.scheme}"
        for each in asked
        for arm in each.arms
        if len(samples(arm, each.measure)) < len(arm.runs)
    }
    names = ", ".join(sorted(lacking))
    return f"Not recorded, so nothing can be tested: {names}." if names else ""


def beside(rows: Path, catalogue: Catalogue) -> list[Result]:
    """The results of the primary tests whose plan stands beside their kept runs in `rows`."""
    names = {study.name for study in of_rows(rows)}
    if not names:
        return []
    studied, _ = read(rows.resolve().parent / NAME, catalogue)
    every = [result for results in studied for result in results]
    return [each for each in every if each.family.is_primary and each.family.study.name in names]


def read(plan: Path, catalogue: Catalogue) -> tuple[list[list[Result]], list[str]]:
    """The results of each study of a plan, none without such a file, and lines on kept runs that
    are left out. Raises ConfigError, OSError.
    """
    studies = list(load(plan).studies.values()) if plan.exists() else []
    kept: dict[str, RunsAndProblems] = {}
    for rows in dict.fromkeys(study.rows for study in studies):
        folder = plan.parent / rows
        kept[rows] = read_kept(folder) if folder.is_dir() else ([], [])
    left_out = [line for _, lines in kept.values() for line in lines]
    return [of_study(study, kept[study.rows][0], catalogue, plan) for study in studies], left_out


def _comparison(study: Study, test: PlannedTest, found: Runs, catalogue: Catalogue) -> Comparison:
    task = recorded_name(study.task)
    run = next(iter(found.values()), None)
    settings, data = (run.settings, run.data) if run else (study.settings, "")
    report = catalogue.report(task, {test.metric}, settings, data)
    measure = study.measure(test, report)
    ours, theirs = (_arm(scheme, found) for scheme in test.schemes)
    gains = () if test.published is None else (measure.sign * test.published,)
    return Comparison(
        name=test.name,
        task=task,
        scale=study.scale,
        report=report,
        measure=measure,
        ours=ours,
        theirs=theirs,
        test=test.test,
        published=gains,
        unit=test.unit,
        margin=test.margin,
    )


def _arm(scheme: str, found: Runs) -> Arm:
    return Arm(arm_name(scheme), tuple(run for (of, _), run in found.items() if of == scheme))
