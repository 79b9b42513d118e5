"""Every setting that is tuned: its type, its range and its meaning. Its default is in
conf/config.yaml.
"""

import dataclasses
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from pydantic.dataclasses import dataclass

# Settings that say where and how a run is made here, and change none of its numbers: a record does
# not hold them.
LOCAL = ("init_from", "threads", "out", "fresh", "other_code", "wandb")


CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)
group = dataclass(config=CHECKED, kw_only=True, frozen=True)
Text = Annotated[str, Field(min_length=1)]


def about(meaning: str, **limits: float) -> Any:
    """A field with its meaning, and the limits of a number: ge, gt, le, lt."""
    return Field(description=meaning, **limits)


def _rising(value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    are_numbers = all(isinstance(each, int | float) and each is not True for each in values)
    if not are_numbers or sorted(set(values)) != values:
        raise ValueError(
            "must be a list in rising order, eval.lengths=[13,26] for example, or [] for none"
        )
    return values


@group
class Model:
    attention: Literal["softmax", "linear"] = about("attention")
    d_model: PositiveInt = about("features per token")
    n_layers: PositiveInt = about("layers")
    n_heads: PositiveInt = about("attention heads; they share the features")
    kv_heads: PositiveInt | None = about("number of key/value heads (GQA); null: n_heads")
    qk_norm: bool = about("RMS norm of the queries and keys of each head, with learned gains")
    conv: Literal["k", "kv", "canon"] | None = about(
        "control: causal convolutions of 4 taps; of keys, of keys and values, or at Canon's places"
    )
    smear: bool = about("control: each embedding is mixed with that of the token before")
    gate: Literal["head", "feature"] | None = about(
        "control: outputs of heads are gated, by a number for each head or each feature"
    )
    sink: bool = about("control: a learned logit in the denominator of each head's softmax")
    norm: Literal["pre", "post"] = about("layer norm before or after each block")
    init: Literal["pytorch", "xavier"] = about(
        "initial weights; xavier: embeddings scaled by √d_model"
    )
    dropout: float = about("share of activations dropped in training", ge=0, lt=1)


@group
class Train:
    optimizer: Literal["adamw", "muon"] = about(
        "muon: Muon for the matrices of the layers, AdamW for the rest"
    )
    steps: NonNegativeInt = about("optimizer steps; 0 with init_from: only evaluate")
    batch_size: PositiveInt = about("sequences per step")
    accumulate: PositiveInt = about("gradient accumulation: micro-batches per step, to save memory")
    seq_len: PositiveInt = about("input tokens per sequence")
    lr: PositiveFloat = about("learning rate after the warm-up")
    beta1: float = about("AdamW's decay rate of the mean of gradients", ge=0, lt=1)
    beta2: float = about("AdamW's decay rate of the mean of squared gradients", ge=0, lt=1)
    weight_decay: NonNegativeFloat = about("decoupled weight decay")
    weight_decay_on: Literal["matrices", "all"] = about(
        "matrices: not on biases, norms and, unless it sets decays, a scheme's parameters"
    )
    warmup: NonNegativeInt = about("warm-up steps, in which the rate rises to lr")
    decay: Literal["none", "linear", "cosine"] = about(
        "of the learning rate, from lr after the warm-up to min_lr at the end"
    )
    min_lr: NonNegativeFloat = about("learning rate at the end of the decay, at most lr")
    clip: PositiveFloat = about("largest gradient norm")
    log_every: PositiveInt = about("steps between records of the training loss")
    precision: Literal["auto", "float32", "bfloat16"] = about(
        "auto: bfloat16 (autocast) if the processor supports it"
    )
    compile: Literal[False, True, "reduce-overhead"] = about(
        "torch.compile; reduce-overhead: also with CUDA graphs"
    )
    processes: PositiveInt = about(
        "processes that share each step; torchrun starts them and sets this"
    )


@group
class Eval:
    every: PositiveInt = about(
        "steps between evaluations; also before the first and after the last"
    )
    problems: PositiveInt = about(
        "problems to grade, from one list that all schemes and seeds share"
    )
    sequences: PositiveInt = about("sequences of held-out text for eval/loss")
    lengths: Annotated[list[PositiveInt], BeforeValidator(_rising)] = about(
        "lengths of further problems, graded after the last step"
    )
    problems_at_end: PositiveInt | None = about(
        "problems graded after the last step; null: eval.problems"
    )


@group
class Wandb:
    mode: Literal["offline", "online", "disabled"] | None = about("null: WANDB_MODE, else offline")
    project: Text | None = about("W&B project; null: WANDB_PROJECT, else rope_lab")


@group
class Settings:
    """The settings of yaml files and the command line."""

    task: dict[str, Any] = about("task to learn")
    position: dict[str, Any] = about("position scheme")
    model: Model
    train: Train
    eval: Eval
    seed: NonNegativeInt = about("seed of initial weights and batches, the same for every scheme")
    init_from: Text | None = about(
        "folder of a finished run to take initial weights from; null: random weights"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = about("device of the model")
    threads: PositiveInt | None = about("CPU threads, at most one per core; null: torch's default")
    out: Text | None = about("folder for run folders; null: results/runs")
    fresh: bool = about("delete the records of this run and start over")
    other_code: bool = about("resume a run although the code has changed")
    wandb: Wandb


@group
class Names:
    """The names that were chosen from the groups of conf/."""

    task: str
    position: str
    scale: str


@group
class Config(Settings):
    """Checked settings, the names chosen from the groups of conf/, and the overrides as they were
    typed.
    """

    names: Names
    # Ids and scheme of the run of init_from, and its steps.
    parent: dict[str, str | int] | None = None
    # Files, and packages besides rope_lab and tasks, whose classes task and position may name:
    # their code runs.
    allowed_packages: list[str] = dataclasses.field(default_factory=list)
    overrides: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    # Whether metrics are printed; those of a planned comparison are not before its last run.
    shows_scores: bool = dataclasses.field(default=True, compare=False)
    # The digest of the plan that it is run for; empty without one.
    plan: str = dataclasses.field(default="", compare=False)


def declared(schema: type = Settings, prefix: str = "") -> dict[str, dataclasses.Field]:
    """The field of each setting, by its whole name, `train.lr`; those of task and position are in
    their classes.
    """
    by_name = {}
    for field in fields(schema):
        name = f"{prefix}{field.name}"
        by_name |= (
            declared(field.type, f"{name}.")
            if dataclasses.is_dataclass(field.type)
            else {name: field}
        )
    return by_name
