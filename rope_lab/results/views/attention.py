"""Attention weights of a probed run, a layer at a time."""

import altair as alt
import numpy as np
import pandas as pd

from rope_lab.results.views.palettes import BLUES

MAP, MAPS = 92, 3  # pixels of a head's map, and maps in a row
DISTANCES = [0, 1, 3, 10, 30, 100, 300, 1000]


def by_distance(heads: list[list[float]]) -> alt.Chart:
    """The mean weight of the token so many tokens back, a line for each head."""
    weights = _table(heads, ["head", "tokens back"])
    axis = alt.Axis(values=DISTANCES, grid=False, domain=True)
    lines = alt.Chart(weights).mark_line()
    return lines.encode(
        x=alt.X("tokens back:Q", scale=alt.Scale(type="symlog", nice=False), axis=axis),
        y=alt.Y("share:Q", title=None, axis=alt.Axis(tickCount=5)),
        color=alt.Color("head:N", sort=None),
        tooltip=list(weights),
    ).properties(width="container", height=160)


def maps(heads: list[list[list[float]]], every: int) -> alt.FacetChart:
    """The weights that queries (down) give to keys (across), a map for each head.

    every: tokens of a row or a column
    """
    weights = _table(heads, ["head", "query", "key"])
    weights[["query", "key"]] *= every
    scale = alt.Scale(type="sqrt", range=BLUES, interpolate="rgb")
    cells = (
        alt.Chart(weights)
        .mark_rect()
        .encode(
            x=alt.X("key:O", axis=None),
            y=alt.Y("query:O", axis=None),
            color=alt.Color("share:Q", scale=scale, legend=None),
            tooltip=list(weights),
        )
    )
    facet = alt.Facet("head:N", sort=None, title=None)
    return cells.properties(width=MAP, height=MAP).facet(facet, columns=MAPS, spacing=12)


def _table(heads: list, names: list[str]) -> pd.DataFrame:
    """A row per weight: its index in each dimension, heads counted from 1, and its `share`."""
    weights = np.array(heads)
    places = pd.MultiIndex.from_product(map(range, weights.shape), names=names)
    table = pd.Series(weights.ravel(), places, name="share").reset_index()
    return table.assign(head="head " + (table["head"] + 1).astype(str))
