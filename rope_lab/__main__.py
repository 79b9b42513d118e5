"""The commands: `rope-lab X …` and `python -m rope_lab X …` are `python -m rope_lab.X …`."""

import ast
import runpy
import sys
from pathlib import Path

from rope_lab.places import HERE
from rope_lab.text import nearest

GROUPS = {  # what one does, and the modules of its commands
    "Train": ("train", "sweep", "table"),
    "Look at runs": ("list", "results", "report", "sample", "probe", "rm"),
    "Add and ask": ("check", "plan", "power", "scores", "bench"),
}
MODULES = {
    "sweep": "train",
    "plan": "results.plan",
    "power": "results.power",
    "scores": "results.scores",
}  # else the name
ABOUT = {"train": "Trains one run", "sweep": "Trains every combination of settings: `rope-lab train -m`"}
HELP = """\
rope-lab compares position encodings of small transformers. A first session:

  rope-lab train position=rope                          a minute; the same command resumes, or returns at once
  rope-lab sweep position=rope,roper seed=0,1           four runs, and how each scheme did
  rope-lab list                                         the runs so far
  rope-lab report                                       one page of verdicts and charts, results/runs/report.html

Settings are NAME=VALUE: position=NAME or position=./mine.py, task=NAME, scale=quick, seed=0, train.lr=1e-3 …
`rope-lab train --help` shows every one with its meaning; `rope-lab COMMAND --help` the rest.
"""


def sources() -> dict[str, Path]:
    """The source of each command that is there, by its name."""
    names = [name for group in GROUPS.values() for name in group]
    bases = {name: HERE / MODULES.get(name, name).replace(".", "/") for name in names}
    paths = [(name, path) for name, base in bases.items() for path in (base.with_suffix(".py"), base / "__main__.py")]
    return {name: path for name, path in paths if path.is_file()}


def about(name: str, path: Path) -> str:
    """The purpose of a command in a line: the beginning of its module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return ABOUT.get(name, text.partition(": `")[0].partition("\n")[0])


def main() -> None:
    """Runs the command that is named, or lists them all; exit status 2 if there is none of that name."""
    name, there = (sys.argv[1:2] or ["--help"])[0], sources()
    if name in there:
        module = f"rope_lab.{MODULES.get(name, name)}"
        sys.argv = [module, *(["-m"] if name == "sweep" else []), *sys.argv[2:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif name in ("-h", "--help"):
        print(HELP)
        for group, names in GROUPS.items():
            lines = [f"  rope-lab {each:<8} {about(each, there[each])}" for each in names if each in there]
            print("\n".join([f"{group}:", *lines, ""]))
    else:
        print(f"rope-lab {name}: there is no such command; {nearest(name, there, '')}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
