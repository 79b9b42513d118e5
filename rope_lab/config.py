"""Every setting: its type, its checks, and how a composed configuration becomes the objects that training uses.

What is swapped (task, position) is instantiated from its yaml; what is tuned is a dataclass here that yaml fills.
"""

import dataclasses
import difflib
import functools
import hashlib
import importlib
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import hydra.utils
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hydra.errors import InstantiationException
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from rope_lab.files import flat, plain
from rope_lab.later import CAME_LATER
from rope_lab.positions import Dims, PositionScheme
from tasks.base import Task

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
CORES = os.cpu_count() or 1
SWAPPED = {"task": Task, "position": PositionScheme}  # groups of conf/ whose files name a class, and of which kind
PACKAGES = ("rope_lab", "tasks")  # where such a class may come from unless the user allows more
DEEPEST = 16  # schemes within one another, and groups within one another in a yaml file
NAME = re.compile(r"\w[\w.+ -]{0,99}")  # of a file in conf/task/, conf/position/ and conf/scale/, without .yaml
GREATEST = 10**9  # whole numbers among the settings of tasks and schemes are smaller

# Settings that say where and how a run is made here, and change none of its numbers: a record does not hold them. At
# these values a run is read from one.
LOCAL: dict[str, Any] = {
    "threads": None,
    "out": None,
    "fresh": False,
    "other_code": False,
    "allowed_packages": [],
    "wandb": {"mode": "disabled", "project": "rope_lab", "entity": None},
}


class ConfigError(ValueError):
    """A setting that cannot be used: the message, one line, names its key, its value and the remedy."""

    def __str__(self) -> str:
        return plain(super().__str__())


@dataclass
class Model:
    attention: str = MISSING
    d_model: int = MISSING
    n_layers: int = MISSING
    n_heads: int = MISSING
    norm: str = MISSING
    init: str = MISSING
    dropout: float = MISSING


@dataclass
class Train:
    steps: int = MISSING
    batch_size: int = MISSING
    seq_len: int = MISSING
    lr: float = MISSING
    beta1: float = MISSING
    beta2: float = MISSING
    weight_decay: float = MISSING
    warmup: int = MISSING
    decay: str = MISSING
    clip: float = MISSING
    log_every: int = MISSING
    precision: str = MISSING
    compile: bool = MISSING


@dataclass
class Eval:
    every: int = MISSING
    problems: int = MISSING
    sequences: int = MISSING
    lengths: list[int] = MISSING
    problems_at_end: int | None = None


@dataclass
class Wandb:
    mode: str = MISSING
    project: str = MISSING
    entity: str | None = None


@dataclass
class Settings:
    """What yaml files and the command line fill in."""

    task: dict[str, Any] = field(default_factory=dict)
    position: dict[str, Any] = field(default_factory=dict)
    model: Model = field(default_factory=Model)
    train: Train = field(default_factory=Train)
    eval: Eval = field(default_factory=Eval)
    seed: int = MISSING
    device: str = MISSING
    threads: int | None = None
    out: str | None = None
    fresh: bool = MISSING
    other_code: bool = MISSING
    allowed_packages: list[str] = MISSING
    wandb: Wandb = field(default_factory=Wandb)


ConfigStore.instance().store(name="schema", node=Settings)


@dataclass
class Names:
    """What was chosen from the groups of conf/."""

    task: str
    position: str
    scale: str


@dataclass
class Config(Settings):
    """Checked settings, and the names under which task, position and scale were chosen."""

    names: Names = field(default_factory=lambda: Names("", "", ""))


def at_least_1(key: str, most: int) -> tuple[str, Callable[[int], bool], str]:
    """What is checked of a number of things."""
    return key, lambda v: 1 <= v <= most, f"must be at least 1 and at most {most:,}"


# key, what must hold of its value, what to say where it does not
CHECKS = [
    ("model.attention", lambda v: v in ("softmax", "linear"), "must be softmax or linear"),
    at_least_1("model.d_model", 1_000_000),
    at_least_1("model.n_layers", 10_000),
    at_least_1("model.n_heads", 1_000_000),
    ("model.norm", lambda v: v in ("pre", "post"), "must be pre or post"),
    ("model.init", lambda v: v in ("pytorch", "xavier"), "must be pytorch or xavier"),
    ("model.dropout", lambda v: 0 <= v < 1, "must be at least 0 and below 1"),
    at_least_1("train.steps", 99_999_999),  # the names of checkpoints have eight digits
    at_least_1("train.batch_size", GREATEST),
    at_least_1("train.seq_len", GREATEST),
    ("train.lr", lambda v: 0 < v < math.inf, "must be a finite number above 0, train.lr=1e-3 for example"),
    ("train.beta1", lambda v: 0 <= v < 1, "must be at least 0 and below 1"),
    ("train.beta2", lambda v: 0 <= v < 1, "must be at least 0 and below 1"),
    ("train.weight_decay", lambda v: 0 <= v < math.inf, "must be a finite number, 0 or more"),
    ("train.warmup", lambda v: 0 <= v < 2**63, "must be a number of steps, 0 or more"),
    ("train.decay", lambda v: v in ("none", "linear", "cosine"), "must be none, linear or cosine"),
    ("train.clip", lambda v: 0 < v < math.inf, "must be a finite number above 0"),
    ("train.log_every", lambda v: 1 <= v < 2**63, "must be a number of steps, at least 1"),
    ("train.precision", lambda v: v in ("auto", "float32", "bfloat16"), "must be auto, float32 or bfloat16"),
    ("eval.every", lambda v: 1 <= v < 2**63, "must be a number of steps, at least 1"),
    at_least_1("eval.problems", 1_000_000),
    at_least_1("eval.sequences", 1_000_000),
    (
        "eval.problems_at_end",
        lambda v: v is None or 1 <= v <= 1_000_000,
        "must be at least eval.problems and at most 1,000,000, or null",
    ),
    ("eval.lengths", lambda v: sorted(set(v)) == v, "must be in rising order, eval.lengths=[13,26] for example"),
    ("eval.lengths", lambda v: all(1 <= n <= 1_000_000 for n in v), "must be lengths of 1 to 1,000,000"),
    ("seed", lambda v: 0 <= v < 2**63, "must be 0 or more, and below 2⁶³"),
    ("device", lambda v: v in ("auto", "cpu", "cuda", "mps"), "must be auto, cpu, cuda or mps"),
    ("threads", lambda v: v is None or 1 <= v <= CORES, f"must be 1 to {CORES}, the cores there are, or null"),
    ("out", lambda v: v is None or v.strip(), "must name a folder, or be null for results/runs in the checkout"),
    ("allowed_packages", lambda v: isinstance(v, list), "must be a list of packages, allowed_packages=[mine]"),
    ("wandb.mode", lambda v: v in ("offline", "online", "disabled"), "must be offline, online or disabled"),
    ("wandb.project", lambda v: bool(v.strip()), "must not be empty"),
]


def from_hydra(cfg: DictConfig) -> Config:
    """The checked configuration of the job that Hydra is running. Raises ConfigError."""
    return _checked(cfg, _chosen(HydraConfig.get().runtime.choices))


def load(*overrides: str) -> Config:
    """The checked configuration that command line `overrides` give, outside of a Hydra job. Raises ConfigError."""
    check_choices(overrides)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", list(overrides), return_hydra_config=True)
    choices = cfg.hydra.runtime.choices
    with read_write(cfg), open_dict(cfg):
        del cfg["hydra"]
    return _checked(cfg, _chosen(choices))


def check_choices(overrides: Iterable[str], folders: Iterable[Path] = ()) -> None:
    """Raises ConfigError where something else than a name is chosen from a group of conf/: Hydra does not say so well.

    Nor does it of what is nested too deeply. `folders`: where groups are looked for. Raises Hydra's own error where an
    override cannot be read.
    """
    for text in overrides:
        try:
            (override,) = OverridesParser.create().parse_overrides([text])
        except (RecursionError, ValueError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(":")[0]
            raise ConfigError(f"{show(text)}: cannot be read, {reason}") from None
        group = override.key_or_group
        if override.is_sweep_override() and not override.is_choice_sweep():
            continue
        chosen = override.value().list if override.is_choice_sweep() else [override.value()]
        if not group:
            raise ConfigError(f"{override.input_line}: names no setting")
        if "." in group or group.partition("/")[0] not in ("task", "position", "scale", "recipe", "hydra"):
            continue
        if not all(isinstance(name, str | QuotedString) for name in chosen):
            raise ConfigError(f"{override.input_line}: must be the name of a file in conf/{group}/")
        if group in SWAPPED and any("/" in str(name) for name in chosen):
            raise ConfigError(f"{override.input_line}: must be a file in conf/{group}/ itself, not in a folder there")
        if group in SWAPPED:
            for path in (folder / group / f"{name}.yaml" for folder in (CONF, *folders) for name in chosen):
                _check_nesting(path)


def _check_nesting(path: Path) -> None:
    """Raises ConfigError where a yaml file is nested too deeply, or within itself, for Hydra to read."""
    within: list[str | None] = []  # the anchors of all groups and lists that are open
    with suppress(OSError, UnicodeError, yaml.YAMLError):  # Hydra says these well
        for event in yaml.parse(path.read_text()):
            if isinstance(event, yaml.CollectionStartEvent):
                within.append(event.anchor)
            elif isinstance(event, yaml.CollectionEndEvent):
                within.pop()
            if len(within) > DEEPEST or (isinstance(event, yaml.AliasEvent) and event.anchor in within):
                raise ConfigError(f"{path}: more than {DEEPEST} groups or lists within one another")


def from_record(plain: dict[str, Any], allowed_packages: Iterable[str] = ()) -> Config:
    """The configuration that a run.json holds. Raises ConfigError where its settings are not today's.

    What packages are allowed is for the reader to say, and so is everything else that is LOCAL; no interpolation in a
    record is resolved.
    """
    plain = {key: value for key, value in plain.items() if key not in LOCAL} | LOCAL
    for name, before in CAME_LATER.items():
        group, _, key = name.partition(".")
        if isinstance(plain.get(group), dict) and group not in SWAPPED:
            plain = plain | {group: {key: before} | plain[group]}
    with _plain_errors():
        for key, value in flat(plain).items():
            if "${" in json.dumps(value):
                raise ConfigError(f"{key}={show(value)}: a record holds plain values, and ${{…}} in it is not resolved")
        _check_keys(plain, Config)
        settings = {key: value for key, value in plain.items() if key != "names"}
        cfg = OmegaConf.merge(Settings, settings | {"allowed_packages": list(allowed_packages)})
    return _checked(cfg, Names(**{group: str(plain["names"][group]) for group in ("task", "position", "scale")}))


def _chosen(choices: dict[str, str]) -> Names:
    """What was chosen from the groups of conf/. Raises ConfigError where there is no recipe for it."""
    names = Names(**{group: choices[group] for group in ("task", "position", "scale")})
    if choices.get("recipe") != f"{names.task}/{names.scale}":
        raise ConfigError(
            f"recipe={choices.get('recipe')}: follows from task and scale and cannot be chosen; set scale=…"
        )
    if names.scale != "quick" and not (CONF / "recipe" / names.task / f"{names.scale}.yaml").exists():
        raise ConfigError(f"scale={names.scale}: there is no conf/recipe/{names.task}/{names.scale}.yaml")
    return names


def _checked(cfg: DictConfig, names: Names) -> Config:
    """Typed and checked settings. Raises ConfigError."""
    for group, name in vars(names).items():
        if not NAME.fullmatch(name):
            raise ConfigError(f"{group}={show(name)}: must be the name of a file in conf/{group}/")
    with _plain_errors():
        plain = OmegaConf.to_container(cfg, resolve=True)
        _check_keys(plain, Settings)
        config = Config(**vars(OmegaConf.to_object(cfg)), names=names)
    for key, holds, remedy in CHECKS:
        value = functools.reduce(getattr, key.split("."), config)
        if not holds(value):
            raise ConfigError(f"{key}={show(value)}: {remedy}")
    for group in SWAPPED:
        setattr(config, group, _check_arguments(group, plain[group], SWAPPED[group], config.allowed_packages))
    if config.model.d_model % config.model.n_heads:
        raise ConfigError(
            f"model.d_model={config.model.d_model}: must be divisible by model.n_heads={config.model.n_heads}"
        )
    return config


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Turns what OmegaConf has against a value into a ConfigError of one line."""
    try:
        yield
    except OmegaConfBaseException as error:
        key = f"{error.full_key}: " if error.full_key else ""
        raise ConfigError(key + str(error).splitlines()[0]) from None
    except RecursionError:
        raise ConfigError("task or position: settings are nested too deeply") from None


def build_task(config: Config) -> Task:
    """The task that `config` names, fit for its sequence length. Raises ConfigError."""
    with config_errors("task."):
        task = hydra.utils.instantiate(config.task)
    if task.max_length > config.train.seq_len:
        raise ConfigError(
            f"train.seq_len={config.train.seq_len}: too short, one problem may take {task.max_length} tokens; "
            f"set train.seq_len to that or more, or make the problems of task={config.names.task} smaller"
        )
    return task


def build_position(config: Config, dims: Dims) -> PositionScheme:
    """The position scheme that `config` names, made for `dims`. Raises ConfigError."""
    with config_errors():
        return hydra.utils.instantiate(config.position)(dims)


@contextmanager
def config_errors(prefix: str = "") -> Iterator[None]:
    """Turns a ValueError about a setting, also one that Hydra has wrapped, into a ConfigError."""
    try:
        yield
    except InstantiationException as error:
        cause = error.__cause__
        if cause is not None and not isinstance(cause, ValueError):
            raise
        raise ConfigError(f"{prefix}{cause or error}") from None
    except ValueError as error:
        raise ConfigError(f"{prefix}{error}") from None


def out_folder(config: Config) -> Path:
    """The folder that holds run folders."""
    if not config.out:
        return ROOT / "results" / "runs"
    try:
        return Path(config.out).expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"out={config.out}: {error}; set out=FOLDER") from None


def recorded(config: Config) -> dict[str, Any]:
    """The settings that a run's record holds: what repeats the run, and nothing of where and by whom it was made."""
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in LOCAL}


def typed() -> list[str]:
    """The overrides that were typed for the job at hand, as they were typed; those of `out`, `wandb` and Hydra not."""
    overrides = HydraConfig.get().overrides if HydraConfig.initialized() else None
    words = OmegaConf.to_container(overrides.task, resolve=False) if overrides else sys.argv[1:]
    keys = {word: re.match(r"[~+]*(\w+)[\w./@]*=", word) for word in words}
    return [word for word, key in keys.items() if key and key[1] not in ("out", "wandb", "hydra")]


def identity(config: Config) -> dict[str, Any]:
    """The settings of a resolved configuration that change what a run records."""
    plain = dataclasses.asdict(config)
    for name, before in CAME_LATER.items():
        *groups, key = name.split(".")
        node = functools.reduce(lambda node, group: node.get(group) if isinstance(node, dict) else None, groups, plain)
        if isinstance(node, dict) and node.get(key, before) == before:
            node.pop(key, None)
    kept = {key: plain[key] for key in ("task", "position", "model", "train", "eval", "seed", "device")}
    return kept | {"names": {key: plain["names"][key] for key in ("task", "position")}}


def run_id(identity: dict[str, Any]) -> str:
    """A hash of a run's identity."""
    return _hash(identity)


def run_name(identity: dict[str, Any]) -> str:
    """The name of a run's folder."""
    names = identity["names"]
    return f"{names['task']}-{names['position']}-s{identity['seed']}-{run_id(identity)}"


def recipe_id(identity: dict[str, Any]) -> str:
    """A hash of the identity without position and seed: runs that share it may be compared."""
    recipe = {key: value for key, value in identity.items() if key not in ("position", "seed")}
    return _hash(recipe | {"names": {"task": identity["names"]["task"]}})


def scheme_id(identity: dict[str, Any]) -> str:
    """A hash of the scheme with its settings, which its name alone does not tell."""
    return _hash(identity["position"])[:6]


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Every setting in which two identities differ, `train.lr=0.001 (now 0.002)`; empty where they are the same."""
    ours, theirs = flat(ours), flat(theirs)
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key}={show(ours.get(key))} (now {show(theirs.get(key))})" for key in keys)


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _check_keys(plain: dict[str, Any], schema: type, prefix: str = "") -> None:
    """Raises ConfigError where `plain` has, at any depth, other keys than `schema`."""
    fields = {f.name: f.type for f in dataclasses.fields(schema)}
    for key, value in plain.items():
        if key not in fields:
            near = _nearest(key, fields, prefix.rstrip("."))
            raise ConfigError(f"{prefix}{key}={show(value)}: there is no such setting; {near}")
        is_group = dataclasses.is_dataclass(fields[key]) or (schema is not Names and key in SWAPPED)
        if is_group and not isinstance(value, dict):
            raise ConfigError(f"{prefix}{key}={show(value)}: must be a group of settings")
        if dataclasses.is_dataclass(fields[key]):
            _check_keys(value, fields[key], f"{prefix}{key}.")
    for key in fields:
        if plain.get(key, MISSING) == MISSING:
            raise ConfigError(f"{prefix}{key}: not set; see conf/config.yaml")


def _check_arguments(group: str, node: dict[str, Any], kind: type, allowed_packages: list[str]) -> dict[str, Any]:
    """`node` with whole numbers as floats where its class takes floats, so that 1 and 1.0 are the same run.

    Raises ConfigError where `node` names no class or one that may not be used here (then nothing of it is imported), or
    gives the class an argument that it cannot take.
    """
    target, conf = node.get("_target_"), group.partition(".")[0]
    if group.count(".") > DEEPEST:
        raise ConfigError(f"{conf}: more than {DEEPEST} schemes within one another")
    if not isinstance(target, str) or not target.partition(".")[0]:
        raise ConfigError(f"{group}._target_={show(target)}: must name a class, as the files in conf/{conf}/ do")
    package = target.partition(".")[0]
    if package not in (*PACKAGES, *allowed_packages):
        raise ConfigError(
            f"{group}._target_={show(target)}: is not of {' or '.join(PACKAGES)}; if you trust its code, "
            f"set allowed_packages=[{show(package)}]"
        )
    module, _, name = target.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"{group}._target_={show(target)}: {show(str(error))}") from None
    if not (inspect.isclass(made) and issubclass(made, kind)):
        raise ConfigError(f"{group}._target_={show(target)}: must be a {kind.__name__}")
    if made.__module__.partition(".")[0] not in (*PACKAGES, *allowed_packages):
        raise ConfigError(
            f"{group}._target_={show(target)}: is a class of {made.__module__}, and must be named as such"
        )
    parameters = inspect.signature(made).parameters
    if inspect.isabstract(made) or (kind is PositionScheme and "dims" not in parameters):
        raise ConfigError(f"{group}._target_={show(target)}: is no whole {kind.__name__}, name one as in conf/{conf}/")
    takes = [name for name in parameters if name != "dims"]
    for key, value in node.items():
        if key in ("_target_", "_partial_"):
            continue
        if key not in takes:
            raise ConfigError(f"{group}.{key}={show(value)}: there is no such setting; {_nearest(key, takes, group)}")
        if parameters[key].annotation == Callable[[Dims], PositionScheme]:
            if not isinstance(value, dict):
                raise ConfigError(f"{group}.{key}={show(value)}: must be a scheme, as in conf/position/")
            node = node | {key: _check_arguments(f"{group}.{key}", value, PositionScheme, allowed_packages)}
            continue
        if _names_a_class(value):
            raise ConfigError(f"{group}.{key}={show(value)}: must be a plain value, not one built from a class")
        if not _fits(value, parameters[key].annotation):
            raise ConfigError(f"{group}.{key}={show(value)}: must be {_describe(parameters[key].annotation)}")
    for key in takes:
        if node.get(key, MISSING) == MISSING and parameters[key].default is inspect.Parameter.empty:
            raise ConfigError(f"{group}.{key}: not set; set it in conf/{conf}/ or with +{group}.{key}=…")
    if ("dims" in parameters) != (node.get("_partial_") is True):
        raise ConfigError(
            f"{group}._partial_={show(node.get('_partial_'))}: must be as the files in conf/{conf}/ have it"
        )
    floats = {key for key in takes if float in (parameters[key].annotation, *get_args(parameters[key].annotation))}
    return {key: float(value) if key in floats and value is not None else value for key, value in node.items()}


def _names_a_class(value: Any) -> bool:
    """Whether Hydra would find something to build in `value`, at any depth."""
    if isinstance(value, dict):
        return any(str(key).startswith("_") or _names_a_class(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(_names_a_class, value))


def _fits(value: Any, annotation: Any) -> bool:
    """Whether `value` may be given where `annotation` stands; annotations other than plain ones are not checked."""
    if get_origin(annotation) is Literal:
        return value in get_args(annotation)
    if get_origin(annotation) is UnionType:
        return any(_fits(value, kind) for kind in get_args(annotation))
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if annotation is int:
        return type(value) is int and abs(value) < GREATEST
    if annotation in (str, bool, NoneType):
        return type(value) is annotation
    return True


def _describe(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(get_args(annotation))
    if get_origin(annotation) is UnionType:
        return " or ".join(map(_describe, get_args(annotation)))
    whole = f"a whole number below {GREATEST:,}"
    return {int: whole, float: "a finite number", str: "text", bool: "true or false", NoneType: "null"}[annotation]


def _nearest(key: str, known: Iterable[str], group: str) -> str:
    names = {name: f"{group}.{name}" if group else name for name in known}
    near = difflib.get_close_matches(key, names, n=1)
    if near:
        return f"did you mean {names[near[0]]}?"
    return f"there are {', '.join(names.values())}" if names else f"{group} has none"


def show(value: Any) -> str:
    """A value as one types it on the command line, without its end where it is long."""
    text = str(value) if isinstance(value, str | float) else json.dumps(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
