"""One run from beginning to end: begin or resume, train, evaluate, save, record."""

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rope_lab.identity import Identity
from rope_lab.text import ConfigError, say
from rope_lab.train import (
    config,
    console,
    distributed,
    provenance,
    run_folder,
    torch_state,
    tracking,
)
from rope_lab.train.config import Config
from rope_lab.train.console import Progress
from rope_lab.train.evaluate import Evaluation, by_length, floor
from rope_lab.train.load import parent_changed
from rope_lab.train.run_folder import RunFolder
from rope_lab.train.stop import RunFailed, Stop, in_one_line
from rope_lab.train.trainer import (
    Diverged,
    Trainer,
    build,
    evaluate_now,
    resolve,
    update,
    write_samples,
)

# A checkpoint is written at each evaluation, and whenever the last one is older than this.
SAVE_SECONDS = 300


@dataclass
class State:
    """The progress of a run."""

    step: int = 0  # optimizer steps taken
    seconds: float = 0.0  # of training and evaluating, over all parts of a resumed run
    # Of the steps since train/loss was last recorded.
    losses: list[float] = field(default_factory=list)

    def progress(self, cfg: Config) -> dict[str, Any]:
        """The progress in every unit that papers count in."""
        sequences = self.step * cfg.train.batch_size
        seconds = round(self.seconds, 3)
        tokens = sequences * cfg.train.seq_len
        return {"steps": self.step, "sequences": sequences, "tokens": tokens, "seconds": seconds}


def train(
    cfg: Config, stopping: Stop | None = None, prefix: str = "", launch: str = ""
) -> dict[str, Any]:
    """Train the run that `cfg` describes, or resume it. Returns the content of its run.json.

    stopping: notes the signal that interrupts the run
    prefix:   of its lines on the screen
    launch:   names the launch by a queue, which may start the run again: `fresh` then replaces
              only what another launch has made

    Raises ConfigError before anything is written if `cfg` cannot be run, and RunFailed if the run
    cannot continue.
    """
    cfg = resolve(cfg)
    stopping = stopping or Stop()
    identity = config.identity(cfg)
    folder = run_folder.out_folder(cfg) / identity.run_name
    with in_one_line(cfg), torch_state.standard():
        if distributed.rank() == 0:
            run_folder.bring_back(folder)
        fresh = _starts_over(cfg, folder, prefix, launch)
        ended = None if fresh else run_folder.ended(folder, identity.run_id, provenance.code(cfg))
        if ended := distributed.of_first(ended):
            say(console.returned(cfg, ended, folder, prefix))
            if distributed.rank() == 0:
                tracking.log_again(cfg.wandb, folder, ended)
            return ended
        trainer = build(cfg)
        with RunFolder(folder, recorded=distributed.rank() == 0) as run, stopping:
            if fresh:
                run.set_aside()
            state = begin_or_resume(trainer, run, identity, launch)
            train_to_end(trainer, state, run, stopping, prefix)
        # At a first exit with an error torchrun ends all: the records are written by now.
        distributed.agreed(0)
    return run.content


def _starts_over(cfg: Config, folder: Path, prefix: str, launch: str) -> bool:
    """Whether what the folder holds is set aside: for `fresh`, or since its weights are of a parent
    that was trained again. Raises ConfigError if a run with such weights has ended.
    """
    if cfg.fresh and not run_folder.launched_by(folder, launch):
        return True
    before = run_folder.read(folder)
    if not parent_changed(before, cfg):
        return False
    if before["status"] in run_folder.OUTCOMES:
        remedy = "fresh=true replaces it, out=FOLDER keeps it"
        raise ConfigError(f"{folder}: began from other weights of init_from; {remedy}")
    say(f"{prefix}init_from was trained again: this run starts over from the new weights")
    return True


def begin_or_resume(
    trainer: Trainer, run: RunFolder, identity: Identity, launch: str = ""
) -> State:
    """Load the run's last checkpoint, if there is one, and record the run's description and its
    `launch`. Returns its progress.
    """
    cfg = trainer.cfg
    code = provenance.code(cfg)
    new = {
        "step": 0,
        "seconds": 0.0,
        "losses": [],
        "records": [],
        "provenance": None,
    }
    saved = run.lock and run_folder.newest_checkpoint(
        run.folder, identity.run_id, trainer.task.version, None if cfg.other_code else code
    )
    saved = distributed.of_first(saved)
    if saved:
        for name, part in trainer.parts.items():
            part.load_state_dict(saved[name])
    saved = saved or new
    state = State(saved["step"], saved["seconds"], saved["losses"])
    run.begin(
        saved["records"],
        cfg.wandb,
        trainer.task.kept,
        run_id=identity.run_id,
        recipe_id=identity.recipe_id,
        scheme_id=identity.scheme_id,
        **asdict(cfg.names),
        seed=cfg.seed,
        config=config.recorded(cfg),
        data=trainer.task.name,
        floor=floor(trainer.text),
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        progress=state.progress(cfg),
        checkpoint=state.step,
        provenance=provenance.provenance(cfg, trainer.device, saved["provenance"])
        | {"launch": launch},
    )
    return state


def train_to_end(
    trainer: Trainer, state: State, run: RunFolder, stopping: Stop, prefix: str
) -> None:
    """Train from `state` to the end or to a signal; record and print the result. Raises other
    errors.
    """
    cfg = trainer.cfg

    def end(status: str, **content: Any) -> None:
        run.end(status, progress=state.progress(cfg), **content)

    say(console.beginning(run.content, prefix))
    if run.wandb.place and not prefix:
        say(f"W&B records: {run.wandb.place}")
    shown = Progress(cfg.train.steps, state.step, prefix, cfg.shows_scores)
    try:
        evaluation = loop(trainer, state, run, stopping, shown)
        if state.step < cfg.train.steps or not run.metrics:
            end("interrupted")
        else:
            slices = (evaluation or evaluate_now(trainer, at_end=True)).slices
            # Before longer texts, for which memory may not suffice.
            run.export(trainer.model.state_dict(), trainer.task.alphabet)
            slices |= by_length(trainer.model, trainer.task, cfg, trainer.longer)
            end("finished", slices=slices, samples=write_samples(trainer))
    except Diverged as error:
        end("diverged", error=str(error))
    except KeyboardInterrupt:  # of a step that did not end
        end("interrupted")
        raise
    except BaseException as error:
        # Without a path of this machine.
        reason = error.strerror if isinstance(error, OSError) else error
        # A full disk, or a folder taken over, may have been the reason.
        with suppress(OSError, RunFailed):
            end("failed", error=f"{type(error).__name__}: {reason}")
        raise
    say(console.summary(cfg, run.content, run.folder, prefix))


def loop(
    trainer: Trainer, state: State, run: RunFolder, stopping: Stop, shown: Progress
) -> Evaluation | None:
    """Train from `state` to the last step, or to the step of a signal. Returns the last
    evaluation.
    """
    cfg = trainer.cfg
    began = time.monotonic() - state.seconds
    saved, evaluation = time.monotonic(), None

    def report(metrics: dict[str, float]) -> None:
        state.seconds = time.monotonic() - began
        progress = state.progress(cfg)
        run.log({"step": progress.pop("steps")} | progress | metrics)

    stopped = has_to_stop(stopping)
    if not run.metrics and not stopped:
        evaluation = evaluate_now(trainer, at_end=cfg.train.steps == 0)
        report(evaluation.metrics)
        shown.show(0, evaluation.metrics)
        if cfg.train.steps == 0:
            save(trainer, state, run)
    while state.step < cfg.train.steps and not stopped:
        metrics = take_step(trainer, state)
        last = state.step == cfg.train.steps
        due = state.step % cfg.eval.every == 0 or last
        if due:
            evaluation = evaluate_now(trainer, at_end=last)
            metrics |= evaluation.metrics
        if metrics:
            report(metrics)
        shown.show(state.step, metrics)
        stopped = has_to_stop(stopping)
        if due or stopped or time.monotonic() - saved > SAVE_SECONDS:
            saved = time.monotonic()
            state.seconds = saved - began
            save(trainer, state, run)
    return evaluation


def save(trainer: Trainer, state: State, run: RunFolder) -> None:
    """Write a checkpoint. Raises OSError."""
    run.save(
        state.step,
        **trainer.states(),
        seconds=state.seconds,
        losses=state.losses,
        task_version=trainer.task.version,
    )


def take_step(trainer: Trainer, state: State) -> dict[str, float]:
    """Take the next step. Returns its `train/…` metrics if they are due, else nothing."""
    train = trainer.cfg.train
    loss, norm, lr = update(trainer, state.step)
    state.step += 1
    state.losses.append(loss)
    if state.step % train.log_every != 0 and state.step != train.steps:
        return {}
    mean = sum(state.losses) / len(state.losses)
    state.losses = []
    return {"train/loss": mean, "train/lr": lr, "train/grad_norm": norm}


def has_to_stop(stopping: Stop) -> bool:
    """Whether any rank got a signal; every rank then notes it."""
    number = distributed.agreed(stopping.caught)
    stopping.note(number)
    return number != 0
