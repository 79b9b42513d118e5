"""Tables of every scheme at its best learning rate, with the size of its KV cache and the time of a
step: of results/grid/, or of another FOLDER.

`python scripts/best_rates.py [FOLDER…]` rewrites the part of FOLDER/README.md between the marks
`<!-- best rates -->` and `<!-- /best rates -->`, from the kept runs beside it. They are those of
`rope-lab table FOLDER/table.yaml`, or of our table of the folder's name.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rope_lab import run_tables
from rope_lab.blocks import Block
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.answers import Comparison, answered
from rope_lab.results.plans.named_measure import measure_of
from rope_lab.results.records.catalogue import Catalogue, TaskReport
from rope_lab.results.records.frame import scheme_names
from rope_lab.results.records.kept import read_kept
from rope_lab.results.records.measures import LENGTH, LENGTH_LOSS, Measure
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm
from rope_lab.results.views.tables import NONE, Table, between, markdown, mean_of, paired
from rope_lab.showing import costs

BASELINE = "rope"
BEGIN, END = "<!-- best rates -->", "<!-- /best rates -->"
# Measures beside a task's own, of problems longer than in training, and their columns.
LONGER = {
    "needle": {"four times as long": f"{LENGTH}/256"},
    "text": {"at positions 129 to 256": f"{LENGTH_LOSS}/256"},
    "grid": {f"{columns} columns": f"{LENGTH}/{columns}" for columns in (6, 7, 8, 10)},
}
NOTE = (
    "Mean [95% interval] over seeds; differences are paired by seed, and not tested. KV cache: "
    f"calculated for a text of {costs.READ} tokens after training on {costs.TRAINED}, relative to "
    "RoPE, if a layer with a window keeps only its window's tokens, and one whose values are keys "
    "keeps them once. Step time: with evaluations, relative to RoPE, in these runs."
)


def pages_part(runs: Sequence[Run], blocks: Sequence[Block]) -> str:
    """A table for each task of a table, as Markdown. Raises ValueError if its blocks differ in
    more than their schemes.
    """
    first: dict[str, Block] = {}
    for block in blocks:
        for task in block.tasks:
            alike = replace(first.setdefault(task, block), task=block.task, seeds=block.seeds)
            if alike != block:
                raise ValueError(f"{task}: two blocks differ in more than their schemes")
    sizes: dict[str, float] = {}
    parts = [NOTE]
    for task, block in first.items():
        of_scheme = by_scheme(runs, block, task)
        if BASELINE not in of_scheme:
            continue
        for name in of_scheme.keys() - sizes.keys():
            sizes[name] = cached_numbers(name)
        report = Catalogue().report_of(of_scheme[BASELINE][0])
        parts += [f"## {report.title}", markdown(Table(rows(of_scheme, sizes, report, block)))]
    return "\n\n".join(parts)


def by_scheme(runs: Sequence[Run], block: Block, task: str) -> dict[str, list[Run]]:
    """The runs of a task in a block, but for those of its search. Raises ValueError if a seed of a
    scheme has two.
    """
    of_task = [run for run in runs if (run.task, run.scale) == (task, block.scale)]
    found: dict[str, list[Run]] = {}
    for name, run in zip(scheme_names(of_task), of_task, strict=True):
        if run.seed != block.search:
            found.setdefault(name, []).append(run)
    for name, of_name in found.items():
        if len({run.seed for run in of_name}) < len(of_name):
            raise ValueError(f"{task}, {name}: a seed has two runs, of two rates or recipes")
    return found


def rows(
    of_scheme: dict[str, list[Run]], sizes: dict[str, float], report: TaskReport, block: Block
) -> list[dict[str, str]]:
    """A row for each scheme, the best by the measure of the block first; sizes: of its cache."""
    base = of_scheme[BASELINE]
    ranked_by = measure_of(report, block.measure)
    measures = {report.measure.unit: report.measure}
    for title, metric in LONGER.get(base[0].task, {}).items():
        measures[title] = replace(report.measure, metric=metric)
    longest = [*measures.values()][-1]
    if ranked_by not in measures.values():
        measures[ranked_by.metric] = ranked_by
    found = []
    for name, runs in of_scheme.items():
        row = {"scheme": Catalogue().title(name), "learning rate": rate_of(runs, block)}
        diverged = sum(run.status == "diverged" for run in runs)
        for title, measure in measures.items():
            row[title] = mean_of(measure.values(runs), measure, diverged)
            if measure in (ranked_by, longest):
                row[f"{title}, difference from RoPE"] = difference(runs, base, measure)
        row["KV cache"] = f"{sizes[name] / sizes[BASELINE]:.2f}"
        row["step time"] = f"{step_seconds(runs) / step_seconds(base):.2f}"
        found.append((statistics.mean(map(ranked_by.gain, runs)), row))
    ranked = sorted(found, key=lambda each: each[0], reverse=True)
    return [row for _, row in ranked]


def difference(runs: Sequence[Run], base: Sequence[Run], measure: Measure) -> str:
    """Runs − base, over the seeds of both."""
    if runs is base:
        return NONE
    arms = Arm("", tuple(runs)), Arm("", tuple(base))
    return paired(answered(Comparison(Catalogue().report_of(base[0]), measure, *arms)))


def rate_of(runs: Sequence[Run], block: Block) -> str:
    """The learning rates of runs, and which of them are at the edge of the search."""
    edges = {}
    if len(block.rates) > 2:
        edges = {max(block.rates): ", the highest tried", min(block.rates): ", the lowest tried"}
    rates = sorted({run.settings["train.lr"] for run in runs})
    return " or ".join(f"{rate:g}{edges.get(rate, '')}" for rate in rates)


def step_seconds(runs: Sequence[Run]) -> float:
    return statistics.median(run.seconds / max(run.steps, 1) for run in runs)


def cached_numbers(name: str) -> float:
    """As costs.cached_numbers; name: `rope (q=0)`, as in tables."""
    scheme, _, own = name.removesuffix(")").partition(" (")
    settings = [f"position.{each}" for each in own.split(", ") if each]
    return costs.cached_numbers(scheme, *settings)


def rewritten(page: Path) -> str:
    """The text of a page with its tables rewritten, from the kept runs beside it."""
    own = page.with_name("table.yaml")
    found = run_tables.find(str(own) if own.exists() else page.parent.name)
    part = pages_part(read_kept(page.parent)[0], found[0].blocks)
    return between(page, page.read_text("utf-8"), BEGIN, END, f"\n{part}\n")


def pages() -> list[Path]:
    """The README pages in results/ with these marks."""
    every = sorted(RESULTS.glob("*/README.md"))
    return [page for page in every if BEGIN in page.read_text("utf-8")]


if __name__ == "__main__":
    given = [Path(folder) / "README.md" for folder in sys.argv[1:]]
    for page in given or pages():
        page.write_text(rewritten(page), "utf-8")
