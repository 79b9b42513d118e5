"""The forest plot: gains of one scheme over another, a row each, with intervals."""

from textwrap import wrap

import altair as alt
import pandas as pd

from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.words import AHEAD, BEHIND, CONFIRMED, REFUTED, REVERSED, word
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import one_line
from rope_lab.results.views.charts import ONE
from rope_lab.results.views.headlines import gain_text, kind, label, published_gains
from rope_lab.results.views.palettes import BAD, GOOD, INK, UNDECIDED

WIDTH = 205  # pixels of the axis; the words right of it may take 262
WORD = 70  # of these, for the word of the verdict
ROW = 34
TITLE, LABEL = 80, 140  # letters of a panel's title and of a row's label
COLORS = {CONFIRMED: GOOD, AHEAD: GOOD, REVERSED: BAD, REFUTED: BAD, BEHIND: BAD}
LEGEND = "◊ published · ■ planned · ● exploratory · lines: 95% intervals over seeds"


def forest(found: list[Result], catalogue: Catalogue) -> alt.VConcatChart:
    """An axis for each title and unit, a row for each gain; positive ones are the contender's."""
    drawn = []
    for (title, unit), gains in rows(found, catalogue).groupby(["title", "unit"], sort=False):
        axis = wrap(f"gain of {catalogue.titles[0]}, {unit}", 36)
        drawn.append(_panel(gains, axis).properties(title=title))
    heading = alt.TitleParams(LEGEND, fontSize=12, fontWeight="normal", offset=12)
    return alt.vconcat(*drawn, spacing=16).properties(title=heading)


def rows(found: list[Result], catalogue: Catalogue) -> pd.DataFrame:
    """A row per result: what is drawn of it, and the `published` gains."""
    made = []
    for result in found:
        said = word(result)
        gain = result.gain
        made.append(
            {
                "title": one_line(result.title, TITLE),
                "unit": one_line(result.measure.unit, TITLE),
                "label": one_line(label(result), LABEL),
                "kind": kind(result),
                "low": gain.low,
                "mean": gain.mean,
                "high": gain.high,
                "text": gain_text(result),
                "word": said,
                "color": COLORS.get(said, UNDECIDED),
                "published": published_gains(result, catalogue),
            }
        )
    return pd.DataFrame(made)


def _panel(gains: pd.DataFrame, title: list[str]) -> alt.LayerChart:
    """One axis with a row per gain: a label above an interval, and the verdict beside it. The
    published gains share a row above.
    """
    published = pd.DataFrame({"mean": max(gains.published, key=len), "row": 0})
    gains = gains.drop(columns="published").assign(row=range(1, len(gains) + 1))
    axis = alt.Axis(title=title, tickCount=4, labelFlush=False)
    x = alt.X("mean:Q", axis=axis, scale=alt.Scale(nice=False, padding=8))
    y = alt.Y("row:O", axis=None)
    color = alt.Color("color:N", scale=None)
    kinds = alt.Scale(domain=["planned", "exploratory"], range=["square", "circle"])
    shape = alt.Shape("kind:N", scale=kinds, legend=None)
    base = alt.Chart(gains).encode(y=y)
    zero = alt.Chart(ONE).mark_rule(strokeWidth=1.2).encode(x="zero:Q")
    line = base.mark_rule(style="interval", yOffset=7).transform_filter("isValid(datum.low)")
    point = base.mark_point(style="gain", yOffset=7)
    above = base.encode(x=alt.value(0), text="label:N")
    beside = base.encode(x=alt.value(WIDTH + 8))
    others = alt.Chart(published).mark_point(style="published", yOffset=7, stroke=INK, fill="white")
    name = alt.Chart(published[:1]).mark_text(text="published", style="row")
    layers = [
        zero,
        line.encode(x=alt.X("low:Q", axis=axis), x2="high:Q", color=color),
        point.encode(x=x, color=color, shape=shape),
        above.mark_text(style=["row", "halo"]),
        above.mark_text(style="row"),
        beside.mark_text(fontWeight="bold", style="words").encode(text="word:N", color=color),
        beside.mark_text(dx=WORD, style="words").encode(text="text:N"),
        others.encode(x=x, y=y),
        name.encode(x=alt.value(0), y=y),
    ]
    return alt.layer(*layers).properties(width=WIDTH, height=alt.Step(ROW))
