"""`--against` and `--contender`: comparisons of other schemes."""

from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.setups import Setup
from rope_lab.text import ConfigError, nearest

HINT = "the verdicts are about {}; --contender and --against ask about other schemes"


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
