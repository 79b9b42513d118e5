"""The runs of a study, and why it cannot be tested yet."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from omegaconf import OmegaConf

from rope_lab.identity import BACKFILLED, general
from rope_lab.results.plans.study import Study, called, run_name
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.frame import runs_frame
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Setup, setups_of
from rope_lab.shipped import recipe, shipped, usual_task
from rope_lab.text import ConfigError, flat, show

Runs = dict[tuple[str, int], Run]  # scheme and seed → the run


def with_runs(studies: list[Study], runs: list[Run]) -> tuple[list[tuple[Study, Runs]], list[str]]:
    """Each study of a folder with those of its `runs` that are its own; none, and the problem, if
    `find` refuses.
    """
    try:
        return [(study, find(study, runs)) for study in studies], []
    except ConfigError as error:
        return [], [str(error)]


def find(study: Study, runs: list[Run]) -> Runs:
    """The runs of a study that have ended. Raises ConfigError for two of one cell, which differ in
    another setting.
    """
    found: Runs = {}
    for run in runs:
        fitting = [scheme for scheme in study.seeds if _fits(scheme, study, run)]
        scheme = max(fitting, key=lambda scheme: len(scheme.split()), default="")
        if not scheme or run.seed not in study.seeds[scheme] or not run.ended:
            continue
        other = found.setdefault((scheme, run.seed), run)
        if other is not run:
            both = f"{other.run_id}, {run.run_id}"
            raise ConfigError(f"{study.name}: two runs are {scheme} seed {run.seed}: {both}")
    return found


def _fits(scheme: str, study: Study, run: Run) -> bool:
    """Whether a run belongs to a study's scheme: it has its settings, and else those of the
    scheme's yaml.
    """
    position, *settings = scheme.split()
    name = run_name(position)
    if (run.task, run.scale, run.position) != (run_name(study.task), study.scale, name):
        return False
    planned = study.settings | flat(OmegaConf.to_container(OmegaConf.from_dotlist(settings)))
    recorded = run.settings | {"threads": run.threads}
    if any(value not in (recorded.get(key), "auto") for key, value in planned.items()):
        return False
    yaml = {f"position.{key}": value for key, value in shipped(f"position/{name}").items()}
    if not yaml:
        return True
    usual = BACKFILLED | yaml | planned
    own = {key: value for key, value in run.settings.items() if key.startswith("position.")}
    return all(usual.get(key) == value for key, value in own.items())


def setups_with_studies(
    runs: list[Run], published: Published, planned: Iterable[tuple[Study, Runs]]
) -> list[Setup]:
    """The `planned` runs by study, in the given order; then all other runs by recipe."""
    setups, taken = [], set()
    for study, found in planned:
        if found:  # its schemes have their settings in their names
            table = runs_frame(list(found.values()))
            table = table.assign(scheme=[called(scheme) for scheme, _ in found])
            setups.append(Setup(table, published, study.unusual, study.name))
            taken |= {*table.run_id}
    return setups + setups_of([run for run in runs if run.run_id not in taken], published)


def named(cells: list[tuple[str, int]]) -> str:
    """`rope seed 8, roper seed 9`."""
    return ", ".join(f"{scheme} seed {seed}" for scheme, seed in cells)


def unnamed(study: Study, found: Runs) -> list[str]:
    """Settings that are neither the plan's nor today's recipe's, and all other ones of a scheme
    without a yaml file.
    """
    usual, others = recipe(study.task, study.scale), set()
    for (scheme, _), run in found.items():
        planned = study.settings.keys() | given(scheme)
        other = {
            key: value
            for key, value in run.recipe.items()
            if key not in planned and usual.get(key, value) not in (value, "auto")
        }
        for key in ("train.precision", "device"):  # what `auto` has become
            if study.settings.get(key, usual.get(key)) == "auto" and key in run.settings:
                other[key] = run.settings[key]
        if not run.settings.get("train.weight_decay"):  # it then decides nothing
            other.pop("train.weight_decay_on", None)
        others |= {f"{key}={show(value)}" for key, value in other.items()}
        if shipped(f"position/{run.position}"):
            continue
        for key, value in run.settings.items():
            own = key.startswith("position.") and not key.endswith("_target_")
            if own and key not in planned:
                others.add(f"{key}={show(value)} of {called(scheme)}")
    return sorted(others)


def given(scheme: str) -> set[str]:
    """The settings in the name of a plan's scheme: `position.base` of `rope position.base=100`."""
    return {setting.partition("=")[0] for setting in scheme.split()[1:]}


def untested(study: Study, found: Runs) -> str:
    """Why nothing is tested yet; empty if it is."""
    if len(found) < len(study.cells):
        ended = f"{len(found)} of {len(study.cells)} runs have ended"
        return f"{ended}. Nothing is tested before the last one has."
    if len(codes := {run.numbers for run in found.values()}) > 1:
        return f"The runs are of {len(codes)} codes and cannot be paired."
    if edited := _several((run.position, run.plugin.get("position", "")) for run in found.values()):
        return f"The runs of {' and of '.join(edited)} differ in the code of that scheme."
    if differing := _several(_settings(study, found)):
        return f"The runs differ in settings that the plan does not name: {', '.join(differing)}."
    return _not_as_planned(study, found)


def _not_as_planned(study: Study, found: Runs) -> str:
    """Why the runs that have ended cannot answer the study; empty if they can."""
    if unfixed := _unfixed(study, found):
        return f"The plan does not name {', '.join(unfixed)}: without it, runs may choose."
    if better := _better_diverged(study, found):
        return better
    if impure := [cell for cell, run in found.items() if run.mixed]:
        return f"Of mixed origin, so not to be paired: {named(impure)}."
    lacking = {cell: _lacking(study, cell[0], run) for cell, run in found.items()}
    if cells := [cell for cell, names in lacking.items() if names]:
        names = ", ".join(sorted(set.union(*lacking.values())))
        return f"Not recorded, so nothing can be tested: {names} of {named(cells)}."
    return ""


def _settings(study: Study, found: Runs) -> Iterator[tuple[str, str]]:
    """Each setting of the runs with its values; a setting in which schemes may differ, per
    scheme.
    """
    varied = set().union(*map(given, study.seeds))
    keys = set().union(*(run.all_settings for run in found.values()))
    for (scheme, _), run in found.items():
        settings = run.all_settings
        for key in keys:
            own = key in varied or key.startswith("position.")
            value = settings.get(key, BACKFILLED.get(general(key)))
            yield f"{key} of {scheme}" if own else key, json.dumps(value)
        yield f"threads of {scheme}" if "threads" in varied else "threads", str(run.threads)


def _unfixed(study: Study, found: Runs) -> list[str]:
    """Settings of the task, its text and a parent that the runs have, and neither the plan nor
    conf/ fixes: with them one could choose between two results.
    """
    usual, unfixed = usual_task(study.task, study.scale), set()
    for (scheme, _), run in found.items():
        named = study.settings.keys() | given(scheme)
        for key, value in run.settings.items():
            expected = usual.get(key, None if key == "task.corpus" else value)
            if str(expected).startswith("${"):  # of another setting: ${train.seq_len}
                expected = run.settings.get(expected[2:-1], value)
            if key == "parent.recipe_id":
                unfixed.add("init_from")
            elif key.startswith("task.") and key not in named and value != expected:
                unfixed.add(f"{key}={show(value)}")
    return sorted(unfixed)


def _better_diverged(study: Study, found: Runs) -> str:
    """Why the value that the plan gives to diverged runs cannot count: a finished run is worse."""
    diverged = [cell for cell, run in found.items() if run.status == "diverged"]
    for test in study.comparisons:
        if not diverged or test.at in ("first step", "log steps"):
            continue
        values = {
            cell: run.final(test.metric)
            for cell, run in found.items()
            if cell not in diverged and cell[0] in test.schemes
        }
        known = {cell: value for cell, value in values.items() if value is not None}
        sign = 1 if study.higher_is_better else -1
        worst = min(known, key=lambda cell: sign * known[cell], default=None)
        if worst and sign * study.diverged > sign * known[worst]:
            return (
                f"diverged: {study.diverged:g} is better than {named([worst])}, which finished with"
                f" {known[worst]:.4g}: a diverged run would count as the better one."
            )
    return ""


def _several(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The names that have more than one value."""
    counts = Counter(name for name, _ in set(pairs))
    return sorted(name for name, count in counts.items() if count > 1)


def _lacking(study: Study, scheme: str, run: Run) -> set[str]:
    """The metrics and curves that comparisons use and a run has no record of, unless it
    diverged.
    """
    if run.status == "diverged":
        return set()
    curves = {f"the curve of {name}" for name, (steps, _) in run.curves.items() if steps[-1] > 0}
    used = [c for c in study.comparisons if scheme in c.schemes]
    lacking = {c.metric for c in used if not c.of_curves and run.final(c.metric) is None}
    return lacking | ({f"the curve of {c.metric}" for c in used if c.of_curves} - curves)
