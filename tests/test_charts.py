"""Charts: the data in their specifications, and the files made of them."""

import math
import random
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import CATALOGUE, ROPE, ROPER, make_row
from conftest import ROOT, fuzz
from scipy import stats as scipy_stats

from rope_lab.results.comparisons.answers import Family, Result
from rope_lab.results.comparisons.grids import find
from rope_lab.results.comparisons.stats import Interval
from rope_lab.results.comparisons.words import word
from rope_lab.results.plans.study import PlannedTest, Study
from rope_lab.results.records.catalogue import TaskReport
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.results.views import attention, charts, dots, figures, forest, heat, render, series
from rope_lab.results.views.headlines import headlines, label
from rope_lab.results.views.panels import Panel, points_frame

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
# In table order.
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
)


def runs(ends: dict[str, list[float]], **changes) -> list[Run]:
    """A run for each scheme and seed, evaluated three times; values rise to `ends`, losses fall to
    them.
    """
    made = []
    for scheme, each in ends.items():
        for seed, end in enumerate(each):
            curve = [2 * end, end, end] if "metric" in changes else [0.0, end / 2, end]
            made.append(make_row(scheme, seed, curve, **changes))
    return made


def only(made: list[Run]) -> Setup:
    (found,) = setups_of(made, CATALOGUE)
    return found


def nodes(node):
    """All dictionaries of a specification."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    return ([node] if isinstance(node, dict) else []) + [
        found for child in children for found in nodes(child)
    ]


def datasets(chart) -> list[list[dict]]:
    """The data of a chart, as its specification holds them."""
    return list(render.specification(chart)["datasets"].values())


def rows(chart, *columns: str) -> list[dict]:
    """The rows of all data that have these columns."""
    return [row for data in datasets(chart) for row in data if {*columns} <= row.keys()]


def curves(chart) -> tuple[list[dict], list[dict]]:
    """The runs and the means of a chart."""
    return rows(chart, "seed", "x", "y"), rows(chart, "low", "x", "y")


def y_scale(chart) -> dict:
    scales = [
        node["scale"]
        for node in nodes(render.specification(chart))
        if "domain" in node.get("scale", {})
    ]
    return next(scale for scale in scales if "nice" in scale)


def test_curves_are_every_seed_and_their_mean():
    chart = figures.curves(only(runs({"rope": ROPE, "roper": ROPER})))
    seeds, means = curves(chart)
    assert len(seeds) == 8
    assert [mean["scheme"] for mean in means] == ["RoPER", "RoPE"]  # the first is drawn last
    for mean, ends in zip(means, (ROPER, ROPE), strict=True):
        assert mean["y"] == pytest.approx([0, 64 * np.mean(ends), 128 * np.mean(ends)])
    low, high = y_scale(chart)["domain"]
    assert -10 < low < 0 < 128 < high < 138  # problems right: none to all


def test_of_many_schemes_the_best_at_the_next_length():
    """If all fail at the greatest length."""
    right = {scheme: {"8": (9, i / 10), "16": (9, 0.0)} for i, scheme in enumerate(MANY)}
    made = [make_row(s, 0, [0.0, 1.0], slices={"length": each}) for s, each in right.items()]
    assert set(series.best(only(made), "length")) == {"rope", "roper", *MANY[-4:]}


@pytest.mark.parametrize(
    ("seeds", "schemes", "bands"), [(3, 2, 2), (2, 2, 0), (3, 6, 6), (3, 7, 0), (3, 10, 6)]
)
def test_bands_are_students_t_from_three_seeds_on(seeds, schemes, bands):
    ends = {
        scheme: [0.1 * i + 0.02 * seed**2 for seed in range(seeds)]
        for i, scheme in enumerate(MANY[:schemes])
    }
    found = only(runs(ends))
    chart = figures.curves(found)
    spec, (_, means) = render.specification(chart), curves(chart)
    areas = [node for node in nodes(spec) if node.get("type") == "area"]
    assert bool(areas) == (len(means) <= 6)
    ended = {mean["scheme"]: mean for mean in means if mean["low"][-1] is not None and areas}
    assert len(ended) == bands
    for scheme in series.best(found)[:bands]:
        values, mean = ends[scheme], ended[CATALOGUE.title(scheme)]
        half = scipy_stats.t.ppf(0.975, seeds - 1) * np.std(values, ddof=1) / math.sqrt(seeds)
        low, high = 128 * max(np.mean(values) - half, 0), 128 * min(np.mean(values) + half, 1)
        assert (mean["low"][-1], mean["high"][-1]) == pytest.approx((low, high), rel=1e-4)


def test_a_loss_above_its_optimum_has_a_logarithmic_axis():
    setup = CATALOGUE.tasks["substring_by_prefix"]["setup"]
    ends = {"none": [0.3], "rope": [0.5], "roper": [0.7]}
    chart = figures.curves(only(runs(ends, **PREFIX | {"settings": setup})))
    means = {mean["scheme"]: mean["y"] for mean in curves(chart)[1]}
    assert means["RoPER"] == pytest.approx([1.2, 0.5, 0.5])
    assert y_scale(chart)["type"] == "log"
    spec = render.specification(chart)
    levels = [node["y"]["datum"] for node in nodes(spec) if "datum" in node.get("y", {})]
    assert pytest.approx(0.3329 - 0.2) in levels
    titles = [node["title"] for node in nodes(spec) if "nats per copied" in str(node.get("title"))]
    assert titles[0] == ["nats per copied letter above the", "Bayes-optimal 0.2"]
    plain = runs({"rope": [0.4], "roper": [0.5]}, floor={"loss": 0.2, "answer_position": {}})
    assert "type" not in y_scale(figures.curves(only(plain)))  # linear


def test_means_of_fewer_seeds_are_hollow():
    points = [("a", seed, x, 0.5, True) for seed in range(3) for x in (0, 1) if seed < 2 or x]
    points += [("b", seed, x, 0.6, True) for seed in range(2) for x in (0, 1)]
    panel = Panel(points_frame(points), "x", "y", most=1, colors=dict.fromkeys("ab", "#000"))
    means = rows(charts.lines(panel, dots=True), "n")
    assert [(row["scheme"], row["x"], row["n"]) for row in means if row["x"] == 0] == [("a", 0, 2)]


def test_a_sweep_has_a_ring_around_each_best_value():
    made = []
    for rate, ends in ((1e-4, [0.2, 0.3]), (2e-4, [0.9, 0.8]), (4e-4, [0.5, 0.5])):
        made += runs({"rope": ends}, settings={"train.lr": rate})
    (sweep,) = find(setups_of(made, CATALOGUE))
    chart = figures.sweep(sweep)
    (ring,) = [row for row in rows(chart, "x", "y") if row["x"] == 2e-4]
    assert (ring["scheme"], ring["y"]) == ("RoPE", pytest.approx(128 * 0.85))
    axes = [node["axis"] for node in nodes(render.specification(chart)) if "axis" in node]
    assert [1e-4, 2e-4, 4e-4] in [axis.get("values") for axis in axes if axis]


def with_published(result: Result, *gains: float) -> Result:
    """The same result in the write-up's own set-up."""
    return replace(result, comparison=replace(result.comparison, published=gains))


def test_a_forest_plot_has_a_row_for_each_verdict():
    """Index has a planned and an exploratory verdict, Prefix one."""
    made = runs({"rope": ROPE, "roper": ROPER}) + runs({"rope": [0.5], "roper": [0.3]}, **PREFIX)
    index, prefix = headlines(setups_of(made, CATALOGUE), [], CATALOGUE)
    index = with_published(index, 34.11)
    prefix = with_published(prefix, 0.0124, 0.0078)
    family = Family(comparisons=[], study=STUDY, found=dict.fromkeys(STUDY.cells))
    difference = Interval(20.0, 10.0, 30.0, 24)
    planned = replace(index, family=family, difference=difference, p_family=0.01)
    verdicts_of = [planned, index, prefix]
    spec = render.specification(forest.forest(verdicts_of, CATALOGUE))
    panels = spec["vconcat"]
    assert [panel["title"] for panel in panels] == ["Substring by Index", "Substring by Prefix"]
    found = forest.rows(verdicts_of, CATALOGUE)
    assert list(found.label) == list(map(label, verdicts_of))
    assert list(found.kind) == ["planned", "exploratory", "exploratory"]
    assert list(found.word) == list(map(word, verdicts_of))
    assert found["mean"].tolist() == [20.0, index.gain.mean, prefix.gain.mean]
    assert found.low[:2].tolist() == [10.0, index.gain.low]
    published = [row for row in rows(forest.forest([prefix], CATALOGUE), "row") if row["row"] == 0]
    assert [row["mean"] for row in published] == pytest.approx([0.0124, 0.0078, 0.0124])


@pytest.mark.slow
def test_any_title_can_be_drawn():
    made = setups_of(runs({"rope": ROPE, "roper": ROPER}), CATALOGUE)
    (result,) = headlines(made, [], CATALOGUE)
    odd = []
    for title in ("位置 🜁", "$\\frac{1}{$", "a\nb" * 500, "<b>&amp;"):
        report = TaskReport(**vars(result.comparison.report) | {"title": title})
        odd.append(replace(result, comparison=replace(result.comparison, report=report)))
    odd.append(replace(result, difference=Interval(1e99, -1e100, 1e100, 3)))
    drawn = render.svg(forest.forest(odd, CATALOGUE))
    assert drawn.endswith(b"</svg>\n")
    assert b"<b>" not in drawn


def test_runs_without_a_step_have_no_curves():
    """Such as models that took over another scheme, before they are trained."""
    drawn = {}
    for steps in (0, 9):
        run = make_row("roper", 0, [1.0])
        run = replace(run, settings=run.settings | {"train.steps": steps})
        drawn[steps] = len(figures.drawable([only([run])]))
    assert drawn == {0: 0, 9: 1}


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

    def some() -> dict:
        return {str(i): (9, chance.choice(values)) for i in range(chance.randint(1, 30))}

    made = []
    for scheme in chance.sample(MANY, chance.choice([1, 2, 3, 9])):
        for run in range(chance.randint(1, 4)):
            curve = [chance.choice(values) for _ in range(chance.randint(1, 4))]
            changes = {"curves": {}} if chance.random() < 0.3 else {}
            if seed % 2:
                changes["slices"] = {"length_loss": some(), "length": {"3": (9, 0.5)}}
            made.append(make_row(scheme, run, curve, **PREFIX | changes))
    (figure,) = figures.draw([only(made)]).values()
    assert render.svg(figure.chart).endswith(b"</svg>\n")
    found = headlines([only(made)], [], CATALOGUE)
    assert not found or render.svg(forest.forest(found, CATALOGUE)).endswith(b"</svg>\n")


def test_heat_maps_show_a_crossed_attribute_by_length():
    slices = {"length": {"4": (9, 1.0), "8": (9, 0.5)}, "depth_at_4": {"0": (5, 1.0)}}
    slices |= {"depth_at_8": {"0": (5, 0.2), "3": (4, 0.8)}, "key_at_end": {"1": (9, 0.5)}}
    settings = {"task.string_length": 4}
    found = only(
        runs({"rope": [1.0], "alibi": [1.0]}, task="needle", slices=slices, settings=settings)
    )
    cells = rows(figures.lengths(found), "column", "share")
    assert sorted(cell["scheme"] for cell in cells) == ["ALiBi"] * 3 + ["RoPE"] * 3
    shown = {(cell["column"], cell["row"]): cell["share"] for cell in cells}
    assert shown == {(4, 0): 1.0, (8, 0): 0.2, (8, 3): 0.8}
    assert series.attributes(found)[:2] == ["length", "depth_at_8"]
    assert "8" in series.by_value(found, "depth_at_8").x


def test_long_titles_of_maps_do_not_widen_the_figure():
    long = "RoPE at remapped distances (group=9, method=self_extend, near=18, o=-1)"
    widths = []
    for name in ("RoPE", long):
        schemes = [name, f"{name} 2", f"{name} 3"]
        cells = pd.DataFrame([(each, 64, 0, 0.5) for each in schemes])
        cells.columns = ["scheme", "column", "row", "share"]
        drawn = render.svg(heat.maps(cells, "length", "depth", 0)).decode()
        widths.append(float(re.search(r'width="([0-9.]+)"', drawn)[1]))
    assert widths[1] < 1.5 * widths[0]


def test_crossed_lengths_rise_in_any_process():
    """The order of a set of names differs between processes."""
    lengths = [2, 3, 5, 8, 13, 21, 34, 55]
    slices = {f"depth_at_{n}": {"0": (5, 1.0)} for n in reversed(lengths)}
    found = only(runs({"rope": [1.0]}, task="needle", slices=slices))
    assert list(found.crossed) == lengths


def test_a_score_is_shaded_between_its_columns_extremes():
    cells = [
        ("a", "t", 0.2, "0.2"),
        ("b", "t", 0.4, "0.4*"),
        ("c", "t", 0.3, "0.3"),
        ("a", "u", 1.0, "1"),
    ]
    frame = pd.DataFrame(cells, columns=["row", "column", "value", "text"])
    shown = {
        (row["row"], row["column"]): row for row in rows(heat.scores(frame, ["t", "u"]), "shade")
    }
    shades = [round(shown[key]["shade"], 3) for key in (("a", "t"), ("b", "t"), ("c", "t"))]
    assert shades == [0, 1, 0.5]
    assert shown["b", "t"]["text"] == "0.4*"
    assert shown["a", "u"]["shade"] == 0


def test_costs_of_probes_are_dots_with_a_mean():
    table = [("shift=1", "RoPE", 0.0), ("shift=1", "RoPE", 0.5), ("window=2", "RoPER", 5.0)]
    points = pd.DataFrame(table, columns=["probe", "scheme", "cost"])
    chart = dots.costs(points, {"RoPE": "#0072b2", "RoPER": "#d55e00"}, "costs")
    assert [row["cost"] for row in rows(chart, "cost")] == [0.0, 0.5, 5.0]
    encodings = [node["x"] for node in nodes(render.specification(chart)) if "x" in node]
    assert "mean" in [each.get("aggregate") for each in encodings if isinstance(each, dict)]
    assert b"window=2" in render.svg(chart)


def test_attention_is_a_line_or_a_map_for_each_head():
    assert rows(attention.by_distance([[0.75, 0.25]]), "tokens back")[1] == {
        "head": "head 1",
        "tokens back": 1,
        "share": 0.25,
    }
    maps = rows(attention.maps([[[1.0, 0.0], [0.5, 0.5]]] * 2, 4), "query")
    assert len(maps) == 8
    assert maps[3] == {"head": "head 1", "query": 4, "key": 4, "share": 0.5}


def test_a_scheme_with_settings_has_its_colour_unless_beside_another():
    roper, plain = "roper (train.lr=2e-3)", CATALOGUE.color("roper")
    assert CATALOGUE.color(roper, ["rope", roper]) == plain
    beside = ["roper (train.lr=4e-3)", roper, "rope"]
    assert len({plain, *(CATALOGUE.color(scheme, beside) for scheme in beside)}) == 4


def chart_of_two() -> Panel:
    points = [(s, seed, x, 0.1 * x + seed, True) for s in "ab" for seed in (0, 1) for x in (0, 1)]
    colors = {"a": "#0072b2", "b": "#d55e00"}
    return Panel(points_frame(points), "steps", "loss", colors=colors)


def test_a_chart_is_the_same_bytes_after_others():
    """Though the renderer's clip paths count on from chart to chart."""
    here = render.svg(charts.lines(chart_of_two()))
    assert render.svg(charts.lines(chart_of_two())) == here
    assert re.search(rb'font-family="Liberation Sans', here)
    assert max(map(len, re.findall(rb"\.(\d+)", here.partition(b"</svg>")[0]))) < 6


@pytest.mark.slow
def test_a_chart_is_the_same_bytes_in_another_process():
    here = render.svg(charts.lines(chart_of_two()))
    code = (
        "import sys; sys.path.insert(0, 'tests'); import test_charts as t;"
        "sys.stdout.buffer.write(t.render.svg(t.charts.lines(t.chart_of_two())))"
    )
    command = [sys.executable, "-c", code]
    there = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    assert there == here


def test_a_chart_can_be_pdf():
    assert render.pdf(charts.lines(chart_of_two())).startswith(b"%PDF")


def test_a_page_can_filter_what_a_file_shows():
    """The same chart, with the same numbers."""
    file, page = (charts.lines(chart_of_two(), on_page=each) for each in (False, True))
    assert curves(file)[1] == curves(page)[1]
    assert [each["name"] for each in render.specification(page)["params"]] == ["pick"]
    assert "params" not in render.specification(file)


def test_losses_by_length_of_ones_own_task_are_losses():
    """Of a task that we do not show: it has no title of ours, and its text a known optimum."""
    slices = {"length_loss": {"64": (9, 1.4), "128": (9, 1.5)}}
    own = PREFIX | {"task": "shorter", "metric": "eval/accuracy", "slices": slices}
    found = only(runs({"rope": [1.0], "alibi": [1.0]}, **own))
    assert series.by_value(found, "length_loss").y == "nats above the Bayes-optimal loss"
