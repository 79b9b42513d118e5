"""RoPE (Su et al., 2021)."""

from torch import Tensor

from rope_lab.exporting.parts.base import Heads, Position, frequencies, rotate


class RoPEPosition(Position):
    """Queries and keys are rotated by angles proportional to their positions."""

    def before_cache(
        self, x_BTD: Tensor, q_BTHK: Tensor, k_BTGK: Tensor, v_BTGK: Tensor, pos_BT: Tensor
    ) -> Heads:
        theta_C = frequencies(self.width, self.base, q_BTHK.device)
        return rotate(q_BTHK, pos_BT, theta_C), rotate(k_BTGK, pos_BT, theta_C), v_BTGK
