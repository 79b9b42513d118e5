"""Our interface in Python, for a notebook or another program: `rope_lab.fit`, `rope_lab.scheme`.

The process belongs to that program: whatever a run sets in it is restored.
"""

import functools
import json
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import PositiveInt

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.transformer import Transformer
from rope_lab.tasks.task import Task
from rope_lab.text import ConfigError, Record, Settings, flat
from rope_lab.train import config, plugin, torch_state
from rope_lab.train.distributed import launched
from rope_lab.train.evaluate import as_evaluated
from rope_lab.train.generate import chooser, complete
from rope_lab.train.instantiate import check_type
from rope_lab.train.load import load_run
from rope_lab.train.loop import train
from rope_lab.train.overrides import typed
from rope_lab.train.run_folder import out_folder
from rope_lab.train.stop import Stop
from rope_lab.train.trainer import resolve

_one_at_a_time = threading.RLock()
_processes: set[int] = set()  # that have called `fit`: this one, or one that it was forked from


@dataclass(frozen=True, repr=False)
class Trained:
    """A run that has ended: the folder of its records, the content of its run.json, and its
    settings.
    """

    folder: Path
    record: Record
    config: config.Config

    def __repr__(self) -> str:
        return f"<{self.folder.name}: {self.record['status']}>"

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric."""
        return self.record["metrics"]

    @property
    def accuracy(self) -> float | None:
        """The share of held-out problems that are right, 0 to 1; None if the task grades nothing,
        as text.
        """
        return self.metrics.get("eval/accuracy")

    @property
    def curve(self) -> pd.DataFrame:
        """Every metric by step, a column each; NaN if a metric was not recorded at a step."""
        lines = (self.folder / "metrics.jsonl").read_text("utf-8").splitlines()
        return pd.DataFrame(map(json.loads, lines)).set_index("step")

    @property
    def model(self) -> Transformer:
        """The trained model, in evaluation mode on the CPU."""
        _, model = self._loaded
        return model

    def sample(
        self, prompt: str, temperature: float | None = None, top_k: int = 40, seed: int = 0
    ) -> str:
        """The model's completion of `prompt`, a text in the task's alphabet.

        temperature: of sampling among `top_k` tokens; None: 0.8 for text, else the likeliest token

        Raises ConfigError if the prompt cannot be encoded or is too long.
        """
        task, model = self._loaded
        choose = chooser(task, temperature, top_k, seed)
        with as_evaluated(model, self.config):
            return complete(self.config, task, model, prompt, choose)

    @functools.cached_property
    def _loaded(self) -> tuple[Task, Transformer]:
        with torch_state.restored():
            _, task, model, _ = load_run(self.folder, self.config.allowed_packages)
        return task, model.eval()


def fit(*overrides: str, **settings: Any) -> Trained:
    """Train a run, or resume or return it, as `rope-lab train` does with these overrides; imports
    your files again.

    overrides: as on the command line, `"position=rope"`
    settings:  the same by name: `position="rope", seed=1, **{"train.lr": 1e-3}`

    Calls in several threads run one after the other. Raises ConfigError if the run cannot be made
    or torchrun has started this process, RuntimeError in a process forked after a call, and
    KeyboardInterrupt at a signal, once the run is saved and your handler has returned; the same
    call then resumes, or starts over if `fresh`.
    """
    if _processes and os.getpid() not in _processes:
        remedy = "start processes by multiprocessing.get_context('spawn'), or use rope-lab sweep"
        raise RuntimeError(f"fit: torch's threads do not survive a fork; {remedy}")
    if launched() > 1:
        raise ConfigError("fit: trains in one process; with torchrun use `-m rope_lab.train`")
    _processes.add(os.getpid())
    stopping = Stop()
    with _one_at_a_time:
        plugin.forget_files()
        cfg = resolve(config.load(*overrides, *_as_overrides(settings)))
        record = train(cfg, stopping)
        folder = out_folder(cfg) / config.identity(cfg).run_name
    if stopping.caught:
        handler = signal.getsignal(stopping.caught)
        if callable(handler):
            handler(stopping.caught, None)
        raise KeyboardInterrupt
    return Trained(folder, record, cfg)


def scheme(
    name: str, d_model: int, n_heads: int, max_len: int = 512, n_layers: int = 1, **settings: Any
) -> PositionScheme:
    """A position scheme as a torch module, for a model of your own; docs/elsewhere.md calls its
    hooks.

    name:     of one of our schemes, or of a file: `./mine.py`
    max_len:  positions to tell apart: tokens of the longest training sequence
    n_layers: for schemes with parameters in each layer
    settings: of the scheme: `base=500_000`

    Raises ConfigError if there is no such scheme or setting, or it does not support these sizes.
    """
    plugin.forget_files()
    sizes = {"d_model": d_model, "n_heads": n_heads, "max_len": max_len, "n_layers": n_layers}
    sizes = {key: check_type(key, size, PositiveInt) for key, size in sizes.items()}
    own = {f"position.{key}": value for key, value in settings.items()}
    own |= {f"model.{key}": sizes[key] for key in ("d_model", "n_heads")}
    cfg = config.load(f"position={name}", *_as_overrides(own))
    return config.build_position(cfg, Dims(**sizes))


def _as_overrides(settings: Settings) -> list[str]:
    """Settings as overrides of a command line. Raises ConfigError if one cannot be typed."""
    overrides = []
    for key, value in flat(settings).items():
        if hasattr(value, "tolist"):  # of numpy or torch
            value = value.tolist()
        if isinstance(value, range):
            value = list(value)
        try:
            overrides.append(f"{key}={typed(value)}")
        except TypeError:
            remedy = "give a name, a number or a list; a scheme or task of yours by its file"
            raise ConfigError(f"{key}={value!r}: cannot be typed; {remedy}, ./mine.py") from None
    return overrides
