"""Checks of a scheme or a task of your own: `rope-lab check position=./mine.py`, or
`task=./mine.py`.

The tests ask the same of ours. Each check prints a line: `ok`, `note` (allowed, but good to know)
or `WRONG`. Other settings are as in training: `model.n_heads=8`, `task.digits=3`. Exit status 1 if
something is wrong.
"""

from collections.abc import Sequence

from rope_lab import command
from rope_lab.checking.run import CHECKS, check
from rope_lab.experiments.asking import exit_after
from rope_lab.text import Words, argument_parser, filled, plain, say
from rope_lab.train import config, trainer


def main(arguments: Words = None) -> None:
    parser = argument_parser("check", __doc__)
    parser.add_argument(
        "settings", nargs="+", metavar="NAME=VALUE", help="position=… or task=…, and others"
    )
    settings = parser.parse_args(arguments).settings
    groups = CHECKS.keys() & {setting.partition("=")[0] for setting in settings}
    if not groups:
        parser.error("name a scheme or a task: position=./mine.py or task=./mine.py")
    exit_after(lambda: _checked(settings, sorted(groups)))


def _checked(settings: Sequence[str], groups: Sequence[str]) -> int:
    """Check and print; the exit status. Raises ConfigError."""
    wrong = False
    cfg = trainer.resolve(config.load(*settings))
    for group in groups:
        say(f"{group}={getattr(cfg.names, group)}")
        for kind, name, message in check(cfg, group):
            wrong = kind == "WRONG" or wrong
            line = f"  {kind:<6} {name:<18} {plain(message)}".rstrip()
            say(filled(line, indent=" " * 9))
    say("not all checks passed" if wrong else "all checks passed")
    return int(wrong)


if __name__ == "__main__":
    command.begin()
    main()
