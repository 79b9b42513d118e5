"""RoPER (Harik and Jayasiri, 2022)."""

from torch import Tensor

from rope_lab.exporting.parts.base import Heads, Position, frequencies, rotate


class RoPERPosition(Position):
    """RoPE; values are rotated too, and the output is rotated back."""

    def before_cache(
        self, x_BTD: Tensor, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor, pos_BT: Tensor
    ) -> Heads:
        theta_C = frequencies(self.width, self.base, q_BTHK.device)
        q, k, v = (rotate(each, pos_BT, theta_C) for each in (q_BTHK, k_BTGK, v_BTGK))
        return q, k, v

    def output(self, o_BTHK: Tensor, pos_BT: Tensor) -> Tensor:
        return rotate(o_BTHK, -pos_BT, frequencies(self.width, self.base, o_BTHK.device))
