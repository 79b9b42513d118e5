"""The figures: every seed, means with Student's t, logarithmic losses; a forest plot with a row for each verdict."""

import math
import random
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import PUBLISHED, ROPE, ROPER, make_row, table_rows
from conftest import fuzz
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from scipy import stats as scipy_stats

from rope_lab.results import figures, forest, series, tables
from rope_lab.results.groups import Group, group
from rope_lab.results.published import SPARE_COLORS
from rope_lab.results.runs import Run
from rope_lab.results.stats import Interval
from rope_lab.results.verdicts import Verdict, verdicts

PREFIX = {"task": "substring_by_prefix", "metric": "eval/loss", "floor": {"loss": 0.2, "answer_position": {}}}
MANY = ("rope", "roper", "learned", "sinusoidal", "none", "pope", "xpos", "alibi", "t5_bias", "fire")  # as in tables


def runs(ends: dict[str, list[float]], **changes) -> list[Run]:
    """A run for each scheme and seed, evaluated three times: its values rise, or fall, to these ends."""
    of = lambda end: [2 * end, end, end] if "metric" in changes else [0.0, end / 2, end]  # noqa: E731
    return [make_row(s, seed, of(end), **changes) for s, each in ends.items() for seed, end in enumerate(each)]


def only(made: list[Run]) -> Group:
    (found,) = group(made, PUBLISHED)
    return found


def names(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def at_row(ax: Axes, row: int) -> list[list[float]]:
    """What stands in a row of a figure with a row for each scheme: its interval if any, its mean, its seeds, …"""
    lines = [line for line in ax.lines if len(line.get_xdata())]
    return [list(line.get_xdata()) for line in lines if np.isclose(np.mean(line.get_ydata()), row)]


def test_curves_are_every_seed_thin_and_their_mean_bold():
    ax = figures._curves(only(runs({"rope": ROPE, "roper": ROPER}))).axes[0]
    bold = {line.get_label(): line.get_ydata() for line in ax.lines if not line.get_label().startswith("_")}
    assert len(ax.lines) == 4 + 4 + 2
    assert list(bold) == ["RoPER", "RoPE"]  # the first in the table on top
    for title, ends in (("RoPE", ROPE), ("RoPER", ROPER)):
        assert bold[title] == pytest.approx([0, 64 * np.mean(ends), 128 * np.mean(ends)])


def test_scores_are_every_seed_the_mean_and_its_interval_the_best_scheme_first():
    ax = figures._scores(
        only([*runs({"rope": ROPE, "roper": ROPER}), make_row("none", 0, [0.0], status="diverged")])
    ).axes[0]
    assert names(ax) == ["RoPER", "RoPE", "none"]  # without a score: last
    assert [text.get_text() for text in ax.texts] == ["n=4", "n=4", "n=0"]
    interval, mean, seeds = at_row(ax, 0)
    ends = scipy_stats.ttest_1samp(128 * np.array(ROPER), 0).confidence_interval()
    assert interval == pytest.approx([ends.low, ends.high])
    assert mean == pytest.approx([128 * np.mean(ROPER)] * 2)
    assert seeds == pytest.approx([128 * a for a in ROPER])


@pytest.mark.parametrize(("seeds", "schemes", "bands"), [(3, 2, 2), (2, 2, 0), (3, 6, 6), (3, 7, 0), (3, 10, 10)])
def test_bands_are_students_t_from_three_seeds_on_where_they_can_be_told_apart(seeds, schemes, bands):
    """In one panel of up to six schemes, and of more than eight, which have a panel each."""
    ends = {scheme: [0.1 * i + 0.02 * seed**2 for seed in range(seeds)] for i, scheme in enumerate(MANY[:schemes])}
    found = only(runs(ends, slices={"index": {"0": [9, 0.5]}}))
    drawn = [(ax, band) for ax in figures._curves(found).axes for band in ax.collections]
    assert len(drawn) == bands
    for (_, band), values in zip(reversed(drawn) if schemes <= 8 else drawn, ends.values(), strict=False):
        points = band.get_paths()[0].vertices
        at_end = points[points[:, 0] == 200, 1]
        half = scipy_stats.t.ppf(0.975, seeds - 1) * np.std(values, ddof=1) / math.sqrt(seeds)
        mean = np.mean(values)
        assert (at_end.min(), at_end.max()) == pytest.approx((128 * (mean - half), 128 * (mean + half)))
    alike = [ax.collections for ax in figures._slices(found, ["index"]).axes]
    assert sum(map(len, alike)) == (6 if bands > 6 else bands)


def test_shares_of_problems_stand_between_none_and_all():
    """Of 128 problems or of 1, whether two runs have 1 in 128 right or all."""
    slices = {"index": {"0": (9, 0.01)}, "length": {"13": (9, 0.01), "26": (9, 0.02)}}
    found = only(runs({"rope": [1 / 128, 2 / 128]}, slices=slices))
    curves, scores = figures._curves(found).axes[0], figures._scores(found).axes[0]
    by_index, by_length = figures._slices(found, ["index"]).axes[0], figures._lengths(found).axes[0]
    for low, high in (curves.get_ylim(), scores.get_xlim()):
        assert -10 < low < 0 < 128 < high < 138
    for low, high in (by_index.get_ylim(), by_length.get_ylim()):
        assert -0.1 < low < 0 < 1 < high < 1.1


def test_of_a_loss_the_excess_over_the_optimum_stands_on_a_logarithmic_axis():
    setup = PUBLISHED.tasks["substring_by_prefix"]["setup"]
    slices = {"answer_position": {"1": (9, 0.6), "2": (9, 0.5)}}
    floor = {"loss": 0.2, "answer_position": {"1": (9, 0.3), "2": (9, 0.1)}}
    ends = {"none": [0.3], "rope": [0.5], "roper": [0.7]}
    found = only(runs(ends, **PREFIX | {"settings": setup, "slices": slices, "floor": floor}))
    curves, scores = figures._curves(found).axes[0], figures._scores(found).axes[0]
    (positions,) = figures._slices(found, ["answer_position"]).axes
    assert names(scores) == ["none", "RoPE", "RoPER"]  # less is better
    assert at_row(scores, 0)[-1] == [pytest.approx(0.1)]
    assert at_row(scores, 1)[-1] == [pytest.approx(0.3329 - 0.2)]  # published, after the seeds
    bold = {line.get_label(): list(line.get_ydata()) for line in curves.lines}
    assert bold["RoPER"] == pytest.approx([1.2, 0.5, 0.5])
    assert bold["RoPE, published"] == pytest.approx([0.3329 - 0.2] * 2)
    assert list(positions.lines[-1].get_ydata()) == pytest.approx([0.3, 0.4])
    assert {curves.get_yscale(), scores.get_xscale(), positions.get_yscale()} == {"log"}
    assert curves.get_ylabel() == "nats per copied letter above the Bayes-optimal 0.2"
    for low, high in (curves.get_ylim(), scores.get_xlim()):
        assert low < 0.1 < 0.5 < high


def test_only_a_loss_is_seen_against_a_bayes_optimal_loss():
    found = only(runs({"rope": [0.4], "roper": [0.5]}, floor={"loss": 0.2, "answer_position": {}}))
    assert found.optimum == 0
    assert figures._curves(found).axes[0].get_yscale() == "linear"


def test_small_multiples_share_an_axis_that_holds_them_all_and_slices_show_the_best():
    """The worst and the best of ten schemes stand in the middle."""
    ends = {scheme: [0.3 * 2 ** (i * 7 % 10)] for i, scheme in enumerate(MANY, start=2)}
    found = only(runs(ends, **PREFIX | {"slices": {"length_loss": {"3": (9, 0.5)}, "length": {"3": (9, 0.5)}}}))
    figure = figures._curves(found)
    assert len(figure.axes) - 2 == len([ax for ax in figure.axes if ax.get_title()]) == 10
    for ax in figure.axes[:10]:
        low, high = ax.get_ylim()
        assert low < 0.1 < 2 * 0.3 * 2**9 - 0.2 < high
    lengths = figures._lengths(found)
    assert len({line.get_color() for line in lengths.axes[0].lines}) == series.FEW
    assert "6 schemes, the best of 10" in lengths.get_suptitle()


def test_attributes_share_no_axis():
    """Of which one is a loss."""
    attributes = {name: {"1": (9, 0.5), "20": (9, 0.4)} for name in ("answer_position", *"abcde")}
    found = only(runs({"rope": [0.5]}, **PREFIX | {"slices": attributes | {"a": {"100": (9, 0.5)}}}))
    axes = figures._slices(found, list(attributes)).axes
    assert [ax.get_ylabel() for ax in axes[1:6]] == ["share of problems right"] * 5
    assert {ax.get_yscale() for ax in axes[1:6]} == {"linear"}
    assert axes[1].get_xlim()[0] > axes[2].get_xlim()[1]


def test_what_was_published_is_marked_where_the_set_up_is_the_same():
    setup = {"settings": PUBLISHED.tasks["substring_by_index"]["setup"]}
    usual = runs({"rope": ROPE, "none": [0.1]}, recipe_id="a", **setup)
    other = runs({"rope": ROPE[:1]}, recipe_id="b", settings=setup["settings"] | {"train.lr": 2e-3})
    for each, marks in zip(group([*usual, *other], PUBLISHED), (1, 0), strict=True):
        scores, curves = figures._scores(each).axes[0], figures._curves(each).axes[0]
        assert [line.get_marker() for line in scores.lines].count("D") == marks
        assert sum("published" in line.get_label() for line in curves.lines) == marks


def test_a_scheme_keeps_its_colour_whoever_else_is_there():
    made = runs({"rope": ROPE, "roper": ROPER})
    for some in (made, [run for run in made if run.position == "roper"]):
        ax = figures._scores(only(some)).axes[0]
        assert {line.get_color() for line in ax.lines if np.mean(line.get_ydata()) == names(ax).index("RoPER")} == {
            PUBLISHED.schemes["roper"]["color"]
        }
    variants = [f"roper_fast (value_base={base})" for base in range(len(SPARE_COLORS))]
    assert {PUBLISHED.color(each, [*variants, "rope"]) for each in variants} == {*SPARE_COLORS}
    known = [scheme["color"].lower() for scheme in PUBLISHED.schemes.values()]
    assert len({*known, *map(str.lower, SPARE_COLORS)}) == len(known) + len(SPARE_COLORS)


def test_bins_hold_every_problem_once():
    many = pd.DataFrame([(key, 1 + key % 3, key / 10) for key in range(60)], columns=["value", "count", "mean"])
    edges = series.edges(many.set_index("value")["count"])
    assert len(edges) == series.BINS == len(series.binned(many, edges))
    means = [few["mean"].mean() for _, few in many.groupby(np.searchsorted(edges, many.value, side="right"))]
    assert series.binned(many.assign(count=1), edges).tolist() == pytest.approx(means)
    few = many[:5]
    edges = series.edges(few.set_index("value")["count"])
    assert series.binned(few, edges).to_dict() == pytest.approx(dict(zip(range(5), few["mean"], strict=True)))


def test_each_recipe_has_its_figures_and_they_are_the_same_bytes_twice():
    """Nothing is plotted of one seed of another recipe, nor slices where there are none."""
    usual = runs({"rope": ROPE, "roper": ROPER}, recipe_id="a", slices={"index": {"0": (9, 0.5)}})
    tried = runs({"rope": ROPE[:2]}, recipe_id="b", settings={"train.lr": 1})
    once = runs({"rope": ROPE[:1], "roper": ROPER[:1]}, recipe_id="c", settings={"train.lr": 2})
    plotted = [figures.plot_all(group([*usual, *tried, *once], PUBLISHED)) for _ in range(2)]
    assert plotted[0] == plotted[1]
    stem = "reduced-substring_by_index"
    assert {recipe: list(files) for recipe, files in plotted[0].items()} == {
        "a": [f"{stem}-{kind}.svg" for kind in ("curves", "scores", "slices")],
        "b": [f"{stem}-b-{kind}.svg" for kind in ("curves", "scores")],
    }


def test_the_last_digits_of_a_layout_change_no_byte(monkeypatch):
    """They depend on where the variables of its solver lie in memory."""
    execute, chance, bounds = ConstrainedLayoutEngine.execute, random.Random(0), []

    def noisy(engine, figure):
        execute(engine, figure)
        for ax in figure.axes:
            bounds.append(ax.get_position().bounds)
            ax.set_position([each * (1 + 1e-13 * chance.random()) for each in bounds[-1]])

    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", noisy)
    found = only(runs({"rope": ROPE, "roper": ROPER}))
    assert len({figures.plot_all([found])["r"]["reduced-substring_by_index-curves.svg"] for _ in range(3)}) == 1
    assert bounds


# The forest plot


@pytest.fixture
def plotted(monkeypatch) -> list[Figure]:
    """The forest plots, as figures."""
    found: list[Figure] = []
    rendered = forest.rendered
    monkeypatch.setattr(forest, "rendered", lambda figure: found.append(figure) or rendered(figure))
    return found


def some_verdicts() -> list[Verdict]:
    """Of Index one exploratory, one planned and one open; of Prefix and of a task that was not published, one."""
    made = runs({"rope": ROPE, "roper": ROPER}) + runs({"rope": [0.5], "roper": [0.3]}, **PREFIX)
    made += runs({"rope": ROPER, "roper": ROPE}, task="mine")
    index, prefix, mine = verdicts(group(made, PUBLISHED), [], PUBLISHED)
    nothing = Interval(math.nan, math.nan, math.nan, 0)
    planned = replace(index, planned=True, word="yes", gain=Interval(20.0, 10.0, 30.0, 24), runs=(48, 48))
    open_ = replace(index, planned=True, word="open", gain=nothing, runs=(12, 48))
    return [open_, planned, index, prefix, mine]


def test_a_forest_plot_has_a_row_for_each_verdict_beside_what_was_published(plotted):
    found = some_verdicts()
    forest.forest(found, "RoPER")
    panels = plotted[0].axes
    assert [ax.get_title(loc="left").partition(":")[0] for ax in panels] == [
        "Substring by Index",
        "Substring by Prefix",
        "mine",
    ]
    assert sum(len(names(ax)) for ax in panels) == len(found) + 2
    index, prefix, mine = panels
    assert names(index) == ["published", *(v.label for v in found[:3])]
    assert [text.get_text() for text in index.texts] == ["open: 12 of 48 runs", "yes", found[2].word]
    assert at_row(index, 0) == [pytest.approx([34.11])]
    assert at_row(index, 1) == []  # nothing of what is open
    assert at_row(index, 2) == [[10.0, 30.0], [20.0]]
    gain = found[2].gain
    assert at_row(index, 3) == [[gain.low, gain.high], [gain.mean]]
    assert [line.get_marker() for line in index.lines if len(line.get_xdata()) == 1] == ["D", "s", "o"]
    diamonds = [list(line.get_xdata()) for line in prefix.lines if line.get_marker() == "D"]
    assert diamonds == [pytest.approx([0.0124]), pytest.approx([0.0078])]
    assert names(prefix) == ["published", "reduced scale, 1 seed"]
    assert names(mine) == ["reduced scale, 4 seeds"]
    assert at_row(mine, 0)[-1] == [pytest.approx(np.mean(ROPE) - np.mean(ROPER))]  # behind


def test_a_forest_plot_has_an_axis_for_each_corpus_of_one_task(plotted):
    plays = some_verdicts()[2]
    sources = replace(plays, report=replace(plays.report, title="sources"))
    forest.forest([plays, sources], "RoPER")
    assert [ax.get_title(loc="left").partition(":")[0] for ax in plotted[0].axes] == [plays.report.title, "sources"]


def test_a_forest_plot_puts_no_two_units_on_an_axis(plotted):
    index = some_verdicts()[2]
    report = replace(index.report, metric=replace(index.report.metric, unit="nats"))
    forest.forest([index, replace(index, report=report)], "RoPER")
    assert [ax.get_title(loc="left").rpartition(" in ")[2] for ax in plotted[0].axes] == [
        "problems right of 128",
        "nats",
    ]


def test_a_forest_plot_is_the_same_bytes_twice_whatever_things_are_called():
    index = some_verdicts()[2]
    odd = [
        replace(index, task=text, scale=text, report=replace(index.report, title=text))
        for text in ("位置 🜁", r"$\frac{1}{$", "a\nb" * 500, "_x", "<b>&amp;")
    ]
    huge = replace(index, task="huge", gain=Interval(1e99, -1e100, 1e100, 3))
    assert forest.forest([*odd, huge], "RoPER") == forest.forest([*odd, huge], "RoPER")


# Whatever there is


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(fuzz(50)))
def test_any_numbers_can_be_plotted(seed):
    """Zeros, losses below the optimum, huge and equal ones; one seed, no curve, no slices. A warning is an error."""
    chance = random.Random(seed)
    values = chance.sample([0.0, -1.0, 1e-12, 0.2, 0.2 + 1e-7, 0.5, 3.0, 1e99, -1e99], chance.randint(1, 4))
    some = lambda: {str(i): (9, chance.choice(values)) for i in range(chance.randint(1, 30))}  # noqa: E731
    made = []
    for scheme in chance.sample(MANY, chance.choice([1, 2, 3, 9])):
        for run in range(chance.randint(1, 4)):
            curve = [chance.choice(values) for _ in range(chance.randint(1, 4))]
            changes = {"curves": {}} if chance.random() < 0.3 else {}
            slices = {"answer_position": some(), "length_loss": some(), "length": {"3": (9, 0.5)}}
            floor = {"loss": 0.2, "answer_position": some()}
            made.append(make_row(scheme, run, curve, **PREFIX | {"floor": floor, "slices": slices} | changes))
    plotted = figures.plot_all([only(made)])["r"]
    assert len(plotted) == len(figures.KINDS)
    found = verdicts([only(made)], [], PUBLISHED)
    assert bool(found) == ({"rope", "roper"} <= {run.position for run in made})
    assert not found or forest.forest(found, "RoPER").endswith(b"</svg>\n")


@pytest.mark.parametrize(("values", "curves"), [([0.2], {}), ([0.2, 0.2 + 1e-9], {}), ([0.1, 0.0], {"curves": {}})])
def test_where_nothing_is_above_the_optimum_or_no_curve_is_left_there_is_a_figure(values, curves):
    made = [make_row("rope", 0, values, **PREFIX | curves)]
    assert {name.rpartition("-")[2] for name in figures.plot_all([only(made)])["r"]} == {"curves.svg", "scores.svg"}


def test_text_is_plotted_by_position_and_by_length_as_losses_that_have_no_floor():
    """In the words of the task: a window has no letters already seen, and no problem is right or wrong."""
    position = {str(at): (9, 1.5 + 1 / at) for at in range(1, 5)}
    slices = {"answer_position": position, "length_loss": {"64": (9, 1.6), "128": (9, 1.7)}}
    floor = {"loss": 0.0, "answer_position": {str(at): (9, 0.0) for at in range(1, 5)}}
    told = {"task": "text", "metric": "eval/loss", "slices": slices, "floor": floor, "settings": {"train.seq_len": 64}}
    told["settings"] |= {"task.corpus": "86c4e6aa9db7c042", "task.tokens": "characters"}
    found = only(runs({"rope": [1.7, 1.8], "roper": [1.6, 1.7]}, **told))
    assert found.title == "Text (tiny Shakespeare, characters)"
    (by_position,) = figures._slices(found, series.sliced(found)).axes
    assert by_position.get_xlabel() == "tokens of the window already read"
    (by_length,) = figures._lengths(found).axes
    for ax in (by_position, by_length):
        assert (ax.get_yscale(), ax.get_ylabel()) == ("linear", "nats per token")
    low, high = figures._curves(found).axes[0].get_ylim()
    assert 1.5 < low < 1.6 < 1.8 < high < 1.9  # before training it was 3.6
    assert by_length.patches[0].get_x() + by_length.patches[0].get_width() == 64.5  # what training read
    assert "lengths" in dict(figures._figures(found))
    table = table_rows(tables.as_markdown(*tables.lengths(found)))
    assert table[0] == {"tokens of context": "RoPE", "64": "1.600 (1.600–1.600)", "128 (longer)": "1.700 (1.700–1.700)"}
    assert "problems" not in str([tables.lengths(found), tables.details(found)])


def test_the_figure_of_lengths_shows_the_schemes_that_are_best_at_the_greatest_length():
    """Among ten that end the better the worse they are there; the pair that is compared is always shown."""
    told = {"task": "text", "metric": "eval/loss", "settings": {"train.seq_len": 64, "task.tokens": "bytes"}}
    made = []
    for place, scheme in enumerate(MANY):
        slices = {"length_loss": {"64": (9, 1 + place / 10), "256": (9, 3 - place / 10)}}
        made += runs({scheme: [1 + place / 10]}, **told, slices=slices)
    found = only(made)
    assert series.best(found) == [*MANY[:6]]
    assert series.best(found, "length_loss") == ["rope", "roper", *MANY[6:]]
