"""The tables of schemes in README.md and results/benchmark.md, from the yaml files and classes.

`python scripts/scheme_tables.py` rewrites them between their marks, `<!-- NAME -->`.
"""

import importlib
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from rope_lab.train import config, instantiate, trainer

ROOT = Path(__file__).resolve().parent.parent
# Modules of rope_lab.model.schemes, in the order of the README.
KINDS = (
    *("added", "rotary", "rotary_variants", "phases", "longer", "shared_values", "layers"),
    *("previous", "random_positions", "biases", "content", "content_biases", "coordinates"),
)
SIZE = ("model.d_model=128", "model.n_heads=4", "model.n_layers=3", "device=cpu")


def schemes_table() -> str:
    """A row per scheme, by kind and then in the order of the classes."""
    of_module: dict[str, list[tuple[int, str]]] = {}
    for name in instantiate.names("position"):
        cls = next(instantiate.classes(node(name)))
        module = cls.__module__.rpartition(".")[2]
        of_module.setdefault(module, []).append((inspect.getsourcelines(cls)[1], name))
    rows = ["| `position=` | what it does (linked to its paper) |", "|---|---|", _row("none")]
    for kind in KINDS:
        module = importlib.import_module(f"rope_lab.model.schemes.{kind}")
        title, _, meaning = module.__doc__.splitlines()[0].rstrip(".").partition(": ")
        rows.append(f"| **[{title}](rope_lab/model/schemes/{kind}.py)** | **{meaning}** |")
        rows += [_row(name) for _, name in sorted(of_module[kind])]
    return "\n".join(rows)


def _row(name: str) -> str:
    return f"| `{name}` | {instantiate.summary('position', name)} |"


def cache_table() -> str:
    """Schemes by the numbers that a KV cache of our model holds per token and layer."""
    cfg = trainer.resolve(config.load(*SIZE))
    schemes: dict[float, list[str]] = {}
    for name in instantiate.names("position"):
        position = instantiate.check_arguments("position", node(name), [])
        schemes.setdefault(cached_numbers(replace(cfg, position=position)), []).append(name)
    base = next(numbers for numbers, those in schemes.items() if "rope" in those)
    rows = ["| `position=` | numbers per token and layer | relative to RoPE |", "|---|---|---|"]
    for numbers, those in sorted(schemes.items()):
        listed = ", ".join(f"`{name}`" for name in those)
        listed = "all others, RoPE and RoPER too" if numbers == base else listed
        rows.append(f"| {listed} | {numbers:g} | {numbers / base:.2f} |")
    return "\n".join(rows)


def cached_numbers(cfg: config.Config) -> float:
    """Numbers that each token adds to the cache of a layer; measured from 64 to 128 tokens."""
    model = trainer.build_model(cfg, vocabulary=8)
    bytes_of_64, bytes_of_128 = (slots * model.bytes_of_token(slots) for slots in (64, 128))
    number = model.embedding.weight.element_size()
    return round((bytes_of_128 - bytes_of_64) / 64 / number / cfg.model.n_layers, 6)


def node(name: str) -> dict[str, Any]:
    """The settings of a scheme's yaml file."""
    return yaml.safe_load((instantiate.CONF / "position" / f"{name}.yaml").read_text("utf-8"))


TABLES = {
    "README.md": ("schemes", schemes_table),
    "results/benchmark.md": ("kv-cache", cache_table),
}


def rewritten(page: str) -> str:
    """The text of a page with its table rewritten."""
    mark, table = TABLES[page]
    pattern = rf"(<!-- {mark} -->\n).*?(\n<!-- /{mark} -->)"
    text = (ROOT / page).read_text()
    new, found = re.subn(pattern, lambda m: m[1] + table() + m[2], text, flags=re.DOTALL)
    if found != 1:
        raise ValueError(f"{page}: must have <!-- {mark} --> and <!-- /{mark} --> once")
    return new


if __name__ == "__main__":
    for each in TABLES:
        (ROOT / each).write_text(rewritten(each))
