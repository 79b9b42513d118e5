"""The tables of results/shipped/README.md: every scheme at its best learning rate, with the size of
its KV cache and the time of a step.

`python scripts/shipped_page.py [FOLDER]` rewrites them between their marks, `<!-- shipped -->`,
from the kept runs of `rope-lab table shipped`.
"""

import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from rope_lab import table
from rope_lab.places import RESULTS
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import Published, TaskReport
from rope_lab.results.records.kept import read_kept
from rope_lab.results.records.measures import LENGTH, LENGTH_LOSS, Measure
from rope_lab.results.records.run import Run
from rope_lab.results.views.tables import NONE, Table, counted, markdown, mean_of, signed
from rope_lab.train import config, trainer

BASELINE = "rope"
MARK = re.compile(r"(<!-- shipped -->\n).*?(\n<!-- /shipped -->)", re.DOTALL)
# Measures beside a task's own, in texts four times as long as in training.
LONGER = {"needle": f"{LENGTH}/256", "text": f"{LENGTH_LOSS}/256"}
SIZE = ("model.d_model=64", "model.n_heads=4", "model.n_layers=6", "device=cpu")
TRAINED, READ = 128, 512  # tokens of a text in training, and in the cache
NOTE = (
    "Mean [95% interval] over seeds; differences are paired by seed, and not tested. KV cache: "
    f"numbers for a text of {READ} tokens after training on {TRAINED}, relative to RoPE. A layer "
    "with a window keeps so many tokens; one whose values are keys keeps them once. Step time: "
    "with evaluations, relative to RoPE on the same machine."
)


def pages_part(runs: Sequence[Run]) -> str:
    """A table for each task of the table `shipped`, as Markdown."""
    sizes: dict[str, float] = {}
    parts = [NOTE]
    for block in table.find("shipped")[0].blocks:
        of_scheme: dict[str, list[Run]] = {}
        for run in runs:
            here = (run.task, run.scale) == (block.task, block.scale)
            if here and run.seed != block.search:
                of_scheme.setdefault(run.position, []).append(run)
        if BASELINE not in of_scheme:
            continue
        for name in of_scheme.keys() - sizes.keys():
            sizes[name] = cached_numbers(name)
        title = report_of(of_scheme[BASELINE]).title
        parts += [f"## {title}", markdown(Table(rows(of_scheme, sizes)))]
    return "\n\n".join(parts)


def report_of(runs: Sequence[Run]) -> TaskReport:
    """The report of the task."""
    first = runs[0]
    return Published().report_of(first)


def rows(of_scheme: dict[str, list[Run]], sizes: dict[str, float]) -> list[dict[str, str]]:
    """A row for each scheme, the best first; sizes: of its cache."""
    report = report_of(of_scheme[BASELINE])
    measures = {report.measure.unit: report.measure}
    longer = LONGER.get(of_scheme[BASELINE][0].task)
    if longer:
        measures["four times as long"] = replace(report.measure, metric=longer)
    base = of_scheme[BASELINE]
    found = []
    for name, runs in of_scheme.items():
        row = {"scheme": Published().title(name), "learning rate": rate_of(runs)}
        for title, measure in measures.items():
            row[title] = mean_of(values(runs, measure), measure.digits, measure.most)
            row[f"{title}, difference from RoPE"] = difference(runs, base, measure)
        row["KV cache"] = f"{sizes[name] / sizes[BASELINE]:.2f}"
        row["step time"] = f"{step_seconds(runs) / step_seconds(base):.2f}"
        found.append((report.measure.sign * values(runs, report.measure).mean(), row))
    ranked = sorted(found, key=lambda each: each[0], reverse=True)
    return [row for _, row in ranked]


def values(runs: Sequence[Run], measure: Measure) -> pd.Series:
    """The values of runs that have one, by seed."""
    return pd.Series({run.seed: measure.of(run) for run in runs}, dtype=float).dropna()


def difference(runs: Sequence[Run], base: Sequence[Run], measure: Measure) -> str:
    """Runs − base, over the seeds of both."""
    pairs = (values(runs, measure) - values(base, measure)).dropna()
    if runs is base or pairs.empty:
        return NONE
    return counted(signed(t_interval(pairs.to_numpy()), measure.digits), len(pairs))


def rate_of(runs: Sequence[Run]) -> str:
    return " or ".join(sorted({f"{run.settings['train.lr']:g}" for run in runs}))


def step_seconds(runs: Sequence[Run]) -> float:
    return statistics.median(run.seconds / run.steps for run in runs)


@torch.no_grad()
def cached_numbers(name: str) -> float:
    """Numbers that a KV cache has to hold after READ tokens."""
    cfg = trainer.resolve(config.load(f"position={name}", f"train.seq_len={TRAINED}", *SIZE))
    model = trainer.build_model(cfg, vocabulary=8)
    cache = model.new_cache(1, READ)
    sizes = []
    for _ in range(2):  # a scheme's own numbers grow with each token
        model(torch.zeros(1, 1, dtype=torch.long), cache=cache)
        sizes.append([layer.nbytes for layer in cache])
    total = 0.0
    for number, (keys, of_values) in enumerate(model.widths):
        scheme = model.position.in_layer(number)
        width = keys + of_values if scheme.projects_values else max(keys, of_values)
        own = (sizes[1][number] - sizes[0][number]) / model.embedding.weight.element_size()
        total += min(scheme.window or READ, READ) * (cfg.model.n_heads * width + own)
    return total


def rewritten(page: Path) -> str:
    """The text of a page with its tables rewritten, from the kept runs beside it."""
    part = pages_part(read_kept(page.parent)[0])
    text, found = MARK.subn(lambda m: m[1] + part + m[2], page.read_text("utf-8"))
    if found != 1:
        raise ValueError(f"{page}: must have <!-- shipped --> and <!-- /shipped --> once")
    return text


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "shipped"
    (folder / "README.md").write_text(rewritten(folder / "README.md"), "utf-8")
