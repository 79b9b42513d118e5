"""Published beside ours: results/checks.md, from checks.yaml and all kept runs."""

import numpy as np
import yaml
from scipy import stats

from rope_lab.files import read_file, write_whole
from rope_lab.places import RESULTS
from rope_lab.results.folders import read
from rope_lab.results.groups import Group, group
from rope_lab.results.kept import KEPT
from rope_lab.results.published import Published
from rope_lab.results.stats import t_interval
from rope_lab.results.tables import Table, markdown, mean_of
from rope_lab.text import errors_as_exit, say

HEAD = """# Published beside ours

Written by `make figures` from [checks.yaml](checks.yaml) and all kept runs. Square brackets: 95% interval over seeds;
round ones: the range. What did not come out is said as plainly as what did.
"""


def rows(checks: list[dict], groups: list[Group]) -> list[dict[str, str]]:
    """A row a check."""
    by_recipe = {g.recipe_id: g for g in groups}
    return [
        {
            "check": check["what"],
            "source": check["source"],
            "published": check["published"],
            "ours": ours(by_recipe.get(check["recipe"]), check["schemes"]),
            "outcome": check["said"],
        }
        for check in checks
    ]


def ours(g: Group | None, schemes: list[str]) -> str:
    """The mean of each scheme; "not run" without runs."""
    if g is None or g.finished.empty:
        return "not run"
    means = (f"{g.published.title(s)} {mean_of(g.of(s).value, g.metric.digits, g.metric.most)}" for s in schemes)
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
    kept = {run.run_id: run for path in sorted(RESULTS.glob(f"**/{KEPT}")) for run in read(path.parent)[0]}
    groups = group(list(kept.values()), published)
    order = ", ".join(rotated(published))
    parts = [HEAD.rstrip(), markdown(Table(rows(checks, groups)))]
    parts += [
        "## Which of q, k, v and the output are rotated",
        f"{published.rotations['source']}: best to worst {order}.",
    ]
    text = "\n\n".join([*parts, markdown(Table(orders(groups, published)))]) + "\n"
    write_whole(page, text.encode())
    say(text)


if __name__ == "__main__":
    main()
