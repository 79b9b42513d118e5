"""The commands: `rope-lab X …` and `python -m rope_lab X …`."""

import importlib
import sys
from dataclasses import dataclass

import rope_lab
from rope_lab import command
from rope_lab.places import IN_CHECKOUT, ROOT
from rope_lab.text import nearest

ASK, TRAIN, LOOK, CHECK = "Ask", "Train", "Look at runs", "Check and count"


@dataclass(frozen=True)
class Command:
    """A command of `rope-lab`.

    group:   its heading in the help
    module:  its home below rope_lab, whose `main` takes the words after the command's name
    first:   words that `main` gets before those
    """

    name: str
    group: str
    summary: str
    module: str
    first: tuple[str, ...] = ()


COMMANDS = {
    each.name: each
    for each in (
        Command("compare", ASK, "Compare two schemes up to a verdict", "comparing.command"),
        Command("train", TRAIN, "Train one run", "launch.__main__"),
        Command("sweep", TRAIN, "Train every combination of settings", "launch.__main__", ("-m",)),
        Command("table", TRAIN, "Run a whole comparison", "table"),
        Command("list", LOOK, "List runs, newest first", "list"),
        Command("results", LOOK, "Make tables and figures", "results.__main__"),
        Command("report", LOOK, "Make one page of verdicts and charts", "report.__main__"),
        Command("sample", LOOK, "Show problems or text with a run's completions", "sample"),
        Command("probe", LOOK, "Measure how a trained run uses its positions", "probe"),
        Command("rm", LOOK, "Delete runs", "rm"),
        Command("check", CHECK, "Check a scheme or a task of your own", "check"),
        Command("plan", CHECK, "Test the comparisons of a plan", "plan"),
        Command("power", CHECK, "Compute how many seeds a difference needs", "power"),
        Command("scores", CHECK, "Score schemes on tasks, results/scores.md", "scores"),
        Command("bench", CHECK, "Time training steps of schemes and other libraries", "bench"),
        Command("completion", CHECK, "Complete commands and settings in a shell", "completion"),
    )
}
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
    lines, group = [HELP.rstrip()], ""
    for each in COMMANDS.values():
        if each.group != group:
            group = each.group
            lines += ["", f"{group}:"]
        lines.append(f"  rope-lab {each.name:<11}{each.summary}")
    return "\n".join(lines)


def run(words: list[str]) -> None:
    """Call the command that `words` name, with the words after it. Exits with status 2 if there is
    no such command.
    """
    name = words[0] if words else "--help"
    if name in COMMANDS:
        chosen = COMMANDS[name]
        module = importlib.import_module(f"rope_lab.{chosen.module}")
        module.main([*chosen.first, *words[1:]])
    elif name in ("-h", "--help"):
        print(usage())
    elif name == "--version":
        print(f"rope-lab {rope_lab.__version__}")
    else:
        hint = nearest(name, COMMANDS, "")
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
