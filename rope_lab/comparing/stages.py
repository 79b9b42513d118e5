"""The stages of a comparison, each read from its folder and never stored: without a plan the rates
are searched and a plan is frozen; with a plan its runs are made; when all have ended there is a
verdict.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rope_lab.comparing import fixed
from rope_lab.comparing.order import SEARCH, Order
from rope_lab.comparing.relatives import relatives
from rope_lab.comparing.searching import SearchOutcome, search
from rope_lab.experiments.launching import (
    NOT_PLANNED,
    Asks,
    Ended,
    Stopped,
    ended,
    jobs_of,
    made,
    path_of,
)
from rope_lab.experiments.timing import seconds_of_ended
from rope_lab.files import digest, write_whole
from rope_lab.places import RESULTS, RUNS
from rope_lab.results.plans import freeze, tries
from rope_lab.results.plans.bill import Bill
from rope_lab.results.plans.names import arm_name, recorded_name
from rope_lab.results.plans.number_of_pairs import number_of_pairs, smallest_difference
from rope_lab.results.plans.outcomes import of_study
from rope_lab.results.plans.study import NAME, Study
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read_ended
from rope_lab.results.records.kept import keep, read_kept
from rope_lab.results.records.known import known_seeds
from rope_lab.results.records.measures import Measure
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import seeds_text
from rope_lab.results.views import verdict_page
from rope_lab.results.views.verdict import Verdict
from rope_lab.text import ConfigError, filled, say, short_path
from rope_lab.train.overrides import key_of, typed


def plan(order: Order, asks: Asks) -> Study:
    """The plan of a comparison: the frozen one or, after the search, a new one. Raises Stopped and
    ConfigError.
    """
    ours, theirs = map(Catalogue().title, map(recorded_name, (order.ours, order.theirs)))
    name = order.label or ours
    if name == theirs:
        raise ConfigError(f"--name {name}: is the name of the other scheme; give another")
    path = order.folder / NAME
    if path.exists():
        study = freeze.study_of(path.read_text("utf-8", "replace"))
        _check_same(order, study)
        say(filled(f"rates, seeds and test: as frozen in {short_path(path)}", indent=""))
        return study
    if (order.folder / verdict_page.PAGE).exists():
        raise fixed.other_folder(order.folder, "holds a verdict without its plan")
    found = search(order, asks)
    text = _frozen(order, found)
    study = freeze.study_of(text)
    rows = order.folder / SEARCH
    rows.mkdir(parents=True, exist_ok=True)
    keep(found.runs, rows)
    tries.add(order.folder, study)
    write_whole(path, text.encode())
    return study


def run(order: Order, study: Study, asks: Asks) -> Ended:
    """Make the runs of a plan that have neither ended nor been kept. Returns all; raises Stopped
    and ConfigError.
    """
    _check_copies(order.folder, study)
    searched, _ = read_kept(order.folder / SEARCH)
    if not searched:
        lost = f"{short_path(order.folder / SEARCH)}: the rows of the search are gone"
        raise ConfigError(f"{lost}; restore them, or begin another comparison with --out")
    jobs = jobs_of(_overrides(order, study), order.folder, study.digest)
    rows = order.folder / study.rows
    if not (order.folder / RUNS).exists():  # a clone has their rows alone, if of other code too
        by_id, _ = read_ended(rows)
        kept = {job: by_id.get(job.identity.run_id) for job in jobs}
        if all(kept.values()):
            return kept
    before = list(ended(jobs, order.folder, rows).values())
    if len(before) < len(jobs):
        fixed.check_text(study, jobs[0])
        _check_plan(order, study, before)
        seconds, source = seconds_of_ended(before or searched, order.launcher)
        asks(Bill("verdict", len(jobs) - len(before), seconds, source, order.at_once))
    return made(jobs, order.folder, order.launcher, study.name, shows_scores=False, rows=rows)


def verdict(order: Order, study: Study, runs: Ended) -> Verdict:
    """Keep the runs of a plan that have all ended, and write the verdict. Raises Stopped if they
    cannot be compared.
    """
    rows = order.folder / study.rows
    catalogue = Catalogue()
    every = list(runs.values())
    rows.mkdir(exist_ok=True)
    keep(every, rows)
    primary, *secondary = of_study(study, every, catalogue, order.folder / NAME)
    if why := primary.family.untested:
        raise Stopped(f"not tested: {why}", NOT_PLANNED)
    ours, theirs = study.pair
    frozen = tries.read(order.folder.parent)
    alike = tries.of_question(frozen, {ours, theirs}, recorded_name(study.task))
    found = Verdict(
        folder=order.folder,
        result=primary,
        secondary=secondary,
        searched=read_kept(order.folder / SEARCH)[0],
        names=(order.label or catalogue.title(ours), catalogue.title(theirs)),
        tries=alike,
        edited=_edited(order, study),
        relatives=[name for name in relatives(next(iter(runs))) if name != theirs],
    )
    verdict_page.write(found)
    return found


def _edited(order: Order, study: Study) -> list[str]:
    """The user's own files that are no longer as they were when the plan was frozen."""
    try:
        now = order.code_digests
    except ConfigError:  # a file is gone
        now = {}
    return [name for name, recorded in study.code.items() if now.get(name) != recorded]


def _overrides(order: Order, study: Study) -> list[list[str]]:
    """The overrides of each run of a plan."""
    settings = [f"{key}={typed(value)}" for key, value in study.settings.items()]
    words = [f"task={path_of(study.task, order.folder)}", f"scale={study.scale}", *settings]
    for word in order.overrides:
        if key_of(word) not in study.settings:
            words.append(word)
    every = []
    for scheme, seed in study.cells:
        name, *own = scheme.split()
        every.append([*words, f"position={path_of(name, order.folder)}", *own, f"seed={seed}"])
    return every


def _frozen(order: Order, found: SearchOutcome) -> str:
    """The text of the plan, from what the search found."""
    result, best = found.result, found.best
    measure, (_, baseline) = result.measure, result.means
    wanted = order.difference or smallest_difference(measure, float(baseline))
    if not wanted:
        raise ConfigError("the baseline's mean is 0 in the search: set --difference")
    pairs, reason = number_of_pairs(result.differences, wanted, order.most_pairs, measure)
    ours, theirs = (f"{scheme} train.lr={rate:g}" for scheme, rate in best.items())
    study = {
        "hypothesis": f"{arm_name(ours)} is ahead of {arm_name(theirs)}.",
        "reason": reason,
        "rows": freeze.ROWS,
        "task": order.copied(order.task),
        "scale": order.scale,
        "settings": fixed.settings(order, found.runs),
        "seeds": [ours, theirs],
        "higher_is_better": measure.higher_is_better,
        "diverged": _diverged(measure, found.runs),
        "difference": wanted,
        "code": order.code_digests,
        **freeze.tests_of([ours, theirs], measure, result.comparison.report),
    }
    name = re.sub(r"[^\w-]+", "-", order.folder.name)[:60].strip("-") or "comparison"
    text = partial(freeze.plan_text, name, study)
    seeds = _fresh_seeds(order, text, pairs)
    rates = ", ".join(f"{recorded_name(scheme)} {rate:g}" for scheme, rate in best.items())
    say(filled(f"learning rates: {rates}, of {len(found.rates)}"))
    say(filled(reason, indent=""))
    say(filled(f"frozen: {short_path(order.folder / NAME)}, {seeds_text(seeds)}, sign-flip test"))
    return text(seeds)


def _fresh_seeds(order: Order, text: Callable[[list[int]], str], pairs: int) -> list[int]:
    """Seeds that neither a known run nor another plan has. The very same plan again, after a kill
    or a deletion, has the seeds that it had.

    text: of the plan with these seeds
    """
    own = tries.of_folder(order.folder)
    others = [line for line in tries.read(order.folder.parent) if line not in own]
    taken = tries.seeds(others) | _known_seeds(order)
    again = freeze.fresh_seeds(pairs, taken)
    was_frozen = freeze.study_of(text(again)).digest in tries.digests(own)
    return again if was_frozen else freeze.fresh_seeds(pairs, taken | tries.seeds(own))


def _diverged(measure: Measure, runs: list[Run]) -> float:
    """The value of a diverged run, in the metric's own unit: 0 if higher is better, else the
    largest value before training.
    """
    if measure.higher_is_better:
        return 0.0
    first = []
    for run in runs:
        curve = run.curves.get(measure.metric) or run.curves["eval/loss"]
        first.append(curve[1][0])
    return max(first)


def _check_same(order: Order, study: Study) -> None:
    """Raises ConfigError if the plan is of another comparison than the one that is asked for."""
    ours, theirs = study.pair
    asked = [*map(recorded_name, (order.ours, order.theirs, order.task)), order.scale]
    if asked != [ours, theirs, recorded_name(study.task), study.scale]:
        held = f"holds {ours} against {theirs} on {study.task}, {study.scale}"
        raise fixed.other_folder(order.folder, held)
    path = order.folder / NAME
    if study.digest not in tries.digests(tries.of_folder(order.folder)):
        record = order.folder.parent / tries.TRIES
        raise ConfigError(f"{path}: was changed after it was frozen, or {record} was; restore it")
    fixed.check_overrides(order, study)
    if order.difference not in (None, study.difference):
        frozen = f"the plan was frozen with {study.difference:g}"
        raise fixed.other_folder(f"--difference {order.difference:g}", frozen)


def _known_seeds(order: Order, plan: str = "") -> set[int]:
    """The seeds of all known runs of the task and scale; plan: the digest of one whose runs do not
    count.
    """
    return known_seeds([RESULTS, order.folder], recorded_name(order.task), order.scale, plan)


def _check_plan(order: Order, study: Study, before: list[Run]) -> None:
    """Raises ConfigError if a plan was changed after its first run, or has seeds of known runs."""
    if any(run.plan != study.digest for run in before):
        changed = "was changed after its first run, or runs of these settings were made before it"
        raise ConfigError(f"{order.folder / NAME}: {changed}; restore it, or start over with --out")
    if before:
        return
    spent = sorted(_known_seeds(order, study.digest) & {seed for _, seed in study.cells})
    if spent:
        fresh = "has known runs of this task; a plan needs fresh seeds"
        raise ConfigError(f"{order.folder / NAME}: seed {spent[0]} {fresh}")


def _check_copies(folder: Path, study: Study) -> None:
    """Raises ConfigError if a file that the plan's runs use is not as it was when it was frozen."""
    copies = {(folder / name).parent for name in (study.task, *study.seeds) if "/" in name}
    for name, recorded in study.code.items():
        for place in copies:
            path = place / name
            if not path.is_file() or digest(path.read_bytes()) != recorded:
                lost = f"{short_path(path)}: is not as it was when the plan was frozen"
                raise ConfigError(f"{lost}; restore it, or begin another comparison")
