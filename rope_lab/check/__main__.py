"""What a scheme or a task has to hold, tried on yours: `python -m rope_lab.check position=mine.py`, or `task=mine.py`.

Everything that the tests ask of our own schemes and tasks. Of each check a line says `ok`, `note` (to be known, and
allowed) or `WRONG`, with the line of the file. Other settings are as in training: `model.n_heads=8`, `task.digits=3`.
Exit status 1 where something is wrong; training itself refuses only what it cannot run.
"""

import sys
import textwrap
from pathlib import Path

from rope_lab.check import schemes, tasks
from rope_lab.check.findings import Finding, files_of, look
from rope_lab.text import ConfigError, argument_parser, plain, say
from rope_lab.train import config, instantiate, trainer
from rope_lab.train.config import Config

BASELINE = "position=rope"
COLUMN = 29  # where what is told begins


def check(cfg: Config, group: str, baseline: Config | None = None) -> list[Finding]:
    """What is found of the scheme, or the task, of a resolved `cfg`; speed where there is a `baseline`.

    Where the first check fails, the others are left out: they could not run.
    """
    files = files_of(next(instantiate.classes(getattr(cfg, group))))
    checks = (schemes if group == "position" else tasks).checks(cfg)
    if baseline:
        checks["speed"] = lambda: schemes.speed(cfg, baseline)
    first = next(iter(checks))
    found = look({first: checks.pop(first)}, files)
    return found if found[0].kind == "WRONG" else found + look(checks, files)


def lines(found: list[Finding]) -> list[str]:
    """A finding a line, or a few."""
    shown = []
    for each in found:
        told = plain(each.told) + (f" ({each.where})" if each.where else "")
        begin = f"  {each.kind:<6} {each.name:<{COLUMN - 10}} "
        shown += textwrap.wrap(told, 100, initial_indent=begin, subsequent_indent=" " * COLUMN) or [begin.rstrip()]
    return shown


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("check", __doc__)
    parser.add_argument("settings", nargs="+", metavar="NAME=VALUE", help="position=… or task=…, and others")
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help="another folder like conf/")
    given = parser.parse_args(arguments)
    groups = [g for g in ("position", "task") if any(word.startswith(f"{g}=") for word in given.settings)]
    if not groups:
        parser.error("name what is to be checked: position=mine.py or task=mine.py")
    wrong = 0
    try:
        cfg = trainer.resolve(config.load(*given.settings, config_dir=given.config_dir))
        for group in groups:
            baseline = None
            if group == "position" and f"{group}={cfg.names.position}" != BASELINE:
                others = [word for word in given.settings if not word.startswith("position")]
                baseline = trainer.resolve(config.load(*others, BASELINE, config_dir=given.config_dir))
            say(f"{group}={getattr(cfg.names, group)}")
            found = check(cfg, group, baseline)
            say("\n".join(lines(found)))
            wrong += sum(each.kind == "WRONG" for each in found)
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    say(f"{wrong} of these are wrong" if wrong else "all that has to hold holds")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
