"""Every setting, declared once: its type, its range and what it means; and how yaml and overrides become a `Config`.

What is swapped (task, position) is instantiated from its yaml; what is tuned is a field here. Defaults are in conf/.
"""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from rope_lab.identity import BACKFILLED, Identity, identify
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.places import ROOT
from rope_lab.text import ConfigError, first_line, flat, nearest, nested, show
from rope_lab.train import instantiate, overrides, plugins
from rope_lab.train.instantiate import SWAPPED
from tasks.base import Task

CONF = ROOT / "conf"
CORES = os.cpu_count() or 1
RANGE = re.compile(r"([0-9]+)(?:-|:|\.\.\.?)([0-9]+)")  # as people write one, but not Hydra

# Settings that say where and how a run is made here, and change none of its numbers: a record does not hold them.
LOCAL = ("threads", "out", "fresh", "other_code", "stop_at", "allowed_packages", "wandb")


def _number(value: Any) -> Any:
    """Refuses what pydantic would take for a number: true, false and `0-4`."""
    if isinstance(value, bool):
        raise ValueError("a number")
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            raise ValueError("a number") from None
    return value


def _rising(value: Any) -> list[Any]:
    if value is None:
        raise ValueError("a list of numbers, [] for none")
    values = value if isinstance(value, list) else [value]
    if sorted(set(values)) != values:
        raise ValueError("in rising order, eval.lengths=[13,26] for example")
    return values


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("text that is not empty")
    return value


Int, Float = Annotated[int, BeforeValidator(_number)], Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, AfterValidator(_not_blank)]
CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)
group = dataclass(config=CHECKED, kw_only=True, frozen=True)


def several(help: str, most: int = 10**6, least: int = 1, **rest: Any) -> Any:
    """The field of a number of things."""
    return Field(ge=least, le=most, description=help, **rest)


def share(help: str) -> Any:
    """The field of a number from 0 to below 1."""
    return Field(ge=0, lt=1, description=help)


@group
class Model:
    attention: Literal["softmax", "linear"] = Field(description="attention")
    d_model: Int = several("features of a token")
    n_layers: Int = several("layers", most=10**4)
    n_heads: Int = several("attention heads; they share the features")
    norm: Literal["pre", "post"] = Field(description="layer norm before or after each block")
    init: Literal["pytorch", "xavier"] = Field(description="initial weights; xavier: embeddings scaled by √d_model")
    dropout: Float = share("share of activations that are dropped in training")


@group
class Train:
    steps: Int = several("optimizer steps", most=99_999_999)  # the names of checkpoints have eight digits
    batch_size: Int = several("sequences a step", most=10**9)
    accumulate: Int = several("micro-batches of which a step adds up the gradients, one after the other: less memory")
    seq_len: Int = several("tokens of input a sequence", most=10**9)
    lr: Float = Field(gt=0, description="learning rate after the warm-up, of AdamW")
    beta1: Float = share("decay of the mean of gradients")
    beta2: Float = share("decay of the mean of squared gradients")
    weight_decay: Float = Field(ge=0, description="decoupled weight decay")
    weight_decay_on: Literal["matrices", "all"] = Field(
        description="matrices: not biases, norms and what a scheme learns, unless it says so; all: everything"
    )
    warmup: Int = several("steps from 0 to lr", least=0, most=2**63 - 1)
    decay: Literal["none", "linear", "cosine"] = Field(description="from lr after the warm-up to min_lr at the end")
    min_lr: Float = Field(ge=0, description="learning rate at the end of the decay, at most lr")
    clip: Float = Field(gt=0, description="largest gradient norm")
    log_every: Int = several("steps between two records of the training loss", most=2**63 - 1)
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        description="bfloat16: by autocast; auto: that where the processor multiplies such numbers"
    )
    compile: Literal[False, True, "reduce-overhead"] = Field(
        description="torch.compile; reduce-overhead: also with CUDA graphs, for small models on a GPU"
    )
    processes: Int = several("processes that share each step; torchrun starts them and sets this")


@group
class Eval:
    every: Int = several("steps between evaluations; also before the first and after the last", most=2**63 - 1)
    problems: Int = several("problems that are graded, of one list that all schemes and seeds share")
    sequences: Int = several("sequences of held-out text, for eval/loss")
    lengths: Annotated[list[Annotated[Int, several("")]], BeforeValidator(_rising)] = Field(
        description="after the last step, problems of these lengths too: letters of a string, digits, tokens"
    )
    problems_at_end: Int | None = several("problems graded after the last step; null: as many as before", default=None)


@group
class Wandb:
    mode: Literal["offline", "online", "disabled"] | None = Field(
        default=None, description="where W&B records beside the files; null: WANDB_MODE, else offline"
    )
    project: Text | None = Field(default=None, description="W&B project; null: WANDB_PROJECT, else rope_lab")
    entity: str | None = Field(default=None, description="W&B user or team")


@group
class Settings:
    """What yaml files and the command line fill in."""

    task: dict[str, Any] = Field(description="what is learned")
    position: dict[str, Any] = Field(description="how the model knows position")
    model: Model
    train: Train
    eval: Eval
    seed: Int = Field(
        ge=0, lt=2**63, description="initial weights and batches; the same seed gives every scheme the same ones"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(description="where the model runs")
    threads: Int | None = several(f"CPU threads, of {CORES} cores; null: as many as torch takes", most=CORES)
    out: Text | None = Field(description="the folder that holds run folders; null: results/runs")
    fresh: bool = Field(description="delete what is recorded of this run and start over")
    other_code: bool = Field(description="resume a run although the code has changed since")
    stop_at: Float | None = Field(
        default=None, ge=0, description="when a run saves itself and stops, in seconds since 1970; null: at its end"
    )
    allowed_packages: list[str] = Field(
        description="packages besides rope_lab and tasks, or files, whose classes task and position may name: their "
        "code runs"
    )
    wandb: Wandb


@group
class Names:
    """What was chosen from the groups of conf/."""

    task: str
    position: str
    scale: str


@group
class Config(Settings):
    """Checked settings, the names chosen from the groups of conf/, and the overrides as they were typed."""

    names: Names
    overrides: tuple[str, ...] = dataclasses.field(default=(), compare=False)


def declared(schema: type = Settings, prefix: str = "") -> dict[str, dataclasses.Field]:
    """The field of each setting, by its whole name, `train.lr`; those of task and position are in their classes."""
    found = {}
    for field in fields(schema):
        name = f"{prefix}{field.name}"
        found |= declared(field.type, f"{name}.") if dataclasses.is_dataclass(field.type) else {name: field}
    return found


def described() -> dict[str, str]:
    """What each setting means, by its whole name."""
    return {name: field.default.description for name, field in declared().items()}


def load(*words: str, config_dir: Path | None = None) -> Config:
    """The checked configuration that the overrides of a command line give. Raises ConfigError.

    config_dir: another folder like conf/, as `--config-dir` names one
    """
    folders, known = folders_with(config_dir), described()
    parsed = overrides.parse(words, folders, known)
    chosen = overrides.check(parsed, folders, known)
    words_of, store = {plugin.group: f"{plugin.group}={plugin.name}" for plugin in chosen}, ConfigStore.instance()
    for plugin in chosen:
        store.store(group=plugin.group, name=plugin.name, node=plugin.node)
    cfg = compose([words_of.get(each.key_or_group) or _for_hydra(each) for each in parsed], config_dir)
    for plugin in chosen:
        store.repo[plugin.group].pop(f"{plugin.name}.yaml")
    names = Names(**{key: cfg.hydra.runtime.choices[key] for key in overrides.GROUPS})
    settings = _resolved(cfg)
    scales = {*plugins.names(f"recipe/{names.task}", folders), "quick"}
    if names.scale not in scales:
        raise ConfigError(f"scale={names.scale}: task={names.task} has {', '.join(sorted(scales))}")
    settings["allowed_packages"] += [plugin.allowed for plugin in chosen]
    return _checked(settings, names, words)


def folders_with(config_dir: Path | None) -> list[Path]:
    """conf/, and another folder like it if there is one. Raises ConfigError if that is not a directory."""
    if config_dir and not config_dir.is_dir():
        raise ConfigError(f"--config-dir {config_dir}: is not a directory")
    return [CONF, *([config_dir] if config_dir else [])]


def _for_hydra(override: Override) -> str:
    """An override of a task or scheme may name a setting that its yaml leaves to the class."""
    text, is_swapped = override.input_line, override.key_or_group.startswith(tuple(f"{key}." for key in SWAPPED))
    return "++" + text.lstrip("+") if is_swapped and not override.is_delete() else text


def compose(words: Iterable[str], config_dir: Path | None = None) -> DictConfig:
    """What Hydra makes of conf/ and overrides, with its own settings as `hydra`. Raises ConfigError.

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
    local = {key: value for key, value in defaults().items() if key in LOCAL}
    local |= {"allowed_packages": list(allowed_packages), "wandb": local["wandb"] | {"mode": "disabled"}}
    leaves = flat({key: value for key, value in recorded.items() if key not in (*LOCAL, "names")})
    before = {key: value for key, value in BACKFILLED.items() if key.partition(".")[0] not in SWAPPED}
    with _one_line():
        names = Names(**recorded.get("names", {}))
    return _checked(nested(before | leaves) | local, names)


def defaults() -> dict[str, Any]:
    """The default of every setting, as conf/config.yaml has it."""
    return OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml"))


def _checked(settings: dict[str, Any], names: Names, words: Iterable[str] = ()) -> Config:
    """Typed and checked settings. Raises ConfigError."""
    with _one_line():
        config = Config(**settings, names=names, overrides=tuple(words))
    swapped = {key: instantiate.check_arguments(key, getattr(config, key), config.allowed_packages) for key in SWAPPED}
    if config.model.d_model % config.model.n_heads:
        raise ConfigError(
            f"model.d_model={config.model.d_model}: must be divisible by model.n_heads={config.model.n_heads}"
        )
    return dataclasses.replace(config, **swapped)


@contextmanager
def _one_line() -> Iterator[None]:
    """Raises pydantic's first error as a ConfigError of one line."""
    try:
        yield
    except ValidationError as error:
        raise ConfigError(_reason(error)) from None


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    key, value = ".".join(part for part in first["loc"] if isinstance(part, str)), first["input"]
    if first["type"] == "missing":
        return f"{key}: not set; see conf/config.yaml"
    if first["type"] == "unexpected_keyword_argument":
        return f"{key}={show(value)}: there is no such setting; {nearest(key, declared(), '')}"
    between = RANGE.fullmatch(str(value))
    hint = f"; for a sweep: -m '{key}=range({between[1]},{int(between[2]) + 1})'" if between else ""
    of_it = [each for each in error.errors() if each["loc"] == first["loc"]]
    return f"{key}={show(value)}: {instantiate.reasons(of_it)}{hint or instantiate.as_sweep(key, value)}"


def resolve_task(config: Config) -> dict[str, Any]:
    """The settings of the task as a record holds them. Raises ConfigError."""
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
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in (*LOCAL, "overrides")}


def identity(config: Config) -> Identity:
    """The identity of the run that a resolved configuration describes."""
    return identify(config.names.task, config.names.position, config.seed, recorded(config))
