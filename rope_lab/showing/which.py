"""Which scheme for what: the page docs/which.md, from a list of goals and the kept runs."""

from collections import Counter
from collections.abc import Sequence

from rope_lab.results.comparisons import words
from rope_lab.results.comparisons.answers import Result
from rope_lab.results.comparisons.score_columns import Column
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.comparisons.words import plan_word
from rope_lab.results.views import plan_page
from rope_lab.results.views.tables import NONE, Table, escaped, markdown
from rope_lab.showing import costs
from rope_lab.showing.gains import (
    Ranked,
    as_scores,
    columns_by_hardware,
    is_at_scale,
    ranked,
    tests_of,
)
from rope_lab.showing.goals import goals
from rope_lab.showing.measured import DIFFERENCE, Measured, verdicts

BEST = 5  # schemes of a table
CLEAR = 0.05  # below RoPE: less is not worth a warning
HIGHER, LOWER, LEVEL = "Higher than RoPE", "Lower than RoPE", "No difference shown"
FAILED = "Higher in these runs, but not in a planned test"
SEARCHED, USUAL = "best of 3 rates", "one rate"
HEAD = """# Which scheme for what

Begin with your goal: {goals}.

- **Gain**: the score of a scheme minus RoPE's, paired by seed; higher is better. A score is the
  share of problems correct, or e^(−loss) of text and of Prefix.
- **Planned**: tests that were fixed before their runs, in the task's own unit. {difference}

[How to read the tables](#how-to-read-the-tables)."""
FOOT = """## How to read the tables

- A table has the schemes whose gain's 95% interval lies above 0. RoPE's score differs between rows:
  each gain is over the seeds that both schemes have. Intervals are not corrected for
  the number of schemes. A scheme with just one planned test has the numbers of that test. If it
  has planned tests at this scale and none is confirmed, it stands below the table. Some tests have
  other settings of model or training than the table.
- **KV cache and step time** are relative to [RoPE's](../results/benchmark.md#kv-cache); – is not
  measured. Step times are medians in float32, the largest of several sizes. Content-dependent
  schemes may take longer: [PaTH's bfloat16 runs](../results/reversal/README.md) took four to five
  times RoPE's time.
- **How sure**: with *best of 3 rates* each seed has the learning rate that is best on the other
  seeds; if the best one is the highest tried, the scheme is not tuned. With *one rate* both have
  the recipe's, which may suit one of them better.
- **Not for**: the task on which the scheme is lowest against RoPE, by {clear} or more, if its whole
  interval is below 0. Few schemes were run on all tasks.
- Models have 0.1M to 3.3M parameters. [All scores](../results/scores.md) ·
  [all planned tests](../results/plan.md) · [all schemes](schemes/README.md)
"""


def page(measured: Measured) -> str:
    """The page in Markdown."""
    twins = columns_by_hardware(measured.catalogue)
    every = [ranked(column, measured.catalogue, twins) for column in measured.columns]
    by_name = {each.name: each for each in every}
    linked = [f"[{each.goal}](#{each.goal.lower().replace(' ', '-')})" for each in goals()]
    parts = [HEAD.format(goals=" · ".join(linked), difference=DIFFERENCE)]
    for goal in goals():
        parts += [f"## {goal.goal}", goal.text]
        for name in goal.columns:
            parts += section(by_name[name], every, measured)
        tests = [each for each in measured.tests if each.family.study.name in goal.tests]
        if tests:
            parts += ["Planned:", markdown(verdicts(tests, measured.catalogue, both=True))]
    parts.append(FOOT.format(clear=CLEAR))
    return "\n\n".join(filter(None, parts))


def section(ranked: Ranked, every: list[Ranked], measured: Measured) -> list[str]:
    """A task: the schemes ahead of the baseline in a table, the others in sentences."""
    column, catalogue = ranked.column, measured.catalogue
    variant = column.setup.variant
    is_searched = catalogue.baseline in column.searched
    parts = [f"### {column.title}"]
    if variant:
        parts.append(f"These runs differ from today's recipe: {escaped(variant)}.")
    usual = t_interval(column.scores[catalogue.baseline])
    rates = f"at the {rates_of(column, catalogue.baseline)}" if is_searched else "at one rate"
    parts.append(f"RoPE scores {usual.mean:.3f} {rates}.")
    alike = [name for name in ranked.gains if is_searched == (name in ranked.searched)]
    outcomes = by_outcome(alike, ranked, measured)
    best = outcomes[HIGHER][:BEST]
    outcomes[HIGHER] = outcomes[HIGHER][BEST:]
    rows = [row(name, ranked, every, measured) for name in best]
    parts.append(markdown(Table(rows)) or "No scheme is shown to score higher.")
    parts += sentences("", outcomes, ranked, measured)
    others = [name for name in ranked.gains if name not in alike]
    at_one = ", both at one learning rate"
    return parts + sentences(at_one, by_outcome(others, ranked, measured), ranked, measured)


def by_outcome(names: Sequence[str], ranked: Ranked, measured: Measured) -> dict[str, list[str]]:
    """The schemes of each outcome: those ahead of the baseline from the best on, those below it
    from the lowest on, and the others in the order of schemes.

    names: from the lowest gain on
    """
    ahead = [name for name in reversed(names) if ranked.gains[name].low > 0]
    failed = [name for name in ahead if has_failed(name, ranked.column, measured)]
    lower = [name for name in names if ranked.gains[name].high < 0]
    rest = {*names} - {*ahead, *lower}
    return {
        HIGHER: [name for name in ahead if name not in failed],
        FAILED: failed,
        LOWER: lower,
        LEVEL: [name for name in ranked.pairs if name in rest],
    }


def has_failed(name: str, column: Column, measured: Measured) -> bool:
    """Whether a scheme has planned tests of a column's score and scale, and none is confirmed."""
    tests = [each for each in tests_of(name, column, measured) if is_at_scale(each, column)]
    return bool(tests) and words.CONFIRMED not in map(plan_word, tests)


def sentences(
    how: str, outcomes: dict[str, list[str]], ranked: Ranked, measured: Measured
) -> list[str]:
    """A sentence for each outcome, with the schemes that have it; none without any."""
    shown = {
        HIGHER: lambda name: higher(name, ranked, measured),
        FAILED: lambda name: higher(name, ranked, measured),
        LOWER: lambda name: f"{measured.catalogue.title(name)} {ranked.gains[name].mean:+.3f}",
        LEVEL: measured.catalogue.title,
    }
    texts = {begin: [*map(shown[begin], names)] for begin, names in outcomes.items() if names}
    return [f"{begin}{how}: {escaped('; '.join(each))}." for begin, each in texts.items()]


def higher(name: str, ranked: Ranked, measured: Measured) -> str:
    """A scheme ahead, with both scores and the words of its planned tests."""
    found = [plan_word(each) for each in tests_of(name, ranked.column, measured)]
    tests = f" (planned: {', '.join(dict.fromkeys(found))})" if found else ""
    return f"{measured.catalogue.title(name)} {ranked.means(name)}{tests}"


def row(name: str, ranked: Ranked, every: list[Ranked], measured: Measured) -> dict[str, str]:
    """A scheme that is ahead, with the numbers of its planned test if it has one of this score."""
    catalogue = measured.catalogue
    time = costs.most_time(name)
    tests = tests_of(name, ranked.column, measured)
    shown = ranked
    sure = seeds_and_rates(name, ranked)
    if len(tests) == 1 and is_at_scale(tests[0], ranked.column):
        shown = Ranked(ranked.column, {name: as_scores(tests[0])}, {name})
        before = f"before it, exploratory: {ranked.means(name)}, {sure}"
        sure = f"{plan_word(tests[0])} by a planned test of {shown.gains[name].n} pairs; {before}"
    else:
        sure += planned(tests, ranked.column)
    gain = shown.gains[name]
    return {
        "scheme": catalogue.title(name),
        "RoPE → scheme": shown.means(name),
        "gain over RoPE (95% interval)": f"{gain.mean:+.3f} ({gain.low:.3f} to {gain.high:.3f})",
        "KV cache": cache(name, catalogue.baseline),
        "step time": f"{time:g}" if time else NONE,
        "how sure": sure,
        "not for": weakness(name, every),
    }


def cache(name: str, baseline: str) -> str:
    """The KV cache of a scheme over RoPE's; that of a variant is not counted."""
    if " " in name:
        return NONE
    return f"{costs.usual(name).cached / costs.usual(baseline).cached:.2f}"


def rates_of(column: Column, name: str) -> str:
    """`best of 3 rates`, and whether the best one is the highest or the lowest tried."""
    edge = column.at_edge.get(name)
    return f"{SEARCHED}, the {edge} tried" if edge else SEARCHED


def seeds_and_rates(name: str, ranked: Ranked) -> str:
    rates = rates_of(ranked.column, name) if name in ranked.searched else USUAL
    return f"{ranked.gains[name].n} seeds, {rates}"


def planned(tests: list[Result], column: Column) -> str:
    """The words of planned tests: `; planned tests: 2 confirmed`, else that there are none."""
    if not tests:
        return ", exploratory"
    scales = sorted({each.comparison.scale for each in tests})
    where = "" if is_at_scale(tests[0], column) else f" at scale {' and '.join(scales)}"
    if len(tests) == 1:
        return f"; planned test{where}: {plan_word(tests[0])}, {plan_page.result_text(tests[0])}"
    counts = Counter(map(plan_word, tests))
    counted = ", ".join(f"{count} {word}" for word, count in counts.items())
    return f"; planned tests{where}: {counted}"


def weakness(name: str, every: list[Ranked]) -> str:
    """The task on which a scheme is lowest against the baseline."""
    lost = [each for each in every if name in each.gains and each.gains[name].high < 0]
    worst = min(lost, key=lambda each: each.gains[name].mean, default=None)
    if worst is None or worst.gains[name].mean >= -CLEAR:
        return NONE
    means = worst.pairs[name].mean()
    return f"{worst.column.title}: {means.ours:.2f} against {means.theirs:.2f}"
