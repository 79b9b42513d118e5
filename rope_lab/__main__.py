"""The commands: `rope-lab X …` and `python -m rope_lab X …` are `python -m rope_lab.X …`."""

import ast
import runpy
import sys
from pathlib import Path

from rope_lab.places import HERE
from rope_lab.text import nearest

COMMANDS = {name: f"rope_lab.{name}" for name in ("train", "results", "report", "sample", "probe", "check", "table")}
COMMANDS |= {"plan": "rope_lab.results.plan", "power": "rope_lab.results.power", "bench": "rope_lab.bench"}


def sources() -> dict[str, Path]:
    """The source of each command that is there, by its name."""
    bases = {name: HERE.parent / module.replace(".", "/") for name, module in COMMANDS.items()}
    found = [(name, path) for name, base in bases.items() for path in (base.with_suffix(".py"), base / "__main__.py")]
    return {name: path for name, path in found if path.is_file()}


def main() -> None:
    """Runs the command that is named, or lists them all; exit status 2 if there is none of that name."""
    name, there = (sys.argv[1:2] or ["--help"])[0], sources()
    if name in there:
        module = COMMANDS[name]
        sys.argv = [module, *sys.argv[2:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif name in ("-h", "--help"):
        for each, path in there.items():
            about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
            print(f"rope-lab {each:<8} {about.partition(': `')[0].partition(chr(10))[0]}")
    else:
        print(f"rope-lab {name}: there is no such command; {nearest(name, there, '')}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
