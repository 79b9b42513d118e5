"""The command line of a run and of a sweep: `python -m rope_lab.train [overrides]`."""

import os
import shutil
import sys
import traceback
from functools import partial
from pathlib import Path

import hydra
from hydra.core.utils import env_override
from hydra.errors import CompactHydraException
from omegaconf import DictConfig

from rope_lab.launch import signals, sweep
from rope_lab.launch.guard import EXIT_FAILED, guarded
from rope_lab.launch.signals import Stop
from rope_lab.launch.sweep import EXIT_BAD_CONFIG
from rope_lab.text import ConfigError, say
from rope_lab.train import config, console, distributed, help, memory, plugins, provenance
from rope_lab.train import run as runs
from rope_lab.train.config import CONF
from rope_lab.train.loop import Unusable, train
from rope_lab.train.overrides import check_overrides, read_arguments, told

EXIT_DIVERGED = 3
FULL_ERROR = "HYDRA_FULL_ERROR"  # the environment variable with which Hydra shows a traceback of any error


def work(cfg: DictConfig) -> None:
    """What Hydra calls for each run, in whatever process."""
    if sweep.in_worker():
        sweep.run_in_worker(partial(job, cfg))
    elif sweep.is_elsewhere():
        sweep.run_elsewhere(partial(job, cfg))
    else:
        job(cfg)


main = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(work)


def job(cfg: DictConfig, stopping: Stop | None = None) -> None:
    """A run from the command line, or one of a sweep's, which then notes how it ended."""
    place, began = sweep.place(), provenance.now()
    try:
        checked = config.from_hydra(cfg)
        if sweep.is_sweep() and signals.time_is_up(checked.stop_at):
            return
        sweep.note("started and not heard of since", began=began)
        checked.threads = checked.threads or sweep.threads_each()
        with distributed.joined(checked.device):
            content = train(checked, stopping or Stop(), place, sweep.first_begun())
    except (ConfigError, Unusable, memory.OutOfMemory, distributed.Lost) as error:
        let_go(error)
        is_bad = isinstance(error, ConfigError)
        sweep.note(f"{'not run' if is_bad else 'failed'}, {error}")
        if sweep.is_sweep():  # Hydra goes on with the other runs and ends with this message
            raise CompactHydraException(str(error)) from None
        if not is_bad:  # which each process finds by itself
            distributed.speak()
        print(error, file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG if is_bad else EXIT_FAILED)
    except Exception as error:
        sweep.note(f"failed, {type(error).__name__}: {error}")
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


def answer(arguments: list[str]) -> None:
    """Does what the command line asks for. What is wrong with it is said in one line, and the process exits."""
    settings, debugging = config.described(), os.environ.get(FULL_ERROR) == "1"
    try:
        given, words = read_arguments(arguments, settings)
        if given.help:
            folder = Path(given.config_dir) if given.config_dir else None
            overrides = [] if given.multirun else given.overrides
            say(help.text(min(shutil.get_terminal_size().columns, 100), overrides, folder))
            return
        options = words[: len(words) - len(given.overrides)]
        given.overrides, made = plugins.read(given.overrides, CONF)
        sys.argv[1:] = [*options, *given.overrides]
        folders = [Path(folder) for folder in (given.config_path or CONF, given.config_dir) if folder]
        if not given.shell_completion:
            check_overrides(given.overrides, folders, settings, given.multirun, made)
        if given.multirun and distributed.launched() > 1:
            raise ConfigError("torchrun trains one run: leave -m out, or train a sweep's runs one to a process")
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_BAD_CONFIG)
    try:
        with env_override({FULL_ERROR: "1"}):  # Hydra then raises what it would otherwise show itself
            main()
    except Exception as error:
        if debugging:
            raise
        show_error(error, given.overrides)
        if own := [f"{group}=…" for group, found in made.items() if found]:
            print(f"what is wrong with your own: python -m rope_lab.check {' '.join(own)}", file=sys.stderr)
        sys.exit(EXIT_FAILED)


def show_error(error: Exception, overrides: list[str]) -> None:
    """Shows what Hydra raised: a traceback where a run of ours failed, otherwise one line."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code is not job.__code__:
        trace = trace.tb_next
    if type(error) is CompactHydraException:  # by `job`
        print(error, file=sys.stderr)
    elif trace:
        traceback.print_exception(type(error), error, trace)
    else:
        print(told(error, overrides), file=sys.stderr)
