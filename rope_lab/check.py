"""Checks of a scheme or a task of your own: `rope-lab check position=./mine.py`, or
`task=./mine.py`.

The tests ask the same of ours. Each check prints a line: `ok`, `note` (allowed, but good to know)
or `WRONG`. Other settings are as in training: `model.n_heads=8`, `task.digits=3`. Exit status 1 if
something is wrong.
"""

import inspect
from collections.abc import Iterator

from rope_lab import command
from rope_lab.checking import Wrong
from rope_lab.checking.schemes import scheme_checks
from rope_lab.checking.tasks import task_checks
from rope_lab.text import ConfigError, Words, argument_parser, filled, plain, say
from rope_lab.train import config, instantiate, trainer
from rope_lab.train.config import Config

CHECKS = {"position": scheme_checks, "task": task_checks}


def check(cfg: Config, group: str) -> Iterator[tuple[str, str, str]]:
    """`ok`, `note` or `WRONG`, the name of each check, and its message; cfg: resolved.

    The first failure ends them: later checks rely on earlier ones.
    """
    for name, run in CHECKS[group](cfg).items():
        try:
            note = run()
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            file = inspect.getsourcefile(next(instantiate.classes(getattr(cfg, group))))
            line = instantiate.error_line(error, file)
            yield "WRONG", name, str(error) if isinstance(error, Wrong) else line
            return
        yield "note" if note else "ok", name, note or ""


def main(arguments: Words = None) -> None:
    parser = argument_parser("check", __doc__)
    parser.add_argument(
        "settings", nargs="+", metavar="NAME=VALUE", help="position=… or task=…, and others"
    )
    settings = parser.parse_args(arguments).settings
    groups = CHECKS.keys() & {setting.partition("=")[0] for setting in settings}
    if not groups:
        parser.error("name a scheme or a task: position=./mine.py or task=./mine.py")
    wrong = False
    try:
        cfg = trainer.resolve(config.load(*settings))
        for group in sorted(groups):
            say(f"{group}={getattr(cfg.names, group)}")
            for kind, name, message in check(cfg, group):
                wrong = kind == "WRONG" or wrong
                line = f"  {kind:<6} {name:<18} {plain(message)}".rstrip()
                say(filled(line, indent=" " * 9))
    except ConfigError as error:
        parser.exit(2, f"{error}\n")
    say("not all checks passed" if wrong else "all checks passed")
    parser.exit(wrong)


if __name__ == "__main__":
    command.begin()
    main()
