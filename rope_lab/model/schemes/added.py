"""Added to the embeddings: sinusoidal and learned position vectors.

Shape letters: B batch, T time, D model width.
"""

import torch
from torch import Tensor, nn

from rope_lab.model.axes import whole
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.rotation import angles, frequencies, wide
from rope_lab.text import ConfigError


class Sinusoidal(PositionScheme):
    """Adds sines and cosines of the position to the embeddings (Vaswani et al., 2017, section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(pos / 10000^(2i/d))
    """

    def __init__(self, dims: Dims, base: float = 10_000.0):
        super().__init__(dims)
        if dims.d_model % 2:
            raise ConfigError(
                f"model.d_model={dims.d_model}: sinusoidal encodings need an even width"
            )
        self.theta_C = frequencies(dims.d_model, base)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        angle = angles(pos, self.theta_C)
        return (
            torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(pos.device, wide(dtype))
        )

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return (x_BTD + at).to(x_BTD.dtype)


class SinusoidalProduct(Sinusoidal):
    """Multiplies the embeddings by the encodings, as some descriptions of RoPE have it, though that
    rotates nothing.
    """

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return (x_BTD * at).to(x_BTD.dtype)


class Learned(PositionScheme):
    """Adds a learned vector for each position up to the training length (Gehring et al., 2017;
    GPT).
    """

    decays = True  # as in GPT

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.table = nn.Embedding(dims.max_len, dims.d_model)
        self.max_len = dims.max_len

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        return whole(pos, self, None if pos.dim() == 1 else self.max_len)

    def embed(self, x_BTD: Tensor, at: Tensor) -> Tensor:
        return x_BTD + self.table(at)
