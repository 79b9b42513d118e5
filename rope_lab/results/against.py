"""`--against`: every run beside the run of another scheme, of another value of a setting, or of another recipe."""

import json
from typing import Any, NamedTuple

from rope_lab.results.frame import full_settings
from rope_lab.results.groups import Group, paired
from rope_lab.results.published import Published
from rope_lab.results.stats import ALPHA, paired_difference
from rope_lab.results.sweeps import ordered
from rope_lab.results.tables import NONE, Section, Table, number, signed, strong_if
from rope_lab.results.verdicts import family_of
from rope_lab.text import ConfigError, nearest, show

OWN = "recipe"  # the recipe that conf/ has for a task and scale


class Cell(NamedTuple):
    """The runs of a scheme under a recipe, and all their settings, the scheme's own as `position.…`."""

    group: Group
    scheme: str
    position: str
    settings: dict[str, Any]


def question(published: Published, groups: list[Group], contender: str | None, against: str | None) -> Published:
    """`published` with these schemes, by name or title, as contender and baseline. Raises ConfigError.

    against: a scheme; a setting or a recipe is for `section`
    """
    if against and not is_recipe(against, groups):
        more = "; a setting is given as train.lr=1e-3, a recipe by its id, and the one of conf/ as `recipe`"
        published = published.against(_scheme("--against", against, groups, more))
    if contender:
        scheme = _scheme("--contender", contender, groups)
        if scheme == published.baseline:
            raise ConfigError(f"--contender {contender}: is the baseline too; --against names another")
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
    """The scheme of this name or title that has a run. Raises ConfigError."""
    names = {name: scheme for g in groups for scheme in g.schemes for name in (scheme, g.published.title(scheme))}
    found = names.get(asked) or {name.lower(): scheme for name, scheme in names.items()}.get(asked.lower())
    if not found:
        known = nearest(asked, sorted(_schemes(groups)), "")
        raise ConfigError(f"{option} {asked}: no run is of this scheme ({known}){more}")
    return found


def _schemes(groups: list[Group]) -> set[str]:
    return {scheme for group in groups for scheme in group.schemes}


def section(asked: str, groups: list[Group]) -> Section:
    """Every scheme and recipe beside the reference, paired by seed. Raises ConfigError."""
    cells = []
    for group in groups:
        for scheme, run in group.runs.drop_duplicates("scheme")[["scheme", "run"]].itertuples(index=False):
            cells.append(Cell(group, scheme, run.position, full_settings(run)))
    key, is_setting, text = asked.partition("=")
    value = _word(_parsed(text))
    if is_setting:
        _check_setting(asked, key, value, cells)
    rows, p_values = [], []
    for cell in cells:
        for other in cells:
            if _has_value(other, cell, key, value) if is_setting else _has_recipe(other, cell, asked):
                row, p = _row(cell, other)
                rows.append(row)
                p_values.append(p)
                break
    there = f"runs with {asked}" if is_setting else "its own recipe" if asked == OWN else f"recipe {asked}"
    if not rows:
        lacking = "no recipe differs from it in that alone" if is_setting else f"no scheme has runs beside {there}"
        raise ConfigError(f"--against {asked}: {lacking}")
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


def _row(cell: Cell, other: Cell) -> tuple[dict[str, str], float]:
    """A row of the table, and its p."""
    metric, published = cell.group.metric, cell.group.published
    pairs = paired(*(each.group.of(each.scheme) for each in (cell, other)))
    d = None
    if len(pairs):
        d = paired_difference(pairs.value, pairs.value_other, published.tests(cell.group.scale, len(pairs)))
    keys = [key for key in _differing(cell, other) if key in cell.settings]
    more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
    row = {
        "task": cell.group.report.title,
        "scale": cell.group.scale,
        "scheme": published.title(cell.scheme),
        "here": ", ".join(f"{key}={show(cell.settings[key])}" for key in keys[:4]) + more,
        "there → here": " → ".join(number(pairs[name].mean(), metric.digits) for name in ("value_other", "value")),
        "here − there": signed(d.difference, metric.digits) if d else NONE,
        "pairs": str(len(pairs)),
        "unit": f"{metric.unit}, {metric.better} is better",
    }
    return row, d.p if d else float("nan")


def _check_setting(asked: str, key: str, value: str, cells: list[Cell]) -> None:
    known = {name for cell in cells for name in cell.settings}
    if key not in known:
        raise ConfigError(f"--against {asked}: no run has a setting {key}; {nearest(key, sorted(known), '')}")
    values = {_word(cell.settings.get(key)): cell.settings.get(key) for cell in cells}
    if value not in values:
        there = ", ".join(map(show, ordered(values.values())))
        raise ConfigError(f"--against {asked}: no run has this value; there are {there}")


def _has_value(other: Cell, cell: Cell, key: str, value: str) -> bool:
    """Whether `other` has this value of a setting and otherwise the settings of `cell`."""
    same = other.position == cell.position and (other.group.task, other.group.scale) == (
        cell.group.task,
        cell.group.scale,
    )
    return same and _word(other.settings.get(key)) == value and _differing(cell, other) == [key]


def _has_recipe(other: Cell, cell: Cell, asked: str) -> bool:
    """Whether `other` is the scheme of `cell` under the recipe that is asked for."""
    if (other.group.task, other.scheme) != (cell.group.task, cell.scheme) or other.group is cell.group:
        return False
    if asked == OWN:
        return not other.group.variant and other.group.scale == cell.group.scale
    return other.group.recipe_id.startswith(asked)


def _differing(cell: Cell, other: Cell) -> list[str]:
    """The settings in which two cells differ."""
    first, second = cell.settings, other.settings
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
