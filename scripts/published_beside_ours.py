"""Published beside ours: results/checks.md, from checks.yaml and all kept runs."""

import pandas as pd
import yaml
from scipy import stats

from rope_lab.places import RESULTS
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.folders import read_or_warn
from rope_lab.results.records.kept import KEPT
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.results.views.tables import Table, markdown, mean_of, write_page
from rope_lab.text import errors_as_exit

HEAD = """# Published beside ours

Written by `make figures` from [checks.yaml](checks.yaml) and kept runs. \
Square brackets: 95% interval over seeds; round
ones: the range. A row of two schemes uses the seeds that both have.
"""
ROTATED = """## Which of q, k, v (queries, keys, values) and o (the output) are rotated

{}: best to worst {}. On Index the best differ by less than a problem of 128.

![our means and seeds over published losses, better is lower](figures/rotations.svg)
"""


def rows(checks: list[dict], groups: dict[str, list[Setup]]) -> list[dict[str, str]]:
    """A row a check."""
    made = []
    for check in checks:
        here = (g for g in groups.get(check["folder"], []) if g.recipe_id == check["recipe"])
        row = check | {"ours": ours(next(here, None), check["schemes"], check.get("wrong_by", {}))}
        made.append(
            {name: row[name] for name in ("check", "source", "published", "ours", "outcome")}
        )
    return made


def ours(setup: Setup | None, schemes: list[str], wrong_by: dict[str, list[int]]) -> str:
    """The mean of each scheme, of the seeds that all have; "not run" without runs.

    wrong_by: if given, the share of problems wrong at these values of an attribute instead
    """
    if setup and wrong_by:
        return _wrong(setup, schemes, wrong_by)
    if not setup:
        return "not run"
    values = pd.DataFrame({scheme: setup.of(scheme).value for scheme in schemes}).dropna()
    if values.empty:
        return "not run"
    measure, means = setup.measure, []
    for scheme in schemes:
        mean = mean_of(values[scheme], measure.digits, measure.most)
        means.append(f"{setup.published.title(scheme)} {mean}")
    return f"{'; '.join(means)} {measure.unit}"


def _wrong(setup: Setup, schemes: list[str], wrong_by: dict[str, list[int]]) -> str:
    """The percent of problems wrong at the given values of an attribute."""
    ((attribute, shown),) = wrong_by.items()
    slices = setup.slices(attribute)
    wrong = 100 - 100 * slices.pivot_table("mean", "scheme", "value")[shown]
    counts = slices.groupby("scheme").seed.nunique()
    cells = []
    for scheme in schemes:
        means = ", ".join(map("{:.2f}".format, wrong.loc[scheme]))
        cells.append(f"{setup.published.title(scheme)} {means} (n={counts[scheme]})")
    return f"{'; '.join(cells)} % wrong"


def rotated(groups: list[Setup], published: Published) -> dict[Setup, pd.DataFrame]:
    """The groups that have all published ways: the value of each seed, a column a way, the best
    published first.
    """
    found = {}
    for setup in groups:
        values = setup.finished.pivot_table(index="seed", columns="scheme", values="value")
        ours = values.reindex(columns=list(published.rotations["loss"])).dropna()
        if len(ours):
            found[setup] = ours.set_axis(list(losses(published)), axis=1)
    return found


def losses(published: Published) -> dict[str, float]:
    """The published loss of each way, `qk`."""
    return {
        row["rotated"].replace(", ", ""): row["loss"]
        for row in published.rotations["loss"].values()
    }


def orders(found: dict[Setup, pd.DataFrame], published: Published) -> list[dict[str, str]]:
    """A row a group: the rank correlation of our order with the published one."""
    theirs, made = [*losses(published).values()], []
    for setup, values in found.items():
        ours = -setup.measure.sign * values
        each = [float(stats.spearmanr(row, theirs).statistic) for row in ours.to_numpy()]
        mean = float(stats.spearmanr(ours.mean(), theirs).statistic)
        row = {
            "task": f"{setup.title}, {setup.scale}",
            "rank correlation of the means": f"{mean:.2f}",
            "rank correlation per seed, mean": mean_of(each, 2, most=1),
            "best to worst here": ", ".join(ours.mean().sort_values(kind="stable").index),
        }
        made.append(row)
    return made


def figure(found: dict[Setup, pd.DataFrame], published: Published) -> bytes:
    """Each seed of each way, and their mean, over its published loss; a panel a group, better is
    lower.
    """
    from rope_lab.results.views import dots, render  # here: slow to import

    panels = []
    for setup, values in found.items():
        points = values.melt(var_name="name", value_name="ours")
        points = points.assign(theirs=points.name.map(losses(published)))
        title = f"{setup.title}, {setup.scale}"
        panels.append(dots.Scatter(title, setup.measure.unit, points, setup.measure.better))
    return render.svg(dots.rotations(panels))


@errors_as_exit()
def main() -> None:
    published = Published()
    checks = yaml.safe_load((RESULTS / "checks.yaml").read_bytes())
    folders = [path.parent for path in sorted(RESULTS.glob(f"**/{KEPT}"))]
    groups = {
        folder.relative_to(RESULTS).as_posix(): setups_of(read_or_warn([folder]), published)
        for folder in folders
    }
    found = rotated([g for each in groups.values() for g in each], published)
    heading = ROTATED.format(published.rotations["source"], ", ".join(losses(published))).rstrip()
    parts = [
        HEAD.rstrip(),
        markdown(Table(rows(checks, groups))),
        heading,
        markdown(Table(orders(found, published))),
    ]
    write_page(RESULTS / "checks.md", parts, {"rotations.svg": figure(found, published)})


if __name__ == "__main__":
    main()
