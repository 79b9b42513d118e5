"""`--against` and `--contender`: comparisons of other schemes, and of runs with those that they
began from.
"""

from rope_lab.identity import identify
from rope_lab.results.comparisons.stats import ALPHA
from rope_lab.results.comparisons.verdicts import family_of
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Group
from rope_lab.results.views.tables import Section, Table, number, signed, strong_if
from rope_lab.text import ConfigError, nearest, show

PARENT = "parent"  # --against parent: the runs that others began from, by `init_from`
NOTE = (
    "Runs paired by seed with those that they began from, if both have the same numerics; `here` names the "
    "settings that differ. 95% intervals over seeds (Student's t); p: paired t test, corrected (Holm, 1979) for {}."
)


def question(
    published: Published, groups: list[Group], contender: str | None, against: str | None
) -> Published:
    """`published` with these schemes, by name or title, as contender and baseline. Raises
    ConfigError.

    contender: None: the user's own scheme if just one has runs to pair, otherwise that of
               published.yaml
    """
    if against:
        baseline = _scheme("--against", against, groups)
        swapped = published.baseline if baseline == published.contender else published.contender
        published = published.but(baseline=baseline, contender=swapped)
    if contender:
        scheme = _scheme("--contender", contender, groups)
        if scheme == published.baseline:
            raise ConfigError(
                f"--contender {contender}: is the baseline too; --against names another"
            )
        return published.but(contender=scheme)
    own = [
        s
        for s in _own(published, groups)
        if any(len(g.pairs(s, published.baseline)) for g in groups)
    ]
    return (
        published.but(contender=own[0])
        if len(own) == 1 and own[0] != published.baseline
        else published
    )


def hint(published: Published, groups: list[Group]) -> str:
    """The schemes that verdicts are about, and how to ask about others.

    Empty for planned runs, and for others unless they have schemes of the user's own or lack the
    contender.
    """
    groups = [group for group in groups if group.published.compares]
    own, there = _own(published, groups), _schemes(groups)
    others = (
        [*own, Published().contender]
        if own
        else sorted(there)
        if published.contender not in there
        else []
    )
    asks = " or ".join(
        f"--contender '{scheme}'" for scheme in others if scheme in there - {*published.pair}
    )
    if not own and not asks:
        return ""
    return f"the verdicts are about {published.titles[0]}" + (f"; others: {asks}" if asks else "")


def _own(published: Published, groups: list[Group]) -> list[str]:
    return [
        scheme
        for scheme in sorted(_schemes(groups))
        if scheme.partition(" ")[0] not in published.schemes
    ]


def _scheme(option: str, asked: str, groups: list[Group]) -> str:
    """The scheme of this name or title that has a run. Raises ConfigError."""
    names = {
        name: scheme
        for g in groups
        for scheme in g.schemes
        for name in (scheme, g.published.title(scheme))
    }
    found = names.get(asked) or {name.lower(): scheme for name, scheme in names.items()}.get(
        asked.lower()
    )
    if not found:
        there = nearest(asked, sorted(_schemes(groups)), "")
        raise ConfigError(f"{option} {asked}: no run is of this scheme ({there})")
    return found


def _schemes(groups: list[Group]) -> set[str]:
    return {scheme for group in groups for scheme in group.schemes}


def parents(groups: list[Group]) -> Section:
    """Compare runs that began from others with those others, scheme by scheme. Raises ConfigError
    without any.
    """
    every = [
        (g, scheme, g.runs[g.runs.scheme == scheme].run.iloc[0])
        for g in groups
        for scheme in g.schemes
    ]
    by_id, rows, p_values = (
        {(g.recipe_id, _schemes_of(run)[0]): (g, scheme, run) for g, scheme, run in every},
        [],
        [],
    )
    for g, scheme, run in every:
        parent_id = run.settings.get("parent.recipe_id"), _schemes_of(run)[1]
        if parent_id not in by_id:
            continue
        other, other_scheme, parent = by_id[parent_id]
        metric, pairs = g.metric, g.pairs(scheme, other_scheme, other)
        d, ours, theirs = g.difference(pairs), run.all_settings, parent.all_settings
        unlike = [k for k in sorted(ours) if ours[k] != theirs.get(k) and k != "parent.recipe_id"]
        means = (number(pairs[each].mean(), metric.digits) for each in ("value_other", "value"))
        p_values.append(d.p)
        row = {
            "task": g.report.title,
            "scale": g.scale,
            "scheme": g.published.title(scheme),
            "here": ", ".join(f"{key}={show(ours[key])}" for key in unlike),
            "there → here": " → ".join(means),
            "here − there": signed(d, metric.digits),
            "pairs": str(len(pairs)),
            "unit": f"{metric.unit}, {metric.better} is better",
        }
        rows.append(row)
    if not rows:
        raise ConfigError(f"--against {PARENT}: no run began from another of these, by init_from")
    corrected, family = family_of(p_values, "comparisons here", "this comparison")
    for row, p in zip(rows, corrected, strict=True):
        row |= {"here − there": strong_if(p < ALPHA, row["here − there"]), "p": number(p, None)}
    return Section(
        "Against the runs that these began from", Table(rows, "Against", NOTE.format(family))
    )


def _schemes_of(run: Run) -> tuple[str, str]:
    """A run's scheme and its parent's, each by name and id, as in `Run.parent`; a child's id counts
    its parent's.
    """
    name, settings = run.position, run.all_settings
    scheme = f"{name}-{identify(run.task, name, 0, settings).scheme_id}"
    if "parent.recipe_id" not in settings:
        return scheme, ""
    parent = run.parent or scheme
    settings = settings | {"parent.scheme_id": parent.rpartition("-")[2]}
    return f"{name}-{identify(run.task, name, 0, settings).scheme_id}", parent
