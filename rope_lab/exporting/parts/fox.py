"""FoX, the Forgetting Transformer (Lin et al., 2025)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.exporting.parts.base import Heads, Position


class FoXPosition(Position):
    """The score of a key falls by Σ ln σ(w xₗ + b) over the tokens l after it, up to the query.

    A key in the cache has its token's ln σ behind it: twice H/G numbers more, the second half what
    a narrow number format rounded off the first.
    """

    def __init__(self, d_model: int, n_heads: int, kv_heads: int, width: int, base: float):
        super().__init__(d_model, n_heads, kv_heads, width, base)
        self.gate = nn.Linear(d_model, n_heads)
        nn.init.zeros_(self.gate.bias)

    def before_cache(
        self, x_BTD: Tensor, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor, pos_BT: Tensor
    ) -> Heads:
        logit_BTH = self.gate(x_BTD)
        wide = torch.promote_types(logit_BTH.dtype, torch.float32)
        log_f_BTGN = F.logsigmoid(logit_BTH.to(wide)).unflatten(-1, (self.kv_heads, -1))
        narrow_BTGN = log_f_BTGN.to(k_BTGK.dtype)
        rest_BTGN = (log_f_BTGN - narrow_BTGN).to(k_BTGK.dtype)
        return q_BTHK, torch.cat([k_BTGK, narrow_BTGN, rest_BTGN], dim=-1), v_BTGK

    def after_cache(self, k_BSGX: Tensor, seen_BTS: Tensor) -> tuple[Tensor, Tensor]:
        k_BSGK, log_f_BSGN = k_BSGX.tensor_split([self.width], dim=-1)
        wide = torch.promote_types(k_BSGX.dtype, torch.float32)
        log_f_BSH = log_f_BSGN.to(wide).unflatten(-1, (2, -1)).sum(-2).flatten(2)
        return k_BSGK, -log_f_BSH.cumsum(1).mT.unsqueeze(2)
