"""Trains one run: `python -m rope_lab.train [overrides]`, or with `-m` a sweep of them.

The same command resumes a run that was cut off, and returns at once from one that is finished.
"""

import dataclasses
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rope_lab.identity import Identity
from rope_lab.text import ConfigError, say
from rope_lab.train import config, console, distributed, memory, provenance, signals
from rope_lab.train import run as runs
from rope_lab.train.config import Config
from rope_lab.train.console import Place, Progress
from rope_lab.train.data import IGNORED
from rope_lab.train.evaluate import Evaluation, floor
from rope_lab.train.run import Run
from rope_lab.train.signals import Stop
from rope_lab.train.trainer import (
    Diverged,
    Trainer,
    build,
    evaluate_lengths,
    evaluate_now,
    follow,
    resolve,
    share_state,
    update,
    write_samples,
)

SAVE_SECONDS = 300  # a checkpoint is written at each evaluation, and whenever the last one is older than this


class Unusable(Exception):
    """The run's folder can no longer be written or read: the run stops, what was written before stays good."""


@dataclasses.dataclass
class State:
    """How far a run is."""

    step: int = 0  # optimizer steps taken
    saved: int = 0  # of which the last checkpoint holds so many
    seconds: float = 0.0  # spent training and evaluating, over all the times that the run was resumed
    losses: list[float] = dataclasses.field(default_factory=list)  # of the steps since train/loss was last recorded


def train(cfg: Config, stopping: Stop | None = None, place: Place | None = None, since: str = "") -> dict[str, Any]:
    """Trains the run that `cfg` describes, or what is left of it; returns the content of its run.json.

    `stopping` ends it early, without it a signal does; the process then exits with status 128 + the signal's number,
    which is SIGALRM's where the time is up (`stop_at`).
    `place` says how it is shown among others. `since`, when it was first asked for, if it may be asked for again, as by
    a queue: `fresh` deletes nothing that was begun later.

    Raises ConfigError, before anything is written, where `cfg` cannot be run, Unusable where the disk gives out, and
    OutOfMemory where memory does.
    """
    cfg = resolve(cfg)
    if distributed.rank() > 0:
        with memory.enough(cfg):
            sys.exit(follow(build(cfg)))
    identity, code = config.identity(cfg), provenance.code_digest(cfg)
    folder = runs.out_folder(cfg) / identity.run_name
    if place and place.heading:
        say(place.heading)
    fresh = cfg.fresh and not (since and runs.begun_since(folder, since))
    if not fresh and (content := runs.ended(folder, identity, code)):
        say(console.returned(content, folder, place))
        return content
    with memory.enough(cfg):
        trainer = build(cfg)
    with Run(folder) as run, usable(folder, cfg.fresh), stopping or Stop() as stopping, memory.enough(cfg):
        if fresh:
            run.clear()
        elif content := runs.ended(folder, identity, code):  # by another process while this one was building
            say(console.returned(content, folder, place))
            return content
        state = begin(trainer, run, identity)
        if begins := console.beginning(run.content, place):
            say(begins)
        try:
            status, found = "interrupted", {}
            with console.progress(cfg.train.steps, state.step, place) as progress:
                evaluation = loop(trainer, state, run, identity, stopping, progress)
                if state.step == cfg.train.steps:
                    slices = (evaluation or evaluate_now(trainer, at_end=True)).slices | evaluate_lengths(trainer)
                    run.export(trainer.model.state_dict(), trainer.task.alphabet)
                    status, found = "finished", {"slices": slices, "samples": write_samples(trainer)}
        except Diverged as error:
            status, found = "diverged", {"error": str(error)}
        except BaseException as error:
            told = memory.told(error, cfg)
            what = told.strerror if isinstance(told, OSError) else told  # without a path of this machine
            with suppress(OSError):  # a full disk may have been the reason
                run.end("failed", error=f"{type(told).__name__}: {what}", **how_far(cfg, state))
            raise
        run.end(status, **how_far(cfg, state), **found)
        evaluated = max((record["step"] for record in run.metrics if "eval/loss" in record), default=None)
        guess = console.guessing_loss(trainer.text.targets_BT[trainer.text.targets_BT != IGNORED].tolist())
        say(console.summary(run.content, folder, place, evaluated, guess, cfg.fresh))
    if stopped := stopping.caught or (status == "interrupted" and signal.SIGALRM):
        sys.exit(128 + stopped)
    return run.content


def begin(trainer: Trainer, run: Run, identity: Identity) -> State:
    """Loads the run's last checkpoint, if there is one, and records what the run is; how far it was.

    Raises ConfigError where no checkpoint can be trusted, where it is of other settings, or where other code wrote it
    and `other_code` does not allow that.
    """
    cfg, state, metrics, before = trainer.cfg, State(), [], None
    saved = runs.load_checkpoint(run.folder, identity, trainer.task.version, trainer.device)
    if saved is None and run.content.get("checkpoint"):
        raise ConfigError(f"{run.folder}: its checkpoints are gone: fresh=true starts over")
    if saved is not None:
        code, now = saved["provenance"]["code"], provenance.code_digest(cfg)
        if code != now and not cfg.other_code:
            raise ConfigError(
                f"{run.folder} was begun by other code ({code}, now {now}): "
                "fresh=true starts over, other_code=true resumes all the same"
            )
        with runs.fitting(run.folder):
            trainer.model.load_state_dict(saved["model"])
            settings = trainer.optimizer.state_dict()["param_groups"]  # they are those of the run, whatever was saved
            trainer.optimizer.load_state_dict(saved["optimizer"] | {"param_groups": settings})
            state = State(saved["step"], saved["step"], saved["seconds"], saved["losses"])
            metrics, before = saved["metrics"], run.content.get("provenance", saved["provenance"])
    share_state(trainer)
    run.begin(
        metrics,
        cfg.wandb,
        run_id=identity.run_id,
        recipe_id=identity.recipe_id,
        scheme_id=identity.scheme_id,
        **dataclasses.asdict(cfg.names),
        seed=cfg.seed,
        config=config.recorded(cfg),
        floor=floor(trainer.text),
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        **how_far(cfg, state),
        provenance=provenance.provenance(cfg, trainer.device, before),
    )
    return state


def loop(
    trainer: Trainer, state: State, run: Run, identity: Identity, stopping: Stop, shown: Progress
) -> Evaluation | None:
    """Trains from `state` to the last step, or to the one in which a signal came; what the last evaluation found."""
    cfg, began = trainer.cfg, time.monotonic() - state.seconds
    saved, evaluation, stopped = time.monotonic(), None, stopping.caught or signals.time_is_up(cfg.stop_at)
    if state.step == 0 and not stopped:
        evaluation = evaluate_now(trainer)
        state.seconds = time.monotonic() - began
        report(run, shown, cfg, state, evaluation.metrics)

    while state.step < cfg.train.steps and not stopped:
        loss, norm, lr = update(trainer, state.step)
        state.step += 1
        state.losses.append(loss)

        last, metrics = state.step == cfg.train.steps, {}
        if state.step % cfg.train.log_every == 0 or last:
            metrics |= {"train/loss": sum(state.losses) / len(state.losses), "train/lr": lr, "train/grad_norm": norm}
            state.losses = []
        due = state.step % cfg.eval.every == 0 or last
        if due:
            evaluation = evaluate_now(trainer, at_end=last)
            metrics |= evaluation.metrics
        state.seconds = time.monotonic() - began
        shown.step()
        if metrics:
            report(run, shown, cfg, state, metrics)
        stopped = stopping.caught or signals.time_is_up(cfg.stop_at)
        if due or stopped or time.monotonic() - saved > SAVE_SECONDS:
            weights = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
            version = trainer.task.version
            run.save(state.step, identity, version, **weights, seconds=state.seconds, losses=state.losses)
            state.saved, saved = state.step, time.monotonic()
    return evaluation


@contextmanager
def usable(folder: Path, fresh: bool) -> Iterator[None]:
    """Raises what the file system has against a folder as one sentence that a user can act on."""
    try:
        yield
    except OSError as error:
        raise Unusable(
            f"{folder} cannot be used any more ({error.strerror or error}): its last checkpoint stays good; "
            f"mend the cause and run {console.same_command(fresh)} again"
        ) from error


def how_far(cfg: Config, state: State) -> dict[str, Any]:
    """How far a run is, in each of the units in which others may have counted, and up to which step it can resume."""
    sequences = state.step * cfg.train.batch_size
    tokens, seconds = sequences * cfg.train.seq_len, round(state.seconds, 3)
    progress = {"steps": state.step, "sequences": sequences, "tokens": tokens, "seconds": seconds}
    return {"progress": progress, "checkpoint": state.saved}


def report(run: Run, shown: Progress, cfg: Config, state: State, metrics: dict[str, float]) -> None:
    """Records metrics and shows them."""
    progress = how_far(cfg, state)["progress"]
    record = {"step": progress.pop("steps")} | progress | metrics
    run.log(record)
    shown.show(record)
