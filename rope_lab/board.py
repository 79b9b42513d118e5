"""Check the entries of the board, and write its page: `rope-lab board [--repeat ENTRY]`.

An entry is a folder in results/board, written by `rope-lab submit`. It is refused if a row was
edited, if a run has other settings than the protocol or other code than the file, if a seed is
missing or there twice, or if the scheme fails a check. --repeat trains one of its runs again.
results/board.md has the entries beside the schemes of the repository.
"""

import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from rope_lab import command
from rope_lab.check import check
from rope_lab.identity import NUMERICS, identify
from rope_lab.launch import sweep
from rope_lab.launch.jobs import Job
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.scores import OF_A_MACHINE, Column, as_if_kept, columns, widest
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import read, read_or_warn, with_those_below
from rope_lab.results.records.kept import read_kept
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views.tables import bullets, escaped, markdown, write_page
from rope_lab.score import PROTOCOL, jobs_of
from rope_lab.scores import cells, heat_map, order, origin, schemes
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, first_three, say, short_path
from rope_lab.train import plugin

BOARD, ENTRY = RESULTS / "board", "entry.yaml"
PAGE, MAP = "board.md", "board.svg"
TOLERANCE = 0.05  # of the final value of a repeated run on another machine
HEAD = """# Board of position encodings

Entries follow one protocol, {rule}: [conf/score.yaml](../conf/score.yaml), three learning rates and
three seeds on nine tasks. The repository's own rows are of its kept runs: cells with † have three
learning rates, the others one. A score is the share of problems correct, or e^(−loss) of Prefix and
text; ± is half of the 95% interval over seeds, – is not run.

To add yours, run `rope-lab score ./mine.py`, then `rope-lab submit ./mine.py`, and open a pull
request: its rows and its code are checked. No significance tests here; `rope-lab compare` runs one.

![mean scores of schemes on tasks](figures/board.svg)"""


def problems(folder: Path) -> list[str]:
    """Why an entry is refused, a line each; none if it is not."""
    try:
        about = entry(folder)
        every = planned(folder, about)
        found = _of_rows(folder, about, every)
        return found + _of_checks(about, every)
    except ConfigError as error:
        return [str(error)]


def entry(folder: Path) -> dict[str, Any]:
    """The content of entry.yaml. Raises ConfigError."""
    path = folder / ENTRY
    try:
        about = yaml.safe_load(path.read_text("utf-8"))
        scheme, rule = str(about["scheme"]), about["rule"]
    except (OSError, yaml.YAMLError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise ConfigError(f"{short_path(path)}: cannot be read ({type(error).__name__})") from None
    if rule != PROTOCOL["rule"]:
        today = PROTOCOL["rule"]
        raise ConfigError(f"{short_path(path)}: made under {rule}; the protocol is {today}")
    return about | {"scheme": scheme}


def planned(folder: Path, about: dict[str, Any]) -> dict[str, list[Job]]:
    """The runs of the protocol with the file of an entry, by task. Raises ConfigError."""
    plugin.forget_files()
    scheme, runs = str(folder / about["scheme"]), folder / "runs"
    every = {}
    for task in PROTOCOL["tasks"]:
        corpus = [f"task.corpus={PROTOCOL['corpus']}"] if task in PROTOCOL["settings"] else []
        every[task] = jobs_of(scheme, task, corpus, runs)
    return every


def _of_rows(folder: Path, about: dict[str, Any], every: dict[str, list[Job]]) -> list[str]:
    """Rows that are not of the protocol, or missing."""
    runs, found = read_kept(folder)
    if not runs:
        found.append(f"{short_path(folder)}: has no rows")
    planned_jobs = {_cell(job): job for jobs in every.values() for job in jobs}
    count = Counter(map(_cell_of, runs))
    for run in runs:
        flaw = _flaw(run, planned_jobs.get(_cell_of(run)), about["scheme"])
        if flaw:
            found.append(f"{run}, rate {run.settings.get('train.lr')}: {flaw}")
    for (task, rate, seed), runs_there in count.items():
        if runs_there > 1:
            found.append(f"{task} seed {seed}, rate {rate}: {runs_there} rows of one run")
    for task, jobs in every.items():
        missing = [job for job in jobs if _cell(job) not in count]
        if 0 < len(missing) < len(jobs):
            found.append(f"{task}: {len(missing)} of {len(jobs)} runs are missing")
    return found


def _flaw(run: Run, job: Job | None, scheme: str) -> str:
    """Why a row does not count; job: the run of the protocol with its task, rate and seed."""
    if job is None:
        return "is not a run of the protocol"
    if run.plugin != job.identity.code or run.mixed or run.numerics != NUMERICS:
        return f"was trained with other code than {scheme}"
    if not run.ended or (run.status == "finished" and run.final("eval/loss") is None):
        return f"is {run.status} at step {run.steps}, with no final loss"
    names = job.cfg.names
    own = run.position, run.scale
    if own != (names.position, names.scale) or _settings(run) != _settings_of(job):
        return "has other settings than the protocol"
    return ""


def _cell_of(run: Run) -> tuple[str, float, int]:
    return run.task, run.settings.get("train.lr"), run.seed


def _cell(job: Job) -> tuple[str, float, int]:
    return job.cfg.names.task, job.cfg.train.lr, job.cfg.seed


def _settings(run: Run) -> dict[str, Any]:
    """The settings of a run but for those of its machine."""
    settings = identify(run.task, run.position, run.seed, run.settings).settings
    return {key: value for key, value in settings.items() if key not in OF_A_MACHINE}


def _settings_of(job: Job) -> dict[str, Any]:
    settings = job.identity.settings
    return {key: value for key, value in settings.items() if key not in OF_A_MACHINE}


def _of_checks(about: dict[str, Any], every: dict[str, list[Job]]) -> list[str]:
    """Checks that the scheme fails."""
    first = next(iter(every.values()))[0]
    failed = []
    for kind, name, message in check(first.resolved, "position"):
        if kind == "WRONG":
            failed.append(f"{about['scheme']} fails the check {name}: {message}")
    return failed


def repeat(folder: Path) -> str:
    """Train the first run of an entry again; in what it differs, beyond TOLERANCE. Empty if in
    nothing. Raises ConfigError.
    """
    about = entry(folder)
    rows, _ = read_kept(folder)
    task = rows[0].task
    job = planned(folder, about)[task][0]
    (row,) = (run for run in rows if _cell_of(run) == _cell(job))
    with tempfile.TemporaryDirectory() as made:
        again = replace(job, cfg=replace(job.cfg, out=made))
        if sweep.launch([again], sweep.launcher_settings(["hydra/launcher=basic"]), "repeat"):
            raise ConfigError(f"{row}: could not be trained again")
        (run,), _ = read(Path(made))
    for metric in ("eval/loss", "eval/accuracy"):
        before, now = row.final(metric), run.final(metric)
        if before is not None and abs(now - before) > TOLERANCE:
            return f"{row}: {metric} is {now:.4g} here, and {before:.4g} in the entry"
    return ""


def write() -> None:
    """Write the page of the board. Raises ConfigError for an entry that is refused."""
    published = Published()
    kept = read_or_warn(with_those_below(RESULTS))
    entries = sorted(path.parent for path in BOARD.glob(f"*/{ENTRY}"))
    every, lines = list(kept), []
    for folder in entries:
        if found := problems(folder):
            raise ConfigError(f"{short_path(folder)} is refused: {first_three(found)}")
        every += as_if_kept(read_kept(folder)[0], kept)
        lines.append(_line(folder, entry(folder)))
    setups = setups_of(every, published)
    shown: list[Column] = []
    for setup in widest(setups):
        if PROTOCOL["tasks"].get(setup.task) == setup.scale:
            shown += columns(setup, setups)
    tasks = [each for each in shown if each.length is None]
    table, drawn = cells(shown, schemes(tasks, published), published)
    parts = [HEAD.format(rule=PROTOCOL["rule"]), *order(tasks, published)]
    if lines:
        parts += ["## Entries", "\n".join(lines)]
    parts += ["## Every score", markdown(table), bullets(map(origin, tasks))]
    write_page(RESULTS / PAGE, parts, {MAP: heat_map(drawn, [each.title for each in shown])})


def _line(folder: Path, about: dict[str, Any]) -> str:
    """An entry in Markdown: its file, whose it is, its verdicts and objections to it."""
    place = f"board/{folder.name}"
    by, date = escaped(str(about.get("by") or "anonymous")), escaped(str(about.get("date", "")))
    parts = [f"- [{folder.name}]({place}/{about['scheme'].partition(':')[0]}), {by}, {date}"]
    for path in sorted(folder.glob("*/verdict.json")):
        found = json.loads(path.read_text("utf-8"))
        name = escaped(f"{found['word']} against {found['schemes'][1]}, {found['task']}")
        parts.append(f"[{name}]({place}/{path.parent.name}/verdict.md)")
    for path in sorted(folder.glob("objection-*.md")):
        parts.append(f"[{path.stem}]({place}/{path.name})")
    return "; ".join(parts)


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("board", __doc__)
    repeats = "train one run of this folder of results/board again"
    parser.add_argument("--repeat", metavar="ENTRY", help=repeats)
    given = parser.parse_args(arguments)
    if given.repeat:
        differs = repeat(Path(given.repeat).absolute())
        say(differs or f"{given.repeat}: repeated to within {TOLERANCE}")
        parser.exit(bool(differs))
    write()


if __name__ == "__main__":
    command.begin()
    main()
