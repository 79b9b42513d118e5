"""Write an entry for the board: `rope-lab submit ./mine.py`.

It needs the runs of `rope-lab score ./mine.py`. results/board/mine/ then holds the file and all
that it imports, the rows of the runs, the verdicts of `rope-lab compare` of the same code, and
entry.yaml; --name names another folder, as the board names the scheme. Open a pull request with
that folder. To dispute an entry, add objection-1.md to its folder: a better tuned
baseline, for example.
"""

import tempfile
from pathlib import Path

import yaml

from rope_lab.files import write_whole
from rope_lab.places import RESULTS, RUNS
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.plans.study import NAME
from rope_lab.results.records.folders import read
from rope_lab.results.records.kept import KEPT, keep, worth_keeping
from rope_lab.scoring.protocol import PROTOCOL
from rope_lab.scoring.refusals import (
    BOARD,
    ENTRY,
    check_name,
    planned,
    problems,
    runs_of_protocol,
    verdict,
)
from rope_lab.text import (
    ConfigError,
    argument_parser,
    errors_as_exit,
    filled,
    first_three,
    say,
    short_path,
)
from rope_lab.train import plugin, provenance
from rope_lab.train.plugin import FILE

PAGES = ("verdict.md", "verdict.svg")  # of a comparison


def submit(scheme: str, by: str, name: str = "") -> Path:
    """Write the entry of a scheme's file, and return its folder. Raises ConfigError, and leaves
    nothing, if the board would refuse it.

    name: of the scheme on the board; empty: that of its file
    """
    own = FILE.fullmatch(scheme)
    if not own:
        raise ConfigError(f"{scheme}: an entry is a file, ./mine.py; ours are on the page already")
    file = Path(own["path"])
    about = {
        "scheme": ":".join(filter(None, [file.name, own["name"]])),
        "by": by,
        "rule": PROTOCOL["rule"],
        "date": provenance.now()[:10],
    }
    scored, damaged = read(RESULTS / "score" / recorded_name(scheme) / RUNS)
    runs = runs_of_protocol(scored, about, planned(file.parent, about))
    why = "its code or settings are not those of the protocol, or a later run replaces it"
    others = [f"{run}: {why}" for run in scored if run not in runs]
    for left_out in [*damaged, *others]:
        say(filled(f"not in the entry: {left_out}"))
    if not runs:
        remedy = f"rope-lab score {scheme}, without --out, makes its runs"
        raise ConfigError(f"{scheme}: has no scores; {remedy}")
    name = name or recorded_name(scheme)
    check_name(name)
    folder = BOARD / name
    if folder.exists():
        remedy = "--name gives yours another name; if it is yours, delete it first"
        raise ConfigError(f"{short_path(folder)}: there is an entry already; {remedy}")
    BOARD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BOARD, prefix=".", suffix=".tmp") as made:
        copy = Path(made) / folder.name
        copy.mkdir()
        for source, content in plugin.sources(file).items():
            (copy / source).parent.mkdir(parents=True, exist_ok=True)
            write_whole(copy / source, content)
        keep(list(map(worth_keeping, runs)), copy)
        copy_verdicts(scheme, copy)
        write_whole(copy / ENTRY, yaml.safe_dump(about, sort_keys=False).encode())
        if found := problems(copy):
            raise ConfigError(f"{scheme}: the board would refuse it: {first_three(found)}")
        copy.rename(folder)
    return folder


def copy_verdicts(scheme: str, folder: Path) -> None:
    """Copy the comparisons of a scheme that have ended, with their rows; say which do not count."""
    for plan in sorted((RESULTS / "compare").glob(f"{recorded_name(scheme)}-*/{NAME}")):
        try:
            result = verdict(plan, scheme)
        except ConfigError as error:
            say(f"not in the entry: {error}")
            continue
        copy = folder / plan.parent.name
        rows = result.family.study.rows
        (copy / rows).mkdir(parents=True)
        for part in (NAME, *PAGES, f"{rows}/{KEPT}"):
            write_whole(copy / part, (plan.parent / part).read_bytes())


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("submit", __doc__)
    parser.add_argument("scheme", metavar="FILE", help="of the scheme: ./mine.py")
    parser.add_argument("--by", default="", metavar="NAME", help="the author, as the board shows")
    parser.add_argument("--name", default="", help="on the board (default: that of the file)")
    given = parser.parse_args(arguments)
    folder = submit(given.scheme, given.by, given.name)
    say(f"written: {short_path(folder)}; rope-lab board shows it")
