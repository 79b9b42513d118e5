"""What a scheme costs beside RoPE: parameters, KV cache and step time."""

import functools
from dataclasses import dataclass

import yaml

from rope_lab.model.transformer import Transformer
from rope_lab.places import ROOT
from rope_lab.text import Record
from rope_lab.train import config, trainer

SIZE = ("model.d_model=128", "model.n_heads=4", "model.n_layers=3", "device=cpu")
LAYERS = 6  # of the model whose cache is filled, enough for all kinds of a layout's layers
TRAINED, READ = 128, 512  # tokens of a text in training, and in that cache
TIMES = ROOT / "results" / "step_times.yaml"


@dataclass(frozen=True)
class Cost:
    """Of a model of SIZE: its parameters, the numbers that each token adds to the KV cache of a
    layer, and whether some of its values are its keys.
    """

    parameters: int
    cached: float
    shares_values: bool = False


def cost(cfg: config.Config) -> Cost:
    """The cost of the model of a resolved configuration."""
    model = trainer.build_model(cfg, vocabulary=8)
    bytes_of_64, bytes_of_128 = (slots * model.bytes_of_token(slots) for slots in (64, 128))
    number = model.embedding.weight.element_size()
    cached = round((bytes_of_128 - bytes_of_64) / 64 / number / cfg.model.n_layers, 6)
    layers = map(model.position.in_layer, range(cfg.model.n_layers))
    shares_values = not all(layer.projects_values for layer in layers)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(parameters, cached, shares_values)


@functools.cache
def usual(name: str) -> Cost:
    """The cost of one of our schemes, at SIZE."""
    return cost(trainer.resolve(config.load(f"position={name}", *SIZE)))


def cached_numbers(scheme: str, *settings: str) -> float:
    """The numbers that a KV cache has to hold after READ tokens, if training has TRAINED.

    scheme: a name of ours or a file; settings: `position.q=0`
    """
    return _long_model(scheme, *settings).numbers_needed(READ)


def windowed(scheme: str, baseline: str) -> float | None:
    """Those numbers relative to the baseline's; None for a scheme none of whose layers has a
    window.
    """
    model = _long_model(scheme)
    if not any(model.position.in_layer(number).window for number in range(LAYERS)):
        return None
    return model.numbers_needed(READ) / cached_numbers(baseline)


def _long_model(scheme: str, *settings: str) -> Transformer:
    size = [*SIZE, f"model.n_layers={LAYERS}", f"train.seq_len={TRAINED}"]
    cfg = trainer.resolve(config.load(f"position={scheme}", *settings, *size))
    return trainer.build_model(cfg, vocabulary=8)


def step_time(name: str) -> str:
    """The measured step time of a scheme over RoPE's, medians by size; empty if there is none."""
    found = _measured(name)
    if found is None:
        return ""
    part, medians = found
    times = f"{min(medians):g}"
    if len(medians) > 1:
        times += f" to {max(medians):g}"
    return f"{times} times ({', '.join(part['sizes'])}; {part['where']})"


def most_time(name: str) -> float | None:
    """The greatest of those medians."""
    found = _measured(name)
    return max(found[1]) if found else None


def _measured(name: str) -> tuple[Record, list[float]] | None:
    """The part of TIMES that has a scheme, and its median at each size; None if it was not
    measured.
    """
    for part in yaml.safe_load(TIMES.read_text("utf-8")):
        if name in part["ratios"]:
            return part, [ratio[0] for ratio in part["ratios"][name]]
    return None
