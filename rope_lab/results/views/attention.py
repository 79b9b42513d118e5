"""Attention weights of a probed run, a layer at a time."""

import altair as alt
import pandas as pd

MAP, MAPS = 92, 3  # pixels of a head's map, and maps in a row
DISTANCES = [0, 1, 3, 10, 30, 100, 300, 1000]


def by_distance(heads: list[list[float]]) -> alt.Chart:
    """The mean weight of the token so many tokens back, a line for each head."""
    rows = []
    for at, weights in enumerate(heads, start=1):
        for distance, share in enumerate(weights):
            rows.append({"head": f"head {at}", "tokens back": distance, "share": float(share)})
    columns = ["head", "tokens back", "share"]
    axis = alt.Axis(values=DISTANCES, grid=False, domain=True)
    chart = alt.Chart(pd.DataFrame(rows, columns=columns)).mark_line()
    return chart.encode(
        x=alt.X("tokens back:Q", scale=alt.Scale(type="symlog", nice=False), axis=axis),
        y=alt.Y("share:Q", title=None, axis=alt.Axis(tickCount=5)),
        color=alt.Color("head:N", sort=None, legend=alt.Legend(orient="bottom", title=None)),
        tooltip=columns,
    ).properties(width="container", height=160)


def maps(heads: list[list[list[float]]], every: int) -> alt.FacetChart:
    """The weights that queries (down) give to keys (across), a map for each head.

    every: tokens of a row or a column
    """
    rows = []
    for at, weights in enumerate(heads, start=1):
        for query, row in enumerate(weights):
            for key, share in enumerate(row):
                place = {"query": query * every, "key": key * every, "share": float(share)}
                rows.append({"head": f"head {at}"} | place)
    columns = ["head", "query", "key", "share"]
    scale = alt.Scale(type="sqrt", range=["#fff", "#08306b"], interpolate="rgb")
    chart = alt.Chart(pd.DataFrame(rows, columns=columns)).mark_rect()
    chart = chart.encode(
        x=alt.X("key:O", axis=None),
        y=alt.Y("query:O", axis=None),
        color=alt.Color("share:Q", scale=scale, legend=None),
        tooltip=columns,
    ).properties(width=MAP, height=MAP)
    facet = alt.Facet("head:N", sort=None, title=None)
    return chart.facet(facet, columns=MAPS, spacing=12)
