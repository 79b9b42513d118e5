"""The sizes of a ladder: models, their training, and the learning rates of the larger ones."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rope_lab.text import ConfigError
from rope_lab.train.config import Config

SIZES = "64x4,96x5,160x6,256x8"  # 0.2M, 0.6M, 1.8M and 6.3M parameters
SIZE = re.compile(r"(\d{1,5})x(\d{1,3})")
SEARCHED = 2  # sizes at which rates are searched: the smallest ones
LEAST_GROWTH = 1.5  # of parameters between them, over which a law is taken from their rates
STEEPEST = -0.5  # least exponent of a rate in N
MOST_TOKENS = 100_000  # per parameter
EVALUATIONS = 20  # along the training of each size


@dataclass(frozen=True)
class ModelSize:
    """A model, d_model x n_layers, and its training.

    parameters: in the matrices of the layers
    """

    d_model: int
    n_layers: int
    n_heads: int
    steps: int
    warmup: int

    @property
    def name(self) -> str:
        return f"{self.d_model}x{self.n_layers}"

    @property
    def parameters(self) -> int:
        return parameters(self.d_model, self.n_layers)

    @property
    def words(self) -> list[str]:
        """Its settings, as overrides."""
        return [
            f"model.d_model={self.d_model}",
            f"model.n_layers={self.n_layers}",
            f"model.n_heads={self.n_heads}",
            f"train.steps={self.steps}",
            f"train.warmup={self.warmup}",
            f"eval.every={max(1, self.steps // EVALUATIONS)}",
        ]


def parameters(d_model: int, n_layers: int) -> int:
    """N: the numbers in the matrices of attention (4 d²) and feed-forward networks (8 d²)."""
    return 12 * n_layers * d_model**2


def default(width: int) -> str:
    """SIZES with each d_model rounded up to a multiple of the width of a head."""
    found = []
    for d_model, n_layers in SIZE.findall(SIZES):
        found.append(f"{math.ceil(int(d_model) / width) * width}x{n_layers}")
    return ",".join(found)


def sizes(text: str, usual: Config, tokens_per_parameter: float | None) -> list[ModelSize]:
    """The sizes of `64x4,128x4`, from the smallest, with heads as wide as usual; of no text, those
    of `default`.

    usual: the recipe; tokens_per_parameter: of training; None: as many as in the recipe

    Raises ConfigError.
    """
    model, train = usual.model, usual.train
    per_step = train.batch_size * train.seq_len
    ratio = tokens_per_parameter
    if ratio is not None and not 0 < ratio <= MOST_TOKENS:
        most = f"must be above 0 and at most {MOST_TOKENS:,}"
        raise ConfigError(f"--tokens-per-parameter {ratio:g}: {most}")
    if ratio is None:
        ratio = train.steps * per_step / parameters(model.d_model, model.n_layers)
    width = model.d_model // model.n_heads
    found = []
    text = text or default(width)
    for word in dict.fromkeys(text.split(",")):
        match = SIZE.fullmatch(word.strip())
        if match is None or int(match[1]) % width or not int(match[1]) * int(match[2]):
            heads = f"d_model x n_layers, d_model a multiple of {width}, the width of a head"
            raise ConfigError(f"--sizes {text}: must be {heads}")
        d_model, n_layers = int(match[1]), int(match[2])
        steps = max(1, round(ratio * parameters(d_model, n_layers) / per_step))
        warmup = round(steps * train.warmup / max(train.steps, 1))
        found.append(ModelSize(d_model, n_layers, d_model // width, steps, warmup))
    found.sort(key=lambda size: size.parameters)
    if len({size.parameters for size in found}) <= SEARCHED:
        raise ConfigError(f"--sizes {text}: must be at least {SEARCHED + 1} sizes")
    if found[1].parameters < LEAST_GROWTH * found[0].parameters:
        alike = f"the two smallest must differ {LEAST_GROWTH:g} times in parameters"
        raise ConfigError(f"--sizes {text}: {alike}: their rates are carried on to the others")
    return found


def carried(best: Sequence[float], every: Sequence[ModelSize]) -> list[float]:
    """The learning rate of a scheme at each size. At the two smallest it is the best one found.

    Beyond it is r₂ (N/N₂)^p, with the p that connects these two, but no rise and no fall faster
    than the square root: −½ ≤ p ≤ 0.
    """
    first, second = best
    small = every[:SEARCHED]
    growth = math.log(small[1].parameters / small[0].parameters)
    exponent = math.log(second / first) / growth if growth else 0.0
    exponent = min(max(exponent, STEEPEST), 0.0)
    rates = [first, second]
    for size in every[SEARCHED:]:
        ratio = size.parameters / small[1].parameters
        rates.append(float(f"{second * ratio**exponent:.6g}"))
    return rates
