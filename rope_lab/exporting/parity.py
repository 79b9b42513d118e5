"""The numbers to which the test beside an exported file compares it: from the scheme in rope_lab.

Shape letters: B batch, T time, D model width, H heads, K head width.
"""

import importlib

import torch
from torch import Tensor, nn

from rope_lab.exporting.parts.to_torch import PositionAttention
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.text import Record
from rope_lab.train import config, instantiate

D, H, T = 32, 4, 10
SHOWN = 8  # features of the last token


def filled(module: nn.Module) -> nn.Module:
    """The module in float64 with fixed parameters; the tests of exported files do the same."""
    module = module.double()
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            wave = torch.arange(parameter.numel(), dtype=torch.float64) * (0.7 + 0.1 * number)
            parameter.copy_(0.5 * torch.sin(wave + number).view_as(parameter))
    return module


def inputs() -> Tensor:
    """Fixed inputs of a layer, [2, T, D]."""
    wave = torch.arange(2 * T * D, dtype=torch.float64) * 0.37
    return torch.sin(wave).view(2, T, D) + torch.cos(wave * wave / 50).view(2, T, D)


@torch.no_grad()
def outputs(name: str, short: str) -> list[list[float]]:
    """The first SHOWN features of the last token's output, by the scheme in rope_lab, [2, SHOWN].

    short: the beginning of the name of the exported class
    """
    module = importlib.import_module(f"rope_lab.exporting.parts.{name}")

    class Exported(PositionAttention):
        position_class = getattr(module, f"{short}Position")

    layer = filled(Exported(D, H))
    scheme = rotate_half(name)
    for ours, theirs in zip(scheme.parameters(), layer.position.parameters(), strict=True):
        ours.copy_(theirs)
    x_BTD = inputs()
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    heads = [project(x_BTD).unflatten(-1, (H, D // H)) for project in projections]
    pos = torch.arange(T)
    at = scheme.prepare(pos, x_BTD.dtype)
    bias = scheme.bias(at, at)
    at, more = scheme.read(x_BTD, at, 0, None)
    if more is not None:
        bias = more if bias is None else bias + more
    packed = scheme.heads(torch.stack(heads, dim=2), at)
    o_BTHK = scheme.output(scheme.attention(packed, at, bias, None), at)
    return layer.o_proj(o_BTHK.flatten(2))[:, -1, :SHOWN].round(decimals=8).tolist()


def rotate_half(name: str) -> PositionScheme:
    """A scheme of ours whose pairs are those of Llama, in float64."""
    cfg = config.load(f"position={name}", f"model.d_model={D}", f"model.n_heads={H}")
    node = with_halves(cfg.position)
    return instantiate.build(node, Dims(D, H, T)).double()


def with_halves(node: Record) -> Record:
    """The settings of a scheme, and of schemes within it, in the layout of Llama."""
    changed = {}
    for key, value in node.items():
        if isinstance(value, dict):
            changed[key] = with_halves(value)
        else:
            changed[key] = "halves" if key == "pairs" else value
    return changed
