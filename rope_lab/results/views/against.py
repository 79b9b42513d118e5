"""`--against` and `--contender`: comparisons of other schemes."""

from dataclasses import replace

from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.setups import Setup
from rope_lab.text import ConfigError, nearest

HINT = "the verdicts are about {}; --contender and --against ask about other schemes"


def question(
    catalogue: Catalogue, setups: list[Setup], contender: str | None, against: str | None
) -> Catalogue:
    """The catalogue with these schemes, by name or title, as contender and baseline. Raises
    ConfigError.

    contender: None: the user's own scheme if there is just one, or the only scheme besides the
               baseline; otherwise that of published.yaml
    """
    there = {scheme for setup in setups for scheme in setup.schemes}
    if against:
        baseline = _scheme("--against", against, there, catalogue)
        swapped = catalogue.baseline if baseline == catalogue.contender else catalogue.contender
        catalogue = replace(catalogue, baseline=baseline, contender=swapped)
    others = there - {catalogue.baseline}
    own = {scheme for scheme in others if scheme.partition(" ")[0] not in catalogue.schemes}
    if contender:
        scheme = _scheme("--contender", contender, there, catalogue)
        if scheme == catalogue.baseline:
            raise ConfigError(
                f"--contender {contender}: is the baseline too; --against names another"
            )
        return replace(catalogue, contender=scheme)
    for only in (own, others):
        if len(only) == 1:
            return replace(catalogue, contender=next(iter(only)))
    return catalogue


def _scheme(option: str, asked: str, there: set[str], catalogue: Catalogue) -> str:
    """The scheme of this name or title that has a run. Raises ConfigError."""
    for scheme in sorted(there):
        if asked.lower() in (scheme.lower(), catalogue.title(scheme).lower()):
            return scheme
    hint = nearest(asked, sorted(there), "")
    raise ConfigError(f"{option} {asked}: no run is of this scheme ({hint})")
