"""Check the entries of the board, and write its page: `rope-lab board [--repeat ENTRY]`.

An entry is a folder in results/board, written by `rope-lab submit`. It is refused if a row was
edited, if a run has other settings than the protocol or other code than the file, if a seed is
missing or there twice, or if the scheme fails a check. --repeat trains one of its runs again. The
checks run the code of the entry, which could deceive them: read it before you merge.
results/board.md has the entries, under the names of their folders, beside our schemes.
"""

import secrets
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from rope_lab.launch import sweep
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.score_columns import all_columns, as_if_kept
from rope_lab.results.comparisons.words import plan_word
from rope_lab.results.plans.names import scheme_of
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read, read_or_warn, with_those_below
from rope_lab.results.records.kept import read_kept
from rope_lab.results.records.measures import LENGTH
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views.tables import escaped
from rope_lab.scoring import scores
from rope_lab.scoring.protocol import PROTOCOL
from rope_lab.scoring.refusals import (
    BOARD,
    ENTRY,
    cell,
    cell_of,
    corpus_of,
    entry,
    of_rows,
    planned,
    problems,
    verdicts,
)
from rope_lab.scoring.score import jobs_of
from rope_lab.text import (
    ConfigError,
    MissingText,
    Record,
    Words,
    argument_parser,
    errors_as_exit,
    first_three,
    say,
    short_path,
    show,
)
from rope_lab.train.trainer import resolve

TOLERANCE = 0.05  # of the final value of a repeated run on another machine
HEAD = """# Board of position encodings

Entries follow one protocol, {rule}: [conf/score.yaml](../conf/score.yaml), three learning rates and
three seeds on nine tasks. The repository's own rows are of its kept runs: cells with † have three
learning rates, the others one. A score is the share of problems correct, or e^(−loss) of Prefix and
text; ± is half of the 95% interval over seeds, – is not run.

To add yours, run `rope-lab score ./mine.py`, then `rope-lab submit ./mine.py`, and open a pull
request: its rows and its code are checked. No significance tests here; `rope-lab compare` runs one.

![mean scores of schemes on tasks](figures/board.svg)"""


def repeat(folder: Path) -> str:
    """Train one of the runs of an entry again, which nobody can foresee; in what it differs from
    its row, beyond TOLERANCE. Empty if in nothing. Raises ConfigError, also for wrong rows.
    """
    about = entry(folder)
    every = planned(folder, about)
    if found := of_rows(folder, about, every):
        raise ConfigError(f"{short_path(folder)} is refused: {first_three(found)}")
    scheme = str(folder / about["scheme"])
    trainable = {}
    for task in every:
        jobs = jobs_of(scheme, task, corpus_of(task), folder)
        with suppress(MissingText):  # the text need not be on this machine
            resolve(jobs[0].cfg)
            trainable |= {cell(job): job for job in jobs}
    rows = [row for row in read_kept(folder)[0] if cell_of(row) in trainable]
    if not rows:
        where = "conf/corpus says where to get it, and where it is read"
        raise ConfigError(f"{short_path(folder)}: the text of its runs is not here; {where}")
    row = secrets.choice(rows)
    say(f"trained again: {row}, rate {row.settings['train.lr']:g}")
    job = trainable[cell_of(row)]
    with tempfile.TemporaryDirectory() as made:
        again = replace(job, cfg=replace(job.cfg, out=made))
        sweep.launch([again], sweep.launcher_settings(["hydra/launcher=basic"]), "repeat")
        runs, _ = read(Path(made))
    if not (runs and runs[0].ended):
        raise ConfigError(f"{row}: could not be trained again")
    return _differences(row, runs[0])


def _differences(row: Run, again: Run) -> str:
    """In which number of scores a run differs from its row, or its status; empty if in nothing."""
    if again.status != row.status:
        return f"{row}: is {again.status} here, and {row.status} in the entry"
    if row.status != "finished":
        return ""
    lengths = [f"{LENGTH}/{length}" for length in row.slices.get(LENGTH, {})]
    for name in ["eval/loss", "eval/accuracy", *lengths]:
        first, second = row.final(name), again.final(name)
        if first != second and (None in (first, second) or abs(second - first) > TOLERANCE):
            return f"{row}: {name} is {show(second)} here, and {show(first)} in the entry"
    return ""


def write() -> None:
    """Write the page of the board. Raises ConfigError for an entry that is refused."""
    kept = read_or_warn(with_those_below(RESULTS))
    entries = sorted(path.parent for path in BOARD.glob(f"*/{ENTRY}"))
    if not (kept or entries):
        raise ConfigError(
            f"{short_path(RESULTS)}: there are no kept runs, and no entries in board/"
        )
    every, lines = list(kept), []
    for folder in entries:
        if found := problems(folder):
            raise ConfigError(f"{short_path(folder)} is refused: {first_three(found)}")
        rows = [replace(run, position=folder.name) for run in read_kept(folder)[0]]
        every += as_if_kept(rows, kept)
        lines.append(_line(folder, entry(folder)))
    setups = setups_of(every, Catalogue())
    scales = PROTOCOL["tasks"]
    every_column = all_columns(setups)
    shown = [each for each in every_column if scales.get(each.setup.task) == each.setup.scale]
    more = ["## Entries", "\n".join(lines)] if lines else []
    head = HEAD.format(rule=PROTOCOL["rule"])
    scores.write(RESULTS / "board.md", shown, head, *more, "## Every score")


def _line(folder: Path, about: Record) -> str:
    """An entry in Markdown: its file, whose it is, its verdicts and objections to it."""
    place = f"board/{folder.name}"
    by = escaped(str(about.get("by") or "anonymous"))
    date = escaped(str(about.get("date", "")))
    parts = [f"- [{folder.name}]({place}/{about['scheme'].partition(':')[0]}), {by}, {date}"]
    for path, result in verdicts(folder, about).items():
        theirs = Catalogue().title(scheme_of(result.comparison.theirs.scheme))
        name = escaped(f"{plan_word(result)} against {theirs}, {result.title}")
        parts.append(f"[{name}]({place}/{path.name}/verdict.md)")
    for path in sorted(folder.glob("objection-*.md")):
        parts.append(f"[{escaped(path.stem)}]({place}/{quote(path.name)})")
    return "; ".join(parts)


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = argument_parser("board", __doc__)
    repeats = "train one run of this folder of results/board again"
    parser.add_argument("--repeat", metavar="ENTRY", help=repeats)
    given = parser.parse_args(arguments)
    if given.repeat:
        named = Path(given.repeat)
        differs = repeat((named if named.exists() else BOARD / named).absolute())
        say(differs or f"{given.repeat}: repeated to within {TOLERANCE}")
        parser.exit(bool(differs))
    write()
