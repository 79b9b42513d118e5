"""The forest plot: published and measured gains of the contender side by side, an axis a task."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rope_lab.results.figures import LABEL, PUBLISHED, WIDTH, rendered, styled
from rope_lab.results.runs import one_line
from rope_lab.results.verdicts import OPEN, Verdict

LOOKS = {
    "exploratory": {"marker": "o", "ms": 6, "color": "#777777"},
    "planned": {"marker": "s", "ms": 6, "color": "#D55E00"},
}


def forest(verdicts: list[Verdict], contender: str) -> bytes:
    """The verdicts as a forest plot: for each title and unit an axis with published and measured gains."""
    panels: dict[tuple[str, str], list[Verdict]] = {}
    for v in verdicts:
        panels.setdefault((v.report.title, v.report.metric.unit), []).append(v)
    there = {key: each for key, each in panels.items() if _versions(each) or any(v.gain.n for v in each)}
    panels = there or panels  # without those of which nothing is known yet
    heights = [len(found) + bool(_versions(found)) + 1.2 for found in panels.values()]
    with styled():
        figure = Figure(figsize=(WIDTH, 0.27 * sum(heights) + 0.3), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        looks = ({"published": PUBLISHED} if any(v.published for v in verdicts) else {}) | {
            k: {"ls": "", **look} for k, look in LOOKS.items()
        }
        handles = [axes[0].plot([], [], label=name, **look)[0] for name, look in looks.items()]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        for ax, found in zip(axes, panels.values(), strict=True):
            _forest(ax, found, contender)
        return rendered(figure)


def _forest(ax: Axes, verdicts: list[Verdict], contender: str) -> None:
    """A panel: a row for what was published, and one for each verdict, its word at the right."""
    report, versions = verdicts[0].report, _versions(verdicts)
    rows = ["published"] * bool(versions) + [one_line(v.label, LABEL) for v in verdicts]
    ax.axvline(0, color="black", lw=0.8)
    for gain in versions:
        ax.plot(gain, 0, **PUBLISHED)
    for row, v in enumerate(verdicts, start=bool(versions)):
        if not math.isnan(v.gain.mean):
            look = LOOKS["planned" if v.planned else "exploratory"]
            ax.plot([v.gain.low, v.gain.high], [row, row], lw=2, color=look["color"], solid_capstyle="butt")
            ax.plot(v.gain.mean, row, **look)
        said = f"open: {v.runs[0]} of {v.runs[1]} runs" if v.word == OPEN else v.word
        ax.annotate(said, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    ax.set(yticks=range(len(rows)), yticklabels=rows, ylim=(len(rows) - 0.4, -0.6))
    title = f"{one_line(report.title, LABEL)}: gain of {contender} in {one_line(report.metric.unit, LABEL)}"
    ax.set_title(title, loc="left", fontweight="bold")
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.08)


def _versions(verdicts: list[Verdict]) -> list[float]:
    """The published gains that a task's verdicts stand beside."""
    return max((v.published for v in verdicts), key=len)
