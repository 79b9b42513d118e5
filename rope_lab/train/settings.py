"""Every setting that is tuned: its type, its range and its meaning. Its default is in conf/config.yaml."""

import dataclasses
import os
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

CORES = os.cpu_count() or 1

# Settings that say where and how a run is made here, and change none of its numbers: a record does not hold them.
LOCAL = ("threads", "out", "fresh", "other_code", "stop_at", "allowed_packages", "wandb")


def _number(value: Any) -> Any:
    """Refuse true and false, which pydantic would take for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _rising(value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if None in values or sorted(set(values)) != values:
        raise ValueError("must be a list in rising order, eval.lengths=[13,26] for example, or [] for none")
    return values


Int, Float = Annotated[int, BeforeValidator(_number)], Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, Field(min_length=1)]
group = dataclass(
    config=ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True), kw_only=True, frozen=True
)


def number(meaning: str, most: int = 10**6, least: int = 1) -> Any:
    """The field of a bounded integer."""
    return Field(ge=least, le=most, description=meaning)


def share(meaning: str) -> Any:
    """The field of a number from 0 to below 1."""
    return Field(ge=0, lt=1, description=meaning)


@group
class Model:
    attention: Literal["softmax", "linear"] = Field(description="attention")
    d_model: Int = number("features of a token")
    n_layers: Int = number("layers", most=10**4)
    n_heads: Int = number("attention heads; they share the features")
    norm: Literal["pre", "post"] = Field(description="layer norm before or after each block")
    init: Literal["pytorch", "xavier"] = Field(description="initial weights; xavier: embeddings scaled by √d_model")
    dropout: Float = share("share of activations that are dropped in training")


@group
class Train:
    steps: Int = number("optimizer steps", most=99_999_999)  # the names of checkpoints have eight digits
    batch_size: Int = number("sequences a step", most=10**9)
    accumulate: Int = number("micro-batches of which a step adds up the gradients, one after the other: less memory")
    seq_len: Int = number("tokens of input a sequence", most=10**9)
    lr: Float = Field(gt=0, description="learning rate after the warm-up, of AdamW")
    beta1: Float = share("decay of the mean of gradients")
    beta2: Float = share("decay of the mean of squared gradients")
    weight_decay: Float = Field(ge=0, description="decoupled weight decay")
    weight_decay_on: Literal["matrices", "all"] = Field(
        description="matrices: not biases, norms and what a scheme learns, unless it says so; all: everything"
    )
    warmup: Int = number("steps from 0 to lr", least=0, most=2**63 - 1)
    decay: Literal["none", "linear", "cosine"] = Field(description="from lr after the warm-up to min_lr at the end")
    min_lr: Float = Field(ge=0, description="learning rate at the end of the decay, at most lr")
    clip: Float = Field(gt=0, description="largest gradient norm")
    log_every: Int = number("steps between two records of the training loss", most=2**63 - 1)
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        description="bfloat16: by autocast; auto: that where the processor multiplies such numbers"
    )
    compile: Literal[False, True, "reduce-overhead"] = Field(
        description="torch.compile; reduce-overhead: also with CUDA graphs, for small models on a GPU"
    )
    processes: Int = number("processes that share each step; torchrun starts them and sets this")


@group
class Eval:
    every: Int = number("steps between evaluations; also before the first and after the last", most=2**63 - 1)
    problems: Int = number("problems that are graded, of one list that all schemes and seeds share")
    sequences: Int = number("sequences of held-out text, for eval/loss")
    lengths: Annotated[list[Annotated[Int, number("")]], BeforeValidator(_rising)] = Field(
        description="after the last step, problems of these lengths too: letters of a string, digits, tokens"
    )
    problems_at_end: Int | None = number("problems graded after the last step; null: as many as before")


@group
class Wandb:
    mode: Literal["offline", "online", "disabled"] | None = Field(
        description="where W&B records beside the files; null: WANDB_MODE, else offline"
    )
    project: Text | None = Field(description="W&B project; null: WANDB_PROJECT, else rope_lab")
    entity: str | None = Field(description="W&B user or team")


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
    threads: Int | None = number(f"CPU threads, of {CORES} cores; null: as many as torch takes", most=CORES)
    out: Text | None = Field(description="the folder that holds run folders; null: results/runs")
    fresh: bool = Field(description="delete what is recorded of this run and start over")
    other_code: bool = Field(description="resume a run although the code has changed since")
    stop_at: Float | None = Field(
        ge=0, description="when a run saves itself and stops, in seconds since 1970; null: at its end"
    )
    allowed_packages: list[str] = Field(
        description="packages besides rope_lab and tasks, or files, whose classes task and position may name: their "
        "code runs"
    )
    wandb: Wandb


@group
class Names:
    """The names that were chosen from the groups of conf/."""

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
