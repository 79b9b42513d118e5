"""`--against`: every run beside the run of another scheme, of another value of a setting, or of another recipe."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rope_lab.results.frame import full_settings
from rope_lab.results.groups import Group, paired
from rope_lab.results.published import Published
from rope_lab.results.stats import ALPHA, paired_difference
from rope_lab.results.sweeps import ordered
from rope_lab.results.tables import NONE, Section, Table, number, signed, strong_if
from rope_lab.results.verdicts import family_of
from rope_lab.text import nearest, show

OWN = "recipe"  # the recipe that conf/ has for a task and scale


class NothingToCompare(ValueError):
    """The reference has no runs: the message says which references have."""


@dataclass(frozen=True)
class Cell:
    """The runs of a scheme under a recipe."""

    group: Group
    scheme: str

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings of the first run, the scheme's own as `position.…`."""
        runs = self.group.runs
        return full_settings(runs.run[runs.scheme == self.scheme].iloc[0])

    @cached_property
    def key(self) -> tuple[str, str, str]:
        """Task, scale and position encoding."""
        runs = self.group.runs
        return self.group.task, self.group.scale, runs.position[runs.scheme == self.scheme].iloc[0]


def question(published: Published, groups: list[Group], contender: str | None, against: str | None) -> Published:
    """`published` with these schemes, by name or title, as contender and baseline. Raises NothingToCompare.

    against: a scheme; a setting or a recipe is for `section`
    """
    if against and not is_recipe(against, groups):
        more = "; a setting is given as train.lr=1e-3, a recipe by its id, and the one of conf/ as `recipe`"
        published = published.against(_scheme("--against", against, groups, more))
    if contender:
        scheme = _scheme("--contender", contender, groups)
        if scheme == published.baseline:
            raise NothingToCompare(f"--contender {contender}: is the baseline too; --against names another")
        published = published.against(published.baseline, scheme)
    return published


def hint(published: Published, groups: list[Group]) -> str:
    """How to ask about a scheme of the user's own that verdicts are not about; empty without one."""
    own = [scheme for scheme in sorted(_schemes(groups)) if scheme.partition(" ")[0] not in published.schemes]
    if not own or published.contender in own:
        return ""
    return f"the verdicts are about {published.title(published.contender)}; about {own[0]}: --contender '{own[0]}'"


def is_recipe(asked: str, groups: list[Group]) -> bool:
    """Whether this is KEY=VALUE, `recipe`, or the beginning of one recipe's id, and no scheme."""
    recipes = {group.recipe_id for group in groups if len(asked) > 3 and group.recipe_id.startswith(asked)}
    return asked not in _schemes(groups) and ("=" in asked or asked == OWN or len(recipes) == 1)


def _scheme(option: str, asked: str, groups: list[Group], more: str = "") -> str:
    """The scheme of this name or title that has a run. Raises NothingToCompare."""
    names = {name: scheme for g in groups for scheme in g.schemes for name in (scheme, g.published.title(scheme))}
    found = names.get(asked) or {name.lower(): scheme for name, scheme in names.items()}.get(asked.lower())
    if not found:
        known = nearest(asked, sorted(_schemes(groups)), "")
        raise NothingToCompare(f"{option} {asked}: no run is of this scheme ({known}){more}")
    return found


def _schemes(groups: list[Group]) -> set[str]:
    return {scheme for group in groups for scheme in group.schemes}


def section(asked: str, groups: list[Group]) -> Section:
    """Every scheme and recipe beside the reference, paired by seed. Raises NothingToCompare."""
    cells = [Cell(group, scheme) for group in groups for scheme in group.schemes]
    is_reference = _has_value(asked, cells) if "=" in asked else _has_recipe(asked)
    rows, p_values = [], []
    for cell in cells:
        other = next((each for each in cells if is_reference(each, cell)), None)
        if other is None:
            continue
        metric, published = cell.group.metric, cell.group.published
        pairs = paired(*(each.group.of(each.scheme) for each in (cell, other)))
        tested = published.tests(cell.group.scale, len(pairs))
        d = None if pairs.empty else paired_difference(pairs.value, pairs.value_other, tested)
        means = (number(values.mean(), metric.digits) for values in (pairs.value_other, pairs.value))
        p_values.append(d.p if d else float("nan"))
        rows.append(
            {
                "task": cell.group.report.title,
                "scale": cell.group.scale,
                "scheme": published.title(cell.scheme),
                "here": _unlike(cell, other),
                "there → here": " → ".join(means) if d else NONE,
                "here − there": signed(d.difference, metric.digits) if d else NONE,
                "pairs": str(len(pairs)),
                "unit": f"{metric.unit}, {metric.better} is better",
            }
        )
    there = f"runs with {asked}" if "=" in asked else "its own recipe" if asked == OWN else f"recipe {asked}"
    if not rows:
        lacking = "no recipe differs from it in that alone" if "=" in asked else f"no run is beside one of {there}"
        raise NothingToCompare(f"--against {asked}: {lacking}")
    corrected, family = family_of(p_values, "comparisons here", "this comparison")
    for row, p in zip(rows, corrected, strict=True):
        row["here − there"] = strong_if(p < ALPHA, row["here − there"])
        row["p"] = number(p, None)
    note = (
        "Runs of the same scheme, paired by seed where their codes give the same numbers; here names what is unlike "
        "the reference. Intervals are 95% intervals over seeds (Student's t); p is of the paired t test, corrected "
        f"(Holm, 1979) for {family}."
    )
    return Section(f"Against {there}", [Table(rows, "Against", note)])


def _has_value(asked: str, cells: list[Cell]) -> Callable[[Cell, Cell], bool]:
    """Whether a cell differs from another in having this value of a setting alone. Raises NothingToCompare."""
    key, _, text = asked.partition("=")
    known = {name for cell in cells for name in cell.settings}
    if key not in known:
        raise NothingToCompare(f"--against {asked}: no run has a setting {key}; {nearest(key, sorted(known), '')}")
    value, values = _word(_parsed(text)), {_word(cell.settings.get(key)): cell.settings.get(key) for cell in cells}
    if value not in values:
        there = ", ".join(map(show, ordered(values.values())))
        raise NothingToCompare(f"--against {asked}: no run has this value; there are {there}")

    def is_reference(other: Cell, cell: Cell) -> bool:
        return (
            cell.key == other.key
            and _word(other.settings.get(key)) == value
            and _differing(cell.settings, other.settings) == [key]
        )

    return is_reference


def _has_recipe(asked: str) -> Callable[[Cell, Cell], bool]:
    """Whether a cell is another one of the same scheme, under that recipe."""

    def is_reference(other: Cell, cell: Cell) -> bool:
        same = (other.group.task, other.scheme) == (cell.group.task, cell.scheme) and other.group is not cell.group
        own = not other.group.variant and other.key == cell.key
        return same and (own if asked == OWN else other.group.recipe_id.startswith(asked))

    return is_reference


def _unlike(cell: Cell, other: Cell) -> str:
    """The settings of a cell that are not those of the other; at most four of them."""
    keys = [key for key in _differing(cell.settings, other.settings) if key in cell.settings]
    more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
    return ", ".join(f"{key}={show(cell.settings[key])}" for key in keys[:4]) + more


def _differing(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    return sorted(key for key in {*first, *second} if _word(first.get(key)) != _word(second.get(key)))


def _parsed(text: str) -> Any:
    """A value as it is typed: a number, true, false, null, a list, or a word."""
    for parse in (float, json.loads):
        try:
            return parse(text)
        except ValueError:
            continue
    return text


def _word(value: Any) -> str:
    """A value such that 4 and 4.0 are the same, and 1 and true are not."""
    return json.dumps(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)
