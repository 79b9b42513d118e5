"""Runs that may be compared, seen together: one task and recipe, its schemes, and each scheme's seeds."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from rope_lab.compat import BACKFILLED
from rope_lab.results.runs import RunRow, describe, mixed, one_line
from rope_lab.results.stats import PairedDifference, paired_difference
from rope_lab.text import flat

ROOT = Path(__file__).resolve().parent.parent.parent
PUBLISHED, CONF = ROOT / "results" / "published.yaml", ROOT / "conf"
SPARE_COLORS = ("#F0E442", "#6A3D9A", "#B15928", "#1B9E77", "#E7298A", "#A6761D", "#66C2A5", "#FB9A99")
LONGEST = 160  # characters of a title: what it says is all in the rows


@dataclass(frozen=True)
class Group:
    """The runs of one task and recipe.

    cells:   scheme → seed → the run, finished or not
    facts:   what results/published.yaml says of the task: title, metric, unit, milestones, …
    variant: the settings in which it is unlike the recipe of most runs of that task and scale; nothing for that itself
    """

    task: str
    scale: str
    recipe_id: str
    cells: dict[str, dict[int, RunRow]]
    facts: dict[str, Any]
    variant: str = ""

    @property
    def title(self) -> str:
        """The task, and the variant of its recipe."""
        return ", ".join(filter(None, [self.facts["title"], self.variant]))

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting that the runs share."""
        return _settings(self.cells)

    def finished(self, scheme: str) -> dict[int, RunRow]:
        """Seed → run, of the runs that came to their end with the metric that counts."""
        metric = self.facts["metric"]
        cell = self.cells.get(scheme, {})
        return {seed: run for seed, run in cell.items() if run.source.status == "finished" and metric in run.metrics}

    def all_finished(self) -> list[RunRow]:
        """Every run that `finished` gives of any scheme."""
        return [run for scheme in self.cells for run in self.finished(scheme).values()]

    @property
    def floor(self) -> float:
        """The ideal predictor's loss on the held-out text, in nats per counted token."""
        return next((run.floor.get("loss", 0.0) for cell in self.cells.values() for run in cell.values()), 0.0)

    @property
    def lengths(self) -> list[int]:
        """The lengths of problems that finished runs were graded on besides their own."""
        return sorted({int(n) for run in self.all_finished() for n in run.slices.get("length", {})})

    @property
    def trained_lengths(self) -> tuple[int, int] | None:
        """The shortest and the longest problems of training, counted as `lengths` are; None where that is not known."""
        facts = self.facts["length"]
        longest = self.settings.get(facts["longest"])
        shortest = self.settings.get(facts.get("shortest")) or facts.get("least", longest)
        return (shortest, longest) if isinstance(shortest, int) and isinstance(longest, int) else None

    def curves(self, scheme: str) -> tuple[list[float], np.ndarray]:
        """The steps at which all finished runs were evaluated, and what counts at each: [runs, steps]."""
        metric, times = self.facts["metric"], self.facts["times"]
        runs = [run.curves[metric] for run in self.finished(scheme).values() if metric in run.curves]
        curves = [dict(zip(steps, values, strict=True)) for steps, values in runs]
        steps = sorted(set(curves[0]).intersection(*curves)) if curves else []
        return steps, np.array([[times * curve[step] for step in steps] for curve in curves])

    def values(self, scheme: str) -> dict[int, float]:
        """Seed → what the run ended with, in the unit of the write-up."""
        metric, times = self.facts["metric"], self.facts["times"]
        return {seed: times * run.metrics[metric] for seed, run in self.finished(scheme).items()}

    def pairs(self, scheme: str, other: str) -> list[int]:
        """The seeds that both schemes have finished, with the same code, each run from its first step to its last."""
        a, b = self.finished(scheme), self.finished(other)
        both = [seed for seed in sorted(a.keys() & b.keys()) if a[seed].source.code == b[seed].source.code]
        return [seed for seed in both if not mixed(a[seed].source) and not mixed(b[seed].source)]

    def difference(self, scheme: str, other: str) -> PairedDifference | None:
        """`scheme` against `other`, seed by seed; None where they share no seed."""
        seeds = self.pairs(scheme, other)
        if not seeds:
            return None
        a, b = self.values(scheme), self.values(other)
        return paired_difference([a[s] for s in seeds], [b[s] for s in seeds])

    def milestone_steps(self, scheme: str, milestone: dict[str, Any]) -> dict[int, float]:
        """Seed → the first step at which its run reached the milestone, infinite where it did not."""
        reached = {}
        for seed, run in self.finished(scheme).items():
            steps, values = run.curves.get(milestone["metric"], [[], []])
            hits = (s for s, v in zip(steps, values, strict=True) if _reaches(v, milestone))
            reached[seed] = next(hits, float("inf"))
        return reached

    def difference_since(self, scheme: str, other: str, milestone: dict[str, Any]) -> PairedDifference | None:
        """`scheme` against `other`, each as long after the milestone as both runs of a pair still went on.

        Read off between two evaluations where it falls there; over the pairs of which both runs reached the milestone.
        """
        a, b = self.milestone_steps(scheme, milestone), self.milestone_steps(other, milestone)
        whole = [seed for seed in self.pairs(scheme, other) if all(self._curve(s, seed) for s in (scheme, other))]
        seeds = [seed for seed in whole if max(a[seed], b[seed]) < float("inf")]
        if not seeds:
            return None
        late = {seed: max(a[seed], b[seed]) for seed in seeds}
        last = self.settings["train.steps"]
        ours, theirs = (
            [self.facts["times"] * np.interp(last - late[seed] + at[seed], *self._curve(s, seed)) for seed in seeds]
            for s, at in ((scheme, a), (other, b))
        )
        return paired_difference(ours, theirs)

    def _curve(self, scheme: str, seed: int) -> list[list[float]]:
        """Steps and values of what counts; nothing where the record has none."""
        return self.cells[scheme][seed].curves.get(self.facts["metric"], [])

    def deviations(self) -> list[str]:
        """Each setting in which the runs differ from what the write-up says of its own."""
        return [
            f"{key} {self.settings.get(key)} (write-up: {published})"
            for key, published in self.facts["setup"].items()
            if self.settings.get(key) != published
        ]

    def warnings(self, published: dict[str, Any]) -> list[str]:
        """What is missing, not counted or not alike among the runs, and what that does to the result."""
        lines, baseline = [], published["baseline"]
        lacks: dict[str, list[str]] = defaultdict(list)  # what is lacking → the schemes that lack it
        for scheme, cell in self.cells.items():
            for run in cell.values():
                if run not in self.finished(scheme).values():
                    lines.append(
                        f"{describe(run.source)} is {run.source.status} at step {run.source.steps:,}: "
                        "shown here and counted in no mean"
                    )
                if different := mixed(run.source):
                    lines.append(
                        f"{describe(run.source)} is of mixed origin ({'; '.join(different)}): "
                        "shown here, counted in means, and not paired"
                    )
            if baseline in self.cells and scheme != baseline:
                here, there = set(self.finished(scheme)), set(self.finished(baseline))
                pairs = self.pairs(scheme, baseline)
                over = f"compared over the {len(pairs)} that both have" if pairs else "there is no pair to compare"
                for name, other, missing in ((scheme, baseline, there - here), (baseline, scheme, here - there)):
                    if missing:
                        lacks[f"{seeds(missing)} that {title(published, other)} has: {over}"].append(
                            title(published, name)
                        )
                codes = {seed: [self.cells[s][seed].source.code for s in (scheme, baseline)] for seed in here & there}
                unlike = [seed for seed, (a, b) in sorted(codes.items()) if a != b]
                if unlike:
                    lines.append(
                        f"{title(published, scheme)} and {title(published, baseline)} were run by different code at "
                        f"{seeds(unlike)}: these pairs are not compared"
                    )
        for what, names in lacks.items():
            lines.append(f"{'; '.join(names)} {'lacks' if len(names) == 1 else 'lack'} {what}")
        runs = [run.source for cell in self.cells.values() for run in cell.values()]
        for what, values in (
            ("code", Counter(run.code for run in runs)),
            ("hardware", Counter(f"{run.hardware}, {run.threads} threads" for run in runs)),
            ("torch", Counter(run.torch for run in runs)),
        ):
            if len(values) > 1:
                lines.append(f"not one {what}: " + "; ".join(f"{name} ({n} runs)" for name, n in values.most_common()))
        return lines


def load_published() -> dict[str, Any]:
    """What was published, and how things are called: results/published.yaml."""
    return OmegaConf.to_container(OmegaConf.load(PUBLISHED))


def group(runs: list[RunRow], published: dict[str, Any]) -> list[Group]:
    """The runs by task and recipe, in the order of published.yaml; runs of different recipes never meet."""
    cells: dict[tuple, dict[str, dict[int, RunRow]]] = defaultdict(lambda: defaultdict(dict))
    names = scheme_names(runs)
    for run in runs:
        s = run.source
        cells[s.task, s.scale, s.recipe_id][names[s.run_id]][s.seed] = run
    tasks, scales = list(published["tasks"]), published["scales"]
    variants = _variants(cells)
    order = sorted(cells, key=lambda key: (_rank(scales, key[1]), _rank(tasks, key[0]), variants[key], key[2]))
    return [
        Group(
            *key,
            cells=_in_order(cells[key], published),
            facts=published["tasks"].get(key[0]) or _unpublished(key[0]),
            variant=variants[key],
        )
        for key in order
    ]


def worth_keeping(run: RunRow, published: dict[str, Any]) -> RunRow:
    """The run with the curves that are kept of it: those of evaluations, and those that milestones are read from."""
    facts = published["tasks"].get(run.source.task) or _unpublished(run.source.task)
    read = {milestone["metric"] for milestone in facts["milestones"]}
    curves = {name: curve for name, curve in run.curves.items() if name.startswith("eval/") or name in read}
    return replace(run, curves=curves)


def _variants(cells: dict[tuple, dict[str, dict[int, RunRow]]]) -> dict[tuple, str]:
    """For each task, scale and recipe: the settings in which it is unlike that of conf/.

    That is config.yaml with recipe/<task>/<scale>.yaml. Where none is as these say, or several are, unlike the one of
    most runs, or of as many.
    """
    settings = {key: _settings(schemes) for key, schemes in cells.items()}
    variants = {}
    for key in cells:
        alike = [other for other in cells if other[:2] == key[:2] and other != key]
        shipped = _shipped("config") | _shipped(f"recipe/{key[0]}/{key[1]}")
        rank = {
            other: (
                all(k not in shipped or shipped[k] in (v, "auto") for k, v in settings[other].items()),
                sum(map(len, cells[other].values())),
            )
            for other in [key, *alike]
        }
        usual = [other for other in alike if rank[other] == max(rank.values())]
        unlike = {k for other in usual for k, v in settings[key].items() if settings[other].get(k) != v}
        variants[key] = one_line(", ".join(f"{k}={settings[key][k]}" for k in sorted(unlike)), LONGEST)
    return variants


def _settings(cells: dict[str, dict[int, RunRow]]) -> dict[str, Any]:
    """Every setting that the runs of one recipe share; of those that came later, what they were before."""
    before = {key: value for key, value in BACKFILLED.items() if not key.startswith("position.")}
    return before | next(run for cell in cells.values() for run in cell.values()).settings


def scheme_names(runs: list[RunRow]) -> dict[str, str]:
    """run_id → scheme: its name, and in what it is unlike conf/position/<name>.yaml.

    Where there is no such file, in what it is unlike most runs of that name. Settings that came later are filled in.
    """
    before = {key.removeprefix("position."): v for key, v in BACKFILLED.items() if key.startswith("position.")}
    settings = defaultdict(Counter)
    for run in runs:
        settings[run.source.position][json.dumps(before | run.position_settings, sort_keys=True)] += 1
    plain = {name: json.loads(counted.most_common(1)[0][0]) for name, counted in settings.items()}
    names = {}
    for run in runs:
        usual = before | (_shipped(f"position/{run.source.position}") or plain[run.source.position])
        own = before | run.position_settings
        differing = [f"{k}={v}" for k, v in sorted(own.items()) if usual.get(k) != v]
        names[run.source.run_id] = run.source.position + (f" ({', '.join(differing)})" if differing else "")
    return names


def _shipped(name: str) -> dict[str, Any]:
    """The settings of conf/<name>.yaml, flat; none where there is no such file."""
    path = CONF / f"{name}.yaml"
    return flat(OmegaConf.to_container(OmegaConf.load(path))) if path.exists() else {}


def title(published: dict[str, Any], scheme: str) -> str:
    """How a scheme is called in tables and figures."""
    if scheme in published["schemes"]:
        return published["schemes"][scheme]["title"]
    name, _, variant = scheme.partition(" ")
    whole = " ".join(filter(None, [published["schemes"].get(name, {}).get("title", name), variant]))
    return one_line(whole, LONGEST)


def color(published: dict[str, Any], scheme: str) -> str:
    """A scheme's colour, the same wherever it is drawn."""
    known = published["schemes"].get(scheme)
    return known["color"] if known else SPARE_COLORS[sum(map(ord, scheme)) % len(SPARE_COLORS)]


def seeds(values: set[int] | list[int]) -> str:
    """`seed 3`, `seeds 0–4`."""
    return f"seed{'s' if len(values) > 1 else ''} {numbers(values)}"


def numbers(values: set[int] | list[int]) -> str:
    """Whole numbers in a few words: 0–4, 7."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(f"{a}–{b}" if a < b else f"{a}" for a, b in runs)


def _reaches(value: float, milestone: dict[str, Any]) -> bool:
    if "at_least" in milestone:
        return value >= milestone["at_least"]
    return value <= milestone["at_most"]


def _unpublished(task: str) -> dict[str, Any]:
    """A task that the write-up does not have is compared by its accuracy."""
    milestones = [{"name": "95% right", "metric": "eval/accuracy", "at_least": 0.95}]
    return {
        "title": task,
        "length": {"title": "length", "longest": None},
        "metric": "eval/accuracy",
        "unit": "share of problems right",
        "times": 1,
        "digits": 3,
        "higher_is_better": True,
        "milestones": milestones,
        "published": {},
        "setup": {},
    }


def _in_order(cells: dict[str, dict[int, RunRow]], published: dict[str, Any]) -> dict[str, dict[int, RunRow]]:
    schemes = list(published["schemes"])
    names = sorted(cells, key=lambda name: (_rank(schemes, name if name in schemes else name.partition(" ")[0]), name))
    return {name: dict(sorted(cells[name].items())) for name in names}


def _rank(order: list[str], name: str) -> int:
    return order.index(name) if name in order else len(order)
