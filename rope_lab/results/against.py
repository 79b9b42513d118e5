"""`--against`: every run beside the run of another scheme, of another value of a setting, or of another recipe."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rope_lab.results.frame import full_settings
from rope_lab.results.groups import Group, matched, ordered
from rope_lab.results.published import Published
from rope_lab.results.stats import ALPHA, paired_difference
from rope_lab.results.tables import as_markdown, escaped, rounded, signed
from rope_lab.results.verdicts import family_of
from rope_lab.text import nearest, show

OWN = "recipe"  # the recipe that conf/ has for a task and scale


class NothingToCompare(ValueError):
    """What was asked for is not there: the message says what is."""


@dataclass(frozen=True)
class Cell:
    """The runs of a scheme under a recipe, and all their settings, the scheme's own as `position.…`."""

    group: Group
    scheme: str

    @cached_property
    def settings(self) -> dict[str, Any]:
        """As the first of the runs has them."""
        runs = self.group.runs
        return full_settings(runs.run[runs.scheme == self.scheme].iloc[0])

    @cached_property
    def key(self) -> tuple[str, str, str]:
        """Task, scale and the position encoding without what its settings say."""
        runs = self.group.runs
        return self.group.task, self.group.scale, runs.position[runs.scheme == self.scheme].iloc[0]


def question(published: Published, groups: list[Group], contender: str | None, against: str | None) -> Published:
    """`published` with these schemes, by name or title, as contender and baseline. Raises NothingToCompare.

    against: a scheme; what is none stays for `table`
    """
    if against and not is_recipe(against, groups):
        more = "; a setting is given as train.lr=1e-3, a recipe by its id, and its own recipe as `recipe`"
        published = published.against(_scheme("--against", against, groups, more))
    if contender:
        scheme = _scheme("--contender", contender, groups)
        if scheme == published.baseline:
            raise NothingToCompare(f"--contender {contender}: is the baseline too; --against names another")
        published = published.against(published.baseline, scheme)
    return published


def hint(published: Published, groups: list[Group]) -> str:
    """How to ask about a scheme of the user's own that verdicts are not about; empty where there is none."""
    own = [scheme for scheme in sorted(_schemes(groups)) if scheme.partition(" ")[0] not in published.schemes]
    if not own or published.contender in own:
        return ""
    return f"the verdicts are about {published.title(published.contender)}; about {own[0]}: --contender '{own[0]}'"


def is_recipe(asked: str, groups: list[Group]) -> bool:
    """Whether this is no scheme but KEY=VALUE, `recipe`, or the beginning of one recipe's id."""
    recipes = {group.recipe_id for group in groups if len(asked) > 3 and group.recipe_id.startswith(asked)}
    return asked not in _schemes(groups) and ("=" in asked or asked == OWN or len(recipes) == 1)


def _scheme(option: str, asked: str, groups: list[Group], more: str = "") -> str:
    """The scheme that has a run and this name or title. Raises NothingToCompare."""
    schemes = _schemes(groups)
    titles = {group.published.title(scheme).lower(): scheme for group in groups for scheme in group.schemes}
    if asked in schemes or asked.lower() in titles:
        return asked if asked in schemes else titles[asked.lower()]
    raise NothingToCompare(f"{option} {asked}: no run is of this scheme ({nearest(asked, sorted(schemes), '')}){more}")


def _schemes(groups: list[Group]) -> set[str]:
    return {scheme for group in groups for scheme in group.schemes}


def table(asked: str, groups: list[Group]) -> str:
    """Every scheme and recipe beside the reference, paired by seed, as Markdown. Raises NothingToCompare."""
    cells = [Cell(group, scheme) for group in groups for scheme in group.schemes]
    is_reference = _of_setting(asked, cells) if "=" in asked else _of_recipe(asked)
    rows, p_values = [], []
    for cell in cells:
        if (other := next((each for each in cells if is_reference(each, cell)), None)) is None:
            continue
        runs, others = (each.group.of(each.scheme) for each in (cell, other))
        pairs, metric = matched(runs, others), cell.group.metric
        tested = cell.group.published.tests(cell.group.scale, len(pairs))
        d = None if pairs.empty else paired_difference(pairs.value, pairs.value_other, tested)
        p_values.append(d.p if d else float("nan"))
        means = (rounded(values.mean(), metric.digits) for values in (pairs.value_other, pairs.value))
        rows.append(
            {
                "task": escaped(cell.group.report.title),
                "scale": escaped(cell.group.scale),
                "scheme": escaped(cell.group.published.title(cell.scheme)),
                "here": escaped(_unlike(cell, other)),
                "there → here": " → ".join(means) if d else "–",
                "here − there": signed(d.difference, metric.digits) if d else "–",
                "pairs": str(len(pairs)),
                "unit": escaped(f"{metric.unit}, {'higher' if metric.higher_is_better else 'lower'} is better"),
            }
        )
    if not rows:
        raise NothingToCompare(f"--against {asked}: no recipe differs from it in that alone" if "=" in asked else asked)
    corrected, family = family_of(p_values, "comparisons here", "this comparison")
    for row, p in zip(rows, corrected, strict=True):
        beyond = "**" if p < ALPHA else ""
        row["here − there"] = f"{beyond}{row['here − there']}{beyond}"
        row["p"] = rounded(p, None)
    there = f"runs with {asked}" if "=" in asked else "its own recipe" if asked == OWN else f"recipe {asked}"
    return (
        f"## Against {escaped(there)}\n\n{as_markdown(rows)}\n\n"
        "Runs of the same scheme, paired by seed where their codes give the same numbers; *here* names what is unlike "
        "the reference. Intervals are 95% intervals over seeds (Student's t); p is of the paired t test, corrected "
        f"(Holm, 1979) for {family}."
    )


def _of_setting(asked: str, cells: list[Cell]) -> Callable[[Cell, Cell], bool]:
    """Whether a cell is another one but has this value of a setting. Raises NothingToCompare."""
    key, _, text = asked.partition("=")
    known = {name for cell in cells for name in cell.settings}
    if key not in known:
        raise NothingToCompare(f"--against {asked}: no run has a setting {key}; {nearest(key, sorted(known), '')}")
    value, values = _parsed(text), {_word(cell.settings.get(key)): cell.settings.get(key) for cell in cells}
    if _word(value) not in values:
        there = ", ".join(map(show, ordered(values.values())))
        raise NothingToCompare(f"--against {asked}: no run has this value; there are {there}")

    def is_reference(other: Cell, cell: Cell) -> bool:
        has_another = cell.key == other.key and _word(cell.settings.get(key)) != _word(value)
        return has_another and _same(other.settings, {**cell.settings, key: value})

    return is_reference


def _of_recipe(asked: str) -> Callable[[Cell, Cell], bool]:
    """Whether a cell is another one of the same scheme, under that recipe."""

    def is_reference(other: Cell, cell: Cell) -> bool:
        same = (other.group.task, other.scheme) == (cell.group.task, cell.scheme) and other.group is not cell.group
        own = not other.group.variant and other.key == cell.key
        return same and (own if asked == OWN else other.group.recipe_id.startswith(asked))

    return is_reference


def _unlike(cell: Cell, other: Cell) -> str:
    """The settings of a cell that are not those of the other; at most four of them."""
    mine, theirs = cell.settings, other.settings
    keys = [key for key in sorted(mine) if _word(mine[key]) != _word(theirs.get(key))]
    more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
    return ", ".join(f"{key}={show(mine[key])}" for key in keys[:4]) + more


def _parsed(text: str) -> Any:
    """A value as one types it: a number, true, false, null, a list, or a word."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except ValueError:
        return text


def _same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(_word(first.get(key)) == _word(second.get(key)) for key in {*first, *second})


def _word(value: Any) -> str:
    """A value such that 4 and 4.0 are the same, and 1 and true are not."""
    return json.dumps(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)
