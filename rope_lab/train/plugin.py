"""A user's own file: its import, once in a process, and the code that it consists of."""

import importlib.util
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import rope_lab
from rope_lab import command
from rope_lab.files import digest
from rope_lab.identity import NAME
from rope_lab.places import HERE, TASKS
from rope_lab.text import ConfigError
from rope_lab.train import torch_state
from rope_lab.train.modules import (
    INSTALLED,
    imports_of,
    places_of,
    python_files,
    spec_of,
    versions_of,
)

log = logging.getLogger(__name__)

# `mine.py`, or `mine.py:MyScheme` if it has several.
FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>\w+))?")
OURS = ("rope_lab", "tasks")  # packages whose code `NUMERICS` stands for


class Code(NamedTuple):
    """The code of one top-level module or package.

    lines:   name and digest of each of its files; of an installed one, its version
    imports: the top-level modules that it imports
    spec:    of the loaded module, which is another one after a reload; None if it is not loaded
    """

    lines: list[str]
    imports: set[str]
    spec: ModuleSpec | None


class FromSource(SourceFileLoader):
    """Compiles a file at each import: its bytecode is stale after an edit within a second."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


# As it was when it was loaded: of a file that is edited later, the old code is what runs.
LOADED: dict[str, Code] = {}
IMPORTED: set[str] = set()  # top-level modules that a plug-in loaded, and not the calling program


def import_file(path: Path) -> str:
    """Import a file as the module of its name, once in a process; that name. Raises ConfigError."""
    name = path.stem
    file = path.resolve()
    if not file.is_file():
        raise ConfigError(f"there is no such file in {file.parent}")
    if not re.fullmatch(NAME, name, re.ASCII):
        raise ConfigError(
            "a name is up to 61 of a to z, digits, _ and -; give the file another name"
        )
    if _is_taken(name, file):
        raise ConfigError(f"there is a module {name} already; give the file another name")
    if name not in sys.modules:
        with beside(file):
            _load(name, path)
    return name


def _is_taken(name: str, file: Path) -> bool:
    """Whether a loaded, installed or standard module other than `file` has a name."""
    if name in sys.modules:
        return Path(getattr(sys.modules[name], "__file__", None) or "").resolve() != file
    found = importlib.util.find_spec(name)
    installed = found is not None and INSTALLED.intersection(Path(found.origin or "").parts)
    return bool(installed) or name in sys.stdlib_module_names


@contextmanager
def beside(file: Path) -> Iterator[None]:
    """Find modules in the folder of a file first, as Python does for a script; in a process of
    ours from now on, so that an import within a function finds them too.
    """
    folder = str(file.parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if not command.process_is_ours() or folder in sys.path[1:]:
            sys.path.remove(folder)


def sources(file: Path) -> dict[str, bytes]:
    """A file and all that it imports and that is not installed, by their names below the folder
    of their package. It is not imported. Raises ConfigError.
    """
    file = file.expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"{file}: there is no such file")
    waiting = [file.stem]
    contents = {}
    seen: set[str] = set()
    with beside(file):
        while waiting:
            name = waiting.pop()
            if name in seen or _is_ours(name) or name in sys.stdlib_module_names:
                continue
            seen.add(name)
            for place in [file] if name == file.stem else places_of(name):
                if INSTALLED.intersection(place.parts):
                    continue
                for path in python_files(place):
                    source = path.read_bytes()
                    contents[str(path.relative_to(place.parent))] = source
                    waiting += imports_of(source)
    return contents


def sources_of(given: Iterable[str]) -> dict[str, bytes]:
    """The `sources` of those schemes and tasks that are files. Raises ConfigError, also if two of
    these files have the same name.
    """
    contents: dict[str, bytes] = {}
    for word in given:
        file = FILE.fullmatch(word)
        own = sources(Path(file["path"])) if file else {}
        for name, content in own.items():
            if contents.setdefault(name, content) != content:
                raise ConfigError(f"{name}: two files of this name are used; rename one")
    return contents


def _load(name: str, path: Path) -> None:
    """Load a file as a module and note its code. Raises ConfigError."""
    before = set(sys.modules)
    file = path.resolve()
    spec = importlib.util.spec_from_file_location(name, file, loader=FromSource(name, str(file)))
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with torch_state.restored() as changed:
            spec.loader.exec_module(sys.modules[name])
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"cannot be imported, {error_line(error, str(file))}") from None
    IMPORTED.update(_reached(name) - before)
    for each in _reached(name) & before:
        _warn_if_edited(each)
    if changed:
        log.warning(
            "%s: changes torch's %s for the whole process; it was set back, so that other schemes "
            "keep their numbers",
            path,
            " and ".join(changed),
        )


def _warn_if_edited(name: str) -> None:
    """Warn of files of a module that the calling program has imported, and edited meanwhile."""
    for place in places_of(name):
        for path in python_files(place):
            if path.stat().st_mtime > rope_lab.STARTED:
                log.warning(
                    "%s was edited while this program runs, which imports it too: if it did so "
                    "before, the old code runs and the new one is recorded; start it again",
                    path,
                )


def forget_files() -> None:
    """Import each file, and what it imports, again at its next use: in a notebook it may have been
    edited. Modules that the calling program imported itself stay.
    """
    for name in IMPORTED:
        LOADED.pop(name, None)
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[module]
    IMPORTED.clear()


def code_digest(modules: Iterable[str]) -> str:
    """A digest of these modules' code and of all that they import, as it was loaded.

    Imports are read from the source, so it is the same in every process. It covers files that are
    not installed, and versions of installed distributions. It misses data files, and modules whose
    name is computed.
    """
    return digest("\n".join(code_lines(modules)).encode())[:12]


def code_lines(modules: Iterable[str]) -> list[str]:
    """Name and digest of each file of these modules and of all that they import, as it was loaded;
    `name==version` of installed distributions.
    """
    names = set().union(*(_reached(module.partition(".")[0]) for module in modules))
    return sorted(line for name in names for line in LOADED[name].lines)


def _reached(name: str) -> set[str]:
    """A top-level module and all those that it imports, directly or not."""
    waiting, seen = [name], set()
    while waiting:
        name = waiting.pop()
        if name in seen or _is_ours(name) or name in sys.stdlib_module_names:
            continue
        seen.add(name)
        if name not in LOADED or LOADED[name].spec not in (None, spec_of(name)):
            LOADED[name] = _read(name)
        waiting += LOADED[name].imports
    return seen


def _is_ours(name: str) -> bool:
    """Whether a top-level module is of OURS, and not a user's file of that name."""
    if name not in OURS:
        return False
    # A clone named rope_lab is a package too, in the folder around it.
    return all(place.resolve() in (HERE, TASKS, HERE.parent) for place in places_of(name))


def _read(name: str) -> Code:
    """The code of a top-level module as its files have it now."""
    places = places_of(name)
    if any(INSTALLED.intersection(place.parts) for place in places):
        return Code(versions_of(name), set(), spec_of(name))
    lines = []
    imports = set[str]()
    for place in places:
        for path in python_files(place):
            source = path.read_bytes()
            lines.append(f"{path.relative_to(place.parent)} {digest(source)}")
            imports |= imports_of(source)
    return Code(lines, imports, spec_of(name))


def error_line(error: BaseException, file: str | None = None) -> str:
    """An error and its place: the last line of `file` in its traceback, or the last of all."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    places = [place for place in places if place[0] == file] or places
    if isinstance(error, SyntaxError):
        places.append((error.filename or file or "", error.lineno))  # none of null bytes
    where = f"{Path(places[-1][0]).name}:{places[-1][1]}: " if places else ""
    return f"{where}{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
