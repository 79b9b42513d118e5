"""`--against`: every run beside the run of another scheme, of another value of a setting, or of another recipe."""

import json
import math
from typing import Any, NamedTuple

from rope_lab.identity import identify
from rope_lab.results.frame import full_settings
from rope_lab.results.groups import Group, paired
from rope_lab.results.published import Published
from rope_lab.results.stats import ALPHA
from rope_lab.results.sweeps import ordered
from rope_lab.results.tables import NONE, Section, Table, number, signed, strong_if
from rope_lab.results.verdicts import family_of
from rope_lab.text import ConfigError, nearest, show

BEGAN, PARENT = "parent", "parent.recipe_id"  # the runs that a run began from, and their recipe
OWN = "recipe"  # the recipe that conf/ has for a task and scale
NOTE = (
    "Runs paired by seed where their codes give the same numbers; here names what is unlike the "
    "reference. Intervals are 95% intervals over seeds (Student's t); p is of the paired t test, corrected (Holm, "
    "1979) for {}."
)


class Cell(NamedTuple):
    """The runs of a scheme under a recipe, and all their settings, the scheme's own as `position.…`.

    parent: the scheme of the runs that they began from, if that is not their own: its name and id
    """

    group: Group
    scheme: str
    position: str
    settings: dict[str, Any]
    parent: str

    @property
    def scheme_id(self) -> str:
        """The scheme's name and id, as `parent` has them."""
        return f"{self.position}-{identify(self.group.task, self.position, 0, self.settings).scheme_id}"

    def words(self) -> dict[str, str]:
        """The settings other than null, such that 4 and 4.0 are the same, and 1 and true are not."""
        return {key: _word(value) for key, value in self.settings.items() if value is not None}


def question(published: Published, groups: list[Group], contender: str | None, against: str | None) -> Published:
    """`published` with these schemes, by name or title, as contender and baseline. Raises ConfigError.

    contender: None: the user's own scheme if just one has runs to pair, otherwise that of published.yaml
    against: a scheme; a setting or a recipe is for `section`
    """
    if against and not is_recipe(against, groups):
        more = "; a setting is given as train.lr=1e-3, a recipe by its id, and the one of conf/ as `recipe`"
        baseline = _scheme("--against", against, groups, more)
        swapped = published.baseline if baseline == published.contender else published.contender
        published = published.but(baseline=baseline, contender=swapped)
    if contender:
        scheme = _scheme("--contender", contender, groups)
        if scheme == published.baseline:
            raise ConfigError(f"--contender {contender}: is the baseline too; --against names another")
        return published.but(contender=scheme)
    own = [s for s in _own(published, groups) if any(len(g.pairs(s, published.baseline)) for g in groups)]
    return published.but(contender=own[0]) if len(own) == 1 and own[0] != published.baseline else published


def hint(published: Published, groups: list[Group]) -> str:
    """The schemes that verdicts are about, and how to ask about others, if the runs are of the user's own schemes."""
    own = _own(published, groups)
    others = [scheme for scheme in (*own, Published().contender) if scheme not in published.pair]
    asks = " or ".join(f"--contender '{scheme}'" for scheme in others if scheme in _schemes(groups))
    return f"the verdicts are about {published.titles[0]}" + (f"; others: {asks}" if asks else "") if own else ""


def _own(published: Published, groups: list[Group]) -> list[str]:
    return [scheme for scheme in sorted(_schemes(groups)) if scheme.partition(" ")[0] not in published.schemes]


def is_recipe(asked: str, groups: list[Group]) -> bool:
    """Whether this is KEY=VALUE, `recipe`, `parent`, or the beginning of one recipe's id, and no scheme."""
    recipes = {group.recipe_id for group in groups if len(asked) > 3 and group.recipe_id.startswith(asked)}
    return asked not in _schemes(groups) and ("=" in asked or asked in (OWN, BEGAN) or len(recipes) == 1)


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
            cells.append(Cell(group, scheme, run.position, full_settings(run), run.parent))
    if asked == BEGAN:
        pairs, there = _with_parent(cells), "the runs that it began from"
    elif "=" in asked:
        pairs, there = _with_setting(asked, cells), f"runs with {asked}"
    else:
        pairs, there = _with_recipe(asked, cells), "its own recipe" if asked == OWN else f"recipe {asked}"
    if not pairs:
        lacking = "no recipe differs from it in that alone" if "=" in asked else f"no scheme has runs beside {there}"
        raise ConfigError(f"--against {asked}: {lacking}")
    rows, p_values = zip(*(_row(*pair) for pair in pairs), strict=True)
    corrected, family = family_of(list(p_values), "comparisons here", "this comparison")
    for row, p in zip(rows, corrected, strict=True):
        row["here − there"] = strong_if(p < ALPHA, row["here − there"])
        row["p"] = number(p, None)
    return Section(f"Against {there}", [Table(list(rows), "Against", NOTE.format(family))])


def _with_setting(asked: str, cells: list[Cell]) -> list[tuple[Cell, Cell]]:
    """The cells that differ in this setting alone from one with this value, and that one. Raises ConfigError."""
    key, _, text = asked.partition("=")
    known = {name for cell in cells for name in cell.settings}
    if key not in known:
        raise ConfigError(f"--against {asked}: no run has a setting {key}; {nearest(key, sorted(known), '')}")
    value, values = _word(_parsed(text)), {_word(cell.settings.get(key)): cell.settings.get(key) for cell in cells}
    if value not in values:
        there = ", ".join(map(show, ordered(values.values())))
        raise ConfigError(f"--against {asked}: no run has this value; there are {there}")

    def rest(cell: Cell) -> tuple:
        others = {name: word for name, word in cell.words().items() if name != key}
        return cell.group.task, cell.group.scale, cell.position, frozenset(others.items())

    has = [cell for cell in cells if _word(cell.settings.get(key)) == value]
    references = {rest(cell): cell for cell in reversed(has)}
    return [(cell, references[rest(cell)]) for cell in cells if cell not in has and rest(cell) in references]


def _with_parent(cells: list[Cell]) -> list[tuple[Cell, Cell]]:
    """The cells of runs that began from others, by `init_from`, and those others."""
    references = {(cell.group.recipe_id, cell.scheme_id): cell for cell in cells}
    began = [(cell, (cell.settings.get(PARENT), cell.parent or cell.scheme_id)) for cell in cells]
    return [(cell, references[parent]) for cell, parent in began if parent in references]


def _with_recipe(asked: str, cells: list[Cell]) -> list[tuple[Cell, Cell]]:
    """The cells of schemes that have runs under the recipe too, and those runs."""

    def same(cell: Cell) -> tuple:
        return cell.group.task, cell.scheme, cell.group.scale if asked == OWN else ""

    is_asked = lambda g: not g.variant if asked == OWN else g.recipe_id.startswith(asked)  # noqa: E731
    references = {same(cell): cell for cell in cells if is_asked(cell.group)}
    pairs = [(cell, references.get(same(cell), cell)) for cell in cells]
    return [(cell, other) for cell, other in pairs if other.group is not cell.group]


def _row(cell: Cell, other: Cell) -> tuple[dict[str, str], float]:
    """A row of the table, and its p."""
    metric, published, ours, theirs = cell.group.metric, cell.group.published, cell.words(), other.words()
    pairs = paired(*(each.group.of(each.scheme) for each in (cell, other)))
    d = cell.group.difference(pairs)
    keys = [key for key in sorted(cell.settings) if ours.get(key) != theirs.get(key) and key != PARENT]
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
    return row, d.p if d else math.nan


def _parsed(text: str) -> Any:
    """A value as it is typed: a number, true, false, null, a list, or a word."""
    for parse in (float, json.loads):
        try:
            return parse(text)
        except ValueError:
            continue
    return text


def _word(value: Any) -> str:
    return json.dumps(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)
