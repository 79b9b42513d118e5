"""The tests of paired values. A new one is a function and a line of TESTS.

Each function takes the values of ours and theirs, `[pairs]`, seed by seed, and returns a two-sided
p value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rope_lab.results.records.measures import At

EXACT_PAIRS = 32  # up to so many, all choices of signs are counted
SAME = 1e-13  # sums of differences closer than this share of the sum of absolute values are equal
# Kept records have six digits: differences closer than this share of the values are alike.
ROUNDED = 4e-6


def paired_t_p(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The two-sided p value of the paired t test: `ours[i]` and `theirs[i]` are of the same seed.

    nan of one pair, or if all differences are alike but not 0.
    """
    differences = ours - theirs
    if len(differences) < 2:
        return np.nan
    if np.ptp(differences) > ROUNDED * np.abs([ours, theirs]).max():
        return float(stats.ttest_1samp(differences, 0.0).pvalue)
    return np.nan if differences.any() else 1.0


def sign_flip_p(
    differences: Sequence[float] | np.ndarray, exact: int = EXACT_PAIRS, samples: int = 2**17
) -> float:
    """The two-sided p value of the permutation test that flips the sign of each difference, by
    their mean.

    Exact, over all 2ⁿ choices of signs, up to `exact` pairs. Beyond, over `samples` random ones,
    and never 0 (Phipson and Smyth, 2010).
    """
    differences = np.asarray(differences, dtype=float)
    if len(differences) <= exact:
        return _exact_sign_flip_p(differences)
    test = stats.permutation_test(
        (differences,),
        lambda x, axis: abs(x.sum(axis)),
        permutation_type="samples",
        n_resamples=samples,
        batch=2**12,
        alternative="greater",
        random_state=0,
    )
    return float(test.pvalue)


def _exact_sign_flip_p(differences: np.ndarray) -> float:
    """The share of the 2ⁿ choices of signs whose sum is at least as far from 0 as the sum found.

    The choices for the two halves of the pairs meet, so that 2^(n/2) sums suffice (Horowitz and
    Sahni, 1974).
    """
    half = len(differences) // 2
    # Sums that differ by rounding are equally far from 0.
    far = abs(differences.sum()) - SAME * np.abs(differences).sum()
    first = _signed_sums(differences[:half])
    second = np.sort(_signed_sums(differences[half:]))
    low = np.searchsorted(second, np.sort(-far - first), side="right").sum()
    every = len(first) * len(second)
    return float(min(1.0, 2 * low / every))  # as many are as high: all signs exchanged


def _signed_sums(values: np.ndarray) -> np.ndarray:
    """Σᵢ ±vᵢ of all 2ⁿ choices of signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def t_or_sign_flip_p(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Of the t test or, if differences have no spread to go by, of the sign-flip test."""
    p = paired_t_p(ours, theirs)
    return sign_flip_p(ours - theirs) if np.isnan(p) else p


def sign_p(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The exact two-sided sign test of which value of a pair is larger; ties are left out.

    Of seeds that reach something under one scheme alone, it is McNemar's test in its exact form.
    """
    first, second = np.count_nonzero(ours > theirs), np.count_nonzero(theirs > ours)
    return float(stats.binomtest(first, first + second).pvalue) if first + second else 1.0


@dataclass(frozen=True)
class PairedTest:
    """p:       of the values of ours and theirs
    said:    in the legend of a plan's page
    at:      the number of a run that it takes, see Measure; None: that which the plan names
    """

    p: Callable[[np.ndarray, np.ndarray], float]
    said: str
    at: At | None = None


TESTS = {
    "paired_t": PairedTest(
        paired_t_p, "paired t test of the mean difference (none without any spread)"
    ),
    "t": PairedTest(
        t_or_sign_flip_p,
        "paired t test of the mean difference (without any spread: the sign-flip test), with "
        "Student's t interval",
    ),
    "sign_flip": PairedTest(
        lambda ours, theirs: sign_flip_p(ours - theirs),
        "sign-flip permutation test of the mean paired difference, with Student's t interval",
    ),
    "mcnemar": PairedTest(
        sign_p,
        "McNemar's exact test of the seeds that only one of the two solves",
        at="reached",
    ),
    "sign": PairedTest(
        sign_p,
        "exact sign test of which run of a pair gets there first; a run that never does comes last",
        at="first step",
    ),
}
