"""Training from Python, in a notebook or a program: `rope_lab.fit("task=…", "position=…")`."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rope_lab.model.transformer import Transformer
from rope_lab.train import config, plugin
from rope_lab.train.load import load_run
from rope_lab.train.loop import train
from rope_lab.train.run import out_folder
from rope_lab.train.stop import Stop
from rope_lab.train.trainer import resolve


@dataclass(frozen=True)
class Trained:
    """A run that has ended: the folder of its records, the content of its run.json, and its
    settings.
    """

    folder: Path
    record: dict[str, Any]
    config: config.Config

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

    @functools.cached_property
    def model(self) -> Transformer:
        """The trained model, in evaluation mode on the CPU."""
        _, _, model, _ = load_run(self.folder, self.config.allowed_packages)
        return model.eval()


def fit(*overrides: str) -> Trained:
    """Train a run, or resume or return it, as the command line with these overrides does; imports
    your files again.

    Raises ConfigError if they cannot be run, and KeyboardInterrupt at a signal; the same call then
    resumes.
    """
    plugin.forget_files()
    cfg, stopping = config.load(*overrides), Stop()
    record = train(cfg, stopping)
    if stopping.caught:
        raise KeyboardInterrupt
    return Trained(out_folder(cfg) / config.identity(resolve(cfg)).run_name, record, cfg)
