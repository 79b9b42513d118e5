"""Partial key offset (modded-nanogpt, record 49, December 2025)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from rope_lab.exporting.parts.base import Heads, Position, frequencies, rotate


class PartialKeyOffsetPosition(Position):
    """RoPE on the first half of each head's features; the second half of a key is that of the token
    before, of the first token of a document its own.

    The cache holds keys before they are moved.
    """

    def before_cache(
        self, x_BTD: Tensor, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor, pos_BT: Tensor
    ) -> Heads:
        theta_C = frequencies(self.width // 2, self.base, q_BTHK.device)
        return rotate(q_BTHK, pos_BT, theta_C), rotate(k_BTGK, pos_BT, theta_C), v_BTGK

    def after_cache(self, k_BSGX: Tensor, seen_BTS: Tensor) -> tuple[Tensor, None]:
        sees_both_BTS = seen_BTS[:, :, 1:] & seen_BTS[:, :, :-1]  # a key and the one before it
        follows_BS = F.pad(sees_both_BTS.any(1), (1, 0))
        previous_BSGX = torch.cat([k_BSGX[:, :1], k_BSGX[:, :-1]], dim=1)
        moved_BSGX = torch.where(follows_BS[..., None, None], previous_BSGX, k_BSGX)
        half = self.width // 2
        return torch.cat([k_BSGX[..., :half], moved_BSGX[..., half:]], dim=-1), None
