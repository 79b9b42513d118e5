"""How the overrides of a command line, or a record, become a `Config`; and what is built from it."""

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from rope_lab.identity import BACKFILLED, Identity, identify
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.places import ROOT
from rope_lab.text import ConfigError, first_line, flat, nested, show
from rope_lab.train import instantiate, overrides
from rope_lab.train.instantiate import SWAPPED, Plugin
from rope_lab.train.settings import CORES, LOCAL, Config, Names, Train, Wandb, declared  # noqa: F401
from tasks.base import Task

CONF = ROOT / "conf"
RANGE = re.compile(r"([0-9]+)(?:-|:|\.\.\.?)([0-9]+)")  # as people write one, but not Hydra


def load(*words: str, config_dir: Path | None = None) -> Config:
    """The checked configuration that the overrides of a command line give. Raises ConfigError.

    config_dir: another folder like conf/, as `--config-dir` names one
    """
    folders, store = folders_with(config_dir), ConfigStore.instance()
    parsed = overrides.parse(words, folders)
    chosen = {plugin.group: plugin for plugin in overrides.check(parsed, folders)}
    for group, plugin in chosen.items():
        node = {"_target_": f"{plugin.cls.__module__}.{plugin.cls.__qualname__}"}
        store.store(group=group, name=plugin.name, node=node)
    cfg = compose([_for_hydra(each, chosen.get(each.key_or_group), folders) for each in parsed], config_dir)
    for group, plugin in chosen.items():  # or it would be the schema of a yaml file of its name
        store.repo[group].pop(f"{plugin.name}.yaml")
    names = {key: cfg.hydra.runtime.choices[key] for key in overrides.GROUPS}
    settings = _resolved(cfg)
    scales = {*instantiate.names(f"recipe/{names['task']}", folders), "quick"}
    if names["scale"] not in scales:
        raise ConfigError(f"scale={names['scale']}: task={names['task']} has {', '.join(sorted(scales))}")
    settings["allowed_packages"] += [plugin.allowed for plugin in chosen.values()]
    return _checked(settings, names, words)


def folders_with(config_dir: Path | None) -> list[Path]:
    """conf/, and another folder like it if there is one. Raises ConfigError if that is not a directory."""
    if config_dir and not config_dir.is_dir():
        raise ConfigError(f"--config-dir {config_dir}: is not a directory")
    return [CONF, *([config_dir] if config_dir else [])]


def _for_hydra(override: Override, plugin: Plugin | None, folders: list[Path]) -> str:
    """An override as Hydra reads it, which knows neither files of plug-ins nor settings that no yaml names.

    Whether there is such a setting the types of settings and classes say.
    """
    if plugin:
        return f"{plugin.group}={plugin.name}"
    text, key = override.input_line, override.key_or_group
    is_group = overrides.is_hydra(text) or any((folder / key).is_dir() for folder in folders)
    return text if is_group or override.is_delete() else "++" + text.lstrip("+")


def compose(words: Iterable[str], config_dir: Path | None = None) -> DictConfig:
    """Hydra's composition of conf/ and overrides, with its own settings as `hydra`. Raises ConfigError.

    A program of Hydra's that calls this, a user's for example, stays as it is.
    """
    search = [f"hydra.searchpath=['file://{config_dir.resolve()}']"] if config_dir else []
    outer, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra.compose("config", [*words, *search], return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(" ".join(str(error).partition("Config search path")[0].split())) from None
    finally:
        GlobalHydra.instance().hydra = outer


def _resolved(cfg: DictConfig) -> dict[str, Any]:
    """The settings in a configuration of Hydra's, without interpolations. Raises ConfigError."""
    try:
        ours = OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])
        return OmegaConf.to_container(ours, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None


def from_record(recorded: dict[str, Any], allowed_packages: Iterable[str] = ()) -> Config:
    """The configuration that a run.json holds; what is LOCAL is for the reader to say. Raises ConfigError."""
    defaults = OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml"))
    local = {key: defaults[key] for key in LOCAL} | {"allowed_packages": list(allowed_packages)}
    local["wandb"] |= {"mode": "disabled"}
    leaves = flat({key: value for key, value in recorded.items() if key not in (*LOCAL, "names")})
    before = {key: value for key, value in BACKFILLED.items() if key.partition(".")[0] not in SWAPPED}
    return _checked(nested(before | leaves) | local, recorded.get("names", {}))


def _checked(settings: dict[str, Any], names: dict[str, Any], words: Iterable[str] = ()) -> Config:
    """Typed and checked settings. Raises ConfigError."""
    try:
        config = Config(**settings, names=names, overrides=tuple(words))
    except ValidationError as error:
        raise ConfigError(_reason(error)) from None
    swapped = {key: instantiate.check_arguments(key, getattr(config, key), config.allowed_packages) for key in SWAPPED}
    m = config.model
    if m.d_model % m.n_heads:
        raise ConfigError(f"model.d_model={m.d_model}: must be divisible by model.n_heads={m.n_heads}")
    if m.n_heads % (m.kv_heads or m.n_heads):
        raise ConfigError(f"model.kv_heads={m.kv_heads}: must divide model.n_heads={m.n_heads}")
    return dataclasses.replace(config, **swapped)


def _reason(error: ValidationError) -> str:
    """The first of pydantic's errors in one line."""
    first = error.errors()[0]
    key, value = ".".join(part for part in first["loc"] if isinstance(part, str)), first["input"]
    if first["type"] == "missing":
        return f"{key}: not set; see conf/config.yaml"
    if first["type"] in ("unexpected_keyword_argument", "dataclass_type"):
        key, value = next(iter(flat({key: value}).items()), (key, value))  # trian.steps, not trian
        return f"{key}={show(value)}: {overrides.meant(key)}"
    between = RANGE.fullmatch(str(value))
    hint = f"; for a sweep: -m '{key}=range({between[1]},{int(between[2]) + 1})'" if between else ""
    return instantiate.refusal(key, value, [each for each in error.errors() if each["loc"] == first["loc"]]) + hint


def resolve_task(config: Config) -> dict[str, Any]:
    """The settings of the task as a record holds them. Raises ConfigError."""
    instantiate.import_allowed(config.allowed_packages)  # in a process of a sweep they are not yet
    with instantiate.config_errors("task."):
        return next(instantiate.classes(config.task)).resolve(config.task)


def build_task(config: Config, kept: str | None = None) -> Task:
    """The task that `config` names, fit for its sequence length. Raises ConfigError.

    kept: `Task.kept` of a run, instead of the task's data
    """
    task = instantiate.build("task", config.task)
    with instantiate.config_errors("task."):
        if kept is not None:
            task.kept = kept
        len(task.alphabet)  # reads a corpus
    if task.max_length > config.train.seq_len:
        raise ConfigError(
            f"train.seq_len={config.train.seq_len}: too short, one problem may take {task.max_length} tokens; "
            f"set train.seq_len to that or more, or make the problems of task={config.names.task} smaller"
        )
    return task


def build_position(config: Config, dims: Dims) -> PositionScheme:
    """The position scheme that `config` names, made for `dims`. Raises ConfigError."""
    return instantiate.build("position", config.position, dims)


def recorded(config: Config) -> dict[str, Any]:
    """The settings that a run's record holds: what repeats the run, and nothing of where and by whom it was made."""
    content = {key: value for key, value in dataclasses.asdict(config).items() if key not in (*LOCAL, "overrides")}
    return content if config.parent else {key: value for key, value in content.items() if key != "parent"}


def identity(config: Config) -> Identity:
    """The identity of the run that a resolved configuration describes."""
    return identify(config.names.task, config.names.position, config.seed, recorded(config))
