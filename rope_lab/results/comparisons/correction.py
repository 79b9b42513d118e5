"""The correction of p values for their number, which answers.answer applies to a family."""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for their number (Holm, 1979); nan stays nan and does not count."""
    p = pd.Series(p_values, dtype=float)
    ordered = p.dropna().sort_values()
    factors = np.arange(len(ordered), 0, -1)
    return (ordered * factors).clip(upper=1).cummax().reindex(p.index).to_list()
