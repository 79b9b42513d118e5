"""The commands that there are: `python -m rope_lab`."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST_LINE = re.compile(r'"""(.+): `(python -m (\S+).*?)`')  # of a module that is a command


def commands() -> dict[str, tuple[str, str]]:
    """Of each module that is a command, how it is called and what it does."""
    found = {}
    for path in sorted((ROOT / "rope_lab").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        match = FIRST_LINE.match(path.read_text("utf-8"))
        if match and match[3] == module:
            found[module] = match[2], match[1]
    return found


def main(arguments: list[str]) -> int:
    """Shows the commands. Exit status 2 where there are arguments: they belong to one of them."""
    module = f"rope_lab.{arguments[0]}" if arguments else ""
    if module in commands():
        print(f"did you mean {' '.join(['python -m', module, *arguments[1:]])}?\n", file=sys.stderr)
    tasks = ", ".join(sorted(path.stem for path in (ROOT / "conf" / "task").glob("*.yaml")))
    lines = [*commands().values(), ("python -m tasks.TASK", f"A few problems of a task: {tasks}")]
    width = max(len(call) for call, _ in lines)
    print("\n".join(f"{call:<{width}}  {told}" for call, told in lines), flush=True)
    return 2 if arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
