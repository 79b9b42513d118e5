"""Figures: curves of every seed, means with Student's t intervals, logarithmic losses, forest plot,
heat maps.
"""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from builders import PUBLISHED, ROPE, ROPER, make_row
from conftest import fuzz
from matplotlib.axes import Axes
from scipy import stats as scipy_stats

from rope_lab.results.comparisons.stats import Interval
from rope_lab.results.comparisons.words import word
from rope_lab.results.plans.families import PlannedFamily
from rope_lab.results.plans.study import PlannedTest, Study
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.results.views import figures, series
from rope_lab.results.views.verdicts import label, verdicts

STUDY = Study(
    "a",
    "b",
    "c",
    "substring_by_index",
    "reduced",
    {},
    {"rope": [0], "roper": [0]},
    True,
    0.0,
    primary=[PlannedTest("last", ("roper", "rope"), "t", "eval/accuracy")],
)
PREFIX = {
    "task": "substring_by_prefix",
    "metric": "eval/loss",
    "floor": {"loss": 0.2, "answer_position": {}},
}
MANY = (
    "rope",
    "roper",
    "learned",
    "sinusoidal",
    "none",
    "pope",
    "xpos",
    "alibi",
    "t5_bias",
    "fire",
)  # in table order


def runs(ends: dict[str, list[float]], **changes) -> list[Run]:
    """A run for each scheme and seed, evaluated three times; values rise to `ends`, losses fall to
    them.
    """
    of = lambda end: [2 * end, end, end] if "metric" in changes else [0.0, end / 2, end]  # noqa: E731
    return [
        make_row(s, seed, of(end), **changes)
        for s, each in ends.items()
        for seed, end in enumerate(each)
    ]


def only(made: list[Run]) -> Setup:
    (found,) = setups_of(made, PUBLISHED)
    return found


def at_row(ax: Axes, row: int) -> list[list[float]]:
    lines = [line for line in ax.lines if set(line.get_ydata()) == {row}]
    return [list(line.get_xdata()) for line in lines]


def test_curves_are_every_seed_thin_and_their_mean_bold():
    ax = figures._curves(only(runs({"rope": ROPE, "roper": ROPER}))).axes[0]
    bold = {
        line.get_label(): line.get_ydata()
        for line in ax.lines
        if not line.get_label().startswith("_")
    }
    assert len(ax.lines) == 4 + 4 + 2
    assert list(bold) == ["RoPER", "RoPE"]  # the first in the table is drawn last, on top
    for title, ends in (("RoPE", ROPE), ("RoPER", ROPER)):
        assert bold[title] == pytest.approx([0, 64 * np.mean(ends), 128 * np.mean(ends)])
    low, high = ax.get_ylim()
    assert -10 < low < 0 < 128 < high < 138  # problems right: none to all


def test_of_many_schemes_that_all_fail_at_the_greatest_length_those_best_at_the_next_are_shown():
    right = {scheme: {"8": (9, i / 10), "16": (9, 0.0)} for i, scheme in enumerate(MANY)}
    found = only(
        [
            make_row(scheme, 0, [0.0, 1.0], slices={"length": slices})
            for scheme, slices in right.items()
        ]
    )
    assert set(series.best(found, "length")) == {"rope", "roper", *MANY[-4:]}


@pytest.mark.parametrize(
    ("seeds", "schemes", "bands"), [(3, 2, 2), (2, 2, 0), (3, 6, 6), (3, 7, 0), (3, 10, 6)]
)
def test_bands_are_students_t_from_three_seeds_on_in_a_panel_of_six_schemes(seeds, schemes, bands):
    ends = {
        scheme: [0.1 * i + 0.02 * seed**2 for seed in range(seeds)]
        for i, scheme in enumerate(MANY[:schemes])
    }
    found = only(runs(ends))
    drawn = figures._curves(found).axes[0].collections
    assert len(drawn) == bands
    for band, scheme in zip(drawn, reversed(series.best(found)), strict=False):
        values = ends[scheme]
        points = band.get_paths()[0].vertices
        at_end = points[points[:, 0] == 200, 1]
        half = scipy_stats.t.ppf(0.975, seeds - 1) * np.std(values, ddof=1) / math.sqrt(seeds)
        mean = np.mean(values)
        assert (at_end.min(), at_end.max()) == pytest.approx(
            (128 * max(mean - half, 0), 128 * min(mean + half, 1))
        )


def test_of_a_loss_the_excess_over_the_optimum_stands_on_a_logarithmic_axis():
    setup = PUBLISHED.tasks["substring_by_prefix"]["setup"]
    found = only(
        runs({"none": [0.3], "rope": [0.5], "roper": [0.7]}, **PREFIX | {"settings": setup})
    )
    curves = figures._curves(found).axes[0]
    bold = {line.get_label(): list(line.get_ydata()) for line in curves.lines}
    assert bold["RoPER"] == pytest.approx([1.2, 0.5, 0.5])
    assert bold["RoPE, published"] == pytest.approx([0.3329 - 0.2] * 2)
    assert curves.get_yscale() == "log"
    assert curves.get_ylabel() == "nats per copied letter above the\nBayes-optimal 0.2"
    accuracy = only(
        runs({"rope": [0.4], "roper": [0.5]}, floor={"loss": 0.2, "answer_position": {}})
    )
    assert accuracy.optimum == 0
    assert figures._curves(accuracy).axes[0].get_yscale() == "linear"


def test_a_forest_plot_has_a_row_for_each_verdict_beside_what_was_published(monkeypatch):
    """Index has a planned and an exploratory verdict, Prefix one. Any title gives the same bytes
    twice.
    """
    plotted, rendered = [], figures.rendered
    monkeypatch.setattr(
        figures, "rendered", lambda figure: plotted.append(figure) or rendered(figure)
    )
    made = runs({"rope": ROPE, "roper": ROPER}) + runs({"rope": [0.5], "roper": [0.3]}, **PREFIX)
    index, prefix = verdicts(setups_of(made, PUBLISHED), [], PUBLISHED)
    index, prefix = (
        replace(each, comparison=replace(each.comparison, published=gains))
        for each, gains in ((index, (34.11,)), (prefix, (0.0124, 0.0078)))
    )
    planned = replace(
        index,
        family=PlannedFamily(
            comparisons=[], study=STUDY, tests=[], found=dict.fromkeys(STUDY.cells)
        ),
        difference=Interval(20.0, 10.0, 30.0, 24),
        p_family=0.01,
    )
    figures.forest([planned, index, prefix], PUBLISHED)
    panels = plotted[0].axes
    assert [ax.get_title(loc="left") for ax in panels] == [
        "Substring by Index",
        "Substring by Prefix",
    ]
    assert [text.get_text() for text in panels[0].get_yticklabels()] == [
        "published",
        label(planned),
        label(index),
    ]
    assert [text.get_text() for text in panels[0].texts] == ["confirmed", word(index)]
    assert at_row(panels[0], 0) == [pytest.approx([34.11])]
    assert at_row(panels[0], 1) == [[10.0, 30.0], [20.0]]
    assert at_row(panels[0], 2) == [[index.gain.low, index.gain.high], [index.gain.mean]]
    diamonds = [list(line.get_xdata()) for line in panels[1].lines if line.get_marker() == "D"]
    assert diamonds == [pytest.approx([0.0124]), pytest.approx([0.0078])]
    report = index.comparison.report
    odd = [
        replace(index, comparison=replace(index.comparison, report=replace(report, title=text)))
        for text in ("位置 🜁", r"$\frac{1}{$", "a\nb" * 500, "<b>&amp;")
    ]
    odd.append(replace(index, difference=Interval(1e99, -1e100, 1e100, 3)))
    assert figures.forest(odd, PUBLISHED) == figures.forest(odd, PUBLISHED)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(fuzz(30)))
def test_any_numbers_can_be_plotted(seed):
    """Losses that are zero, equal, huge or below the optimum; one seed, no curves, no slices. A
    warning is an error.
    """
    chance = random.Random(seed)
    values = chance.sample(
        [0.0, -1.0, 1e-12, 0.2, 0.2 + 1e-7, 0.5, 3.0, 1e99, -1e99], chance.randint(1, 4)
    )
    some = lambda: {str(i): (9, chance.choice(values)) for i in range(chance.randint(1, 30))}  # noqa: E731
    made = []
    for scheme in chance.sample(MANY, chance.choice([1, 2, 3, 9])):
        for run in range(chance.randint(1, 4)):
            curve = [chance.choice(values) for _ in range(chance.randint(1, 4))]
            changes = {"curves": {}} if chance.random() < 0.3 else {}
            changes["slices"] = (
                {"length_loss": some(), "length": {"3": (9, 0.5)}} if seed % 2 else {}
            )
            made.append(make_row(scheme, run, curve, **PREFIX | changes))
    (drawn,) = figures.draw([only(made)])[1].values()
    assert drawn.endswith(b"</svg>\n")
    found = verdicts([only(made)], [], PUBLISHED)
    assert not found or figures.forest(found, PUBLISHED).endswith(b"</svg>\n")


def test_heat_maps_show_a_crossed_attribute_by_length_one_a_scheme():
    slices = {"length": {"4": (9, 1.0), "8": (9, 0.5)}, "depth_at_4": {"0": (5, 1.0)}}
    slices |= {
        "depth_at_8": {"0": (5, 0.2), "3": (4, 0.8)},
        "key_at_end": {"1": (9, 0.5)},
    }  # that is no length
    made = runs(
        {"rope": [1.0], "alibi": [1.0]},
        task="needle",
        slices=slices,
        settings={"task.string_length": 4},
    )
    found = only(made)
    _, *maps, _ = figures._lengths(found).axes
    assert [ax.get_title() for ax in maps] == ["RoPE", "ALiBi"]
    shown = maps[0].images[0].get_array()
    assert shown.filled(-1).tolist() == [[1.0, 0.2], [-1, 0.8]]
    assert maps[0].lines[0].get_xdata() == [0.5, 0.5]  # right of the training lengths
    assert series.attributes(found)[:2] == ["length", "depth_at_8"]
    assert "8" in series.by_value(found, "depth_at_8").x


def test_a_scheme_with_settings_has_its_colour_unless_another_of_it_is_beside():
    roper, plain = "roper (train.lr=2e-3)", PUBLISHED.color("roper")
    assert PUBLISHED.color(roper, ["rope", roper]) == plain
    beside = ["roper (train.lr=4e-3)", roper, "rope"]
    assert len({plain, *(PUBLISHED.color(scheme, beside) for scheme in beside)}) == 4
