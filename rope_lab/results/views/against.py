"""`--against` and `--contender`: comparisons of other schemes, and of runs with those that they
began from.
"""

from rope_lab.results.comparisons.families import between, of_parents
from rope_lab.results.comparisons.stats import ALPHA
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup
from rope_lab.results.views.tables import Section, Table, number, signed, strong_if
from rope_lab.text import ConfigError, nearest, show

PARENT = "parent"  # --against parent: the runs that others began from, by `init_from`
NOTE = (
    "Runs paired by seed with those that they began from, if both have the same numerics; `here` "
    "names the settings that differ. 95% intervals over seeds (Student's t); p: paired t test, "
    "corrected (Holm, 1979) for {}."
)


def question(
    published: Published, setups: list[Setup], contender: str | None, against: str | None
) -> Published:
    """`published` with these schemes, by name or title, as contender and baseline. Raises
    ConfigError.

    contender: None: the user's own scheme if just one has runs to pair, or the only scheme besides
               the baseline; otherwise that of published.yaml
    """
    if against:
        baseline = _scheme("--against", against, setups)
        swapped = published.baseline if baseline == published.contender else published.contender
        published = published.but(baseline=baseline, contender=swapped)
    if contender:
        scheme = _scheme("--contender", contender, setups)
        if scheme == published.baseline:
            raise ConfigError(
                f"--contender {contender}: is the baseline too; --against names another"
            )
        return published.but(contender=scheme)
    own = [s for s in _own(published, setups) if _has_pairs(setups, s, published.baseline)]
    if len(own) == 1 and own[0] != published.baseline:
        return published.but(contender=own[0])
    others = _schemes(setups) - {published.baseline}
    if len(others) == 1:  # there is no other question
        return published.but(contender=others.pop())
    return published


def _has_pairs(setups: list[Setup], scheme: str, other: str) -> bool:
    return any(len(between(setup, scheme, other).pairs()) for setup in setups)


def hint(published: Published, setups: list[Setup]) -> str:
    """The schemes that verdicts are about, and how to ask about others.

    Empty for planned runs, and for others unless they have schemes of the user's own or lack the
    contender.
    """
    setups = [setup for setup in setups if setup.published.compares]
    own, there = _own(published, setups), _schemes(setups)
    others = []
    if own:
        others = [*own, Published().contender]
    elif published.contender not in there:
        others = sorted(there)
    others = [scheme for scheme in others if scheme in there and scheme not in published.pair]
    if not own and not others:
        return ""
    about = f"the verdicts are about {published.titles[0]}"
    asks = " or ".join(f"--contender '{scheme}'" for scheme in others)
    return f"{about}; others: {asks}" if asks else about


def _own(published: Published, setups: list[Setup]) -> list[str]:
    return [
        scheme
        for scheme in sorted(_schemes(setups))
        if scheme.partition(" ")[0] not in published.schemes
    ]


def _scheme(option: str, asked: str, setups: list[Setup]) -> str:
    """The scheme of this name or title that has a run. Raises ConfigError."""
    names = {}
    for setup in setups:
        for scheme in setup.schemes:
            names |= {scheme: scheme, setup.published.title(scheme): scheme}
    lower = {name.lower(): scheme for name, scheme in names.items()}
    found = names.get(asked) or lower.get(asked.lower())
    if not found:
        there = nearest(asked, sorted(_schemes(setups)), "")
        raise ConfigError(f"{option} {asked}: no run is of this scheme ({there})")
    return found


def _schemes(setups: list[Setup]) -> set[str]:
    return {scheme for setup in setups for scheme in setup.schemes}


def parents(setups: list[Setup]) -> Section:
    """Compare runs that began from others with those others, scheme by scheme. Raises ConfigError
    without any.
    """
    results, about = of_parents(setups)
    if not results:
        raise ConfigError(f"--against {PARENT}: no run began from another of these, by init_from")
    rows = []
    for result, (setup, run, parent) in zip(results, about, strict=True):
        measure = setup.measure
        there, here = (number(mean, measure.digits) for mean in result.means[::-1])
        difference = signed(result.difference, measure.digits)
        row = {
            "task": result.title,
            "scale": setup.scale,
            "scheme": setup.published.title(result.comparison.ours.scheme),
            "here": _unlike(run, parent),
            "there → here": f"{there} → {here}",
            "here − there": strong_if(result.p_family < ALPHA, difference),
            "pairs": str(len(result.pairs)),
            "unit": f"{measure.unit}, {measure.better} is better",
            "p": number(result.p_family, None),
        }
        rows.append(row)
    note = NOTE.format(results[0].corrected_for)
    return Section("Against the runs that these began from", Table(rows, "Against", note))


def _unlike(run: Run, parent: Run) -> str:
    """The settings that differ from the parent's."""
    ours, theirs = run.all_settings, parent.all_settings
    unlike = [key for key in sorted(ours) if ours[key] != theirs.get(key)]
    return ", ".join(f"{key}={show(ours[key])}" for key in unlike if key != "parent.recipe_id")
