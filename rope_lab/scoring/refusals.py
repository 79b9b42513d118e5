"""Entries of the board: folders in results/board, and why one is refused.

An entry is refused if a row was edited, if a run has other settings than the protocol or other code
than the file, if a seed is missing or there twice, if a verdict is of another scheme, or if the
scheme fails a check. These checks run the code of the entry, which could deceive them: read it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import yaml

from rope_lab.experiments.asked import failure
from rope_lab.files import digest
from rope_lab.identity import NAME, identify
from rope_lab.launch.jobs import Job
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.score_columns import OF_A_MACHINE
from rope_lab.results.plans import outcomes, study
from rope_lab.results.plans.names import position_of, recorded_name
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.kept import read_kept
from rope_lab.results.records.measures import LENGTH
from rope_lab.results.records.run import Run
from rope_lab.scoring.protocol import PROTOCOL
from rope_lab.scoring.score import jobs_of
from rope_lab.shipped import choices
from rope_lab.text import LEAKS, ConfigError, Record, Settings, first_three, short_path
from rope_lab.train import plugin, provenance
from rope_lab.train.plugin import FILE

BOARD, ENTRY = RESULTS / "board", "entry.yaml"
Jobs = dict[str, list[Job]]  # by task


def problems(folder: Path) -> list[str]:
    """Why an entry is refused, a line each; none if it is not."""
    try:
        about = entry(folder)
        every = planned(folder, about)
        found = of_files(folder, every) + of_rows(folder, about, every)
        verdicts(folder, about)
        return found + of_checks(about, every)
    except ConfigError as error:
        return [str(error)]


def entry(folder: Path) -> Record:
    """The content of entry.yaml. Raises ConfigError, also for a link in the folder."""
    check_name(folder.name)
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink():
            raise ConfigError(f"{short_path(path)}: is a link; an entry holds its own files")
    path = folder / ENTRY
    try:
        about = yaml.safe_load(path.read_text("utf-8"))
        scheme = str(about["scheme"])
        rule = about["rule"]
    except (OSError, yaml.YAMLError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise ConfigError(f"{short_path(path)}: cannot be read ({type(error).__name__})") from None
    if rule != PROTOCOL["rule"]:
        today = PROTOCOL["rule"]
        raise ConfigError(f"{short_path(path)}: made under {rule}; the protocol is {today}")
    own = FILE.fullmatch(scheme)
    if not own or Path(own["path"]).name != own["path"]:
        raise ConfigError(
            f"{short_path(path)}: scheme: {scheme}: must be a file beside it, mine.py"
        )
    return about | {"scheme": scheme}


def check_name(name: str) -> None:
    """Raise ConfigError unless an entry may have this name: it is not that of a scheme of ours."""
    if not re.fullmatch(NAME, name, re.ASCII):
        raise ConfigError(f"{name}: a name is up to 61 of a to z, digits, _ and -; set --name")
    catalogue = Catalogue()
    for scheme in {*choices("position"), *catalogue.schemes}:
        if name.lower() in (scheme.lower(), catalogue.title(scheme).lower()):
            raise ConfigError(f"{name}: is the name of a scheme of the repository; set --name")


def planned(folder: Path, about: Record) -> Jobs:
    """The runs of the protocol with the file of an entry. Raises ConfigError."""
    plugin.forget_files()
    scheme = str(folder / about["scheme"])
    every = {}
    for task in PROTOCOL["tasks"]:
        corpus = corpus_of(task)
        if corpus:  # which need not be on this machine
            corpus.append("task.path=null")
        every[task] = jobs_of(scheme, task, corpus, folder)
    return every


def corpus_of(task: str) -> list[str]:
    """The settings that name the text of a task; none if it has none."""
    of_task = PROTOCOL["settings"].get(task, [])
    has_text = any(word.startswith("+corpus=") for word in of_task)
    return [f"task.corpus={PROTOCOL['corpus']}"] if has_text else []


def of_files(folder: Path, every: Jobs) -> list[str]:
    """Files that the scheme has imported, and that are not those of the entry."""
    first = next(iter(every.values()))[0]
    found = []
    for line in provenance.code(first.cfg)["files"]:
        name, _, loaded = line.rpartition(" ")  # no name: an installed package
        path = folder / name
        if name and not (path.is_file() and digest(path.read_bytes()) == loaded):
            found.append(f"{name}: is imported from elsewhere; copy it into the entry")
    return found


def runs_of_protocol(runs: Sequence[Run], about: Record, every: Jobs) -> list[Run]:
    """Those of these runs that have the settings of the protocol and the code of today's file; the
    later one of two that differ in nothing but their machine.
    """
    planned_jobs = {cell(job): job for jobs in every.values() for job in jobs}
    found = {}
    for run in sorted(runs, key=attrgetter("start")):
        if not _flaw_of_origin(run, planned_jobs.get(cell_of(run)), about["scheme"]):
            found[cell_of(run)] = run
    return list(found.values())


def of_rows(folder: Path, about: Record, every: Jobs) -> list[str]:
    """Rows that are not of the protocol, or missing."""
    runs, found = read_kept(folder)
    if not runs:
        found.append(f"{short_path(folder)}: has no rows")
    planned_jobs = {cell(job): job for jobs in every.values() for job in jobs}
    count = Counter(map(cell_of, runs))
    for run in runs:
        flaw = _flaw(run, planned_jobs.get(cell_of(run)), about["scheme"])
        if flaw:
            found.append(f"{run}, rate {run.settings.get('train.lr')}: {flaw}")
    for (task, rate, seed), runs_there in count.items():
        if runs_there > 1:
            found.append(f"{task} seed {seed}, rate {rate}: {runs_there} rows of one run")
    for task, jobs in every.items():
        missing = [job for job in jobs if cell(job) not in count]
        if 0 < len(missing) < len(jobs):
            found.append(f"{task}: {len(missing)} of {len(jobs)} runs are missing")
    return found


def _flaw(run: Run, job: Job | None, scheme: str) -> str:
    """Why a row does not count; job: the run of the protocol with its task, rate and seed."""
    flaw = _flaw_of_origin(run, job, scheme)
    if job is None or flaw:
        return flaw
    if not run.ended:
        return f"is {run.status} at step {run.steps}"
    return _flaw_of_scores(run, job) if run.status == "finished" else ""


def _flaw_of_origin(run: Run, job: Job | None, scheme: str) -> str:
    """Why a row is of another run than that of the protocol, or of other code."""
    if job is None:
        return "is not a run of the protocol"
    if run.mixed or not run.is_of_code(job.identity.code):
        return f"was trained with other code than {scheme}, or other versions of what it imports"
    asked = job.identity
    found = identify(run.task, run.position, run.seed, run.settings)
    of_run = (run.position, run.scale, _of_recipe(found.settings))
    if of_run != (asked.position, job.cfg.names.scale, _of_recipe(asked.settings)):
        return "has other settings than the protocol"
    return ""


def _flaw_of_scores(run: Run, job: Job) -> str:
    """Why the numbers of a finished run cannot be right."""
    if run.steps != job.cfg.train.steps:
        return f"finished at step {run.steps}"
    measure = Catalogue().report(run.task, run.metrics, run.settings, run.data).measure
    shares = [mean for _, mean in run.slices.get(LENGTH, {}).values()]
    loss = run.final("eval/loss")
    if loss is None or not 0 <= measure.of(run) <= measure.most:
        return f"has no possible {measure.metric}"
    if any(not 0 <= share <= 1 for share in shares):
        return f"has no possible {LENGTH}"
    if loss < LEAKS * run.floor.get("loss", 0):
        return "has a lower loss than the best possible model: it sees later tokens"
    return ""


def cell_of(run: Run) -> tuple[str, str, int]:
    """Task, rate and seed of a row."""
    return run.task, str(run.settings.get("train.lr")), run.seed


def cell(job: Job) -> tuple[str, str, int]:
    """Task, rate and seed of a run of the protocol."""
    return job.cfg.names.task, str(job.cfg.train.lr), job.cfg.seed


def _of_recipe(settings: Settings) -> Settings:
    """The settings of a run but for those of its machine."""
    return {key: value for key, value in settings.items() if key not in OF_A_MACHINE}


def verdicts(folder: Path, about: Record) -> dict[Path, Result]:
    """The results of the comparisons in an entry, by their folders. Raises ConfigError."""
    scheme = str(folder / about["scheme"])
    return {plan.parent: verdict(plan, scheme) for plan in sorted(folder.glob(f"*/{study.NAME}"))}


def verdict(plan: Path, scheme: str) -> Result:
    """The result of the primary test of a comparison, from its plan and the rows beside it. Raises
    ConfigError unless it has ended, and its first scheme is this one with today's code.
    """
    place = short_path(plan.parent)
    every = list(study.load(plan).studies.values())
    if len(every) != 1 or not every[0].primary or Path(every[0].rows).name != every[0].rows:
        raise ConfigError(f"{place}: must be one study, with its rows beside it")
    first = next(iter(every[0].seeds))
    code = {name: digest(content) for name, content in plugin.sources_of([scheme]).items()}
    is_same_code = code.items() <= every[0].code.items()
    if position_of(first) != recorded_name(scheme) or not is_same_code:
        raise ConfigError(f"{place}: is of another scheme or code than {short_path(Path(scheme))}")
    ((result, *_),), damaged = outcomes.read(plan, Catalogue())
    if damaged or result.family.untested:
        raise ConfigError(f"{place}: {first_three(damaged) or result.family.untested}")
    return result


def of_checks(about: Record, every: Jobs) -> list[str]:
    """The first check that the scheme fails, in models of every size of the protocol."""
    sizes = {}
    for jobs in every.values():
        cfg = jobs[0].resolved
        sizes.setdefault((str(cfg.model), cfg.train.seq_len), cfg)
    for cfg in sizes.values():
        if failed := failure(cfg):
            return [f"{about['scheme']}, in the size of {cfg.names.task}, {failed}"]
    return []
