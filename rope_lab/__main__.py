"""The commands: `rope-lab X …` and `python -m rope_lab X …` run `python -m rope_lab.X …`."""

import os
import runpy
import sys

from rope_lab import command
from rope_lab.text import nearest

HELP = """\
rope-lab compares position encodings of small transformers. A first session:

  rope-lab train position=rope                 a minute; repeated, it resumes
  rope-lab sweep position=rope,roper seed=0,1  four runs, and their scores
  rope-lab list                                the runs so far
  rope-lab report                              verdicts and charts on one page

Settings are NAME=VALUE: position=NAME or position=./mine.py, task=NAME,
scale=quick, seed=0, train.lr=1e-3 … `rope-lab train --help` explains each,
`rope-lab COMMAND --help` any other command.

Train:
  rope-lab train    Train one run
  rope-lab sweep    Train every combination of settings: `rope-lab train -m`
  rope-lab table    Run a whole comparison

Look at runs:
  rope-lab list     List runs, newest first
  rope-lab results  Make tables and figures
  rope-lab report   Make one page of verdicts and charts, to open in a browser
  rope-lab sample   Show problems or text with a run's completions
  rope-lab probe    Measure how a trained run uses its positions
  rope-lab rm       Delete runs

Add and ask:
  rope-lab check    Check a scheme or a task of your own
  rope-lab plan     Test the comparisons of a plan
  rope-lab power    Compute how many seeds a difference needs
  rope-lab scores   Score schemes on tasks, results/scores.md
  rope-lab bench    Time training steps of schemes and of other libraries
"""
COMMANDS = [
    line.split()[1]
    for line in HELP.partition("Train:")[2].splitlines()
    if line.startswith("  rope-lab ")
]
MODULES = {"sweep": "train"}  # else the name


def main() -> None:
    """Run the named command, or print HELP; exit status 2 if there is no such command."""
    command.check_directory()
    name = (sys.argv[1:2] or ["--help"])[0]
    sys.path.append(os.getcwd())  # as with python -m, for modules beside a file of the user's own
    if name in COMMANDS:
        module = f"rope_lab.{MODULES.get(name, name)}"
        sys.argv = [module, *(["-m"] if name == "sweep" else []), *sys.argv[2:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif name in ("-h", "--help"):
        print(HELP)
    else:
        print(
            f"rope-lab {name}: there is no such command; {nearest(name, COMMANDS, '')}",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
