"""Published beside ours: results/checks.md, from checks.yaml and all kept runs."""

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from rope_lab.files import read_file
from rope_lab.places import RESULTS
from rope_lab.results.folders import read
from rope_lab.results.groups import Group, group
from rope_lab.results.kept import KEPT
from rope_lab.results.published import Published
from rope_lab.results.stats import t_interval
from rope_lab.results.tables import Table, markdown, mean_of, write_page
from rope_lab.text import errors_as_exit, say

HEAD = """# Published beside ours

Written by `make figures` from [checks.yaml](checks.yaml) and kept runs. Square brackets: 95% interval over seeds; round
ones: the range. Of two schemes, the seeds that both have.
"""


def rows(checks: list[dict], groups: dict[str, list[Group]]) -> list[dict[str, str]]:
    """A row a check."""
    by_recipe = {(g.recipe_id, folder): g for folder, each in groups.items() for g in each}
    return [
        {
            "check": check["what"],
            "source": check["source"],
            "published": check["published"],
            "ours": ours(
                by_recipe.get((check["recipe"], check["folder"])), check["schemes"], check.get("wrong_by", {})
            ),
            "outcome": check["said"],
        }
        for check in checks
    ]


def ours(g: Group | None, schemes: list[str], wrong_by: dict[str, list[int]]) -> str:
    """The mean of each scheme, of the seeds that all have; "not run" without runs.

    wrong_by: an attribute → its values: what is shown instead is the share of problems wrong at each
    """
    if g and wrong_by:
        ((attribute, shown),) = wrong_by.items()
        means = 100 - 100 * g.slices(attribute).pivot_table("mean", "scheme", "value")[shown]
        counts = g.finished.scheme.value_counts()
        cells = (", ".join(f"{mean:.2f}" for mean in means.loc[s]) + f" (n={counts[s]})" for s in schemes)
        return "; ".join(f"{g.published.title(s)} {cell}" for s, cell in zip(schemes, cells, strict=True)) + " % wrong"
    values = pd.DataFrame({s: g.of(s).value for s in schemes}).dropna() if g else pd.DataFrame()
    if values.empty:
        return "not run"
    means = (f"{g.published.title(s)} {mean_of(values[s], g.metric.digits, g.metric.most)}" for s in schemes)
    return f"{'; '.join(means)} {g.metric.unit}"


def orders(groups: list[Group], published: Published) -> list[dict[str, str]]:
    """A row for each group that has all ways of rotating: the rank correlation of our order with the published one."""
    losses, found = {s: row["loss"] for s, row in published.rotations["loss"].items()}, []
    for g in groups:
        values = g.finished.pivot_table(index="seed", columns="scheme", values="value")
        if losses.keys() <= {*values}:
            ours = -g.metric.sign * values[list(losses)].dropna()
            each = [float(stats.spearmanr(row, [*losses.values()]).statistic) for row in ours.to_numpy()]
            over, mean = t_interval(each), float(stats.spearmanr(ours.mean(), [*losses.values()]).statistic)
            found.append(
                {
                    "task": f"{g.title}, {g.scale}",
                    "rank correlation of the means": f"{mean:.2f}",
                    "of one seed, mean [95% interval]": f"{over.mean:.2f} [{over.low:.2f}, {min(over.high, 1):.2f}]",
                    "seeds": str(over.n),
                    "best to worst here": ", ".join(np.array(rotated(published))[np.argsort(ours.mean())]),
                }
            )
    return found


def rotated(published: Published) -> list[str]:
    return [row["rotated"].replace(", ", "") for row in published.rotations["loss"].values()]


@errors_as_exit()
def main() -> None:
    published, page = Published(), RESULTS / "checks.md"
    checks = yaml.safe_load(read_file(RESULTS / "checks.yaml"))
    folders = [path.parent for path in sorted(RESULTS.glob(f"**/{KEPT}"))]
    groups = {folder.relative_to(RESULTS).as_posix(): group(read(folder)[0], published) for folder in folders}
    order = ", ".join(rotated(published))
    parts = [HEAD.rstrip(), markdown(Table(rows(checks, groups)))]
    parts += [
        "## Which of q, k, v (queries, keys, values) and o (the output) are rotated",
        f"{published.rotations['source']}: best to worst {order}. On Index the best lie within a problem of 128.",
    ]
    text = (
        "\n\n".join([*parts, markdown(Table(orders([g for each in groups.values() for g in each], published)))]) + "\n"
    )
    write_page(page, text)
    say(text)


if __name__ == "__main__":
    main()
