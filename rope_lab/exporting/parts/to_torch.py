"""A layer of attention for a model of your own."""

import torch
from torch import Tensor, nn

from rope_lab.exporting.parts.base import Position, attend


class PositionAttention(nn.Module):
    """Causal multi-head attention with a position scheme, x [B, T, D] → [B, T, D].

    kv_heads: heads of keys and values (GQA); None: n_heads
    """

    position_class = Position

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        kv_heads: int | None = None,
        base: float = 10_000.0,
        bias: bool = False,
    ):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model}: must be divisible by n_heads={n_heads}")
        self.width = d_model // n_heads
        kv_heads = kv_heads or n_heads
        self.q_proj = nn.Linear(d_model, n_heads * self.width, bias=bias)
        self.k_proj = nn.Linear(d_model, kv_heads * self.width, bias=bias)
        self.v_proj = nn.Linear(d_model, kv_heads * self.width, bias=bias)
        self.o_proj = nn.Linear(n_heads * self.width, d_model, bias=bias)
        self.position = self.position_class(d_model, n_heads, kv_heads, self.width, base)

    def forward(
        self,
        x_BTD: Tensor,
        cache: dict[str, Tensor] | None = None,
        real_BS: Tensor | None = None,
    ) -> Tensor:
        """
        cache: of this layer, an empty dict before the first token; the new tokens join it
        real:  False where a token is padding, of all tokens so far; None: there is none
        """
        begin = cache["k"].shape[1] if cache else 0
        end = begin + x_BTD.shape[1]
        pos_BT = torch.arange(begin, end, device=x_BTD.device).unsqueeze(0)
        seen_BTS = pos_BT.unsqueeze(-1) >= torch.arange(end, device=x_BTD.device)
        if real_BS is not None:
            if real_BS.shape[-1] != end:
                given = f"real has {real_BS.shape[-1]} tokens"
                raise ValueError(f"{given}: must have all {end} so far, those in the cache too")
            seen_BTS = seen_BTS & real_BS.unsqueeze(1)

        def store(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            if cache is None:
                return k, v
            for name, new in (("k", k), ("v", v)):
                cache[name] = torch.cat([cache[name], new], dim=1) if name in cache else new
            return cache["k"], cache["v"]

        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (project(x_BTD).unflatten(-1, (-1, self.width)) for project in projections)
        o_BTHK = attend(self.position, x_BTD, (q, k, v), pos_BT, seen_BTS, store)
        return self.o_proj(o_BTHK.flatten(2))
