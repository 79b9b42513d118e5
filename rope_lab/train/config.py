"""The `Config` of a command line's overrides or of a record; the task, scheme and identity built
from it.
"""

import copy
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from rope_lab.identity import BACKFILLED, Identity, identify
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.places import CONF
from rope_lab.shipped import choices, shipped
from rope_lab.tasks.task import Task
from rope_lab.text import ConfigError, first_line, flat, nested, show
from rope_lab.train import instantiate, overrides, provenance
from rope_lab.train.instantiate import SWAPPED
from rope_lab.train.settings import LOCAL, Config, Settings, declared


def _fields(cls: type) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


NOT_SETTINGS = _fields(Config) - _fields(Settings)  # fields that nobody sets


def load(*words: str) -> Config:
    """The checked configuration of a command line's overrides. Raises ConfigError."""
    composed, values, files = overrides.for_hydra(words)
    names, ours = _with_values(composed, values)
    try:
        settings = OmegaConf.to_container(ours, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None
    for key in NOT_SETTINGS:
        if key in settings:
            raise ConfigError(f"{key}: there is no such setting; {overrides.HELP}")
    scales = {*choices(f"recipe/{names['task']}"), "quick"}
    if names["scale"] not in scales:
        raise ConfigError(
            f"scale={names['scale']}: task={names['task']} has {', '.join(sorted(scales))}"
        )
    return _checked(settings, names=names, overrides=words, allowed_packages=files)


def _with_values(composed: list[str], values: list[Override]) -> tuple[dict[str, str], DictConfig]:
    """`_chosen(composed)`, which takes a tenth of a second: files that were chosen before are not
    composed again, and get these values.
    """
    groups = [word for word in composed if not word.startswith("++")]
    deletes = any(word.startswith("~") for word in groups)
    if deletes or any(override.package for override in values):
        return _chosen(tuple(composed))
    names, before = _chosen_once(tuple(groups))
    ours = copy.deepcopy(before)
    try:
        for override in values:
            OmegaConf.update(ours, override.key_or_group, override.value(), force_add=True)
    except OmegaConfBaseException:
        return _chosen(tuple(composed))  # says which of them is wrong
    return names, ours


def _chosen(composed: tuple[str, ...]) -> tuple[dict[str, str], DictConfig]:
    """The names of the files of conf/ that overrides choose, and the settings, with
    interpolations. Raises ConfigError.
    """
    cfg = compose(composed)
    names = {key: cfg.hydra.runtime.choices[key] for key in overrides.GROUPS}
    return names, OmegaConf.masked_copy(cfg, [key for key in cfg if key != "hydra"])


_chosen_once = functools.cache(_chosen)


def compose(words: Iterable[str]) -> DictConfig:
    """Hydra's composition of conf/ and overrides, with its own settings as `hydra`. Raises
    ConfigError.

    The Hydra state of a calling program, such as a user's own, is restored.
    """
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra.compose("config", [*words], return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(" ".join(str(error).partition("Config search path")[0].split())) from None
    finally:
        GlobalHydra.instance().hydra = outer


def from_record(recorded: dict[str, Any], allowed_packages: Iterable[str] = ()) -> Config:
    """The configuration in a run.json; LOCAL settings are defaults, W&B off. Raises ConfigError."""
    local = {
        key: value for key, value in shipped("config").items() if key.partition(".")[0] in LOCAL
    }
    others = (*LOCAL, "names", "allowed_packages")
    leaves = flat({key: value for key, value in recorded.items() if key not in others})
    before = {
        key: value for key, value in BACKFILLED.items() if key.partition(".")[0] not in SWAPPED
    }
    settings = nested(before | leaves | local | {"wandb.mode": "disabled"})
    return _checked(settings, names=recorded.get("names", {}), allowed_packages=[*allowed_packages])


def _checked(settings: dict[str, Any], **more: Any) -> Config:
    """Typed and checked settings, and the other fields of Config. Raises ConfigError."""
    given = flat(settings)
    for name, field in declared().items():
        if isinstance(given.get(name), bool):
            instantiate.check_type(name, given[name], field.type)
    try:
        config = Config(**settings | more)
    except ValidationError as error:
        raise ConfigError(_reason(error)) from None
    swapped = {
        key: instantiate.check_arguments(key, getattr(config, key), config.allowed_packages)
        for key in SWAPPED
    }
    model = config.model
    if model.d_model % model.n_heads:
        raise ConfigError(
            f"model.d_model={model.d_model}: must be divisible by model.n_heads={model.n_heads}"
        )
    if model.n_heads % (model.kv_heads or model.n_heads):
        n_heads = f"model.n_heads={model.n_heads}"
        raise ConfigError(f"model.kv_heads={model.kv_heads}: must divide {n_heads}")
    return dataclasses.replace(config, **swapped)


def _reason(error: ValidationError) -> str:
    """The first of pydantic's errors in one line."""
    first = error.errors()[0]
    key = ".".join(part for part in first["loc"] if isinstance(part, str))
    value = first["input"]
    if first["type"] == "missing":
        return f"{key}: not set; rope-lab train --help shows every setting"
    if first["type"] in ("unexpected_keyword_argument", "dataclass_type"):
        key, value = next(iter(flat({key: value}).items()), (key, value))  # trian.steps, not trian
        return f"{key}={show(value)}: {overrides.meant(key)}"
    return instantiate.refusal(
        key, value, [each for each in error.errors() if each["loc"] == first["loc"]]
    )


def resolve_task(config: Config) -> dict[str, Any]:
    """The task's settings as a record holds them. Raises ConfigError."""
    instantiate.import_allowed(config.allowed_packages)  # in a process of a sweep they are not yet
    with instantiate.config_errors("task."):
        return next(instantiate.classes(config.task)).resolve(config.task)


def build_task(config: Config, kept: str | None = None) -> Task:
    """The task that `config` names, fit for its sequence length. Raises ConfigError.

    kept: `Task.kept` of a run, instead of the task's data
    """
    with instantiate.config_errors("task."):
        task = instantiate.build(config.task)
        if kept is not None:
            task.kept = kept
        len(task.alphabet)  # reads a corpus
    if task.max_length > config.train.seq_len:
        raise ConfigError(
            f"train.seq_len={config.train.seq_len}: too short, one problem may take "
            f"{task.max_length} tokens; set train.seq_len to that or more, or make the problems of "
            f"task={config.names.task} smaller"
        )
    return task


def build_position(config: Config, dims: Dims) -> PositionScheme:
    """The position scheme that `config` names, made for `dims`. Raises ConfigError."""
    with instantiate.config_errors():
        return instantiate.build(config.position, dims)


def recorded(config: Config) -> dict[str, Any]:
    """The settings of a run's record: all that repeat the run, none that say where and by whom it
    was made.
    """
    others = [*LOCAL, "overrides", "allowed_packages", "shows_scores", "plan"]
    if not config.parent:
        others.append("parent")
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in others}


def identity(config: Config) -> Identity:
    """The identity of the run that a resolved configuration describes; an edited file of the
    user's own makes another run.
    """
    names = config.names
    of_settings = identify(names.task, names.position, config.seed, recorded(config))
    return dataclasses.replace(of_settings, code=provenance.code(config)["plugin"])
