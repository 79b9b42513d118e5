"""Tasks and schemes: a node of settings names a class, `_target_`, and the arguments that differ
from its defaults.

A user's own class needs no yaml file: `position=mine.py` names its file. A node is checked before
its class is built.
"""

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic
import yaml
from hydra.core.config_store import ConfigStore
from pydantic_core import ErrorDetails

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.schemes.layers import Part, Pattern
from rope_lab.places import CONF
from rope_lab.shipped import choices
from rope_lab.tasks.task import Task
from rope_lab.text import ConfigError, nearest, show
from rope_lab.train import pattern
from rope_lab.train.plugin import FILE, OURS, error_line, import_file

# Groups of conf/ whose files name a class.
SWAPPED: dict[str, type] = {"task": Task, "position": PositionScheme}
TOP = "tasks."  # conf/ and records name modules of rope_lab.tasks so
SCHEME = Callable[[Dims], PositionScheme]  # the annotation of an argument that is another scheme
PATTERNS = (Pattern, Pattern | None)  # the annotations of an argument that is a pattern of layers
# Packages and files that may have it, besides ours; None: of a node that was checked before.
Allowed = Iterable[str] | None
TYPES = pydantic.ConfigDict(allow_inf_nan=False, coerce_numbers_to_str=True)


def register(group: str, file: str, name: str | None) -> tuple[str, str]:
    """Register the class in a file, `name` if given, as a choice for Hydra; returns the name of
    the choice and that of the class. Raises ConfigError.
    """
    path = Path(os.path.expanduser(file))
    run_name = f"{path.stem}-{name}" if name else path.stem
    if run_name in choices(group):
        taken = f"conf/{group}/ has a {run_name}; give the file another name"
        raise ConfigError(f"{group}={file}: {taken}")
    try:
        cls = _class_of(group, sys.modules[import_file(path)], name)
    except ConfigError as error:
        raise ConfigError(f"{group}={file}: {error}") from None
    target = f"{cls.__module__}.{cls.__qualname__}"
    ConfigStore.instance().store(run_name, {"_target_": target}, group)
    return run_name, target


def _class_of(group: str, module: ModuleType, name: str | None) -> type:
    """The scheme or task of that name in a module, or the only one that it defines. Raises
    ConfigError.
    """
    kind = SWAPPED[group]
    own = [c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, kind)]
    own = [c for c in own if c.__module__ == module.__name__ and name in (None, c.__name__)]
    fit = [c for c in own if not inspect.isabstract(c)]
    if len(fit) == 1:
        return fit[0]
    if fit:
        several = " or ".join(f":{each.__name__}" for each in fit)
        raise ConfigError(
            f"has several classes that are a {kind.__name__}, write one behind it, {several}"
        )
    lacks = [
        f"{each.__name__} lacks {', '.join(vars(each)['__abstractmethods__'])}" for each in own
    ]
    hint = "; ".join(lacks) or "docs/extending.md has an example of each"
    raise ConfigError(f"has no {name or 'class'} that is a {kind.__name__}; {hint}")


def import_allowed(allowed: Iterable[str]) -> list[str]:
    """The names of allowed packages, and of the modules of allowed files, which are imported.
    Raises ConfigError.
    """
    return [import_file(Path(each)) if each.endswith(".py") else each for each in allowed]


def find_class(group: str, node: dict[str, Any], allowed: Allowed) -> type:
    """The class that `node` names, from our packages or an allowed one; others are not imported.
    Raises ConfigError.
    """
    target = str(node.get("_target_"))
    kind = SWAPPED[group.partition(".")[0]]
    key = f"{group}._target_={show(target)}"
    package = target.partition(".")[0]
    if allowed is not None and package not in (*OURS, *import_allowed(allowed)):
        trust = f"name your file, {group}=./{package}.py; of a record: --allow {package}.py"
        raise ConfigError(f"{key}: is not in {' or '.join(OURS)}; {trust}")
    try:
        cls = _import_class(target)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{key}: cannot be imported, {error_line(error)}") from None
    if not (inspect.isclass(cls) and issubclass(cls, kind)) or inspect.isabstract(cls):
        raise ConfigError(f"{key}: must be a {kind.__name__} that is not abstract")
    return cls


def _import_class(target: str) -> Any:
    module, _, name = target.rpartition(".")
    if module.startswith(TOP):
        module = f"rope_lab.{module}"
    return getattr(importlib.import_module(module), name)


def check_arguments(group: str, node: dict[str, Any], allowed: Allowed) -> dict[str, Any]:
    """`node` with every argument of its class, typed; so are schemes within it. Raises
    ConfigError.
    """
    cls = find_class(group, node, allowed)
    every = _parameters(cls)
    parameters = {
        name: p for name, p in every.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    if SWAPPED[group.partition(".")[0]] is PositionScheme:
        if next(iter(parameters), "") != "dims":
            raise ConfigError(
                f"{group}: __init__ of {cls.__name__} must take dims first "
                "(rope_lab.model.hooks.Dims)"
            )
        del parameters["dims"]
    checked = {"_target_": node["_target_"]}
    given = {key: value for key, value in node.items() if key != "_target_" and value != "???"}
    for key in given.keys() - parameters.keys():
        hint = nearest(key, parameters, group) if parameters else f"{cls.__name__} has no settings"
        raise ConfigError(f"{group}.{key}={show(given[key])}: no such setting; {hint}")
    for key, parameter in parameters.items():
        if key in given:
            checked[key] = _typed(f"{group}.{key}", given[key], parameter.annotation, allowed)
        elif parameter.default is parameter.empty:
            raise ConfigError(f"{group}.{key}: not set; set {group}.{key}=…")
        elif isinstance(parameter.default, str | int | float | bool | list | None):
            checked[key] = parameter.default
    return checked


def _typed(key: str, value: Any, annotation: Any, allowed: Allowed) -> Any:
    """`value` as `annotation` says; one that pydantic does not know is not checked. Raises
    ConfigError.
    """
    if annotation == SCHEME and _is_node(value):
        return check_arguments(key, value, allowed)
    if annotation == SCHEME:
        return _node_of(key, _one_scheme(key, value), allowed)
    if _is_node(value):
        raise ConfigError(f"{key}={show(value)}: must be a plain value")
    if annotation in PATTERNS and value is not None:
        written = pattern.canonical(check_type(key, value, str))
        layers_of(key, written, allowed)
        return written
    try:
        return check_type(key, value, annotation)
    except (pydantic.errors.PydanticUserError, NameError):
        return value


def _one_scheme(key: str, value: Any) -> pattern.Written:
    """A scheme in the notation of a pattern, `rope base:1e4`. Raises ConfigError."""
    parts = pattern.read(key, pattern.canonical(check_type(key, value, str)))
    if len(parts) > 1 or parts[0].count > 1 or parts[0].window:
        raise ConfigError(f"{key}={show(value)}: must be one scheme, 'NAME SETTING:VALUE …'")
    return parts[0]


def layers_of(key: str, written: str, allowed: Allowed) -> list[Part]:
    """The parts of a pattern of layers. Raises ConfigError."""
    parts = []
    for part in pattern.read(key, written):
        node = _node_of(key, part, allowed)
        tokens = check_type(f"{key}.{part.name}.window", part.window, int | float | None)
        parts.append(Part(functools.partial(build, node), part.count, tokens))
    return parts


def _node_of(key: str, part: pattern.Written, allowed: Allowed) -> dict[str, Any]:
    """The checked node of a part's scheme, which is in conf/position/ or in an allowed file. Raises
    ConfigError.
    """
    file = FILE.fullmatch(part.name)
    if file:
        module = Path(file["path"]).stem
        if allowed is not None and module not in import_allowed(allowed):
            remedy = f"give the path of your file; of a record: --allow {file['path']}"
            raise ConfigError(f"{key}: {part.name}: there is no such file; {remedy}")
        with config_errors(f"{key}: {part.name}: "):
            cls = _class_of("position", sys.modules[module], file["name"])
        usual = {"_target_": f"{cls.__module__}.{cls.__qualname__}"}
    elif part.name in choices("position"):
        usual = yaml.safe_load((CONF / "position" / f"{part.name}.yaml").read_text("utf-8"))
    else:
        hint = nearest(part.name, choices("position"), "")
        raise ConfigError(f"{key}: {part.name}: there is no such scheme; {hint}")
    return check_arguments(f"{key}.{part.name}", usual | part.settings, allowed)


def check_type(key: str, value: Any, annotation: Any) -> Any:
    """`value` as pydantic converts it to a type; true and false are not numbers, nor in a list.
    Raises ConfigError.
    """
    values = value if isinstance(value, list) else [value]
    strict = any(isinstance(each, bool) for each in values)
    try:
        return pydantic.TypeAdapter(annotation, config=TYPES).validate_python(value, strict=strict)
    except pydantic.ValidationError as error:
        raise ConfigError(refusal(key, value, error.errors())) from None


def _is_node(value: Any) -> bool:
    return isinstance(value, dict) and "_target_" in value


def classes(node: dict[str, Any]) -> Iterator[type]:
    """The class that a checked `node` names, and those within it."""
    cls = _import_class(node["_target_"])
    yield cls
    for key, value in node.items():
        if _is_node(value):
            yield from classes(value)
        elif _is_pattern(cls, key, value):
            for part in pattern.read(key, value):
                yield from classes(_node_of(f"position.{key}", part, None))


def patterns(node: dict[str, Any]) -> list[str]:
    """The patterns of layers among the settings of a checked `node`."""
    cls = _import_class(node["_target_"])
    return [value for key, value in node.items() if _is_pattern(cls, key, value)]


def own_modules(node: dict[str, Any]) -> set[str]:
    """The modules of the user's own classes in a checked `node`; empty if all are ours."""
    modules = {cls.__module__ for cls in classes(node)}
    return {name for name in modules if name.partition(".")[0] != "rope_lab"}


def build(node: dict[str, Any], *arguments: Any) -> Any:
    """The object that a checked `node` describes."""
    cls = _import_class(node["_target_"])
    settings = {}
    for key, value in node.items():
        if _is_node(value):
            value = functools.partial(build, value)
        elif _is_pattern(cls, key, value):
            value = layers_of(f"position.{key}", value, None)
        settings[key] = value
    del settings["_target_"]
    return cls(*arguments, **settings)


@functools.cache  # a run asks for them a hundred times
def _parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    with suppress(Exception):  # annotations that are text may name anything
        return inspect.signature(cls, eval_str=True).parameters
    return inspect.signature(cls).parameters


def _is_pattern(cls: type, argument: str, value: Any) -> bool:
    """Whether the value of an argument of a class is a pattern of layers."""
    parameter = _parameters(cls).get(argument)
    return isinstance(value, str) and parameter is not None and parameter.annotation in PATTERNS


@contextmanager
def config_errors(prefix: str = "") -> Iterator[None]:
    """Put `prefix` before a ConfigError about a setting. Any other ValueError, such as that of
    `a, b = [1]` in a user's file, becomes one with its place.
    """
    try:
        yield
    except ConfigError as error:
        raise type(error)(f"{prefix}{error}") from None
    except ValueError as error:
        place = error_line(error)
        raise ConfigError(f"{prefix}{place}; of your own, rope-lab check says more") from None


def refusal(key: str, value: Any, errors: list[ErrorDetails]) -> str:
    """Pydantic's errors about a value, in one line; for a list, also how to write it as a sweep."""
    messages = [
        re.sub("^(Value error, )?((Input|String) should|must) ", "", each["msg"]) for each in errors
    ]
    reasons = " or ".join(dict.fromkeys(messages)).replace(" or be ", " or ")
    sweep = (
        f"; for a sweep: rope-lab sweep {key}={','.join(map(show, value))}"
        if value and isinstance(value, list)
        else ""
    )
    return f"{key}={show(value)}: must {reasons}{sweep}"
