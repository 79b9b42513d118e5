"""A table's search of learning rates, for each task and scheme on one seed; and what runs cost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rope_lab.experiments.timing import bill_of
from rope_lab.launch.jobs import Job, compose_jobs
from rope_lab.results.plans.bill import summed
from rope_lab.results.plans.named_measure import check_length, gain_of
from rope_lab.results.plans.names import RATE
from rope_lab.results.records.folders import read_ended
from rope_lab.results.records.run import Run
from rope_lab.text import Record
from rope_lab.train.run_folder import OUTCOMES

Case = tuple[str, ...]  # the overrides of a run without its seed and learning rate
Best = dict[Case, str]  # its best rate, as an override
Searches = dict[Case, dict[str, Job]]  # its run at each rate
Ended = dict[str, Run]  # runs that have ended, by their id
OWN = "score"  # the measure of a task


def case_of(words: Iterable[str]) -> Case:
    """The case of a run, given its overrides."""
    return tuple(word for word in words if not word.startswith(("seed=", RATE)))


def searched_rates(runs: Sequence[list[str]], extra: Sequence[str]) -> Searches:
    """The run of each case at each rate of its search.

    runs: of a search, by their overrides; extra: overrides of all runs
    """
    searched: Searches = {}
    for words in runs:  # one at a time: cases may share runs
        (rate,) = (word for word in words if word.startswith(RATE))
        (searched.setdefault(case_of(words), {})[rate],) = compose_jobs([[*words, *extra]])
    return searched


def best_rates(searched: Searches, measures: dict[Case, str], kept: Ended) -> Best:
    """The best rate of each case whose runs have all ended; of equal ones the best by the task's
    own measure, then the first. A diverged run is the worst. Raises ConfigError.

    measures: what chooses the rate of each case, as in `rope-lab compare --measure`
    kept:     runs that ended elsewhere; one in the folder of runs counts before its kept row
    """
    best: Best = {}
    if not searched:
        return best
    any_job = next(job for at_rate in searched.values() for job in at_rate.values())
    made, _ = read_ended(Path(any_job.cfg.out))
    ended = kept | made
    for case, at_rate in searched.items():
        measure = measures.get(case, OWN)
        check_length(measure, next(iter(at_rate.values())).cfg.eval.lengths)
        ids = {rate: job.identity.run_id for rate, job in at_rate.items()}
        if all(run_id in ended for run_id in ids.values()):
            gains = {}
            for rate, run_id in ids.items():
                gains[rate] = [gain_of(ended[run_id], name) for name in (measure, OWN)]
            best[case] = max(gains, key=gains.__getitem__)
    return best


def bills_of(jobs: Sequence[Job], launcher: Record) -> str:
    """How long those of these runs take that have not ended: a line for each task and scale, and
    their sum.
    """
    missing: dict[str, list[Job]] = {}
    for job in jobs:
        if job.cfg.fresh or job.record()["status"] not in OUTCOMES:
            missing.setdefault(f"{job.cfg.names.task}, {job.cfg.names.scale}", []).append(job)
    bills = []
    for title, own in missing.items():
        # Schemes differ in their speed: half of the runs count as the first, half as the last.
        half = len(own) // 2
        counts = Counter({own[0]: len(own) - half}) + Counter({own[-1]: half})
        bills.append(bill_of(title, counts, launcher))
    return summed(bills) if bills else "all runs have ended"
