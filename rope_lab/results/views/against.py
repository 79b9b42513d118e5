"""`--against` and `--contender`: comparisons of other schemes, and of runs with those that they
began from.
"""

from rope_lab.results.comparisons.families import of_parents
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup
from rope_lab.results.views.tables import Section, Table, number, tested
from rope_lab.text import ConfigError, nearest, show

HINT = "the verdicts are about {}; --contender and --against ask about other schemes"
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

    contender: None: the user's own scheme if there is just one, or the only scheme besides the
               baseline; otherwise that of published.yaml
    """
    there = {scheme for setup in setups for scheme in setup.schemes}
    if against:
        baseline = _scheme("--against", against, there, published)
        swapped = published.baseline if baseline == published.contender else published.contender
        published = published.but(baseline=baseline, contender=swapped)
    others = there - {published.baseline}
    own = {scheme for scheme in others if scheme.partition(" ")[0] not in published.schemes}
    if contender:
        scheme = _scheme("--contender", contender, there, published)
        if scheme == published.baseline:
            raise ConfigError(
                f"--contender {contender}: is the baseline too; --against names another"
            )
        return published.but(contender=scheme)
    for only in (own, others):
        if len(only) == 1:
            return published.but(contender=next(iter(only)))
    return published


def _scheme(option: str, asked: str, there: set[str], published: Published) -> str:
    """The scheme of this name or title that has a run. Raises ConfigError."""
    for scheme in sorted(there):
        if asked.lower() in (scheme.lower(), published.title(scheme).lower()):
            return scheme
    hint = nearest(asked, sorted(there), "")
    raise ConfigError(f"{option} {asked}: no run is of this scheme ({hint})")


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
        here, there = (number(mean, measure.digits) for mean in result.means)
        row = {
            "task": result.title,
            "scale": setup.scale,
            "scheme": setup.published.title(result.comparison.ours.scheme),
            "here": _unlike(run, parent),
            "there → here": f"{there} → {here}",
            "unit": f"{measure.unit}, {measure.better} is better",
        }
        row |= tested(result, "here − there")
        rows.append(row)
    note = NOTE.format(results[0].corrected_for)
    return Section("Against the runs that these began from", Table(rows, "Against", note))


def _unlike(run: Run, parent: Run) -> str:
    """The settings that differ from the parent's."""
    ours, theirs = run.all_settings, parent.all_settings
    unlike = [key for key in sorted(ours) if ours[key] != theirs.get(key)]
    return ", ".join(f"{key}={show(ours[key])}" for key in unlike if key != "parent.recipe_id")
