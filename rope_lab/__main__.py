"""The commands: `rope-lab X …` and `python -m rope_lab X …`."""

import importlib
import sys

import rope_lab
from rope_lab import command
from rope_lab.places import IN_CHECKOUT, ROOT
from rope_lab.text import nearest

# By the heading of the help: each command, its summary, and its module below rope_lab, whose `main`
# takes the words after the command's name.
COMMANDS = {
    "Ask": {
        "compare": ("Compare two schemes up to a verdict", "comparing.command"),
        "ladder": ("Compare schemes at several sizes", "laddering.command"),
        "extend": ("Read longer texts with trained runs", "continuing.extend"),
        "adopt": ("Adopt another scheme in trained runs", "continuing.adopt"),
    },
    "Train": {
        "train": ("Train one run", "launch.command"),
        "sweep": ("Train every combination of settings", "launch.command"),
        "table": ("Run a whole comparison", "table"),
    },
    "Look at runs": {
        "list": ("List runs, newest first", "list"),
        "results": ("Make tables and figures", "results.__main__"),
        "report": ("Make one page of verdicts and charts", "report.__main__"),
        "sample": ("Show a task's problems, or a run's completions", "sample"),
        "probe": ("Measure how a trained run uses its positions", "probe"),
        "rm": ("Delete runs", "rm"),
    },
    "Schemes": {
        "show": ("Show a scheme: formula, picture, cost, scores", "showing.command"),
        "export": ("Write a scheme as a file without rope_lab", "exporting.command"),
    },
    "Check and count": {
        "check": ("Check a scheme or a task of your own", "check"),
        "plan": ("Test the comparisons of a plan", "plan"),
        "power": ("Compute how many seeds a difference needs", "power"),
        "score": ("Score a scheme of your own on nine tasks, beside others", "scoring.score"),
        "submit": ("Write an entry for the board from a scored scheme", "scoring.submit"),
        "board": ("Check the entries, and write the board, results/board.md", "scoring.board"),
        "scores": ("Write the scores of all kept runs, results/scores.md", "scoring.scores"),
        "bench": ("Time training steps of schemes and other libraries", "bench"),
        "completion": ("Complete commands and settings in a shell", "completion"),
    },
}
MODULES = {name: each[1] for group in COMMANDS.values() for name, each in group.items()}
HELP = """\
rope-lab compares position encodings of small transformers. A first session:

  rope-lab train position=rope                 a minute; repeated, it resumes
  rope-lab sweep position=rope,roper seed=0,1  four runs, and their scores
  rope-lab list                                the runs so far
  rope-lab report                              verdicts and charts on one page

Settings are NAME=VALUE: position=NAME or position=./mine.py, task=NAME,
scale=quick, seed=0, train.lr=1e-3 … `rope-lab train --help` explains each,
`rope-lab COMMAND --help` any other command, `rope-lab --version` the version.
"""


def usage() -> str:
    """HELP and the commands, by group."""
    lines = [HELP.rstrip()]
    for group, commands in COMMANDS.items():
        lines += ["", f"{group}:"]
        lines += [f"  rope-lab {name:<11}{about}" for name, (about, _) in commands.items()]
    return "\n".join(lines)


def run(words: list[str]) -> None:
    """Call the command that `words` name, with the words after it. Exits with status 2 if there is
    no such command.
    """
    name = words[0] if words else "--help"
    if name in MODULES:
        multirun = ["-m"] if name == "sweep" else []
        module = importlib.import_module(f"rope_lab.{MODULES[name]}")
        module.main([*multirun, *words[1:]])
    elif name in ("-h", "--help"):
        print(usage())
    elif name == "--version":
        print(f"rope-lab {rope_lab.__version__}")
    else:
        hint = nearest(name, MODULES, "")
        print(f"rope-lab {name}: there is no such command; {hint}", file=sys.stderr)
        sys.exit(2)


def main(words: list[str] | None = None) -> None:
    """The program `rope-lab`: begin a process of ours, and run the command.

    As with `python -m`, modules of the working directory can be imported: here after all others.
    """
    command.begin()
    command.check_directory()
    sys.path.append("")
    if IN_CHECKOUT:  # for `from tasks.base import …` in a file of the user's
        sys.path.append(str(ROOT))
    run(sys.argv[1:] if words is None else words)


if __name__ == "__main__":
    main()
