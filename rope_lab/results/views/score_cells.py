"""A score in a cell of a table."""

from rope_lab.results.comparisons.score_columns import Column
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.views.tables import NONE


def score(column: Column, scheme: str) -> str:
    """The mean score with half its interval; † if the rate was searched."""
    if scheme not in column.scores:
        return NONE
    found = t_interval(column.scores[scheme])
    shown = f"{found.mean:.3f} ± {found.high - found.mean:.3f}"
    return f"{shown} {mark(column, scheme)}".rstrip()


def mark(column: Column, scheme: str) -> str:
    """† if the rate of a scheme was searched."""
    return "†" if scheme in column.searched else ""
