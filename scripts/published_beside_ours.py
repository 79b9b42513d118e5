"""Published beside ours: results/checks.md, from checks.yaml and all kept runs."""

from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd
import yaml
from scipy import stats

from rope_lab.places import RESULTS
from rope_lab.results.comparisons.answers import samples
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read_or_warn
from rope_lab.results.records.kept import KEPT
from rope_lab.results.records.measures import ACCURACY, LENGTH, Measure
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.results.views.tables import Table, markdown, mean_of, write_page
from rope_lab.text import errors_as_exit

HEAD = """# Published beside ours

Written by `make figures` from [checks.yaml](checks.yaml) and kept runs. \
Square brackets: 95% interval over seeds; round
ones: the range. A row of several schemes uses the seeds that all have, or says n for each.
"""
ROTATED = """## Which of q, k, v (queries, keys, values) and o (the output) are rotated

{}: best to worst {}. On Index the best differ by less than a problem of 128.

![our means and seeds over published losses, better is lower](figures/rotations.svg)
"""

BLUE = "#1f77b4"
# Sides of a dot for its name: a step there as a share of the axes, and where the text begins.
PLACES = {
    "right": ((0.14, 0), {"align": "left", "dx": 7}),
    "left": ((-0.14, 0), {"align": "right", "dx": -7}),
    "above": ((0, 0.08), {"dy": -11}),
    "below": ((0, -0.08), {"dy": 13}),
}


OPTIONS = ("wrong_by", "length", "search", "every_seed")  # of `ours`


def rows(checks: list[dict], groups: dict[str, list[Setup]]) -> list[dict[str, str]]:
    """A row a check."""
    made = []
    for check in checks:
        recipes = check["recipe"].split()
        setups = [each for each in groups.get(check["folder"], []) if each.recipe_id in recipes]
        options = {key: check[key] for key in OPTIONS if key in check}
        row = check | {"ours": ours(setups, check["schemes"], **options)}
        made.append(
            {name: row[name] for name in ("check", "source", "published", "ours", "outcome")}
        )
    return made


def ours(
    setups: list[Setup],
    schemes: list[str],
    wrong_by: dict[str, list[int]] | None = None,
    length: int | None = None,
    search: int | None = None,
    every_seed: bool = False,
) -> str:
    """The mean of each scheme, of the seeds that all have; "not run" without runs.

    wrong_by: if given, the share of problems wrong at these values of an attribute instead
    length:   of the problems that count; None: those of training
    search:   the seed of a search for learning rates, which does not count
    every_seed: also those that not all schemes have
    """
    if setups and wrong_by:
        return _wrong(setups[0], schemes, wrong_by)
    if not set(schemes) <= {scheme for setup in setups for scheme in setup.schemes}:
        return "not run"
    measure, catalogue = setups[0].measure, setups[0].catalogue
    if length:
        measure = replace(measure, metric=f"{LENGTH}/{length}")
    of_scheme = {scheme: values(setups, scheme, measure) for scheme in schemes}
    table = pd.DataFrame(of_scheme)
    if not every_seed:
        table = table.dropna()
    table = table[table.index != search]
    if table.empty:
        return "not run"
    means = []
    for scheme in schemes:
        mean = mean_of(table[scheme].dropna(), measure)
        means.append(f"{catalogue.title(scheme)} {mean}")
    return f"{'; '.join(means)} {measure.unit}"


def values(setups: list[Setup], scheme: str, measure: Measure) -> pd.Series:
    """The numbers of a scheme's runs by seed, under the recipe that most of them have."""
    found = [samples(setup.arm(scheme), measure).value for setup in setups]
    return max(found, key=len)


def _wrong(setup: Setup, schemes: list[str], wrong_by: dict[str, list[int]]) -> str:
    """The percent of problems wrong at the given values of an attribute."""
    ((attribute, shown),) = wrong_by.items()
    slices = setup.slices(attribute)
    wrong = 100 - 100 * slices.pivot_table("mean", "scheme", "value")[shown]
    counts = slices.groupby("scheme").seed.nunique()
    cells = []
    for scheme in schemes:
        means = ", ".join(map("{:.2f}".format, wrong.loc[scheme]))
        cells.append(f"{setup.catalogue.title(scheme)} {means} (n={counts[scheme]})")
    return f"{'; '.join(cells)} % wrong"


def rotated(groups: list[Setup], catalogue: Catalogue) -> dict[Setup, pd.DataFrame]:
    """The groups that have all published ways: the value of each seed, a column a way, the best
    published first.
    """
    found = {}
    for setup in groups:
        values = setup.finished.pivot_table(index="seed", columns="scheme", values="value")
        ours = values.reindex(columns=list(catalogue.rotations["loss"])).dropna()
        if len(ours):
            found[setup] = ours.set_axis(list(losses(catalogue)), axis=1)
    return found


def losses(catalogue: Catalogue) -> dict[str, float]:
    """The published loss of each way, `qk`."""
    return {
        row["rotated"].replace(", ", ""): row["loss"]
        for row in catalogue.rotations["loss"].values()
    }


def orders(found: dict[Setup, pd.DataFrame], catalogue: Catalogue) -> list[dict[str, str]]:
    """A row a group: the rank correlation of our order with the published one."""
    theirs = [*losses(catalogue).values()]
    made = []
    for setup, values in found.items():
        ours = -setup.measure.sign * values
        each = [float(stats.spearmanr(row, theirs).statistic) for row in ours.to_numpy()]
        mean = float(stats.spearmanr(ours.mean(), theirs).statistic)
        row = {
            "task": f"{setup.title}, {setup.scale}",
            "rank correlation of the means": f"{mean:.2f}",
            "rank correlation per seed, mean": mean_of(each, replace(ACCURACY, digits=2)),
            "best to worst here": ", ".join(ours.mean().sort_values(kind="stable").index),
        }
        made.append(row)
    return made


def figure(found: dict[Setup, pd.DataFrame], catalogue: Catalogue) -> bytes:
    """Each seed of each way, and their mean, over its published loss; a panel a group, better is
    lower.
    """
    from rope_lab.results.views import render  # here: slow to import

    panels = []
    for setup, values in found.items():
        points = values.melt(var_name="name", value_name="ours")
        points = points.assign(theirs=points.name.map(losses(catalogue)))
        panels.append(_scatter(points, setup))
    return render.svg(alt.hconcat(*panels, spacing=24))


def _scatter(points: pd.DataFrame, setup: Setup) -> alt.LayerChart:
    """Seeds pale, means bold and named.

    points: `name theirs ours`, a row a seed
    """
    better_below = setup.measure.higher_is_better
    down = alt.Scale(zero=False, reverse=better_below, nice=False, padding=10)
    axes = {
        "x": alt.X("theirs:Q", title="published loss").scale(zero=False, padding=22),
        "y": alt.Y("ours:Q", title=setup.measure.unit, scale=down),
    }
    means = points.groupby(["name", "theirs"], sort=False).ours.mean().reset_index()
    means = means.assign(place=places(means, better_below))
    layers = [
        alt.Chart(points).mark_circle(size=22, opacity=0.4, color=BLUE).encode(**axes),
        alt.Chart(means).mark_circle(size=70, opacity=1, color=BLUE).encode(**axes),
    ]
    for place, (_, style) in PLACES.items():
        own = alt.Chart(means[means.place == place]).mark_text(fontSize=11, **style)
        layers.append(own.encode(**axes, text="name:N"))
    title = alt.TitleParams(f"{setup.title}, {setup.scale}", fontSize=12)
    return alt.layer(*layers).properties(width=190, height=210, title=title)


def places(means: pd.DataFrame, reverse: bool) -> list[str]:
    """The side of each dot that is farthest from other dots, for its name.

    reverse: whether greater values are lower on the screen
    """
    shares = means[["theirs", "ours"]]
    shares = (shares - shares.min()) / (shares.max() - shares.min()).replace(0, 1)
    dots = shares.to_numpy() * [1, -1 if reverse else 1]
    found = []
    for at, dot in enumerate(dots):
        others = np.delete(dots, at, axis=0)
        room = {}
        for side, (step, _) in PLACES.items():
            room[side] = np.hypot(*(dot + step - others).T).min(initial=np.inf)
        found.append(max(room, key=room.get))
    return found


@errors_as_exit()
def main() -> None:
    catalogue = Catalogue()
    checks = yaml.safe_load((RESULTS / "checks.yaml").read_bytes())
    folders = [path.parent for path in sorted(RESULTS.glob(f"**/{KEPT}"))]
    groups = {
        folder.relative_to(RESULTS).as_posix(): setups_of(read_or_warn([folder]), catalogue)
        for folder in folders
    }
    found = rotated([g for each in groups.values() for g in each], catalogue)
    heading = ROTATED.format(catalogue.rotations["source"], ", ".join(losses(catalogue))).rstrip()
    parts = [
        HEAD.rstrip(),
        markdown(Table(rows(checks, groups))),
        heading,
        markdown(Table(orders(found, catalogue))),
    ]
    write_page(RESULTS / "checks.md", parts, {"rotations.svg": figure(found, catalogue)})


if __name__ == "__main__":
    main()
