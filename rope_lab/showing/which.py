"""Which scheme for what: the page docs/which.md, from a list of goals and the kept runs."""

from collections import Counter
from dataclasses import dataclass

import pandas as pd
import yaml
from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked

from rope_lab.places import ROOT
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.score_columns import FEWEST_SEEDS, Column
from rope_lab.results.comparisons.stats import Interval, t_interval
from rope_lab.results.comparisons.words import (
    CONFIRMED,
    REFUTED,
    REVERSED,
    UNDECIDED,
    plan_word,
)
from rope_lab.results.plans.names import scheme_of
from rope_lab.results.plans.study import STRICT
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.views import plan_page
from rope_lab.results.views.tables import NONE, Table, escaped, markdown
from rope_lab.showing import costs
from rope_lab.showing.measured import DIFFERENCE, Measured, verdicts

GOALS = ROOT / "results" / "goals.yaml"
BEST = 5  # schemes of a table
DECISIVE = {CONFIRMED, REVERSED, REFUTED, UNDECIDED}
CLEAR = 0.05  # below RoPE: less is not worth a warning
HEAD = """# Which scheme for what

Begin with your goal. A gain is the score of a scheme minus RoPE's, paired by seed: the share of
problems correct, or e^(−loss) of text and of Prefix. A table has the schemes whose 95% interval
lies above 0, {best} at most; intervals are not corrected for the number of schemes. *Planned* tests
were fixed before their runs.

- **KV cache and step time** are relative to [RoPE's](../results/benchmark.md#kv-cache); – is not
  measured.
- **How sure**: with *best of 3 rates* each seed has the learning rate that is best on the other
  seeds. With *one rate* both have the recipe's, which may suit one of them better: these are last.
- **Not for**: the task on which the scheme is lowest against RoPE, by {clear} or more, if its whole
  interval is below 0. Few schemes were run on all tasks.
- Models have 0.1M to 3.3M parameters. [All scores](../results/scores.md) ·
  [all planned tests](../results/plan.md) · [all schemes](schemes/README.md)
"""


@checked(frozen=True, config=STRICT)
class Goal:
    """A goal, as goals.yaml explains it."""

    goal: str
    columns: list[str] = Field(default_factory=list)
    tests: list[str] = Field(default_factory=list)
    text: str = ""


def goals() -> list[Goal]:
    """The goals of the page. Raises pydantic's ValidationError."""
    return TypeAdapter(list[Goal]).validate_python(yaml.safe_load(GOALS.read_text("utf-8")))


@dataclass(frozen=True)
class Ranked:
    """A column of scores, and each other scheme's gain over the baseline."""

    column: Column
    gains: dict[str, Interval]

    @property
    def name(self) -> str:
        """`task scale`, or `task scale long` for the longest problems."""
        words = [self.column.setup.task, self.column.setup.scale]
        return " ".join([*words, "long"] if self.column.length else words)


def page(measured: Measured) -> str:
    """The page in Markdown."""
    every = [Ranked(column, gains(column, measured.catalogue)) for column in measured.columns]
    by_name = {ranked.name: ranked for ranked in every}
    parts = [HEAD.format(best=BEST, clear=CLEAR).rstrip()]
    for goal in goals():
        parts += [f"## {goal.goal}", goal.text]
        for name in goal.columns:
            parts += section(by_name[name], every, measured)
        tests = [each for each in measured.tests if each.family.study.name in goal.tests]
        if tests:
            parts += ["Planned:", markdown(verdicts(tests, measured.catalogue, both=True))]
            parts.append(DIFFERENCE)
    return "\n\n".join(filter(None, parts)) + "\n"


def gains(column: Column, catalogue: Catalogue) -> dict[str, Interval]:
    """The gain of each other scheme over the baseline, paired by seed: both with searched learning
    rates, or both at the recipe's. Variants without a title of their own are left out.
    """
    found = {}
    for name in column.scores:
        titled = " " not in name or name in catalogue.schemes
        if name == catalogue.baseline or not titled:
            continue
        pairs = pairs_of(name, column, catalogue.baseline)
        if len(pairs) >= FEWEST_SEEDS:
            found[name] = t_interval((pairs.ours - pairs.theirs).to_list())
    return found


def pairs_of(name: str, column: Column, baseline: str) -> pd.DataFrame:
    """The scores of a scheme and of the baseline by seed, `ours theirs`: both with searched
    learning rates, or both at the recipe's.
    """
    searched = {name, baseline} <= column.searched
    values = column.scores if searched else column.usual
    none = pd.Series(dtype=float)
    both = {"ours": values.get(name, none), "theirs": values.get(baseline, none)}
    return pd.DataFrame(both).dropna()


def section(ranked: Ranked, every: list[Ranked], measured: Measured) -> list[str]:
    """A task: the schemes ahead of the baseline in a table, the others in sentences."""
    catalogue, column, found = measured.catalogue, ranked.column, ranked.gains
    is_searched = catalogue.baseline in column.searched
    by_gain = sorted(found, key=lambda name: found[name].mean)
    ahead = [name for name in reversed(by_gain) if found[name].low > 0]
    if is_searched:
        ahead.sort(key=lambda name: name not in column.searched)
    behind = [name for name in by_gain if found[name].high < 0]
    level = t_interval(column.scores[catalogue.baseline])
    at_best = " at the best of 3 rates" if is_searched else ""
    parts = [f"### {column.title}", f"RoPE scores {level.mean:.3f}{at_best}."]
    rows = [row(name, ranked, every, measured) for name in ahead[:BEST]]
    parts.append(markdown(Table(rows)) or "No scheme is shown to score higher.")
    lower = {name: f"{catalogue.title(name)} {found[name].mean:+.3f}" for name in behind}
    rest = {name: catalogue.title(name) for name in found if name not in ahead + behind}
    for title, texts in (("Lower than RoPE", lower), ("No difference shown", rest)):
        alike = [name for name in texts if not is_searched or name in column.searched]
        others = [name for name in texts if name not in alike]
        parts += sentence(title, [texts[name] for name in alike])
        parts += sentence(f"{title}, both at one learning rate", [texts[name] for name in others])
    return parts


def sentence(title: str, texts: list[str]) -> list[str]:
    """A sentence that lists schemes; none without any."""
    return [f"{title}: {escaped('; '.join(texts))}."] if texts else []


def row(name: str, ranked: Ranked, every: list[Ranked], measured: Measured) -> dict[str, str]:
    """A scheme that is ahead."""
    catalogue, gain, time = measured.catalogue, ranked.gains[name], costs.most_time(name)
    means = pairs_of(name, ranked.column, catalogue.baseline).mean()
    return {
        "scheme": catalogue.title(name),
        "RoPE → scheme": f"{means.theirs:.3f} → {means.ours:.3f}",
        "gain over RoPE (95% interval)": f"{gain.mean:+.3f} ({gain.low:.3f} to {gain.high:.3f})",
        "KV cache": cache(name, catalogue.baseline),
        "step time": f"up to {time:g}" if time else NONE,
        "how sure": sureness(name, ranked, measured),
        "not for": weakness(name, every, catalogue.baseline),
    }


def cache(name: str, baseline: str) -> str:
    """The KV cache of a scheme over RoPE's; that of a variant is not counted."""
    if " " in name:
        return NONE
    return f"{costs.usual(name).cached / costs.usual(baseline).cached:.2f}"


def sureness(name: str, ranked: Ranked, measured: Measured) -> str:
    """Seeds, whether rates were searched, and the words of the planned tests of the task: of those
    at the scale of the column, else of those at any. A single test has its difference beside.
    """
    baseline, column = measured.catalogue.baseline, ranked.column
    rates = "best of 3 rates" if {name, baseline} <= column.searched else "one rate"
    seeds = f"{ranked.gains[name].n} seeds, {rates}"
    every = [each for each in measured.tests if is_test_of(each, name, baseline, column)]
    here = [each for each in every if each.comparison.scale == column.setup.scale]
    tests = here or every
    if not tests:
        return f"{seeds}, exploratory"
    scales = sorted({each.comparison.scale for each in tests})
    where = "" if here else f" at scale {' and '.join(scales)}"
    if len(tests) == 1:
        found = f"{plan_word(tests[0])}, {plan_page.text(tests[0])}"
        return f"{seeds}; planned test{where}: {found}"
    counts = Counter(map(plan_word, tests))
    found = ", ".join(f"{count} {word}" for word, count in counts.items())
    return f"{seeds}; planned tests{where}: {found}"


def is_test_of(result: Result, name: str, baseline: str, column: Column) -> bool:
    """Whether a planned test with an outcome compares a scheme with the baseline on a column's
    task.
    """
    asked = result.comparison
    pair = scheme_of(asked.ours.scheme), scheme_of(asked.theirs.scheme)
    is_same = asked.task == column.setup.task and pair == (name, baseline)
    return is_same and column.is_of(asked.measure) and plan_word(result) in DECISIVE


def weakness(name: str, every: list[Ranked], baseline: str) -> str:
    """The task on which a scheme is lowest against the baseline."""
    lost = [each for each in every if name in each.gains and each.gains[name].high < 0]
    worst = min(lost, key=lambda each: each.gains[name].mean, default=None)
    if worst is None or worst.gains[name].mean >= -CLEAR:
        return NONE
    means = pairs_of(name, worst.column, baseline).mean()
    return f"{worst.column.title}: {means.ours:.2f} against {means.theirs:.2f}"
