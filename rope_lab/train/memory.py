"""What fits into memory, found before anything is allocated, and what is said where it ran out all the same."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.transformer import Transformer
from rope_lab.text import ConfigError, flat, show
from rope_lab.train import config
from rope_lab.train.config import Config
from tasks.base import Task

log = logging.getLogger(__name__)

TRAINED = 16  # bytes of a parameter in training: weight, gradient and the two means of AdamW, in float32 each
SUMMED = 4  # more where several processes add up their gradients
HELD_OUT = 48  # bytes of a token of held-out text: what is worked out of it while it is written is not counted
MANY = 10**7  # tokens; evaluations that read fewer are no reason for a warning
SPEED = {"cpu": 5e10, "mps": 2e12, "cuda": 5e13}  # operations a second that small models reach; cpu: on each core
PER_LAYER = 1e-3  # seconds that a layer takes in a step, however small it is
LONG = 12 * 3600  # seconds; a run that may take longer is a reason for a warning


class OutOfMemory(Exception):
    """The device or the machine has no more memory for a run."""


def check(cfg: Config, task: Task, device: torch.device) -> None:
    """Warns where a run on `device` may not fit into memory, will mostly evaluate, or take very long.

    Raises ConfigError, before anything is allocated, where the least that it takes is more than the memory there is.
    """
    m, t, e = cfg.model, cfg.train, cfg.eval
    model = f"model.d_model={m.d_model} model.n_layers={m.n_layers}"
    batch = f"train.batch_size={t.batch_size} train.seq_len={t.seq_len}"
    micro = "a training step" if t.accumulate == 1 else f"a micro-batch of train.accumulate={t.accumulate}"
    numbers = [f"position.{key}={n}" for key, n in flat(cfg.position).items() if type(n) is int and n > 1]
    scheme = " ".join([f"position={cfg.names.position}", *numbers, f"train.seq_len={t.seq_len}"])
    of_layers, of_scheme = parameters(cfg, len(task.alphabet))
    trained = (TRAINED + SUMMED * (t.processes > 1)) * (of_layers + of_scheme)
    state = "parameters, with their gradients and optimizer state, need"
    _check(
        (device, TRAINED * of_layers, f"{model}: {of_layers:,} {state}"),
        (device, trained, f"{scheme} {model}: {of_layers + of_scheme:,} {state}"),
        (device, trained + step_bytes(cfg, len(task.alphabet), device), f"{batch} {model}: {micro} needs"),
        _held_out(cfg, task),
    )
    evaluations, trained_on = t.steps // e.every + 2, t.steps * t.batch_size * t.seq_len
    tokens = {
        f"eval.sequences={e.sequences}": evaluations * e.sequences * t.seq_len,
        f"eval.problems={e.problems}": evaluations * e.problems * task.max_length,
        f"eval.problems_at_end={e.problems_at_end}": (e.problems_at_end or 0) * task.max_length,
        f"eval.lengths={show(e.lengths)}": e.problems * sum(e.lengths),
    }
    read, most = sum(tokens.values()), max(tokens, key=tokens.__getitem__)
    if read > max(MANY, 10 * trained_on):
        log.warning(
            "%s: evaluations read up to %s tokens, and training %s: lower it, or raise eval.every=%d",
            *(most, f"{read:,}", f"{trained_on:,}", e.every),
        )
    rate = SPEED[device.type] * ((cfg.threads or config.CORES) if device.type == "cpu" else t.processes)
    seconds = (of_layers + of_scheme) * (6 * trained_on + 2 * read) / rate + PER_LAYER * m.n_layers * t.steps
    if seconds > LONG:
        log.warning(
            "train.steps=%d %s %s: about %s hours on this %s: lower one of these settings",
            t.steps,
            batch,
            model,
            f"{seconds / 3600:,.0f}",
            device.type,
        )


def check_read(cfg: Config, task: Task) -> None:
    """The same for a run that is only read, on a CPU: its weights, and its held-out text and problems."""
    total = sum(parameters(cfg, len(task.alphabet)))
    model = f"model.d_model={cfg.model.d_model} model.n_layers={cfg.model.n_layers} position={cfg.names.position}"
    _check((torch.device("cpu"), 4 * total, f"{model}: {total:,} parameters need"), _held_out(cfg, task))


Demand = tuple[torch.device, int, str]  # of a device, at least so many bytes, settings and what needs them


def _held_out(cfg: Config, task: Task) -> Demand:
    t, e = cfg.train, cfg.eval
    longest = max([t.seq_len, *e.lengths]) if task.one_document else t.seq_len
    settings = f"eval.sequences={e.sequences} train.seq_len={t.seq_len} eval.lengths={show(e.lengths)}"
    least = HELD_OUT * e.sequences * longest + e.problems * sum(e.lengths)
    return torch.device("cpu"), least, f"{settings} eval.problems={e.problems}: held-out text and problems need"


def _check(*demands: Demand) -> None:
    near = []
    for device, least, what in demands:
        there = memory(device)
        if there is not None and least > there / 2:
            near.append(f"{what} at least {_gib(least)} of memory, and the {device.type} has {_gib(there)}")
            if least > there:
                raise ConfigError(f"{near[-1]}: lower one of these settings")
    if near:
        log.warning("%s: it may run out", near[0])


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"


def parameters(cfg: Config, vocabulary: int) -> tuple[int, int]:
    """How many numbers the model learns, without and within its position scheme; none of them is made."""
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, cfg.train.seq_len)
    with torch.device("meta"):
        one_layer = asdict(replace(cfg.model, n_layers=1))
        model = Transformer(vocabulary, **one_layer, position=PositionScheme(dims))
        of_scheme = 0
        with suppress(Exception):  # a scheme that cannot be made without memory, or at all, which is said later
            of_scheme = _count(config.build_position(cfg, dims))
    return _count(model) + (cfg.model.n_layers - 1) * _count(model.layers[0]), of_scheme


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def step_bytes(cfg: Config, vocabulary: int, device: torch.device) -> int:
    """The least that a training step keeps of a micro-batch until it goes backward, in bytes; mostly 1.5 to 4 times it.

    A micro-batch is what a process reads at once: the share of one of `processes`, in `accumulate` parts. Of each
    token: itself and its target, its logits and their gradient; in each layer ten numbers for each feature of
    the model, and on a CPU the attention paid to the tokens before it.
    """
    m, t = cfg.model, cfg.train
    size = 2 if t.precision == "bfloat16" else 4
    attention = m.n_heads * t.seq_len // 2 if m.attention == "softmax" and device.type == "cpu" else 0
    of_token = 8 * vocabulary + m.n_layers * size * (10 * m.d_model + attention)
    return t.batch_size * t.seq_len * 16 + t.batch_size // (t.accumulate * t.processes) * t.seq_len * of_token


def memory(device: torch.device) -> int | None:
    """Bytes of memory that a device has in all, or, of the machine, that this process may use; None: nobody tells."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return min([machine, *_group_limits()])


def _group_limits(proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """What control groups, of either version, leave to this process; a group's limit binds those below it."""
    with suppress(OSError):
        for line in proc.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds not in ("", "memory"):
                continue
            base, name = (root, "memory.max") if not kinds else (root / "memory", "memory.limit_in_bytes")
            group = base / path.strip("/")
            for folder in (group, *group.parents):
                with suppress(OSError, ValueError):  # not there, or no limit: `max`
                    yield int((folder / name).read_text())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out, of the machine or of a device."""
    said = str(error)
    of_torch = (
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "ALLOC_FAILED",
        "size calculation overflow",
    )
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(s in said for s in of_torch))


def told(error: BaseException, cfg: Config) -> BaseException:
    """`error`, or, where memory ran out, one that says in one line what to lower."""
    if not is_out_of_memory(error):
        return error
    m, t, e = cfg.model, cfg.train, cfg.eval
    return OutOfMemory(
        f"out of memory on {cfg.device}: lower train.batch_size={t.batch_size}, train.seq_len={t.seq_len}, "
        f"model.d_model={m.d_model} or model.n_layers={m.n_layers}"
        + (", or eval.lengths" if e.lengths else "")
        + f", or raise train.accumulate={t.accumulate}"
    )


@contextmanager
def enough(cfg: Config) -> Iterator[None]:
    """Raises OutOfMemory where memory runs out within it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise told(error, cfg) from None
