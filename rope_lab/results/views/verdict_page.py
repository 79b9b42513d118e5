"""The files of a verdict: a page with paragraph, figure and tables; also LaTeX, CSV and JSON."""

import json

from rope_lab.files import write_files
from rope_lab.results.comparisons.stats import ALPHA
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import Record, Run
from rope_lab.results.views import tables
from rope_lab.results.views.headlines import gain_text
from rope_lab.results.views.plan_page import result_text
from rope_lab.results.views.tables import Strong, Table, bullets, escaped, markdown, mean_of
from rope_lab.results.views.verdict import Verdict, p_text
from rope_lab.shipped import choices

EDITED = "was edited after the plan was frozen: the verdict is of its copy"
PAGE, FIGURE = "verdict.md", "verdict.svg"
EVIDENCE = (
    "Every run records the digest of the plan. That shows that the runs were made for this plan, "
    "not that nobody ran others before; commit the plan before its runs to show when it was made."
)


def write(verdict: Verdict) -> None:
    """Write all files of a verdict into its folder."""
    from rope_lab.results.views import render  # with Altair, which takes half a second

    chart = verdict.plot()
    main = table(verdict)
    files = {
        PAGE: page(verdict).encode(),
        FIGURE: render.svg(chart),
        "verdict.pdf": render.pdf(chart),
        "verdict.tex": tables.latex(main, caption(verdict)).encode(),
        "verdict.csv": tables.csv(every_seed(verdict)).encode(),
        "verdict.json": (json.dumps(as_json(verdict), indent=2) + "\n").encode(),
    }
    write_files(verdict.folder, files)


def page(verdict: Verdict) -> str:
    """The page in Markdown."""
    ours, theirs = map(escaped, verdict.names)
    parts = [
        f"# {ours} against {theirs} on {escaped(verdict.where)}",
        f"**{escaped(verdict.word)}**",
        f"> {escaped(verdict.paragraph)}",
        f"![Every seed of both schemes, paired]({FIGURE})",
        markdown(table(verdict)),
        "## Every seed",
        markdown(every_seed(verdict)),
    ]
    if verdict.secondary:
        parts += ["## Secondary measures, without a verdict", markdown(_secondary(verdict))]
    parts += ["## The search for learning rates", markdown(search(verdict))]
    study = verdict.family.study
    parts.append(bullets([*warnings(verdict), study.reason, *_of_interest(verdict), EVIDENCE]))
    parts += ["## Not tested", bullets(not_tested(verdict))]
    if len(verdict.tries) > 1:
        parts += ["## All comparisons of these schemes here", markdown(_tries(verdict))]
    if verdict.family.flaws:
        problems = [Strong(flaw.line) for flaw in verdict.family.flaws]
        parts += ["## Problems", bullets(problems)]
    return "\n\n".join(parts) + "\n"


def caption(verdict: Verdict) -> str:
    """The caption of the table in a paper."""
    study = verdict.family.study
    name = f"{verdict.names[0]} against {verdict.names[1]} on {verdict.where}"
    seeds = f"{verdict.difference.n} pairs of seeds"
    return f"{name}, scale {study.scale}, {seeds}; rope_lab at commit {verdict.run.commit}."


def as_json(verdict: Verdict) -> Record:
    """The verdict for a program."""
    study = verdict.family.study
    difference = verdict.difference
    return {
        "word": verdict.word,
        "paragraph": verdict.paragraph,
        "schemes": list(verdict.names),
        "task": study.task,
        "scale": study.scale,
        "unit": verdict.result.measure.unit,
        "higher_is_better": verdict.result.measure.sign > 0,
        "means": list(verdict.result.means),
        "difference": {
            "mean": difference.mean,
            "low": difference.low,
            "high": difference.high,
            "pairs": difference.n,
        },
        "p": verdict.result.p,
        "seeds": verdict.result.seeds,
        "learning_rates": list(verdict.best.values()),
        "plan": study.digest,
        "problems": [flaw.line for flaw in verdict.family.flaws],
        "tries": len(verdict.tries),
    }


def table(verdict: Verdict) -> Table:
    """A row a scheme: its mean, rate, parameters and time of a step; then the difference."""
    result = verdict.result
    measure = result.measure
    column = f"{measure.shown_unit} [95% interval]"
    values = result.pairs.ours, result.pairs.theirs
    rows = []
    for name, arm, of_arm in zip(verdict.names, verdict.arms, values, strict=True):
        row = {"scheme": name, column: mean_of(of_arm, measure)}
        row["learning rate"] = f"{verdict.best[name]:g}"
        row["parameters"] = f"{arm.runs[0].parameters:,}"
        row["ms per step"] = f"{_milliseconds(arm.runs):.3g}"
        rows.append(row)
    ours, theirs = verdict.names
    sign = "−"
    found = tables.signed(verdict.difference, measure.digits)
    if measure.is_log:
        sign, found = "/", gain_text(result)
    difference = {
        "scheme": f"{ours} {sign} {theirs}",
        column: found,
        "learning rate": Strong(verdict.word),
        "parameters": p_text(result.p),
        "ms per step": "",
    }
    return Table([*rows, difference])


def _milliseconds(runs: tuple[Run, ...]) -> float:
    """The mean time of a step, evaluations included."""
    return 1000 * sum(run.seconds / max(run.steps, 1) for run in runs) / len(runs)


def every_seed(verdict: Verdict) -> Table:
    """Both values of each seed, and their difference in the unit that is tested."""
    measure = verdict.result.measure
    rows = []
    for seed, ours, theirs in verdict.result.pairs.itertuples():
        values = map(measure.text, (ours, theirs))
        row = {"seed": str(seed)} | dict(zip(verdict.names, values, strict=True))
        rows.append(row | {"difference": f"{ours - theirs:+.{measure.digits}f}"})
    return Table(rows)


def search(verdict: Verdict) -> Table:
    """The mean of each scheme at each rate of the search; the best are emphasized."""
    rows = []
    for rate in verdict.rates:
        row = {"learning rate": f"{rate:g}"}
        for name, arm in zip(verdict.names, verdict.arms, strict=True):
            cell = _searched(verdict, arm.runs[0].position, rate)
            row[name] = tables.strong_if(verdict.best[name] == rate, cell)
        rows.append(row)
    return Table(rows)


def warnings(verdict: Verdict) -> list[str]:
    """What a reader should know: files edited since, and schemes nearer than the baseline."""
    lines: list[str] = []
    ours = verdict.names[0]
    for name in verdict.edited:
        lines.append(Strong(f"{name} {EDITED}."))
    if verdict.relatives:
        near = ", ".join(verdict.relatives)
        lines.append(
            f"{ours} extends a class that these schemes share, too: {near}. If it is a small "
            "change of one of them, compare it with that one."
        )
    return lines


def _of_interest(verdict: Verdict) -> list[str]:
    """A difference that was found, beside the smallest one of interest."""
    wanted = verdict.family.study.difference
    if not wanted or not verdict.result.p < ALPHA:
        return []
    times = abs(verdict.difference.mean) / wanted
    return [f"The difference found is {times:.1f} times the smallest one of interest."]


def _searched(verdict: Verdict, position: str, rate: float) -> str:
    """The mean of a scheme at a rate of the search; how many runs diverged."""
    cell = position, rate
    runs = [run for run in verdict.searched if (run.position, run.settings["train.lr"]) == cell]
    finished = [run for run in runs if run.status == "finished"]
    measure = verdict.result.measure
    return mean_of([measure.of(run) for run in finished], measure, len(runs) - len(finished))


def _secondary(verdict: Verdict) -> Table:
    rows = []
    for result in verdict.secondary:
        found = result_text(result)
        row = {"comparison": result.comparison.name, "found": found}
        rows.append(row | {"test": p_text(result.p)})
    return Table(rows)


def _tries(verdict: Verdict) -> Table:
    rows = []
    for line in verdict.tries:
        seeds = f"{line['seeds'][0]} to {line['seeds'][-1]}"
        rows.append({"folder": line["folder"], "plan": line["digest"], "seeds": seeds})
    return Table(rows)


def not_tested(verdict: Verdict) -> list[str]:
    """What the comparison does not show: everything that its runs have in common."""
    study = verdict.family.study
    run = verdict.run
    rates = verdict.rates
    task = recorded_name(study.task)
    catalogue = Catalogue()
    others = [report["title"] for name, report in catalogue.tasks.items() if name != task]
    scales = [scale for scale in choices(f"recipe/{task}") if scale != study.scale]
    settings = run.all_settings
    unusual = [f"the recipe of {study.scale} without {study.unusual}"] if study.unusual else []
    longest = f"{settings['train.seq_len']:,} tokens"
    if settings["eval.lengths"]:
        counted = verdict.result.comparison.report.length["title"]
        longest = f"{max(settings['eval.lengths']):,} {counted}"
    return [
        *unusual,
        f"other tasks: {', '.join(others)}",
        f"other scales of this task: {', '.join(scales) or 'there are none'}",
        f"other sizes than {run.parameters:,} parameters",
        f"other optimizers than {settings['train.optimizer']}, and its other settings",
        f"another precision than {settings['train.precision']}",
        f"learning rates outside {rates[0]:g} to {rates[-1]:g}",
        f"training longer than {settings['train.steps']:,} steps",
        f"inputs longer than {longest}",
    ]
