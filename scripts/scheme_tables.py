"""The tables of schemes in README.md and results/benchmark.md, from the yaml files and classes.

`python scripts/scheme_tables.py` rewrites them between their marks, `<!-- NAME -->`.
"""

from dataclasses import replace
from pathlib import Path

import yaml

from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.views.tables import between
from rope_lab.shipped import choices
from rope_lab.showing import costs, facts
from rope_lab.train import config, instantiate, trainer

ROOT = Path(__file__).resolve().parent.parent
GOALS = (
    "**[Which scheme for what](docs/which.md)** begins with your goal. Each name leads to a page: "
    "formula, picture,\ncost, scores, planned tests, who uses it."
)


def schemes_table() -> str:
    """A row per kind of schemes, with a link to the page of each."""
    rows = [GOALS, "", "| kind | `position=` |", "|---|---|"]
    for kind, names in facts.by_kind().items():
        title, meaning = facts.kind_title(kind)
        links = ", ".join(f"[`{name}`](docs/schemes/{name}.md)" for name in names)
        rows.append(f"| **{title}**: {meaning} | {links} |")
    return "\n".join(rows)


def cache_table() -> str:
    """Schemes by the numbers that a KV cache of our model holds per token and layer."""
    cfg = trainer.resolve(config.load(*costs.SIZE))
    schemes: dict[float, list[str]] = {}
    for name in choices("position"):
        position = instantiate.check_arguments("position", facts.node_of(name), [])
        schemes.setdefault(costs.cost(replace(cfg, position=position)).cached, []).append(name)
    base = next(numbers for numbers, those in schemes.items() if "rope" in those)
    rows = ["| `position=` | numbers per token and layer | relative to RoPE |", "|---|---|---|"]
    for numbers, those in sorted(schemes.items()):
        listed = ", ".join(f"`{name}`" for name in those)
        listed = "all others, RoPE and RoPER too" if numbers == base else listed
        rows.append(f"| {listed} | {numbers:g} | {numbers / base:.2f} |")
    return "\n".join(rows)


def times_table() -> str:
    """The step times of schemes over RoPE's, measured at several sizes."""
    part = yaml.safe_load(costs.TIMES.read_text("utf-8"))[0]
    heads = ["scheme", *part["sizes"]]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, ratios in part["ratios"].items():
        cells = [f"{median:.2f} ({low:.2f} to {high:.2f})" for median, low, high in ratios]
        rows.append(f"| {Catalogue().title(name)} | {' | '.join(cells)} |")
    return "\n".join(rows)


TABLES = {
    "schemes": ("README.md", schemes_table),
    "kv-cache": ("results/benchmark.md", cache_table),
    "step-times": ("results/benchmark.md", times_table),
}


def rewritten(page: str) -> str:
    """The text of a page with its tables rewritten."""
    text = (ROOT / page).read_text()
    for mark, (where, table) in TABLES.items():
        if where == page:
            begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
            text = between(ROOT / page, text, begin, end, f"\n{table()}\n")
    return text


if __name__ == "__main__":
    for each in ("README.md", "results/benchmark.md"):
        (ROOT / each).write_text(rewritten(each))
