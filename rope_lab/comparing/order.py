"""What is compared, as it was asked for, and the folder that holds the comparison."""

import functools
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rope_lab.experiments.asked import check_overrides
from rope_lab.files import digest, write_whole
from rope_lab.launch import sweep
from rope_lab.places import RUNS
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.plans.number_of_pairs import FEWEST_PLANNED
from rope_lab.text import ConfigError, Record
from rope_lab.train import plugin

MOST_PAIRS = 24  # unless the user asks for others
SEARCH = "search"  # within the folder of a comparison: rows of the search
STOPPED = "search/stopped"  # rows of a search that was stopped
CODE = "code"  # within the folder of a comparison: copies of the user's own files


@dataclass(frozen=True)
class Order:
    """A comparison as it was asked for.

    ours, theirs, task: names, or paths of files
    measure:   see `plans.named_measure.measure_of`
    search:    the number of rates, and of seeds at the best ones
    difference: the smallest one of interest; None: that of `number_of_pairs`
    most_pairs: of the verdict
    label:     the name of our scheme on the page; empty for that of its file
    overrides: settings of all runs
    launcher:  its settings
    folder:    of the comparison
    """

    ours: str
    theirs: str
    task: str
    scale: str
    measure: str
    search: tuple[int, int]
    difference: float | None
    most_pairs: int
    label: str
    overrides: tuple[str, ...]
    launcher: Record
    folder: Path

    def __post_init__(self):
        check_overrides("compare", self.overrides)
        if self.difference is not None and not 0 < self.difference < math.inf:
            raise ConfigError(f"--difference {self.difference:g}: must be a number above 0")
        if self.measure == "steps" and (self.difference or 0) >= 1:
            given = f"--difference {self.difference:g}"
            raise ConfigError(f"{given}: of steps it is a logarithm below 1, such as 0.1 for 10%")
        if self.most_pairs < FEWEST_PLANNED:
            least = f"must be {FEWEST_PLANNED} or more"
            raise ConfigError(f"--pairs-at-most {self.most_pairs}: {least}")
        code = self.folder / CODE
        for path in (code, *code.parents):
            is_link = path.is_symlink() and (path == code or not path.exists())
            if is_link or (path.exists() and not path.is_dir()):
                raise ConfigError(f"--out {self.folder}: {path} is not a directory")
        if recorded_name(self.ours) == recorded_name(self.theirs):
            raise ConfigError(f"{self.ours} and {self.theirs}: have the same name; rename a file")

    @property
    def at_once(self) -> int:
        """How many runs go side by side."""
        return sweep.shares(self.launcher)[0]

    @functools.cached_property
    def code(self) -> dict[str, bytes]:
        """The files of the user's own schemes and task, and all that they import."""
        return plugin.sources_of([self.ours, self.theirs, self.task])

    @property
    def code_digests(self) -> dict[str, str]:
        """Name and digest of each file of `code`."""
        return {name: digest(content) for name, content in sorted(self.code.items())}

    @functools.cached_property
    def copies(self) -> Path:
        """The folder of the copies of `code`, by their digest."""
        lines = [f"{name} {recorded}" for name, recorded in self.code_digests.items()]
        return self.folder / CODE / digest("\n".join(lines).encode())[:8]

    @property
    def schemes(self) -> list[str]:
        """Both as a plan in the folder names them."""
        return [self.copied(self.ours), self.copied(self.theirs)]

    def copied(self, given: str) -> str:
        """A scheme or task as a plan in the folder names it: its copy, or its name."""
        file = plugin.FILE.fullmatch(given)
        if not file:
            return given
        copy = (self.copies / Path(file["path"]).name).relative_to(self.folder)
        return ":".join(filter(None, [str(copy), file["name"]]))

    @contextmanager
    def code_copied(self) -> Iterator[None]:
        """Copy the user's own files. An error in the block removes what was made for them, unless
        another call has begun runs there. Raises ConfigError if a copy was edited.
        """
        new = [path for path in (self.copies, *self.copies.parents) if not path.exists()]
        try:
            self._copy_code()
            yield
        except BaseException:
            is_used = (self.folder / RUNS).exists()
            if self.copies in new and not is_used:
                shutil.rmtree(self.copies, ignore_errors=True)
            for path in new:
                with suppress(OSError):  # of files of others in it
                    path.rmdir()
            raise
        self._copy_code()  # another call that began nothing may have removed its own

    def _copy_code(self) -> None:
        for name, content in self.code.items():
            path = self.copies / name
            if path.exists() and path.read_bytes() != content:
                raise ConfigError(f"{path}: the copy was edited; edit your own file, and delete it")
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, content)
