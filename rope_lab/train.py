"""Trains one run: `python -m rope_lab.train [overrides]`, or with `-m` a sweep of them.

The same command continues a run that was cut off, and returns at once from one that is finished.
"""

import argparse
import atexit
import dataclasses
import importlib
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import hydra
import torch
import torch.nn.functional as F
from hydra.errors import CompactHydraException, HydraException
from omegaconf import DictConfig
from torch import nn
from tqdm import tqdm

from rope_lab import config, data, files, limits, record, screen, stop, sweep
from rope_lab.config import CONF, Config, ConfigError
from rope_lab.evaluate import Evaluation, by_length, evaluate, floor, samples
from rope_lab.lab import Lab, State, as_evaluated, autocast, build, export, hardware, resolve, resume, save
from rope_lab.stop import Stop

log = logging.getLogger(__name__)

EXIT_FAILED, EXIT_BAD_CONFIG, EXIT_DIVERGED = 1, 2, 3
EXAMPLES = 8  # problems whose completions are kept with the record
SAVE_SECONDS = 300  # a checkpoint is written at each evaluation, and whenever the last one is older than this


class Diverged(Exception):
    """A number that is not finite, found before the step that it would have spoilt."""


class Unusable(Exception):
    """The run's folder can no longer be written or read: the run stops, what was written before stays good."""


def train(cfg: Config, stopping: Stop | None = None) -> dict[str, Any]:
    """Trains the run that `cfg` describes, or what is left of it; returns the content of its run.json.

    `stopping` ends it early, without it a signal does; the process then exits with status 128 + the signal's number.

    Raises ConfigError, before anything is written, where `cfg` cannot be run, Unusable where the disk gives out, and
    OutOfMemory where memory does.
    """
    cfg = resolve(cfg)
    identity = config.identity(cfg)
    folder, run_id = config.out_folder(cfg) / config.run_name(identity), config.run_id(identity)
    if not cfg.fresh and is_over(folder, run_id):
        return record.read(folder)
    with limits.enough(cfg):
        lab = build(cfg)
    with record.Run(folder) as run, usable(folder), stopping or Stop() as stopping, limits.enough(cfg):
        if cfg.fresh:
            run.clear()
        elif is_over(folder, run_id):  # another process may have finished it while this one was building
            return run.content
        state, before = resume(lab, run)
        run.begin(state.rows, cfg.wandb, **describe(lab, state, before))
        files.say(screen.headline(run))
        try:
            with screen.new_bar(cfg.train.steps, state.step) as bar:
                evaluation = loop(lab, state, run, stopping, bar)
            status, found = "interrupted", {}
            if state.step == cfg.train.steps:
                slices = (evaluation or evaluate_now(lab, at_end=True)).slices | evaluate_lengths(lab)
                export(lab, run)
                status, found = "finished", {"slices": slices, "samples": write_samples(lab)}
        except Diverged as error:
            status, found = "diverged", {"error": str(error)}
        except BaseException as error:
            told = limits.told(error, cfg)
            what = told.strerror if isinstance(told, OSError) else told  # without a path of this machine
            with suppress(OSError):  # a full disk may have been the reason
                about = {"progress": progress(cfg, state), "checkpoint": state.saved}
                run.end("failed", error=f"{type(told).__name__}: {what}", **about)
            raise
        run.end(status, progress=progress(cfg, state), checkpoint=state.saved, **found)
        files.say(screen.summary(run))
    if stopping.caught:
        sys.exit(128 + stopping.caught)
    return run.content


def loop(lab: Lab, state: State, run: record.Run, stopping: Stop, bar: tqdm) -> Evaluation | None:
    """Trains from `state` to the last step, or to the one in which a signal came; what the last evaluation found."""
    cfg, began = lab.cfg, time.monotonic() - state.seconds
    saved, evaluation, stopped = time.monotonic(), None, stopping.caught
    if state.step == 0 and not stopped:
        evaluation = evaluate_now(lab)
        state.seconds = time.monotonic() - began
        report(run, bar, cfg, state, evaluation.metrics)

    while state.step < cfg.train.steps and not stopped:
        loss, norm, lr = update(lab, state.step)
        state.step += 1
        state.losses.append(loss)

        last, metrics = state.step == cfg.train.steps, {}
        if state.step % cfg.train.log_every == 0 or last:
            metrics |= {"train/loss": sum(state.losses) / len(state.losses), "train/lr": lr, "train/grad_norm": norm}
            state.losses = []
        due = state.step % cfg.eval.every == 0 or last
        if due:
            evaluation = evaluate_now(lab, at_end=last)
            metrics |= evaluation.metrics
        state.seconds = time.monotonic() - began
        bar.update()
        if metrics:
            report(run, bar, cfg, state, metrics)
        stopped = stopping.caught
        if due or stopped or time.monotonic() - saved > SAVE_SECONDS:
            save(lab, state, run)
            saved = time.monotonic()
    return evaluation


def update(lab: Lab, step: int) -> tuple[float, float, float]:
    """Optimizer step number `step`; the batch's loss, its gradient's norm before clipping, and the learning rate.

    Raises Diverged, with the weights as they were, where the loss, a gradient or a weight is not finite.
    """
    cfg, t = lab.cfg, lab.cfg.train
    batch = data.training_batch(lab.task, cfg.seed, step, t.batch_size, t.seq_len).to(lab.device)
    lab.model.position.draw(data.torch_seed(cfg.seed, data.POSITIONS, step), t.seq_len)
    torch.manual_seed(data.torch_seed(cfg.seed, data.DROPOUT, step))
    with autocast(cfg, lab.device):
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
            f"step {step} was not taken: loss {loss:g}, gradient norm {norm:g}, weight norm {weights:g}, "
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


def evaluate_now(lab: Lab, at_end: bool = False) -> Evaluation:
    """How good the model is now, or, `at_end`, has become. Raises Diverged where its loss or a weight is not finite."""
    weights = nn.utils.get_total_norm(lab.model.parameters()).item()
    if not math.isfinite(weights):
        raise Diverged(f"the norm of the weights is {weights:g}")
    with as_evaluated(lab.model, cfg=lab.cfg):
        problems = lab.problems if at_end else lab.problems[: lab.cfg.eval.problems]
        evaluation = evaluate(lab.model, lab.task, lab.text, problems, lab.cfg.train.seq_len)
    if not math.isfinite(evaluation.metrics["eval/loss"]):
        raise Diverged(f"the held-out loss is {evaluation.metrics['eval/loss']:g}")
    return evaluation


def evaluate_lengths(lab: Lab) -> dict[str, dict[str, list[float]]]:
    """What the model makes of problems of eval.lengths, as slices."""
    if not lab.cfg.eval.lengths:
        return {}
    return by_length(lab.model, lab.task, lab.longer, lambda tokens: as_evaluated(lab.model, lab.cfg, tokens))


def write_samples(lab: Lab) -> list[dict[str, Any]]:
    """What the model writes now for the first few problems."""
    with as_evaluated(lab.model, cfg=lab.cfg):
        return samples(lab.model, lab.task, lab.problems[:EXAMPLES], lab.cfg.train.seq_len)


def is_over(folder: Path, run_id: str) -> bool:
    """Whether the run in `folder` has ended and its files are whole, which it then says.

    Raises ConfigError where the folder holds the record of another run.
    """
    content = record.read(folder)
    if content is None:
        return False
    if content.get("run_id") != run_id:
        raise ConfigError(
            f"{folder}: its run.json is of another run ({content.get('run_id')}, not {run_id}): give the folder its "
            "name back, or fresh=true starts over"
        )
    if content["status"] not in ("finished", "diverged"):
        return False
    if not record.is_whole(folder, content):
        log.warning("%s: its files are not what run.json says of them; they are made again", folder)
        return False
    unchecked = "" if files.is_sealed(content) else ", as a record without digests says, which cannot be checked"
    files.say(f"{folder.name} has already {content['status']}{unchecked}; fresh=true runs it again")
    code = content["provenance"]["code"]
    if code != record.code_hash():
        log.warning("it was run by other code (%s, now %s): fresh=true runs it with today's", code, record.code_hash())
    return True


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Turns what the file system has against a folder into one sentence that a user can act on."""
    try:
        yield
    except OSError as error:
        raise Unusable(
            f"{folder} cannot be used any more ({error.strerror or error}): its last checkpoint stays good; "
            "mend the cause and run the same command again"
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
        "config": config.recorded(cfg),
        "floor": floor(lab.text),
        "parameters": sum(p.numel() for p in lab.model.parameters()),
        "progress": progress(cfg, state),
        "checkpoint": state.saved,
        "provenance": record.provenance(hardware(lab.device), before),
    }


def progress(cfg: Config, state: State) -> dict[str, Any]:
    """How far a run is, in each of the units in which others may have counted."""
    sequences = state.step * cfg.train.batch_size
    tokens = sequences * cfg.train.seq_len
    return {"steps": state.step, "sequences": sequences, "tokens": tokens, "seconds": round(state.seconds, 3)}


def report(run: record.Run, bar: tqdm, cfg: Config, state: State, metrics: dict[str, float]) -> None:
    """Records a row of metrics and shows it."""
    far = progress(cfg, state)
    row = {"step": state.step} | {k: v for k, v in far.items() if k != "steps"} | metrics
    state.rows.append(row)
    run.log(row)
    screen.show(bar, row, run.content["metrics"])


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def main(cfg: DictConfig) -> None:
    if sweep.in_worker():
        sweep.run_in_worker(partial(job, cfg))
    else:
        job(cfg)


def job(cfg: DictConfig, stopping: Stop | None = None) -> None:
    """A run from the command line, or one of a sweep's, which then notes how it ended."""
    sweep.note("started and not heard of since")
    try:
        checked = config.from_hydra(cfg)
        checked.threads = checked.threads or sweep.threads_each()
        content = train(checked, stopping)
    except ConfigError as error:
        let_go(error)
        sweep.note(f"not run, {error}")
        if sweep.is_sweep():  # Hydra goes on with the other runs and ends with this message
            raise CompactHydraException(str(error)) from None
        print(error, file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)
    except (Unusable, limits.OutOfMemory) as error:
        let_go(error)
        sweep.note(f"failed, {error}")
        if sweep.is_sweep():
            raise CompactHydraException(str(error)) from None
        print(error, file=sys.stderr)
        sys.exit(EXIT_FAILED)
    except Exception as error:
        sweep.note(f"failed, {type(error).__name__}: {error}")
        raise
    except SystemExit:
        sweep.note("interrupted")
        raise
    sweep.note(content["status"])
    if content["status"] == "diverged" and not sweep.is_sweep():
        sys.exit(EXIT_DIVERGED)


def let_go(error: BaseException) -> None:
    """Forgets where an error came from: those frames hold the model, and the sweep that keeps the error goes on."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


def command_line() -> None:
    """Hydra's command line, but for a mistake that Hydra would answer with a traceback.

    Outside of a run, which has a way of its own to end, a signal ends the process once all that it launched is saved.
    """
    atexit.register(stop.catch, signal.SIG_IGN)  # the last thing of all: Python's end takes default handlers back
    stop.catch(leave)
    status = EXIT_FAILED
    try:
        with suppress(HydraException):  # Hydra says it again, and better
            parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
            parser.add_argument("--config-dir", "-cd", type=Path, action="append", default=[])
            given, others = parser.parse_known_args()
            try:
                words = (word for word in others if "=" in word and not word.startswith("-"))
                config.check_choices(words, given.config_dir)
            except ConfigError as error:
                print(error, file=sys.stderr)
                sys.exit(EXIT_BAD_CONFIG)
        main()
        status = 0
    except SystemExit as end:
        status = end.code
        raise
    finally:
        stop.catch(stop.do_nothing)
        sweep.report()
        stop.catch(lambda number, frame: os._exit(status))  # W&B may be slow to end


def leave(number: int, frame: Any) -> None:
    """Answers a signal that comes outside of a run."""
    stop.catch(stop.do_nothing)
    sweep.end_workers(number)
    stop.leave(number)


if __name__ == "__main__":  # main as the module has it, which other processes of a sweep can import
    importlib.import_module("rope_lab.train").command_line()
