"""Write an entry for the board: `rope-lab submit ./mine.py`.

It needs the runs of `rope-lab score ./mine.py`. results/board/mine/ then holds the file and all
that it imports, the rows of the runs, the verdicts of `rope-lab compare`, and entry.yaml. Open a
pull request with that folder. To dispute an entry, add objection-1.md to its folder: a better tuned
baseline, for example.
"""

import shutil
from pathlib import Path

import yaml

from rope_lab import command
from rope_lab.board import BOARD, ENTRY, problems
from rope_lab.files import write_whole
from rope_lab.places import RESULTS
from rope_lab.results.plans.study import run_name
from rope_lab.results.records.kept import keep, worth_keeping
from rope_lab.score import PROTOCOL, of_protocol
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, first_three, say, short_path
from rope_lab.train import plugin, provenance
from rope_lab.train.instantiate import FILE

VERDICT = ("verdict.json", "verdict.md", "verdict.svg", "plan.yaml")  # of a comparison


def submit(scheme: str, by: str) -> Path:
    """Write the entry of a scheme's file, and return its folder. Raises ConfigError, and leaves
    nothing, if the board would refuse it.
    """
    own = FILE.fullmatch(scheme)
    if not own:
        raise ConfigError(f"{scheme}: an entry is a file, ./mine.py; ours are on the page already")
    name = run_name(scheme)
    runs = of_protocol(scheme, RESULTS / "score" / name / "runs")
    if not runs:
        remedy = f"rope-lab score {scheme}, without --out, makes its runs"
        raise ConfigError(f"{scheme}: has no scores; {remedy}")
    folder = BOARD / name
    if folder.exists():
        raise ConfigError(f"{short_path(folder)}: there is an entry already; delete it first")
    file = Path(own["path"])
    about = {
        "scheme": ":".join(filter(None, [file.name, own["name"]])),
        "by": by,
        "rule": PROTOCOL["rule"],
        "date": provenance.now()[:10],
    }
    folder.mkdir(parents=True)
    for source, content in plugin.sources(file).items():
        (folder / source).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / source, content)
    keep(list(map(worth_keeping, runs)), folder)
    for verdict in sorted((RESULTS / "compare").glob(f"{name}-*/verdict.json")):
        copy = folder / verdict.parent.name
        copy.mkdir()
        for part in VERDICT:
            write_whole(copy / part, (verdict.parent / part).read_bytes())
    write_whole(folder / ENTRY, yaml.safe_dump(about, sort_keys=False).encode())
    if found := problems(folder):
        shutil.rmtree(folder)
        raise ConfigError(f"{scheme}: the board would refuse it: {first_three(found)}")
    return folder


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("submit", __doc__)
    parser.add_argument("scheme", metavar="FILE", help="of the scheme: ./mine.py")
    parser.add_argument("--by", default="", metavar="NAME", help="the author, as the board shows")
    given = parser.parse_args(arguments)
    folder = submit(given.scheme, given.by)
    say(f"written: {short_path(folder)}; rope-lab board shows it")


if __name__ == "__main__":
    command.begin()
    main()
