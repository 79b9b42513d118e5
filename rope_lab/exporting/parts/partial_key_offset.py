"""Partial key offset (modded-nanogpt, record 49, December 2025)."""

import torch
from torch import Tensor

from rope_lab.exporting.parts.base import Heads, Position, frequencies, rotate


class PartialKeyOffsetPosition(Position):
    """RoPE on the first half of each head's features; the second half of a key is that of the token
    before, of the first token its own.

    The cache holds keys before they are moved.
    """

    def before_cache(
        self, x_BTD: Tensor, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor, pos_BT: Tensor
    ) -> Heads:
        theta_C = frequencies(self.width // 2, self.base, q_BTHK.device)
        return rotate(q_BTHK, pos_BT, theta_C), rotate(k_BTGK, pos_BT, theta_C), v_BTGK

    def after_cache(self, k_BSGX: Tensor, seen_BTS: Tensor) -> tuple[Tensor, None]:
        real_BS = seen_BTS[:, -1]  # the last query sees all but padding
        before_BS = torch.cat([torch.zeros_like(real_BS[:, :1]), real_BS[:, :-1]], dim=1)
        is_first = (real_BS & ~before_BS)[..., None, None]
        previous_BSGX = torch.cat([k_BSGX[:, :1], k_BSGX[:, :-1]], dim=1)
        moved_BSGX = torch.where(is_first, k_BSGX, previous_BSGX)
        half = self.width // 2
        return torch.cat([k_BSGX[..., :half], moved_BSGX[..., half:]], dim=-1), None
