"""What is swapped, task and position: their classes and arguments, checked before any code of theirs runs."""

import importlib
import importlib.util
import inspect
import keyword
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import hydra.utils
import pydantic
from hydra.errors import InstantiationException
from pydantic_core import ErrorDetails

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.text import ConfigError, nearest, show
from tasks.base import Task

SWAPPED: dict[str, type] = {"task": Task, "position": PositionScheme}  # groups of conf/ whose files name a class
PACKAGES = ("rope_lab", "tasks")  # where such a class may come from unless the user allows more
DEEPEST = 16  # schemes within one another, and groups within one another in a yaml file
FINITE = pydantic.ConfigDict(allow_inf_nan=False)
GREATEST = 10**9  # whole numbers among the arguments are smaller


def find_class(group: str, node: dict[str, Any], kind: type, allowed_packages: list[str]) -> type:
    """The class that `node` names: a `kind`, of our packages or an allowed one; no others are imported.

    allowed_packages: names of packages, and paths of files, `./mine.py`, each of which is the module `mine`

    Raises ConfigError.
    """
    target, conf = node.get("_target_"), group.partition(".")[0]
    allowed = [import_file(Path(each)) if each.endswith(".py") else each for each in allowed_packages]
    packages = (*PACKAGES, *allowed)
    key = f"{group}._target_={show(target)}"
    if not isinstance(target, str) or not target.partition(".")[0]:
        raise ConfigError(f"{key}: must name a class, as the files in conf/{conf}/ do")
    package = target.partition(".")[0]
    if package not in packages:
        trust = "if you trust its code: allowed_packages=[{0}], of a file [{0}.py]; for a run's folder --allow {0}.py"
        raise ConfigError(f"{key}: is not of {' or '.join(PACKAGES)}; {trust.format(show(package))}")
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"{key}: {show(str(error))}") from None
    except (Exception, SystemExit) as error:  # of that module's code
        raise ConfigError(f"{key}: cannot be imported, {told(error)}") from None
    if not (inspect.isclass(found) and issubclass(found, kind)):
        raise ConfigError(f"{key}: must be a {kind.__name__}")
    if found.__module__.partition(".")[0] not in packages:
        raise ConfigError(f"{key}: is a class of {found.__module__}, and must be named as such")
    if inspect.isabstract(found) or ("dims" in inspect.signature(found).parameters) != (kind is PositionScheme):
        raise ConfigError(f"{key}: is no whole {kind.__name__}, name one as in conf/{conf}/")
    return found


def import_file(path: Path) -> str:
    """Imports a file as the module of its name, once in a process; that name. Raises ConfigError."""
    name, file = path.stem, path.expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"{path}: there is no such file")
    if not name.isidentifier() or keyword.iskeyword(name):
        better = re.sub(r"[^0-9A-Za-z_]", "_", name)
        better += "_" * keyword.iskeyword(better)
        raise ConfigError(f"{path}: cannot be imported by that name; call it {'_' * better[0].isdigit()}{better}.py")
    there = sys.modules.get(name) or importlib.util.find_spec(name)
    origin = getattr(there, "__file__", None) or getattr(there, "origin", None)
    if there and not (origin and Path(origin).resolve() == file):
        raise ConfigError(f"{path}: there is a module {name} already; give the file another name")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise ConfigError(f"{path}: cannot be imported, {told(error, [str(file)])}") from None
    return name


def told(error: BaseException, files: list[str] | None = None) -> str:
    """An error and the line where it is: the last one of `files` that it passed through, or the last of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    *_, frame = [None, *(frame for frame in frames if files is None or frame.filename in files)]
    line = f"{Path(frame.filename).name}:{frame.lineno}: " if frame else ""
    return f"{line}{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def check_arguments(group: str, node: dict[str, Any], kind: type, allowed_packages: list[str]) -> dict[str, Any]:
    """`node`, whose class may be used here and takes these arguments; 1 is 1.0 where it takes floats.

    Schemes within it are checked too. Raises ConfigError.
    """
    conf = group.partition(".")[0]
    if group.count(".") > DEEPEST:
        raise ConfigError(f"{conf}: more than {DEEPEST} schemes within one another")
    parameters = dict(inspect.signature(find_class(group, node, kind, allowed_packages)).parameters)
    if (parameters.pop("dims", None) is not None) != (node.get("_partial_") is True):
        raise ConfigError(f"{group}._partial_={show(node.get('_partial_'))}: must be as in the files of conf/{conf}/")
    checked = dict(node)
    for key, value in node.items():
        if key in ("_target_", "_partial_") or value == "???":
            continue
        if key not in parameters:
            near = nearest(key, parameters, group)
            raise ConfigError(f"{group}.{key}={show(value)}: there is no such setting; {near}")
        if parameters[key].annotation == Callable[[Dims], PositionScheme]:
            if not isinstance(value, dict):
                raise ConfigError(f"{group}.{key}={show(value)}: must be a scheme, as in conf/position/")
            checked[key] = check_arguments(f"{group}.{key}", value, PositionScheme, allowed_packages)
        else:
            checked[key] = _checked(f"{group}.{key}", value, parameters[key].annotation)
    for key, parameter in parameters.items():
        if node.get(key, parameter.default) in (inspect.Parameter.empty, "???"):
            raise ConfigError(f"{group}.{key}: not set; set it in conf/{conf}/ or with +{group}.{key}=…")
    return checked


def classes(node: dict[str, Any]) -> Iterator[type]:
    """The class that a checked `node` names, and those within it."""
    module, _, name = node["_target_"].rpartition(".")
    yield getattr(importlib.import_module(module), name)
    for value in node.values():
        if isinstance(value, dict) and "_target_" in value:
            yield from classes(value)


def build(group: str, node: dict[str, Any], *arguments: Any) -> Any:
    """The object that a checked `node` describes. Raises ConfigError."""
    with config_errors("task." if group == "task" else ""):
        built = hydra.utils.instantiate(node)
        return built(*arguments) if arguments else built


@contextmanager
def config_errors(prefix: str = "") -> Iterator[None]:
    """Raises a ValueError about a setting, also one that Hydra has wrapped, as a ConfigError.

    One that no line raises, as `a, b = 1, 2, 3` does, is told with that line.
    """
    try:
        yield
    except InstantiationException as error:
        cause = error.__cause__
        if cause is not None and not isinstance(cause, ValueError):
            raise
        raise ConfigError(f"{prefix}{_reason(cause or error)}") from None
    except ValueError as error:
        raise ConfigError(f"{prefix}{_reason(error)}") from None


def _reason(error: Exception) -> str:
    *_, frame = [None, *traceback.extract_tb(error.__traceback__)]
    meant = not isinstance(error, ValueError) or frame is None or (frame.line or "raise").startswith("raise")
    return (
        str(error) if meant else f"{told(error)}; of a scheme or task of your own, python -m rope_lab.check says more"
    )


def _checked(key: str, value: Any, annotation: Any) -> Any:
    """`value` as `annotation` says; annotations that pydantic does not know are not checked. Raises ConfigError."""
    if _names_a_class(value):
        raise ConfigError(f"{key}={show(value)}: must be a plain value, not one built from a class")
    if annotation in (int, int | None) and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e3
    try:
        checked = pydantic.TypeAdapter(annotation, config=FINITE).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        null = " or null" if NoneType in get_args(annotation) else ""
        raise ConfigError(f"{key}={show(value)}: {reasons(error.errors())}{null}{as_sweep(key, value)}") from None
    except pydantic.errors.PydanticSchemaGenerationError:
        return value
    if type(checked) is int and abs(checked) >= GREATEST:
        raise ConfigError(f"{key}={show(value)}: must be a whole number below {GREATEST:,}")
    return checked


def reasons(errors: list[ErrorDetails]) -> str:
    """What is wrong with a value, in the words of pydantic: `must be a valid integer or None`."""
    found = [re.sub("^(Value error, |Input should be )", "", each["msg"]) for each in errors]
    return "must be " + " or ".join(dict.fromkeys(found))


def as_sweep(key: str, value: Any) -> str:
    """How a list, given where one value belongs, is written as a sweep; empty for anything else."""
    if not isinstance(value, list) or not value or any(isinstance(each, (list, dict)) for each in value):
        return ""
    return f"; for a sweep: -m {key}={','.join(map(show, value))}"


def _names_a_class(value: Any) -> bool:
    """Whether Hydra would find something to build in `value`, at any depth."""
    if isinstance(value, dict):
        return any(str(key).startswith("_") or _names_a_class(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(_names_a_class, value))
