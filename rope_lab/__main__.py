"""The commands that there are: `python -m rope_lab`, or `rope-lab` where the package is installed."""

import re
import runpy
import sys

from rope_lab.places import HERE, ROOT

FIRST_LINE = re.compile(r'"""(.+): `(python -m (\S+).*?)`')  # of a module that is a command


def commands() -> dict[str, tuple[str, str]]:
    """Of each module that is a command, how it is called and what it does."""
    found = {}
    for path in sorted(HERE.rglob("*.py")):
        module = ".".join(path.relative_to(HERE.parent).with_suffix("").parts).removesuffix(".__main__")
        match = FIRST_LINE.match(path.read_text("utf-8"))
        if match and match[3] == module:
            found[module] = match[2], match[1]
    return found


def tasks() -> list[str]:
    return sorted(path.stem for path in (ROOT / "conf" / "task").glob("*.yaml"))


def main(arguments: list[str], prefix: str = "python -m rope_lab.") -> int:
    """Shows the commands. Exit status 2 where there are arguments: they belong to one of them."""
    module = f"rope_lab.{arguments[0]}" if arguments else ""
    if module in commands():
        print(f"did you mean {' '.join(['python -m', module, *arguments[1:]])}?\n", file=sys.stderr)
    of_tasks = prefix.removesuffix("rope_lab.") + "tasks.TASK"
    lines = [*commands().values(), (of_tasks, f"A few problems of a task: {', '.join(tasks())}")]
    lines = [(call.replace("python -m rope_lab.", prefix), told) for call, told in lines]
    width = max(len(call) for call, _ in lines)
    print("\n".join(f"{call:<{width}}  {told}" for call, told in lines), flush=True)
    return 2 if arguments else 0


def console() -> None:
    """`rope-lab train …` is `python -m rope_lab.train …`, and `rope-lab tasks.TASK` is `python -m tasks.TASK`."""
    name, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    module = name if name in {f"tasks.{task}" for task in tasks()} else f"rope_lab.{name}"
    if module == name or module in commands():
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    asked = name in ("", "-h", "--help")
    if not asked:
        print(f"rope-lab {name}: there is no such command\n", file=sys.stderr)
    main([], "rope-lab ")
    sys.exit(0 if asked else 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
