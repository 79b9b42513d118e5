"""Codes that give the same numbers: `python -m rope_lab.repeat` finds them and writes results/same_code.yaml."""

import functools
from pathlib import Path

import yaml

from rope_lab.places import ROOT

SAME = ROOT / "results" / "same_code.yaml"


@functools.cache
def same_codes(path: Path, precision: str) -> dict[str, str]:
    """Code → one of the codes that give the same numbers in a precision, the same for all of them.

    Codes that have no others are left out. Entries of before name no precision: they are of all.
    """
    found: dict[str, str] = {}
    for entry in yaml.safe_load(path.read_text("utf-8")) if path.exists() else []:
        if entry.get("precision", precision) != precision:
            continue
        first, second = (found.get(code, code) for code in (entry["code"], entry["same_as"]))
        found = {code: second if of == first else of for code, of in found.items()} | {first: second, second: second}
    return found


def numbers_of(code: str, precision: str) -> str:
    """What stands for the numbers that a code gives in a precision.

    The part of a plug-in, `…+91d3…`, is not of those that pair.
    """
    core = code.partition("+")[0]
    return same_codes(SAME, precision).get(core, core)


def own_part(code: str) -> str:
    """The part of a plug-in, `91d3…`; empty where the code has none."""
    return code.partition("+")[2]
