"""Attention with the hooks of a position scheme.

Shape letters: B batch, T time (queries), S time (all tokens so far), D model width, H heads,
G heads of keys and values (GQA), K head width, C pairs of a head's features, X stored features.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Heads = tuple[Tensor, Tensor, Tensor]  # queries, keys and values
Store = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def with_float64(device: torch.device) -> torch.device:
    """The device, or the CPU in place of Apple's MPS, which has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def frequencies(width: int, base: float, device: torch.device) -> Tensor:
    """base^(−2j/width) for j = 0 … width/2 − 1, in radians per position: float64 [width/2].

    Raises ValueError for an odd width, which has no pairs.
    """
    if width % 2:
        raise ValueError(f"{width} features are rotated in each head: must be an even number")
    wide = {"dtype": torch.float64, "device": with_float64(device)}
    return base ** -(torch.arange(0, width, 2, **wide) / width)


def angles(pos_BT: Tensor, theta_C: Tensor) -> Tensor:
    """pos · θ in radians: float64 [B, T, 1, C]; float32 is too narrow at far positions."""
    return (pos_BT.to(theta_C).unsqueeze(-1) * theta_C).unsqueeze(-2)


def rotate(x_BTHK: Tensor, pos_BT: Tensor, theta_C: Tensor) -> Tensor:
    """Pairs (j, j + C) of the first 2C features, rotated by pos · θ (rotate-half, as in Llama)."""
    C = len(theta_C)
    angle = angles(pos_BT, theta_C)
    cos, sin = angle.cos().to(x_BTHK), angle.sin().to(x_BTHK)
    a, b, rest = x_BTHK.split([C, C, x_BTHK.shape[-1] - 2 * C], dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1)


class Position(nn.Module):
    """No position: hooks that change nothing.

    d_model, n_heads, kv_heads, width: D, H, G and K
    base: of rotations
    """

    def __init__(self, d_model: int, n_heads: int, kv_heads: int, width: int, base: float):
        super().__init__()
        self.kv_heads, self.width, self.base = kv_heads, width, base

    def reset(self) -> None:
        """Give parameters of its own their initial values."""

    def before_cache(
        self, x_BTD: Tensor, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor, pos_BT: Tensor
    ) -> Heads:
        """Queries, and what the cache stores as keys and values; x: the layer's input."""
        return q_BTHK, k_BTGK, v_BTGK

    def after_cache(self, k_BSGX: Tensor, seen_BTS: Tensor) -> tuple[Tensor, Tensor | None]:
        """All keys so far, and a bias added to scores, broadcastable to [B, H, T, S], or None.

        seen: whether a query may look at a key; padding looks at none
        """
        return k_BSGX, None

    def output(self, o_BTHK: Tensor, pos_BT: Tensor) -> Tensor:
        """The weighted sums of values."""
        return o_BTHK


def attend(
    position: Position,
    x_BTD: Tensor,
    heads: Heads,
    pos_BT: Tensor,
    seen_BTS: Tensor,
    store: Store,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention with a position scheme, [B, T, H, K].

    heads: queries [B, T, H, K], keys and values [B, T, G, K]
    store: adds new keys and values to a cache, and returns all so far
    """
    q_BTHX, k_BTGX, v_BTGK = position.before_cache(x_BTD, *heads, pos_BT)
    k_BSGX, v_BSGK = store(k_BTGX, v_BTGK)
    empty = k_BSGX.shape[1] - seen_BTS.shape[-1]  # slots of a static cache
    k_BSGX, bias = position.after_cache(k_BSGX, F.pad(seen_BTS, (0, empty)))
    seen_BTS = seen_BTS | ~seen_BTS.any(-1, keepdim=True)  # padding sees something, or it is nan
    mask = F.pad(seen_BTS, (0, empty)).unsqueeze(1)
    if bias is not None:
        mask = bias.masked_fill(~mask, -torch.inf)
        mask = (mask - mask.amax(-1, keepdim=True)).to(q_BTHX.dtype)
    groups = q_BTHX.shape[2] // k_BSGX.shape[2]
    k_BHSX = k_BSGX.transpose(1, 2).repeat_interleave(groups, dim=1)
    v_BHSK = v_BSGK.transpose(1, 2).repeat_interleave(groups, dim=1)
    o_BHTK = F.scaled_dot_product_attention(
        q_BTHX.transpose(1, 2),
        k_BHSX,
        v_BHSK,
        attn_mask=mask,
        dropout_p=dropout,
        scale=position.width**-0.5,
    )
    return position.output(o_BHTK.transpose(1, 2), pos_BT)
