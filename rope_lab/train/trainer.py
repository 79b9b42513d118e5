"""The trainer: task, data, model and optimizer, built and checked before anything is written; and
one step.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.command import process_is_ours
from rope_lab.cores import CORES
from rope_lab.model.device import ahead, keep_freed_memory
from rope_lab.model.transformer import Transformer
from rope_lab.tasks.task import Problem, Task
from rope_lab.text import ConfigError, first_line, show
from rope_lab.train import config, data, distributed, optimizer
from rope_lab.train.config import Config
from rope_lab.train.evaluate import Diverged, Evaluation, as_evaluated, autocast, evaluate, samples
from rope_lab.train.instantiate import config_errors
from rope_lab.train.load import build_model, load_parent, try_positions, with_parent

EXAMPLES = 8  # problems whose completions are kept with the record


@dataclasses.dataclass
class Trainer:
    """Everything that a run computes with."""

    cfg: Config  # resolved
    device: torch.device
    task: Task
    text: data.HeldOutText  # for eval/loss
    problems: list[Problem]  # held out, graded: the first eval.problems of them, at the end all
    longer: data.Longer  # held out, of eval.lengths, graded at the end
    model: Transformer
    # Batch k of the run, pinned if the device copies from pinned memory.
    batches: Callable[[int], data.Batch]
    forward: Callable[..., Tensor]  # the model that training calls, compiled or not
    optimizers: dict[str, torch.optim.Optimizer]

    @property
    def parts(self) -> dict[str, Any]:
        """All whose state a checkpoint holds, by name."""
        return {"model": self.model, **self.optimizers}

    def states(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}


def resolve(cfg: Config, here: bool = True) -> Config:
    """`cfg` with `auto` replaced by the device and the precision in which that computes fastest.

    here: whether it will run in this process; otherwise a device may be elsewhere

    Its task is as recorded; it has its parent's ids. Raises ConfigError for a missing device or
    contradictory settings.
    """
    cfg = with_parent(cfg)
    train, device = cfg.train, cfg.device
    there = _devices()
    device = there[0] if device == "auto" else device
    if here and device not in there:
        raise ConfigError(
            f"device={device}: torch finds no such device here; use device=auto or device=cpu"
        )
    precision = train.precision
    if precision == "auto":
        precision = "bfloat16" if computes_bfloat16(device) else "float32"
    # Without decay it does not matter on what: one run, not two.
    decay_on = train.weight_decay_on if train.weight_decay else "all"
    processes = distributed.launched() if here else train.processes
    if train.processes not in (1, processes):
        how = f"start it by torchrun --nproc-per-node {train.processes}"
        raise ConfigError(f"train.processes={train.processes}: this run has {processes}; {how}")
    if train.min_lr > train.lr:
        raise ConfigError(f"train.min_lr={train.min_lr}: must be at most train.lr={train.lr}")
    if train.batch_size % (processes * train.accumulate):
        by = f"train.accumulate={train.accumulate}"
        if processes > 1:
            by = f"{processes} processes × {by}"
        raise ConfigError(f"train.batch_size={train.batch_size}: must be divisible by {by}")
    # CUDA graphs overwrite gradients: pytorch/pytorch#169545.
    if train.accumulate > 1 and train.compile == "reduce-overhead":
        remedy = "requires train.accumulate=1; train.compile=true takes any"
        raise ConfigError(f"train.compile=reduce-overhead: {remedy}")
    train = dataclasses.replace(
        train, precision=precision, processes=processes, weight_decay_on=decay_on
    )
    return dataclasses.replace(cfg, device=device, train=train, task=config.resolve_task(cfg))


def _devices() -> list[str]:
    """The devices that torch finds, the fastest first."""
    found = []
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "cpu"]


def computes_bfloat16(device: str) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware."""
    if device == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def build(cfg: Config) -> Trainer:
    """Task, problems, model and optimizer of a resolved `cfg`. Raises ConfigError if they cannot be
    built.
    """
    device = torch.device(cfg.device)
    train = cfg.train
    if cfg.threads:
        if cfg.threads > CORES:
            raise ConfigError(f"threads={cfg.threads}: this process may use {CORES} cores")
        torch.set_num_threads(cfg.threads)
    task = config.build_task(cfg)
    text, problems, longer = _held_out(cfg, task, device)
    if process_is_ours():
        # Not earlier: making the tokens of a large corpus frees memory that no step needs.
        keep_freed_memory()
    model = build_model(cfg, len(task.alphabet))
    if cfg.init_from:
        load_parent(cfg, model, task)
    model = model.to(device)
    with config_errors(f"eval.lengths={show(cfg.eval.lengths)}, position={cfg.names.position}: "):
        model.position.draw(0, max(longer.tokens, train.seq_len))
        try_positions(model, text, [problems, *longer.problems.values()], longer.tokens)
    forward: Callable[..., Tensor] = model
    if train.compile:
        check_compiler(device, train.compile)
        torch.compiler.reset()  # its limit of compilations would count those of earlier runs
        forward = torch.compile(model, mode=None if train.compile is True else train.compile)

    def batch(step: int) -> data.Batch:
        on_cpu = data.training_batch(task, cfg.seed, step, train.batch_size, train.seq_len)
        return on_cpu.pinned(device)

    # A CPU would only wait for the thread.
    batches = batch if device.type == "cpu" else ahead(batch)
    made = optimizer.make(model, train)
    return Trainer(cfg, device, task, text, problems, longer, model, batches, forward, made)


def check_compiler(device: torch.device, setting: bool | str) -> None:
    """Compile one sum. Raises ConfigError if torch cannot, or has been told not to."""

    def compiled(zero: Tensor) -> Tensor:
        return zero + torch.compiler.is_compiling()

    key = f"train.compile={show(setting)}"
    remedy = "train.compile=false trains without"
    try:
        result = torch.compile(compiled)(torch.zeros(1, device=device))
    except Exception as error:  # of dynamo, of inductor, of a missing compiler
        raise ConfigError(f"{key}: torch cannot compile, {first_line(error)}; {remedy}") from None
    if result.item() == 0:
        raise ConfigError(f"{key}: the environment turns it off, TORCHDYNAMO_DISABLE=1; {remedy}")


def _held_out(
    cfg: Config, task: Task, device: torch.device
) -> tuple[data.HeldOutText, list[Problem], data.Longer]:
    """The held-out text and problems of a run. Raises ConfigError if the task has too few."""
    sizes = cfg.eval
    seq_len = cfg.train.seq_len
    most = sizes.problems_at_end or sizes.problems
    if most < sizes.problems:
        raise ConfigError(
            f"eval.problems_at_end={most}: must be at least eval.problems={sizes.problems}, or null"
        )
    with config_errors(
        f"task={cfg.names.task}, eval.problems={most}, eval.lengths={show(sizes.lengths)}: "
    ):
        data.training_batch(task, cfg.seed, 0, 1, seq_len)
        text = data.evaluation_text(task, sizes.sequences, seq_len).to(device)
        problems = data.evaluation_problems(task, most if task.grades else EXAMPLES)
        longer = data.longer(task, sizes.lengths, sizes.problems, sizes.sequences, device)
        return text, problems, longer


def update(trainer: Trainer, step: int) -> tuple[float, float, float]:
    """Take optimizer step `step`; returns the batch's loss, the gradient norm before clipping and
    the learning rate.

    Raises Diverged, the weights unchanged, if the loss or a gradient is not finite.
    """
    model = trainer.model
    train = trainer.cfg.train
    # A parent has seen the batches before.
    number = step + (trainer.cfg.parent or {"steps": 0})["steps"]
    batch = trainer.batches(number).to(trainer.device)
    model.position.draw(data.torch_seed(trainer.cfg.seed, data.POSITIONS, number), train.seq_len)
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = None
    first = distributed.rank() * train.accumulate
    parts = range(first, first + train.accumulate)
    losses = [_backward(trainer, batch, number, part) for part in parts]
    losses = distributed.summed(parameters, losses)
    norm = nn.utils.clip_grad_norm_(parameters, train.clip)
    norm, *losses = torch.stack([norm, *losses]).tolist()  # all at once: a GPU is waited for here
    loss = sum(losses)
    lr = optimizer.learning_rate(train, step)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise Diverged(
            f"step {step} was not taken: loss {loss:g}, gradient norm {norm:g}, "
            f"learning rate {lr:g}, batch {number} of seed {trainer.cfg.seed}"
        )
    for part in trainer.optimizers.values():
        for group in part.param_groups:
            group["lr"] = lr
        part.step()
    return loss, norm, lr


def _backward(trainer: Trainer, batch: data.Batch, number: int, part: int) -> Tensor:
    """Add the gradient of one part of a step's batch to the earlier parts'; returns the part's
    share of the loss.

    The loss is the mean over the whole batch's counted tokens. Each part has its own dropout mask,
    on any rank.
    """
    parts = trainer.cfg.train.processes * trainer.cfg.train.accumulate
    size = len(batch.inputs_BT) // parts
    own = batch.rows(part * size, (part + 1) * size)
    seed = data.torch_seed(trainer.cfg.seed, data.DROPOUT, number) + part
    if trainer.device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        # On a CPU it takes a millisecond longer: it records a traceback for absent GPUs.
        torch.manual_seed(seed)
    with autocast(trainer.cfg, trainer.device):
        logits_BTV = trainer.forward(own.inputs_BT, **own.given)
    logits_NV = logits_BTV.flatten(0, 1).float()
    targets_N = own.targets_BT.flatten()
    nats = F.cross_entropy(logits_NV, targets_N, ignore_index=data.IGNORED, reduction="sum")
    loss = nats / (batch.targets_BT != data.IGNORED).sum()
    loss.backward()
    return loss.detach()


def evaluate_now(trainer: Trainer, at_end: bool = False) -> Evaluation:
    """Evaluate the model; at_end: on all problems. Raises Diverged if its loss or a weight is not
    finite.
    """
    cfg, model = trainer.cfg, trainer.model
    with as_evaluated(model, cfg):
        problems = trainer.problems if at_end else trainer.problems[: cfg.eval.problems]
        evaluation = evaluate(model, trainer.task, trainer.text, problems, cfg.train.seq_len)
    if not math.isfinite(evaluation.metrics["eval/loss"]):
        raise Diverged(f"the held-out loss is {evaluation.metrics['eval/loss']:g}")
    return evaluation


def write_samples(trainer: Trainer) -> list[dict[str, Any]]:
    """The model's completions of the first few problems."""
    with as_evaluated(trainer.model, trainer.cfg):
        return samples(
            trainer.model, trainer.task, trainer.problems[:EXAMPLES], trainer.cfg.train.seq_len
        )
