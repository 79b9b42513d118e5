"""The verdict of one comparison, and the paragraph that states it."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rope_lab
from rope_lab.results.comparisons.answers import Family, Result
from rope_lab.results.comparisons.stats import ALPHA, Interval
from rope_lab.results.comparisons.words import CONFIRMED, REVERSED, plan_word
from rope_lab.results.plans.tries import Tries
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.measures import LENGTH_LOSS, OF_LENGTHS
from rope_lab.results.records.run import Run
from rope_lab.results.records.setups import Arm, numbers

SMALL = 0.0001  # smaller p values are shown as below it


@dataclass(frozen=True)
class Verdict:
    """A comparison that has ended.

    result:    of its primary test; secondary: of the others
    searched:  the runs of the search
    names:     of ours and theirs on the page
    edited:    files of the user's own that are no longer as they were when the plan was frozen
    relatives: other schemes of which ours is a small change
    tries:     of these schemes on this task, in this folder; with this one
    """

    folder: Path
    result: Result
    secondary: list[Result]
    searched: list[Run]
    names: tuple[str, str]
    tries: Tries
    edited: list[str]
    relatives: list[str]

    @property
    def family(self) -> Family:
        return self.result.family

    @property
    def word(self) -> str:
        """confirmed, reversed or undecided; `ahead; …` and the like if it does not count as
        planned.
        """
        return plan_word(self.result)

    @property
    def difference(self) -> Interval:
        """Ours − theirs, in the unit of the measure."""
        return self.result.difference

    @property
    def rates(self) -> list[float]:
        """The learning rates of the search, from the lowest."""
        return sorted({run.settings["train.lr"] for run in self.searched})

    @property
    def best(self) -> dict[str, float]:
        """By its name, the learning rate of each scheme."""
        rates = [arm.runs[0].settings["train.lr"] for arm in self.arms]
        return dict(zip(self.names, rates, strict=True))

    @property
    def run(self) -> Run:
        """One run of ours: all have its settings but for seed and scheme."""
        return self.arms[0].runs[0]

    @property
    def where(self) -> str:
        """The task; if problems of one length are compared, also that length and those of
        training.
        """
        kind, _, length = self.result.measure.metric.partition("/")
        if kind not in OF_LENGTHS:
            return self.result.title
        report = self.result.comparison.report
        place = f"{length} {report.length['title']}"
        if kind == LENGTH_LOSS:
            shorter = [each for each in self.run.all_settings["eval.lengths"] if each < int(length)]
            place = f"positions {max(shorter, default=0) + 1} to {length}"
        where = f"{self.result.title} at {place}"
        trained = report.trained_lengths(self.run.settings)
        if trained is None:
            return where
        shortest, longest = trained
        return f"{where} ({shortest} to {longest} in training)"

    @property
    def paragraph(self) -> str:
        """What was found, in words that may be quoted."""
        parts = [_claim(self), _numbers(self), _trained(self), _searched(self), _fixed(self)]
        return " ".join(parts)

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """Ours and theirs."""
        return self.result.comparison.arms

    def plot(self) -> Any:
        """The figure, an Altair chart."""
        from rope_lab.results.views.verdict_figure import paired  # Altair takes half a second

        catalogue = Catalogue()
        pair = self.family.study.pair
        ours, theirs = (catalogue.color(scheme, pair) for scheme in pair)
        return paired(self.result, self.names, (ours, theirs))


def _claim(verdict: Verdict) -> str:
    ours, theirs = verdict.names
    where = f"on {verdict.where}"
    if verdict.word == CONFIRMED:
        return f"{ours} is ahead of {theirs} {where}."
    if verdict.word == REVERSED:
        return f"{theirs} is ahead of {ours} {where}."
    if verdict.family.flaws:
        return f"{ours} against {theirs} {where}: {verdict.word}."
    return f"No difference between {ours} and {theirs} is shown {where}."


def _numbers(verdict: Verdict) -> str:
    """The means, the difference with its interval, and the test."""
    result = verdict.result
    measure = result.measure
    found, digits = result.difference, measure.digits
    means = named(verdict, [measure.text(mean) for mean in result.means])
    test = f"sign-flip test over {found.n} pairs of seeds, {p_text(result.p)}"
    ours, theirs = verdict.names
    if measure.is_log:
        steps = found.exp
        text = (
            f"The geometric means are {means} {measure.shown_unit}. {ours} takes "
            f"{steps.mean:.2f} times the steps of {theirs} (95% interval {steps.low:.2f} to "
            f"{steps.high:.2f}; {test})."
        )
        text += _never_reached(verdict)
    else:
        interval = f"95% interval {found.low:+.{digits}f} to {found.high:+.{digits}f}"
        text = (
            f"The means are {means} {measure.unit} ({measure.better} is better); the difference "
            f"{ours} − {theirs} is {found.mean:+.{digits}f} ({interval}; {test})."
        )
    includes_none = found.low <= 0 <= found.high
    if includes_none == (result.p < ALPHA):
        text += " Student's interval and the test do not agree; the test decides."
    return text if result.p < ALPHA else f"{text} {_excluded(verdict)}"


def _never_reached(verdict: Verdict) -> str:
    """How many runs do not reach the threshold, of those whose steps are compared."""
    ever = replace(verdict.result.measure, at="ever reached")
    missing = [len(arm.runs) - sum(ever.values(arm.runs)) for arm in verdict.arms]
    if not any(missing):
        return ""
    runs = named(verdict, [f"{count:.0f}" for count in missing])
    return f" Runs that do not reach it, {runs}, count as if they did after one evaluation more."


def _excluded(verdict: Verdict) -> str:
    """Which leads an undecided comparison excludes."""
    ours, theirs = verdict.names
    gain = verdict.result.gain
    measure = verdict.result.measure
    leads = [max(gain.high, 0), max(-gain.low, 0)]
    if measure.is_log:
        most, theirs_most = (f"{math.exp(lead):.2f} times the steps" for lead in leads)
    else:
        most, theirs_most = (f"{lead:.{measure.digits}f}" for lead in leads)
    return (
        f"The interval excludes that {ours} is ahead by more than {most} and that "
        f"{theirs} is ahead by more than {theirs_most}."
    )


def _trained(verdict: Verdict) -> str:
    """The size of the models, and their training."""
    settings, study = verdict.run.all_settings, verdict.family.study
    parameters = both(verdict, [f"{arm.runs[0].parameters:,}" for arm in verdict.arms])
    recipe = f"scale {study.scale}"
    if study.unusual:
        recipe += f", but with {study.unusual}"
    return (
        f"Both are transformers of {settings['model.n_layers']} layers, width "
        f"{settings['model.d_model']} and {parameters} parameters, trained for "
        f"{settings['train.steps']:,} steps of {settings['train.batch_size']} sequences of "
        f"{settings['train.seq_len']} tokens ({recipe})."
    )


def _searched(verdict: Verdict) -> str:
    """How the learning rates were found."""
    rates = verdict.rates
    best = both(verdict, [f"{rate:g}" for rate in verdict.best.values()])
    text = (
        f"Learning rates were searched alike, over {len(rates)} values from {rates[0]:g} to "
        f"{rates[-1]:g} with {len(verdict.searched) // 2} runs of each scheme: best is {best}."
    )
    return " ".join([text, *at_end(verdict)])


def at_end(verdict: Verdict) -> list[str]:
    """A warning if the best rate of a scheme is the lowest or the highest that was tried."""
    ends = {verdict.rates[0]: "lowest", verdict.rates[-1]: "highest"}
    lines = []
    for name, rate in verdict.best.items():
        if rate in ends:
            beyond = f"is the {ends[rate]} tried: it may do better beyond."
            lines.append(f"The best rate of {name} {beyond}")
    return lines


def both(verdict: Verdict, values: list[str]) -> str:
    """The values of both schemes, with their names; one if they are the same."""
    return values[0] if len({*values}) == 1 else named(verdict, values)


def named(verdict: Verdict, values: list[str]) -> str:
    """The values of both schemes with their names."""
    ours, theirs = (f"{each} ({name})" for each, name in zip(values, verdict.names, strict=True))
    return f"{ours} and {theirs}"


def p_text(p: float) -> str:
    """`p = 0.039`, `p < 0.0001`."""
    if math.isnan(p):
        return "no p"
    return f"p = {p:.2g}" if p >= SMALL else f"p < {SMALL}"


def _fixed(verdict: Verdict) -> str:
    """What was fixed before the runs, and with which code."""
    seeds = numbers(verdict.result.seeds)
    code = f"at commit {verdict.run.commit}"
    if verdict.run.commit == "unknown":  # of an installed package
        code = rope_lab.__version__
    which = f"plan {verdict.family.study.digest}, rope_lab {code}"
    fixed = (
        f"Rates, seeds ({seeds}, used by no known run), their number and the test were fixed "
        f"before the first of these runs ({which})."
    )
    if verdict.family.flaws:
        fixed = f"It does not count as planned: {verdict.family.flaws[0].line}."
    if len(verdict.tries) > 1:
        fixed += f" It is one of {len(verdict.tries)} comparisons of these schemes on this task."
    return fixed
