"""A portrait of a position scheme, from its own hooks before training: scores by distance, the
rotation of values, and the keys that one token reaches.

All tokens are alike but for the layer's input that content hooks read, which is random and fixed.
Shape letters: B batch, T time, D model width, H heads, K head width.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rope_lab.model.attention import unpacked
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.probes import attention_weights

DIMS = Dims(d_model=256, n_heads=4, max_len=128, n_layers=6)
FAR = 1e-30  # smaller weights are not shown: their logarithms are not exact
SAME = 1e-6  # curves closer than this are one
CURVES = 8  # the most curves of a picture
PLACE = 20  # tokens from the query back to the token whose reach is shown
DIGITS = 4  # decimals of a plotted number
Curves = dict[str, list[float | None]]  # by label: a number for each distance, 0 first


@dataclass(frozen=True)
class Portrait:
    """What a scheme does to the last of DIMS.max_len tokens, before training.

    scores: ln of the attention weight at each distance over that at distance 0
    values: of some features that are rotated in values or output: the cosine between the value and
            its part in the output; empty if none is
    reach:  change of scores if only the token at distance PLACE is like the query; empty if that
            changes no other token's score
    content: whether the scheme reads the layer's input
    """

    scores: Curves
    values: Curves
    reach: Curves
    content: bool


@contextlib.contextmanager
def same_values() -> Iterator[None]:
    """Within it a scheme that is built has the same initial values each time; the caller's random
    state stays.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@torch.no_grad()
def portrait(scheme: PositionScheme, dims: Dims = DIMS) -> Portrait:
    """The portrait of a scheme, which is changed: it becomes float64 on the CPU, with tables that
    begin at zero filled at random.
    """
    fill(scheme.double())
    T, H, K = dims.max_len, dims.n_heads, dims.d_head
    scheme.draw(0, T)
    random = torch.Generator().manual_seed(0)
    x_BTD = torch.randn(1, T, dims.d_model, generator=random, dtype=torch.float64)
    prepared = scheme.prepare(torch.arange(T), torch.float64)
    bias = scheme.bias(prepared, prepared)
    at = scheme.with_keys(prepared, torch.arange(1, T + 1))
    alike_BTD = torch.ones(1, T, dims.d_model, dtype=torch.float64)
    alike_BTHK = scheme.embed(alike_BTD, at).unflatten(-1, (H, K))
    shown: list[tuple[str, int, Tensor]] = []
    values: Curves = {}
    reach: Curves = {}
    content = False
    for title, number in layers_of(scheme, dims.n_layers):
        layer = scheme.in_layer(number)
        own_number, own_at, own_bias = scheme.for_layer(number, at, bias)
        content = content or reads(layer, x_BTD, own_at, own_number)
        own_at, more = layer.read(x_BTD, own_at, own_number, None)
        if more is not None:
            own_bias = more if own_bias is None else own_bias + more
        hooks = Hooks(layer, own_at, own_bias)
        for head, curve_T in enumerate(hooks.scores(alike_BTHK), start=1):
            shown.append((title, head, curve_T))
        values = values or hooks.rotation(alike_BTHK)
        reach = reach or hooks.reach(alike_BTHK)
    return Portrait(merged(shown), values, reach, content)


def fill(scheme: nn.Module) -> None:
    """Give matrices and tables that begin at zero random numbers, or they would do nothing."""
    random = torch.Generator().manual_seed(1)
    for parameter in scheme.parameters():
        if parameter.dim() > 1 and not parameter.any():
            parameter.copy_(
                0.5 * torch.randn(parameter.shape, generator=random, dtype=torch.float64)
            )


def layers_of(scheme: PositionScheme, n_layers: int) -> Iterator[tuple[str, int]]:
    """One layer of each kind: its title, empty if all layers are alike, and its number. Of alike
    ones the last, since content may come late.
    """
    by_scheme: dict[int, list[int]] = {}
    for number in range(n_layers):
        by_scheme.setdefault(id(scheme.in_layer(number)), []).append(number)
    for numbers in by_scheme.values():
        ordinals = ", ".join(str(number + 1) for number in numbers)
        word = "layer" if len(numbers) == 1 else "layers"
        yield f"{word} {ordinals}" if len(by_scheme) > 1 else "", numbers[-1]


def reads(layer: PositionScheme, x_BTD: Tensor, at: Any, number: int) -> bool:
    """Whether `read` returns other numbers for another input."""
    results = (layer.read(x, at, number, None) for x in (x_BTD, x_BTD.flip(1)))
    both = zip(*map(tree_leaves, results), strict=True)
    return any(isinstance(one, Tensor) and not one.equal(other) for one, other in both)


@dataclass(frozen=True)
class Hooks:
    """The hooks of a scheme in one layer, given `at` and the bias."""

    layer: PositionScheme
    at: Any
    bias: Tensor | None

    def heads(self, q_BTHK: Tensor, k_BTHK: Tensor, v_BTHK: Tensor) -> tuple[Tensor, ...]:
        parts = [q_BTHK, k_BTHK, v_BTHK] if self.layer.projects_values else [q_BTHK, k_BTHK]
        return unpacked(self.layer.heads(torch.stack(parts, dim=2), self.at))

    def log_weights(self, q_BTHK: Tensor, k_BTHK: Tensor) -> Tensor:
        """Of the last query, ln of each weight over that of its own token, by head and distance,
        [H, T]; nan if it is too small.
        """
        heads = self.heads(q_BTHK, k_BTHK, k_BTHK)
        weights_HT = attention_weights(self.layer, heads, self.at, self.bias)[0, :, -1].flip(-1)
        weights_HT = weights_HT.double()
        return (weights_HT / weights_HT[:, :1]).where(weights_HT > FAR, torch.nan).log()

    def scores(self, alike_BTHK: Tensor) -> Tensor:
        return self.log_weights(alike_BTHK, alike_BTHK)

    def rotation(self, alike_BTHK: Tensor) -> Curves:
        """For three rotated features of the first head, the cosine between a value and its part in
        the output of the last token, by distance.
        """
        T, K = alike_BTHK.shape[1], alike_BTHK.shape[-1]
        middle = torch.full((K,), T // 2)
        unlike_K = (self.part(torch.arange(K), middle, alike_BTHK) - 1).abs() > SAME
        rotated = unlike_K.nonzero().flatten().tolist()
        curves: Curves = {}
        if not rotated:
            return curves
        for share in (1 / 8, 1 / 4, 1 / 2):
            feature = rotated[int(share * len(rotated))]
            sources = torch.arange(T - 1, -1, -1)
            cosine_T = self.part(torch.full((T,), feature), sources, alike_BTHK)
            curves[f"feature {feature + 1}"] = short(cosine_T)
        return curves

    def part(self, feature_B: Tensor, source_B: Tensor, alike_BTHK: Tensor) -> Tensor:
        """The cosine, [B], between one feature of the value at a token and that value in the output
        of the last token.
        """
        B, T, H, K = len(feature_B), *alike_BTHK.shape[1:]
        value_BK = torch.eye(K, dtype=torch.float64)[feature_B]
        every_BTHK = value_BK[:, None, None].expand(B, T, H, K)
        _, _, v_BTHK = self.heads(every_BTHK, every_BTHK, every_BTHK)
        v_BHK = v_BTHK.expand(B, -1, -1, -1)[torch.arange(B), source_B]
        output_BTHK = self.layer.output(v_BHK[:, None].expand(B, T, -1, -1), self.at)
        last_BK = output_BTHK[:, -1, 0]
        return torch.cosine_similarity(last_BK, value_BK, dim=-1)

    def reach(self, alike_BTHK: Tensor) -> Curves:
        """The change of the first head's scores if the token at distance PLACE is like the query,
        and others are zero; empty if no other score changes.
        """
        zero_BTHK = torch.zeros_like(alike_BTHK)
        one_BTHK = zero_BTHK.clone()
        one_BTHK[:, -1 - PLACE] = alike_BTHK[:, -1 - PLACE]
        before_T, after_T = (self.log_weights(alike_BTHK, k)[0] for k in (zero_BTHK, one_BTHK))
        change_T = after_T - before_T
        others_T = torch.cat([change_T[:PLACE], change_T[PLACE + 1 :]]).nan_to_num()
        if (others_T.abs() < SAME).all():
            return {}
        return {"change of the score": short(change_T[: 2 * PLACE + 1])}


def merged(shown: list[tuple[str, int, Tensor]]) -> Curves:
    """Curves by label; heads with the same one share it."""
    groups: list[tuple[str, list[int], Tensor]] = []
    for title, head, curve_T in shown:
        for other, heads, theirs_T in groups:
            if title == other and torch.allclose(curve_T, theirs_T, atol=SAME, equal_nan=True):
                heads.append(head)
                break
        else:
            groups.append((title, [head], curve_T))
    titles = [title for title, _, _ in groups]
    curves: Curves = {}
    for title, heads, curve_T in groups[:CURVES]:
        listed = ", ".join(map(str, heads))
        label = f"head {listed}" if len(heads) == 1 else f"heads {listed}"
        if titles.count(title) == 1:
            label = title or "every head"
        elif title:
            label = f"{title}: {label}"
        curves[label] = short(curve_T)
    return curves


def short(curve_T: Tensor) -> list[float | None]:
    """Rounded numbers; nan and infinite ones as None."""
    rounded = [round(value, DIGITS) + 0.0 for value in curve_T.tolist()]
    return [value if abs(value) < torch.inf else None for value in rounded]
