"""Tables and figures of what probes found: a page a run, and one figure over several runs."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from rope_lab.files import read_file, write_whole
from rope_lab.results.figures import STYLE, WIDTH, rendered
from rope_lab.results.probes import Outcome, Probed, outcome, read
from rope_lab.results.published import Published
from rope_lab.results.runs import DAMAGE
from rope_lab.results.tables import escaped, markdown
from rope_lab.text import ConfigError, plain

OVERLAY = "overlay.svg"  # all runs of a folder
LINEAR = 0.01  # nats: below that the axis of costs is linear


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as Markdown, the run as it is first, the others with what they cost."""
    whole = outcomes[0]
    rows = [["as it is", f"{whole.loss:.4f}", "", f"{whole.accuracy:.1%}", ""]]
    for o in outcomes[1:]:
        if o.cannot:
            rows.append([escaped(o.label), "–", escaped(o.cannot), "–", ""])
            continue
        costs = f"{o.loss - whole.loss:+.4f}", f"{100 * (o.accuracy - whole.accuracy):+.1f} points"
        rows.append([escaped(o.label), f"{o.loss:.4f}", costs[0], f"{o.accuracy:.1%}", costs[1]])
    return markdown(["probe (positions)", "nats per answer token", "change", "problems right", "change"], rows)


def figure(outcomes: list[Outcome], title: str) -> Figure:
    """Loss and accuracy under each probe, beside those of the run as it is (dashed)."""
    shown = [o for o in outcomes[1:] if not o.cannot]
    plot = Figure(figsize=(WIDTH, 0.19 * len(shown) + 1), layout="constrained")
    panels = {"loss": "nats per answer token", "accuracy": "share of problems right"}
    for ax, (key, label) in zip(plot.subplots(1, 2, sharey=True), panels.items(), strict=True):
        ax.axvline(getattr(outcomes[0], key), color="black", lw=0.8, ls="--")
        for row, o in enumerate(shown):
            ax.plot([getattr(outcomes[0], key), getattr(o, key)], [row, row], color="#0072B2", lw=1.2)
            ax.plot(getattr(o, key), row, "o", ms=3, color="#0072B2")
        ax.set(xlabel=label, yticks=range(len(shown)), yticklabels=[plain(o.label) for o in shown])
        ax.set_ylim(len(shown) - 0.5, -0.5)
    plot.suptitle(plain(title), fontsize=8)
    return plot


def write(found: dict[str, Any], stem: Path) -> list[Path]:
    """Writes a report as `stem`.json, .md and .svg."""
    outcomes = [outcome(o) for o in found["outcomes"]]
    title = f"{found['task']} · {found['position']} · seed {found['seed']} ({found['scale']})"
    if found.get("status", "finished") != "finished":
        title += f", {found['status']}, weights of step {found['steps']:,}"
    origins = {what: ", ".join(f"{k} {v}" for k, v in found[what].items()) for what in ("run", "probe")}
    lines = [f"- {what}: {escaped(origin)}" for what, origin in origins.items()]
    page = "\n".join([f"# {escaped(title)}", "", table(outcomes), "", *lines, ""])
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("json", "md", "svg")]
    contents = [(json.dumps(found, indent=1) + "\n").encode(), page.encode()]
    if not all(o.cannot for o in outcomes[1:]):
        with mpl.rc_context(STYLE):
            contents.append(rendered(figure(outcomes, title)))
    written = list(zip(paths, contents, strict=False))
    for path, content in written:
        write_whole(path, content)
    return [path for path, _ in written]


def costs(probed: list[Probed]) -> dict[str, list[dict[str, float]]]:
    """For each scheme the costs of its runs."""
    found: dict[str, list[dict[str, float]]] = {}
    for run in sorted(probed, key=lambda run: run.position):
        found.setdefault(run.position, []).append(run.costs)
    return found


def overlay(probed: list[Probed]) -> bytes:
    """`costs` of runs of one task and scale as SVG, in nats per answer token: a dot a run, a bar a scheme's mean."""
    known, found = Published(), costs(probed)
    labels = list(dict.fromkeys(label for runs in found.values() for run in runs for label in run))
    lowest = min(cost for runs in found.values() for run in runs for cost in run.values())
    with mpl.rc_context(STYLE):
        plot = Figure(figsize=(WIDTH, 0.19 * len(labels) + 1), layout="constrained")
        ax = plot.subplots()
        for row in range(0, len(labels), 2):
            ax.axhspan(row - 0.5, row + 0.5, color="black", alpha=0.04, lw=0)
        for rank, (scheme, runs) in enumerate(found.items()):
            color, beside = known.color(scheme, found), 0.7 * ((rank + 0.5) / len(found) - 0.5)
            ax.plot([], [], color=color, lw=2, label=plain(f"{known.title(scheme)} (n = {len(runs)})"))
            for row, label in enumerate(labels):
                if values := [run[label] for run in runs if label in run]:
                    at = row + beside
                    ax.plot(values, [at] * len(values), "o", ms=3, mew=0, alpha=0.7, color=color)
                    ax.plot([fmean(values)] * 2, [at - 0.18, at + 0.18], color=color, lw=2)
        ax.axvline(0, color="black", lw=0.6)
        ax.set_xscale("symlog", linthresh=LINEAR)
        ax.set_xlim(min(-LINEAR / 2, lowest), None)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.set(yticks=range(len(labels)), yticklabels=map(plain, labels), ylim=(len(labels) - 0.5, -0.5))
        ax.set(xlabel="increase of the held-out loss, nats per answer token")
        ax.legend(loc="upper right")
        plot.suptitle(f"cost of one change at a time: {plain(probed[0].task)}, {plain(probed[0].scale)}", fontsize=9)
        return rendered(plot)


def rebuild(paths: list[Path]) -> None:
    """Makes the tables and figures of reports again, and of two or more of one task and scale OVERLAY beside them.

    Raises ConfigError where there is no report in one of `paths`.
    """
    found = []
    for path in paths:
        try:
            write(json.loads(read_file(path)), path.with_suffix(""))
            found.append(read(path))
        except OSError as error:
            raise ConfigError(f"{path}: holds no probes ({error.strerror})") from None
        except DAMAGE as error:
            raise ConfigError(f"{path}: holds no probes ({type(error).__name__}: {error})") from None
    if len(found) > 1 and len({(run.task, run.scale) for run in found}) == 1 and any(map(any, costs(found).values())):
        write_whole(paths[0].with_name(OVERLAY), overlay(found))
