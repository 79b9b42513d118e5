"""Trains one run: `python -m rope_lab.train [overrides]`, or with `-m` a sweep of them.

The same command continues a run that was cut off, and returns at once from one that is finished.
"""

import dataclasses
import importlib
import json
import logging
import math
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
import safetensors.torch
import torch
import torch.nn.functional as F
from hydra.errors import CompactHydraException, HydraException
from omegaconf import DictConfig
from torch import Tensor, nn
from tqdm import tqdm

from rope_lab import checkpoint, config, data, files, record, sweep
from rope_lab.config import CONF, Config, ConfigError
from rope_lab.evaluate import SCORED, Evaluation, evaluate, evaluating, floor, samples
from rope_lab.model import Transformer
from rope_lab.positions import Dims
from tasks.base import Problem, Task

log = logging.getLogger(__name__)

EXIT_FAILED, EXIT_BAD_CONFIG, EXIT_DIVERGED = 1, 2, 3
WEIGHTS = "weights.safetensors"
EXAMPLES = 8  # problems whose completions are kept with the record
SAVE_SECONDS = 300  # a checkpoint is written at each evaluation, and whenever the last one is older than this


class Diverged(Exception):
    """A number that is not finite, found before the step that it would have spoilt."""


class Unusable(Exception):
    """The run's folder can no longer be written or read: the run stops, what was written before stays good."""


@dataclass
class Lab:
    """Everything a run needs, built and checked before anything is written."""

    cfg: Config
    device: torch.device
    task: Task
    text: data.HeldOutText  # for eval/loss
    problems: list[Problem]  # held out, graded
    model: Transformer
    forward: Callable[[Tensor], Tensor]  # the model, compiled if that is asked for: what training calls
    optimizer: torch.optim.Optimizer

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.cfg.train.precision == "bfloat16")


@dataclass
class State:
    """How far a run is."""

    step: int = 0  # optimizer steps made
    seconds: float = 0.0  # spent training and evaluating, over all the times that the run was resumed
    losses: list[float] = field(default_factory=list)  # of the steps since train/loss was last recorded
    rows: list[dict[str, float]] = field(default_factory=list)  # everything that was recorded, as metrics.jsonl has it


def train(cfg: Config) -> dict[str, Any]:
    """Trains the run that `cfg` describes, or what is left of it; returns the content of its run.json.

    Raises ConfigError, before anything is written, where `cfg` cannot be run, and Unusable where the disk gives out.
    """
    cfg = resolve(cfg)
    folder = config.out_folder(cfg) / config.run_name(config.identity(cfg))
    if not cfg.fresh and is_over(folder):
        return record.read(folder)
    lab = build(cfg)
    with record.Run(folder) as run, usable(folder):
        if cfg.fresh:
            run.clear()
        elif is_over(folder):  # another process may have finished it while this one was building
            return run.content
        state, before = resume(lab, run)
        run.begin(state.rows, cfg.wandb, **describe(lab, state, before))
        say(headline(run))
        try:
            with StopSignals() as stop, new_bar(cfg, state) as bar:
                evaluation = loop(lab, state, run, stop, bar)
        except Diverged as error:
            run.end("diverged", progress=progress(cfg, state), error=str(error))
        except BaseException as error:
            with suppress(OSError):  # a full disk may have been the reason
                run.end("failed", progress=progress(cfg, state), error=f"{type(error).__name__}: {error}")
            raise
        else:
            if state.step < cfg.train.steps:
                run.end("interrupted", progress=progress(cfg, state))
            else:
                slices = (evaluation or evaluate_now(lab)).slices
                export(lab, run)
                run.end("finished", progress=progress(cfg, state), slices=slices, samples=write_samples(lab))
        say(summary(run))
        if stop.caught:
            sys.exit(128 + stop.caught)
        return run.content


def loop(lab: Lab, state: State, run: record.Run, stop: "StopSignals", bar: tqdm) -> Evaluation | None:
    """Trains from `state` to the last step, or to the one in which a signal came; what the last evaluation found."""
    cfg, began = lab.cfg, time.monotonic() - state.seconds
    saved, evaluation = time.monotonic(), None
    if state.step == 0:
        evaluation = evaluate_now(lab)
        state.seconds = time.monotonic() - began
        report(run, bar, cfg, state, evaluation.metrics)

    while state.step < cfg.train.steps and not stop.caught:
        loss, norm, lr = update(lab, state.step)
        state.step += 1
        state.losses.append(loss)

        last, metrics = state.step == cfg.train.steps, {}
        if state.step % cfg.train.log_every == 0 or last:
            metrics |= {"train/loss": sum(state.losses) / len(state.losses), "train/lr": lr, "train/grad_norm": norm}
            state.losses = []
        due = state.step % cfg.eval.every == 0 or last
        if due:
            evaluation = evaluate_now(lab)
            metrics |= evaluation.metrics
        state.seconds = time.monotonic() - began
        bar.update()
        if metrics:
            report(run, bar, cfg, state, metrics)
        if due or stop.caught or time.monotonic() - saved > SAVE_SECONDS:
            save(lab, state, run)
            saved = time.monotonic()
    return evaluation


def update(lab: Lab, step: int) -> tuple[float, float, float]:
    """Optimizer step number `step`; the batch's loss, its gradient's norm before clipping, and the learning rate.

    Raises Diverged, with the weights as they were, where the loss, a gradient or a weight is not finite.
    """
    cfg, t = lab.cfg, lab.cfg.train
    batch = data.training_batch(lab.task, cfg.seed, step, t.batch_size, t.seq_len).to(lab.device)
    if cfg.model.dropout:
        torch.manual_seed(data.torch_seed(cfg.seed, data.DROPOUT, step))
    with lab.autocast():
        logits_BTV = lab.forward(batch.inputs_BT)
    loss = F.cross_entropy(logits_BTV.flatten(0, 1).float(), batch.targets_BT.flatten(), ignore_index=data.IGNORED)
    lab.optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(lab.model.parameters(), t.clip)
    weights = nn.utils.get_total_norm(lab.model.parameters())

    loss, norm, weights = torch.stack([loss.detach(), norm, weights]).tolist()  # all at once: a GPU is waited for here
    lr = learning_rate(t, step)
    if not all(map(math.isfinite, (loss, norm, weights))):
        raise Diverged(
            f"step {step} was not made: loss {loss:g}, gradient norm {norm:g}, weight norm {weights:g}, "
            f"learning rate {lr:g}, batch {step} of seed {cfg.seed}"
        )
    for group in lab.optimizer.param_groups:
        group["lr"] = lr
    lab.optimizer.step()
    return loss, norm, lr


def learning_rate(t: config.Train, step: int) -> float:
    """The learning rate of step number `step`, 0 … t.steps − 1: a linear warm-up to t.lr, then the decay towards 0."""
    if step < t.warmup:
        return t.lr * (step + 1) / t.warmup
    done = (step - t.warmup) / (t.steps - t.warmup)
    return t.lr * {"none": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[t.decay]


def evaluate_now(lab: Lab) -> Evaluation:
    """How good the model is now. Raises Diverged where its loss is not finite."""
    with evaluating(lab.model), lab.autocast():
        evaluation = evaluate(lab.model, lab.task, lab.text, lab.problems, lab.cfg.train.seq_len)
    if not math.isfinite(evaluation.metrics["eval/loss"]):
        raise Diverged(f"the held-out loss is {evaluation.metrics['eval/loss']:g}")
    return evaluation


def write_samples(lab: Lab) -> list[dict[str, Any]]:
    """What the model writes now for the first few problems."""
    with evaluating(lab.model), lab.autocast():
        return samples(lab.model, lab.task, lab.problems[:EXAMPLES], lab.cfg.train.seq_len)


def build(cfg: Config) -> Lab:
    """Task, problems, model and optimizer of a resolved `cfg`. Raises ConfigError where they cannot be built."""
    device = torch.device(cfg.device)
    if cfg.threads:
        torch.set_num_threads(cfg.threads)
    task = config.build_task(cfg)
    sizes = " ".join(f"task.{key}={value}" for key, value in cfg.task.items() if key != "_target_")
    with config.config_errors(f"{sizes}: "):
        data.training_batch(task, cfg.seed, 0, 1, cfg.train.seq_len)
        text = data.evaluation_text(task, cfg.eval.sequences, cfg.train.seq_len).to(device)
    with config.config_errors(f"eval.problems={cfg.eval.problems}: "):
        problems = data.evaluation_problems(task, cfg.eval.problems)
    if cfg.train.warmup > cfg.train.steps:
        log.warning(
            "train.warmup=%d is longer than train.steps=%d: lr is never reached", cfg.train.warmup, cfg.train.steps
        )
    model = build_model(cfg, len(task.alphabet)).to(device)
    forward = model
    if cfg.train.compile:  # it breaks its graph at the attention on CPUs, and torch then warns of its own doings
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
        forward = torch.compile(model)
    t = cfg.train
    optimizer = torch.optim.AdamW(model.parameters(), betas=(t.beta1, t.beta2), weight_decay=t.weight_decay, fused=True)
    return Lab(cfg, device, task, text, problems, model, forward, optimizer)


def build_model(cfg: Config, vocabulary: int) -> Transformer:
    """The model with its initial weights: those of `cfg.seed`, the same for every scheme but for what a scheme adds."""
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, cfg.train.seq_len)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data.torch_seed(cfg.seed, data.SCHEME_WEIGHTS))
        position = config.build_position(cfg, dims)
        torch.manual_seed(data.torch_seed(cfg.seed, data.INITIAL_WEIGHTS))
        return Transformer(vocabulary, **dataclasses.asdict(cfg.model), position=position)


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


def is_over(folder: Path) -> bool:
    """Whether the run in `folder` has come to its end, which it then says."""
    content = record.read(folder)
    if content is None or content["status"] not in ("finished", "diverged"):
        return False
    say(f"{folder.name} has {content['status']} before; fresh=true runs it anew")
    code = content["provenance"]["code"]
    if code != record.code_hash():
        log.warning("its code was another (%s, now %s): fresh=true runs it with today's", code, record.code_hash())
    return True


def resume(lab: Lab, run: record.Run) -> tuple[State, dict[str, Any] | None]:
    """Loads the run's last checkpoint, if there is one; how far it was, and the provenance of what is resumed.

    Raises ConfigError where none can be trusted, where it is of other settings, or where other code wrote it and
    `other_code` does not allow that.
    """
    try:
        saved = checkpoint.load(run.folder, lab.device)
    except checkpoint.Refused as error:
        raise ConfigError(f"{error}: fresh=true begins anew") from None
    if saved is None:
        return State(), None
    if different := config.differences(saved["origin"], origin(lab)):
        raise ConfigError(f"{run.folder}: its checkpoint is of other settings: {different}; fresh=true begins anew")
    code = saved["provenance"]["code"]
    if code != record.code_hash() and not lab.cfg.other_code:
        raise ConfigError(
            f"{run.folder} was begun by other code ({code}, now {record.code_hash()}): "
            "fresh=true begins anew, other_code=true goes on all the same"
        )
    lab.model.load_state_dict(saved["model"])
    lab.optimizer.load_state_dict(saved["optimizer"])
    return State(**saved["state"]), run.content.get("provenance", saved["provenance"])


def save(lab: Lab, state: State, run: record.Run) -> None:
    """Writes a checkpoint from which run.json and metrics.jsonl too can be made again, should they be harmed."""
    weights = {"model": lab.model.state_dict(), "optimizer": lab.optimizer.state_dict()}
    about = {"state": dataclasses.asdict(state), "origin": origin(lab), "provenance": run.content["provenance"]}
    checkpoint.save(run.folder, state.step, weights | about)


def export(lab: Lab, run: record.Run) -> None:
    """Writes the final weights as `weights.safetensors`, for other programs to load."""
    about = {
        "run_id": run.content["run_id"],
        "config": json.dumps(run.content["config"]),
        "alphabet": lab.task.alphabet,
    }
    weights = {name: weight.cpu().contiguous() for name, weight in lab.model.state_dict().items()}
    files.write_whole(run.folder / WEIGHTS, safetensors.torch.save(weights, about))


def origin(lab: Lab) -> dict[str, Any]:
    """What a checkpoint has to agree with to be gone on from."""
    return config.identity(lab.cfg) | {"task_version": lab.task.version, "checkpoint_format": checkpoint.FORMAT}


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Turns what the file system has against a folder into one sentence that a user can act on."""
    try:
        yield
    except OSError as error:
        raise Unusable(
            f"{folder} cannot be used any more ({error.strerror or error}): its last checkpoint stays good; "
            "mend that and say the same command again"
        ) from error


def describe(lab: Lab, state: State, before: dict[str, Any] | None) -> dict[str, Any]:
    """What run.json says of a run from its beginning on; `before`, the provenance of what is resumed."""
    cfg, identity = lab.cfg, config.identity(lab.cfg)
    return {
        "run_id": config.run_id(identity),
        "recipe_id": config.recipe_id(identity),
        "scheme_id": config.scheme_id(identity),
        **dataclasses.asdict(cfg.names),
        "seed": cfg.seed,
        "config": dataclasses.asdict(cfg),
        "floor": floor(lab.text),
        "parameters": sum(p.numel() for p in lab.model.parameters()),
        "progress": progress(cfg, state),
        "provenance": record.provenance(hardware(lab.device), before),
    }


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


def progress(cfg: Config, state: State) -> dict[str, Any]:
    """How far a run is, in each of the units in which others may have counted."""
    sequences = state.step * cfg.train.batch_size
    tokens = sequences * cfg.train.seq_len
    return {"steps": state.step, "sequences": sequences, "tokens": tokens, "seconds": round(state.seconds, 3)}


class StopSignals:
    """Within it, the first of SIGINT, SIGTERM and SIGUSR1 is noted in `caught`; none of them ends the process."""

    def __init__(self):
        self.caught = 0

    def __enter__(self) -> "StopSignals":
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number, frame) -> None:
        self.caught = self.caught or number


def new_bar(cfg: Config, state: State) -> tqdm:
    """A progress bar on a terminal; silent elsewhere."""
    return tqdm(total=cfg.train.steps, initial=state.step, disable=None, unit="step", dynamic_ncols=True)


def report(run: record.Run, bar: tqdm, cfg: Config, state: State, metrics: dict[str, float]) -> None:
    """Records a row of metrics and shows it: in the bar, or, where that is silent, as one line an evaluation."""
    far = progress(cfg, state)
    state.rows.append({"step": state.step} | {k: v for k, v in far.items() if k != "steps"} | metrics)
    run.log(state.rows[-1])
    now = {"eval/loss": math.nan, "eval/accuracy": math.nan} | run.content["metrics"]
    speed = f"{far['tokens'] / far['seconds']:,.0f}"
    shown = {"loss": f"{now['eval/loss']:.3f}", "accuracy": f"{now['eval/accuracy']:.1%}"}
    bar.set_postfix(shown | {"train loss": f"{now.get('train/loss', math.nan):.3f}", "tokens/s": speed}, refresh=False)
    if bar.disable and "eval/accuracy" in metrics:
        say(
            f"step {state.step:>6} · {state.seconds:7.1f} s · {speed:>9} tokens/s · "
            f"held-out loss {shown['loss']} · accuracy {shown['accuracy']}"
        )


def headline(run: record.Run) -> str:
    c = run.content
    hardware, begun = c["provenance"]["hardware"], c["progress"]["steps"]
    return (
        f"{c['task']} · {c['position']} · {c['scale']} · seed {c['seed']} · {c['parameters']:,} parameters · "
        f"{hardware['name']}, {hardware['threads']} threads" + (f" · goes on from step {begun}" if begun else "")
    )


def summary(run: record.Run) -> str:
    """The end of a run in a few lines: how it went and where everything lies."""
    c, m = run.content, run.content["metrics"]
    folder = as_typed(run.folder)
    lines = [f"{c['status']} after {c['progress']['steps']} steps, {c['progress']['seconds']:.0f} s"]
    if "error" in c:
        lines.append(f"  {c['error']}")
    if "eval/accuracy" in m:
        lines.append(f"  accuracy  {m['eval/accuracy']:.1%} of {c['config']['eval']['problems']} held-out problems")
    if "eval/score" in m:
        lines.append(f"  score     {m['eval/score']} of the first {SCORED}, as the write-up counts")
    if "eval/loss" in m:
        lines.append(f"  loss      {m['eval/loss']:.4f} nats per answer token, held out")
    lines += [f"  records   {folder}", f"  try it    {program('python')} -m rope_lab.sample {folder}"]
    if run.wandb.run:
        lines.append(f"  W&B       {program('wandb')} leet {as_typed(run.wandb.folder)}")
    return "\n".join(lines)


def say(text: str) -> None:
    """Prints whole lines, in one piece even where several runs print at once."""
    print(text + "\n", end="", flush=True)


def as_typed(path: Path) -> str:
    """A path as one would type it here: relative where it lies below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def program(name: str) -> str:
    """How one calls a program of this Python's environment here, activated or not."""
    beside = Path(sys.executable).parent / name
    return name if shutil.which(name) == str(beside) else as_typed(beside)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def main(cfg: DictConfig) -> None:
    sweep.note("started and not heard of since")
    try:
        checked = config.from_hydra(cfg)
        checked.threads = checked.threads or sweep.threads_each()
        content = train(checked)
    except ConfigError as error:
        sweep.note(f"not run, {error}")
        if sweep.is_sweep():  # Hydra goes on with the other runs and ends with this message
            raise CompactHydraException(str(error)) from None
        print(error, file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)
    except Unusable as error:
        sweep.note(f"failed, {error}")
        if sweep.is_sweep():
            raise CompactHydraException(str(error)) from None
        print(error, file=sys.stderr)
        sys.exit(EXIT_FAILED)
    except Exception as error:
        sweep.note(f"failed, {type(error).__name__}: {error}")
        raise
    sweep.note(content["status"])
    if content["status"] == "diverged" and not sweep.is_sweep():
        sys.exit(EXIT_DIVERGED)


def command_line() -> None:
    """Hydra's command line, but for a mistake that Hydra would answer with a traceback."""
    with suppress(HydraException):  # Hydra says it again, and better
        try:
            config.check_choices(word for word in sys.argv[1:] if "=" in word and not word.startswith("-"))
        except ConfigError as error:
            print(error, file=sys.stderr)
            sys.exit(EXIT_BAD_CONFIG)
    main()


if __name__ == "__main__":  # main as the module has it, which other processes of a sweep can import
    importlib.import_module("rope_lab.train").command_line()
