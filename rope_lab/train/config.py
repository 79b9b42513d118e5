"""Every setting, declared once: its type, its range and what it means; and how yaml and overrides become a `Config`.

What is swapped (task, position) is instantiated from its yaml; what is tuned is a field here. Defaults are in conf/.
"""

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from rope_lab import compat
from rope_lab.identity import Identity, identify
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.places import ROOT
from rope_lab.text import ConfigError, flat, nearest, nested, show
from rope_lab.train import instantiate, plugins
from rope_lab.train.instantiate import SWAPPED
from rope_lab.train.overrides import check_overrides
from tasks.base import Task

CONF = ROOT / "conf"
CORES = os.cpu_count() or 1
TOO_DEEP = "task or position: settings are nested too deeply"
RANGE = re.compile(r"([0-9]+)(?:-|:|\.\.\.?)([0-9]+)")  # as people write one, but not Hydra
NAME = re.compile(r"\w[\w-]{0,99}")  # of a file in conf/task/, conf/position/ and conf/scale/, without .yaml

# Settings that say where and how a run is made here, and change none of its numbers: a record does not hold them. At
# these values a run is read from one.
LOCAL: dict[str, Any] = {
    "threads": None,
    "out": None,
    "fresh": False,
    "other_code": False,
    "stop_at": None,
    "allowed_packages": [],
    "wandb": {"mode": "disabled", "project": "rope_lab", "entity": None},
}


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
group = dataclass(config=ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True), kw_only=True)


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
    mode: Literal["offline", "online", "disabled"] = Field(description="where W&B records; the files come first")
    project: Text = Field(description="W&B project")
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
    """Checked settings, and the names under which task, position and scale were chosen."""

    names: Names


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


def from_hydra(cfg: DictConfig) -> Config:
    """The checked configuration of the job that Hydra is running. Raises ConfigError."""
    return _checked(_plain(cfg), _chosen(HydraConfig.get().runtime.choices))


def load(*overrides: str, config_dir: Path | None = None) -> Config:
    """The checked configuration that command line `overrides` give, outside of a Hydra job.

    config_dir: another folder like conf/, as `--config-dir` names one

    Raises ConfigError.
    """
    words, made = plugins.read(overrides, CONF)
    check_overrides(words, [CONF, *filter(None, [config_dir])], described(), made=made)
    if config_dir:
        words.append(f"hydra.searchpath=['file://{config_dir.resolve()}']")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", words, return_hydra_config=True)
    choices = cfg.hydra.runtime.choices
    with read_write(cfg), open_dict(cfg):
        del cfg["hydra"]
    return _checked(_plain(cfg), _chosen(choices))


def from_record(recorded: dict[str, Any], allowed_packages: Iterable[str] = ()) -> Config:
    """The configuration that a run.json holds. Raises ConfigError where its settings are not today's.

    What packages are allowed is for the reader to say, and so is everything else that is LOCAL; no interpolation in a
    record is resolved.
    """
    try:
        leaves = compat.renamed(flat({key: value for key, value in recorded.items() if key not in (*LOCAL, "names")}))
    except RecursionError:
        raise ConfigError(TOO_DEEP) from None
    for key, value in leaves.items():
        if "${" in json.dumps(value):
            raise ConfigError(f"{key}={show(value)}: a record holds plain values, and ${{…}} in it is not resolved")
    before = {key: value for key, value in compat.BACKFILLED.items() if key.partition(".")[0] not in SWAPPED}
    names = TypeAdapter(Names)
    with _one_line("names."):
        chosen = names.validate_python(recorded.get("names"))
    return _checked(nested(before | leaves) | LOCAL | {"allowed_packages": list(allowed_packages)}, chosen)


def _chosen(choices: dict[str, str]) -> Names:
    """What was chosen from the groups of conf/. Raises ConfigError where there is no recipe for it."""
    names = Names(**{key: choices[key] for key in ("task", "position", "scale")})
    if choices.get("recipe") != f"{names.task}/{names.scale}":
        hint = "follows from task and scale and cannot be chosen; set scale=…"
        if hydra.__version__ >= "1.4":
            hint = f"Hydra {hydra.__version__} composes none; pip install -c constraints.txt 'hydra-core<1.4'"
        raise ConfigError(f"recipe={choices.get('recipe')}: {hint}")
    recipes = {path.stem for path in (CONF / "recipe" / names.task).glob("*.yaml")} | {"quick"}
    if names.scale not in recipes:
        there = f"task={names.task} has {', '.join(sorted(recipes))}"
        raise ConfigError(f"scale={names.scale}: there is no conf/recipe/{names.task}/{names.scale}.yaml; {there}")
    return names


def _plain(cfg: DictConfig) -> dict[str, Any]:
    """The settings without interpolations. Raises ConfigError."""
    try:
        return OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        key = f"{error.full_key}: " if error.full_key else ""
        raise ConfigError(key + str(error).splitlines()[0]) from None
    except RecursionError:
        raise ConfigError(TOO_DEEP) from None


def _checked(settings: dict[str, Any], names: Names) -> Config:
    """Typed and checked settings. Raises ConfigError."""
    for key, name in vars(names).items():
        if not NAME.fullmatch(name):
            raise ConfigError(f"{key}={show(name)}: must name a file in conf/{key}/, of letters, digits, _ and -")
    with _one_line():
        config = Config(**settings, names=names)
    for key, kind in SWAPPED.items():
        setattr(config, key, instantiate.check_arguments(key, settings[key], kind, config.allowed_packages))
    if config.model.d_model % config.model.n_heads:
        raise ConfigError(
            f"model.d_model={config.model.d_model}: must be divisible by model.n_heads={config.model.n_heads}"
        )
    return config


@contextmanager
def _one_line(prefix: str = "") -> Iterator[None]:
    """Raises what pydantic has against a setting as a ConfigError of one line."""
    try:
        yield
    except ValidationError as error:
        raise ConfigError(_reason(error, prefix)) from None


def _reason(error: ValidationError, prefix: str) -> str:
    first = error.errors()[0]
    *groups, name = path = [part for part in first["loc"] if isinstance(part, str)] or ["names"]
    key, value = prefix + ".".join(path), first["input"]
    if first["type"] == "missing":
        return f"{key}: not set; see conf/config.yaml"
    if first["type"] == "unexpected_keyword_argument":
        schema = Config
        for part in groups:
            schema = schema.__dataclass_fields__[part].type
        known = [field.name for field in fields(schema) if field.name != "names"]
        return f"{key}={show(value)}: there is no such setting; {nearest(name, known, '.'.join(groups))}"
    several = RANGE.fullmatch(str(value))
    hint = f"; for a sweep: -m '{key}=range({several[1]},{int(several[2]) + 1})'" if several else ""
    of_it = [each for each in error.errors() if each["loc"] == first["loc"]]
    return f"{key}={show(value)}: {instantiate.reasons(of_it)}{hint or instantiate.as_sweep(key, value)}"


def resolve_task(config: Config) -> dict[str, Any]:
    """The settings of the task as a record holds them. Raises ConfigError."""
    with instantiate.config_errors("task."):
        return next(instantiate.classes(config.task)).resolve(config.task)


def build_task(config: Config) -> Task:
    """The task that `config` names, fit for its sequence length. Raises ConfigError."""
    task = instantiate.build("task", config.task)
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
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in LOCAL}


def identity(config: Config) -> Identity:
    """The identity of the run that a resolved configuration describes."""
    return identify(config.names.task, config.names.position, config.seed, recorded(config))
