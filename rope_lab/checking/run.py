"""Every check of a scheme or a task, one after the other."""

import inspect
from collections.abc import Iterator

from rope_lab.checking import Wrong
from rope_lab.checking.schemes import scheme_checks
from rope_lab.checking.tasks import task_checks
from rope_lab.text import ConfigError
from rope_lab.train import instantiate
from rope_lab.train.config import Config
from rope_lab.train.plugin import error_line

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
            line = error_line(error, file)
            yield "WRONG", name, str(error) if isinstance(error, Wrong) else line
            return
        yield "note" if note else "ok", name, note or ""
