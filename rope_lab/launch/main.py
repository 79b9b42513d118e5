"""The command line of a run and of a sweep: `python -m rope_lab.train [overrides]`."""

import shutil
import sys
import traceback
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

from rope_lab.launch import signals, sweep
from rope_lab.launch.guard import EXIT_FAILED, guarded, launch
from rope_lab.launch.signals import Stop
from rope_lab.launch.sweep import EXIT_BAD_CONFIG
from rope_lab.text import ConfigError, first_line, say
from rope_lab.train import config, console, distributed, help, provenance
from rope_lab.train import run as runs
from rope_lab.train.failures import RunFailed
from rope_lab.train.loop import train
from rope_lab.train.overrides import expand, read_arguments

EXIT_DIVERGED = 3


def work(cfg: DictConfig) -> None:
    """What Hydra calls for each run of a sweep, in whatever process."""
    run = partial(job, *sweep.from_job(cfg))
    if sweep.in_worker():
        sweep.run_in_worker(run)
    elif sweep.is_elsewhere():
        sweep.run_elsewhere(run)
    else:
        run()


def job(words: list[str], config_dir: Path | None, stopping: Stop | None = None) -> None:
    """A run from the command line, or one of a sweep's, which then notes how it ended."""
    place, began = sweep.place(), provenance.now()
    try:
        checked = config.load(*words, config_dir=config_dir)
        if sweep.is_sweep() and signals.time_is_up(checked.stop_at):
            return
        sweep.note("started and not heard of since", began=began)
        checked = replace(checked, threads=checked.threads or sweep.threads_each())
        with distributed.joined(checked.device):
            content = train(checked, stopping or Stop(), place, sweep.first_begun())
    except (ConfigError, RunFailed) as error:
        let_go(error)
        is_bad = isinstance(error, ConfigError)
        sweep.note(f"{'not run' if is_bad else 'failed'}, {error}")
        if sweep.is_sweep():  # Hydra goes on with the other runs and ends with this message
            raise CompactHydraException(str(error)) from None
        print(error, file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG if is_bad else EXIT_FAILED)
    except Exception as error:
        sweep.note(f"failed, {type(error).__name__}: {error}")
        if own := [f"{word.partition('=')[0]}=…" for word in words if ".py" in word]:
            traceback.print_exc()
            print(f"what is wrong with your own: python -m rope_lab.check {' '.join(own)}", file=sys.stderr)
            sys.exit(EXIT_FAILED)
        raise
    except SystemExit:
        sweep.note("interrupted")
        raise
    found = {"out": str(runs.out_folder(checked)), "metrics": console.shown(content["metrics"])}
    if str(content["provenance"].get("start")) >= began:  # it was not only returned
        found["seconds"] = content["progress"]["seconds"]
    sweep.note(content["status"], **found)
    if content["status"] == "diverged" and not sweep.is_sweep():
        sys.exit(EXIT_DIVERGED)


def let_go(error: BaseException) -> None:
    """Forgets where an error came from: those frames hold the model, and the sweep that keeps the error goes on."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


def command_line() -> None:
    """Answers what was typed; of several processes of torchrun the first does."""
    with distributed.one_voice(EXIT_BAD_CONFIG):
        guarded(lambda: answer(sys.argv[1:]))


def answer(words: list[str]) -> None:
    """Does what the command line asks for. What is wrong with it is said in one line, and the process exits."""
    settings = config.described()
    try:
        given = read_arguments(words, settings)
        overrides, config_dir = given.overrides, given.config_dir
        if given.help:
            width = min(shutil.get_terminal_size().columns, 100)
            say(help.text(width, [] if given.multirun else overrides, config_dir))
        elif given.cfg:
            say(OmegaConf.to_yaml(asdict(config.load(*overrides, config_dir=config_dir))))
        elif given.multirun:
            sweep_over(overrides, config_dir)
        else:
            job(overrides, config_dir)
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)


def sweep_over(words: list[str], config_dir: Path | None) -> None:
    """Has each run of a sweep done by the launcher that is configured. Raises ConfigError before the first begins."""
    if distributed.launched() > 1:
        raise ConfigError("torchrun trains one run: leave -m out, or train a sweep's runs one to a process")
    own = [word for word in words if word.lstrip("+~").startswith(("hydra.", "hydra/"))]
    runs = expand([word for word in words if word not in own], config.folders_with(config_dir), config.described())
    for run in runs:
        config.load(*run, config_dir=config_dir)
    try:
        done = launch(runs, own, work, config_dir=config_dir)
    except Exception as error:  # of the launcher
        raise ConfigError(f"{first_line(error)}; look at {' '.join(own)}" if own else first_line(error)) from None
    try:
        for each in done:
            each.return_value  # noqa: B018 - raises what the run has raised
    except CompactHydraException as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_FAILED)
