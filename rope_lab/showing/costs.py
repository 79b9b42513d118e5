"""What a scheme costs beside RoPE: parameters, KV cache and step time."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from rope_lab.places import ROOT
from rope_lab.train import config, trainer

SIZE = ("model.d_model=128", "model.n_heads=4", "model.n_layers=3", "device=cpu")
TIMES = ROOT / "results" / "step_times.yaml"


@dataclass(frozen=True)
class Cost:
    """Of a model of SIZE: its parameters, and the numbers that each token adds to the KV cache of a
    layer.
    """

    parameters: int
    cached: float


def cost(cfg: config.Config) -> Cost:
    """The cost of the model of a resolved configuration."""
    model = trainer.build_model(cfg, vocabulary=8)
    bytes_of_64, bytes_of_128 = (slots * model.bytes_of_token(slots) for slots in (64, 128))
    number = model.embedding.weight.element_size()
    cached = round((bytes_of_128 - bytes_of_64) / 64 / number / cfg.model.n_layers, 6)
    return Cost(sum(parameter.numel() for parameter in model.parameters()), cached)


@functools.cache
def usual(name: str) -> Cost:
    """The cost of one of our schemes, at SIZE."""
    return cost(trainer.resolve(config.load(f"position={name}", *SIZE)))


def step_time(name: str) -> str:
    """The measured step time of a scheme over RoPE's, medians by size; empty if there is none."""
    for part, ratios in _measured():
        if name in ratios:
            medians = [float(ratio.split()[0]) for ratio in ratios[name]]
            times = (
                f"{min(medians):g} to {max(medians):g}" if len(medians) > 1 else f"{medians[0]:g}"
            )
            return f"{times} times ({', '.join(part['sizes'])}; {part['where']})"
    return ""


def most_time(name: str) -> float | None:
    """The greatest of those medians."""
    for _, ratios in _measured():
        if name in ratios:
            return max(float(ratio.split()[0]) for ratio in ratios[name])
    return None


def _measured() -> Iterator[tuple[dict[str, Any], dict[str, list[str]]]]:
    for part in yaml.safe_load(TIMES.read_text("utf-8")):
        yield part, part["ratios"]
