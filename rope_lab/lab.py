"""A run's task, model and optimizer: built and checked before anything is written, saved, and resumed."""

import dataclasses
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from rope_lab import checkpoint, config, data, files, limits, record
from rope_lab.config import Config, ConfigError
from rope_lab.evaluate import evaluating
from rope_lab.model import Transformer
from rope_lab.positions import Dims
from tasks.base import Problem, Task

log = logging.getLogger(__name__)

FORMAT = 2  # of what `save` saves: raised when that changes, and checkpoints of before are refused by name


@dataclass
class Lab:
    """Everything a run needs, built and checked before anything is written."""

    cfg: Config
    device: torch.device
    task: Task
    text: data.HeldOutText  # for eval/loss
    problems: list[Problem]  # held out, graded: the first eval.problems of them, at the end all
    longer: data.Longer  # held out, of eval.lengths, graded at the end
    model: Transformer
    forward: Callable[[Tensor], Tensor]  # the model, compiled if that is asked for: what training calls
    optimizer: torch.optim.Optimizer


@dataclass
class State:
    """How far a run is."""

    step: int = 0  # optimizer steps taken
    saved: int = 0  # of which the last checkpoint holds so many
    seconds: float = 0.0  # spent training and evaluating, over all the times that the run was resumed
    losses: list[float] = field(default_factory=list)  # of the steps since train/loss was last recorded
    rows: list[dict[str, float]] = field(default_factory=list)  # everything that was recorded, as metrics.jsonl has it


def autocast(cfg: Config, device: torch.device) -> torch.autocast:
    """Within it the device computes in the precision of a resolved `cfg`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=cfg.train.precision == "bfloat16")


@contextmanager
def as_evaluated(model: Transformer, cfg: Config, length: int = 0) -> Iterator[None]:
    """Within it the model is what every evaluation of its run sees: nothing dropped out, its precision, one draw.

    length: tokens that it is going to read at most, where that is more than train.seq_len
    """
    seed = data.torch_seed(data.EVALUATION_SEED, data.EVALUATION_POSITIONS)
    model.position.draw(seed, max(length, cfg.train.seq_len))
    with evaluating(model), autocast(cfg, model.embedding.weight.device):
        yield


def resolve(cfg: Config) -> Config:
    """`cfg` with what `auto` comes to here: the device, and the precision in which that computes fastest.

    Raises ConfigError where there is no such device.
    """
    name = cfg.device
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, found in there.items() if found)
    if not there[name]:
        raise ConfigError(f"device={name}: torch finds no such device here; use device=auto or device=cpu")
    precision = cfg.train.precision
    if precision == "auto":
        precision = "bfloat16" if computes_bfloat16(name) else "float32"
    return dataclasses.replace(cfg, device=name, train=dataclasses.replace(cfg.train, precision=precision))


def computes_bfloat16(device: str) -> bool:
    """Whether the device multiplies matrices of bfloat16, rather than turning them into others first."""
    if device == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def build(cfg: Config) -> Lab:
    """Task, problems, model and optimizer of a resolved `cfg`. Raises ConfigError where they cannot be built."""
    device = torch.device(cfg.device)
    if cfg.threads:
        torch.set_num_threads(cfg.threads)
    task = config.build_task(cfg)
    limits.check(cfg, task, device)
    sizes = " ".join(f"task.{key}={config.show(value)}" for key, value in cfg.task.items() if key != "_target_")
    with config.config_errors(f"{sizes}: "):
        data.training_batch(task, cfg.seed, 0, 1, cfg.train.seq_len)
        text = data.evaluation_text(task, cfg.eval.sequences, cfg.train.seq_len).to(device)
    most, name = cfg.eval.problems_at_end or cfg.eval.problems, "eval.problems"
    if cfg.eval.problems_at_end:
        name = "eval.problems_at_end"
    with config.config_errors(f"{name}={most}: "):
        if most < cfg.eval.problems:
            raise ValueError(f"must be at least eval.problems={cfg.eval.problems}, or null")
        problems = data.evaluation_problems(task, most)
    with config.config_errors(f"eval.lengths={config.show(cfg.eval.lengths)}: "):
        longer = data.longer(task, cfg.eval.lengths, cfg.eval.problems, cfg.eval.sequences, device)
    model = build_model(cfg, len(task.alphabet)).to(device)
    lengths = f"train.seq_len={cfg.train.seq_len}, eval.lengths={config.show(cfg.eval.lengths)}"
    with config.config_errors(f"{lengths}, position={cfg.names.position}: "):
        model.position.draw(0, max(longer.tokens, cfg.train.seq_len))
    forward = model
    if cfg.train.compile:  # it breaks its graph at the attention on CPUs, and torch then warns of its own doings
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
        forward = torch.compile(model)
    t = cfg.train
    if t.warmup > t.steps:
        log.warning("train.warmup=%d is longer than train.steps=%d: lr is never reached", t.warmup, t.steps)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(t.beta1, t.beta2), weight_decay=t.weight_decay, fused=True)
    return Lab(cfg, device, task, text, problems, longer, model, forward, optimizer)


def build_model(cfg: Config, vocabulary: int) -> Transformer:
    """The model with its initial weights: those of `cfg.seed`, the same for every scheme but for what a scheme adds."""
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, cfg.train.seq_len)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data.torch_seed(cfg.seed, data.SCHEME_WEIGHTS))
        position = config.build_position(cfg, dims)
        torch.manual_seed(data.torch_seed(cfg.seed, data.INITIAL_WEIGHTS))
        with config.config_errors():
            return Transformer(vocabulary, **dataclasses.asdict(cfg.model), position=position)


def resume(lab: Lab, run: record.Run) -> tuple[State, dict[str, Any] | None]:
    """Loads the run's last checkpoint, if there is one; how far it was, and the provenance of what is resumed.

    Raises ConfigError where none can be trusted, where it is of other settings, or where other code wrote it and
    `other_code` does not allow that.
    """
    saved = load_checkpoint(run.folder, lab.cfg, lab.task, lab.device)
    if saved is None:
        if run.content.get("checkpoint"):
            raise ConfigError(f"{run.folder}: its checkpoints are gone: fresh=true starts over")
        return State(), None
    code = saved["provenance"]["code"]
    if code != record.code_hash() and not lab.cfg.other_code:
        raise ConfigError(
            f"{run.folder} was begun by other code ({code}, now {record.code_hash()}): "
            "fresh=true starts over, other_code=true resumes all the same"
        )
    with fitting(run.folder):
        lab.model.load_state_dict(saved["model"])
        lab.optimizer.load_state_dict(saved["optimizer"])
        return State(**saved["state"]), run.content.get("provenance", saved["provenance"])


def load_run(folder: Path, allowed_packages: list[str]) -> tuple[Config, Task, Transformer, dict[str, Any]]:
    """A run's configuration, task, model with its last weights, and run.json. Raises ConfigError.

    In place of what run.json says of `progress` stands that of these weights. Warns where the code has changed since.
    No code of other packages than rope_lab, tasks and `allowed_packages` runs, whatever the folder says.
    """
    content = record.read(folder)
    if content is None:
        raise ConfigError(f"{folder}: is no run's folder, it has no readable run.json")
    cfg = config.from_record(content["config"], allowed_packages)
    task = config.build_task(cfg)
    limits.check_read(cfg, task)
    model = build_model(cfg, len(task.alphabet))
    saved = load_checkpoint(folder, cfg, task)
    if saved is None:
        raise ConfigError(f"{folder}: has no checkpoint yet")
    code, now = saved["provenance"]["code"], record.code_hash()
    if code != now:
        log.warning("%s is of other code (%s, now %s), which may have computed otherwise", folder, code, now)
    with fitting(folder):
        model.load_state_dict(saved["model"])
        return cfg, task, model, content | {"progress": {"steps": int(saved["state"]["step"])}}


def load_checkpoint(folder: Path, cfg: Config, task: Task, device: torch.device | str = "cpu") -> dict[str, Any] | None:
    """The newest whole checkpoint of the run that `cfg` describes, or None where there is none.

    Raises ConfigError where none can be trusted, or it is of other settings.
    """
    try:
        saved = checkpoint.load(folder, device)
    except checkpoint.Refused as error:
        raise ConfigError(f"{error}; fresh=true starts over") from None
    if saved is None:
        return None
    with fitting(folder):
        for part in ("model", "optimizer", "state", "origin", "provenance"):
            saved[part].keys()
        saved["provenance"]["code"], saved["state"]["step"]
        if different := config.differences(saved["origin"], origin(cfg, task)):
            raise ConfigError(f"{folder}: its checkpoint is of other settings: {different}; fresh=true starts over")
    return saved


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Turns what a checkpoint lacks, or has of another shape, into a ConfigError."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, AttributeError) as error:
        if limits.is_out_of_memory(error):
            raise
        what = f"{type(error).__name__}: {(str(error).splitlines() or [''])[-1].strip()}"
        raise ConfigError(f"{folder}: its checkpoint holds no such run ({what}); fresh=true starts over") from None


def save(lab: Lab, state: State, run: record.Run) -> None:
    """Writes a checkpoint from which run.json and metrics.jsonl too can be made again, should they be harmed."""
    weights = {"model": lab.model.state_dict(), "optimizer": lab.optimizer.state_dict()}
    whole = {"state": dataclasses.asdict(state) | {"saved": state.step}, "origin": origin(lab.cfg, lab.task)}
    checkpoint.save(run.folder, state.step, weights | whole | {"provenance": run.content["provenance"]})
    state.saved = state.step


def export(lab: Lab, run: record.Run) -> None:
    """Writes the final weights as `weights.safetensors`, for other programs to load."""
    about = {
        "run_id": run.content["run_id"],
        "config": json.dumps(run.content["config"]),
        "alphabet": lab.task.alphabet,
    }
    weights = {name: weight.cpu().contiguous() for name, weight in lab.model.state_dict().items()}
    files.write_whole(run.folder / record.WEIGHTS, safetensors.torch.save(weights, about))


def origin(cfg: Config, task: Task) -> dict[str, Any]:
    """What a checkpoint has to agree with to be used."""
    return config.identity(cfg) | {"task_version": task.version, "checkpoint_format": FORMAT}


def hardware(device: torch.device) -> dict[str, Any]:
    """What a run computes with: the numbers may differ in their last digits on another."""
    backends = torch.backends
    return {
        "device": device.type,
        "name": torch.cuda.get_device_name(device) if device.type == "cuda" else record.cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "tf32": {"matmul": backends.cuda.matmul.allow_tf32, "cudnn": backends.cudnn.allow_tf32},
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
