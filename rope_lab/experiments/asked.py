"""What the user asks of a command of many runs: settings of all runs, and schemes of their own."""

from collections.abc import Collection, Iterable, Sequence

from rope_lab.checking.run import check
from rope_lab.text import ConfigError
from rope_lab.train import config, instantiate, trainer
from rope_lab.train.config import Config
from rope_lab.train.overrides import key_of
from rope_lab.train.plugin import FILE

# Settings that commands of several runs decide.
CHOSEN = ("position", "seed", "out", "fresh", "other_code", "init_from", "train.lr")
SHORT = ("device", "threads", "corpus")  # without a group, or a group that is read as it stands


def check_overrides(
    command: str, overrides: Iterable[str], also: Collection[str] = ("task", "scale")
) -> None:
    """Raise ConfigError for a setting of all runs that a command decides, or a group of them.

    also: settings that it decides besides CHOSEN
    """
    for word in overrides:
        key = key_of(word)
        if key in CHOSEN or key in also or key.startswith("position."):
            own = "write a scheme of your own with it" if "position" in key else "leave it out"
            raise ConfigError(f"{word}: {command} decides it; {own}")
        if ("." not in key and key not in SHORT) or "{" in word:
            raise ConfigError(f"{word}: write each setting by its whole name, train.steps=100")


def check_own(schemes: Iterable[str], common: Sequence[str]) -> None:
    """Raises ConfigError if one of these schemes is a file and fails one of our checks: one that
    sees later tokens would be ahead of any other.

    common: the overrides of all runs
    """
    for scheme in filter(FILE.fullmatch, schemes):
        check_scheme(config.load(*common, f"position={scheme}"))


def check_scheme(cfg: Config) -> None:
    """Raises ConfigError if the scheme of a run is the user's own and fails one of our checks."""
    if instantiate.own_modules(cfg.position) and (failed := failure(trainer.resolve(cfg))):
        raise ConfigError(f"{cfg.names.position} {failed}; rope-lab check says more")


def failure(cfg: Config) -> str:
    """The first of our checks that the scheme of a resolved run fails; empty if none."""
    for kind, failed, message in check(cfg, "position"):
        if kind == "WRONG":
            return f"fails the check {failed}: {message}"
    return ""
