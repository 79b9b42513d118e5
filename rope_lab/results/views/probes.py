"""Reports of `rope-lab probe`: read from a .json; tables and figures, a page per run."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic.dataclasses import dataclass

from rope_lab.files import write_whole
from rope_lab.results.records.catalogue import Published
from rope_lab.results.records.run import DAMAGE
from rope_lab.results.views.figures import WIDTH, Figure, rendered, styled
from rope_lab.results.views.tables import NONE, Table, bullets, check_ours, escaped, markdown
from rope_lab.text import ConfigError, first_line, plain

OVERLAY = "overlay.svg"  # all runs of a folder
LINEAR = 0.01  # nats: below that the axis of costs is linear


def _length(wavelength: float) -> str:
    return f"{wavelength:,.3g}" if wavelength < 1000 else f"{wavelength:,.0f}"


@dataclass(frozen=True)
class Measurement:
    """A run under a probe: loss in nats per answer token, share of problems right, None if it
    grades none; or why not.

    wavelengths: the shortest and the longest that were ablated, in positions
    """

    probe: str
    loss: float | None = None
    accuracy: float | None = None
    cannot: str = ""
    wavelengths: tuple[float, float] | None = None

    @property
    def label(self) -> str:
        """The probe with its wavelengths."""
        if self.wavelengths is None:
            return self.probe
        first, last = map(_length, self.wavelengths)
        span = first if first == last else f"{first} to {last}"
        return f"{self.probe} (wavelength {span})"


@dataclass(frozen=True)
class AttentionWeights:
    """Attention weights on held-out text, by layer and head.

    by_distance: the mean weight of the token so many tokens back
    maps:  of one text, down-sampled: the share of attention that `every` neighbouring queries give
           to as many keys
    """

    by_distance: list[list[list[float]]]
    maps: list[list[list[list[float]]]]
    every: int


@dataclass(frozen=True)
class Probed:
    """A run, its outcomes, first without a probe, and its attention if it was recorded."""

    task: str
    position: str
    scale: str
    seed: int
    outcomes: list[Measurement]
    attention: AttentionWeights | None = None

    @property
    def costs(self) -> dict[str, float]:
        """The increase of the held-out loss under each probe that the run could take."""
        return {o.label: o.loss - self.outcomes[0].loss for o in self.outcomes[1:] if not o.cannot}

    def title(self, published: Published) -> str:
        """`Substring by Prefix, paper, RoPER, seed 2`"""
        task = published.report(self.task, set(), {}).title
        return f"{task}, {self.scale}, {published.title(self.position)}, seed {self.seed}"


def read(path: Path) -> Probed:
    """The report in a .json. Raises OSError, or one of runs.DAMAGE."""
    return Probed(**json.loads(path.read_bytes()))


def table(outcomes: list[Measurement], title: str = "Probes") -> Table:
    """The outcomes: first without a probe, then the others with their costs."""
    whole, rows = outcomes[0], []
    for o in outcomes:
        loss, right, change, points = NONE, NONE, o.cannot, ""
        if not o.cannot:
            loss, change = f"{o.loss:.4f}", f"{o.loss - whole.loss:+.4f}" if o is not whole else ""
        if o.accuracy is not None:
            right = f"{o.accuracy:.1%}"
            points = f"{100 * (o.accuracy - whole.accuracy):+.1f} points" if o is not whole else ""
        row = {
            "probe (positions)": o.label if o is not whole else "as it is",
            "nats per answer token": loss,
        }
        rows.append(row | {"change": change, "problems right": right, "change ": points})
    return Table(rows, title)


def write(found: dict[str, Any], stem: Path, drawn: bool = True) -> list[Path]:
    """Write a report as `stem`.json, .md and, if it is to be drawn, .svg."""
    probed = Probed(**found)
    title = f"{found['task']} · {found['position']} · seed {found['seed']} ({found['scale']})"
    if found.get("status", "finished") != "finished":
        title += f", {found['status']}, weights of step {found['steps']:,}"
    origins = [
        f"{name}: {', '.join(f'{k} {v}' for k, v in found[name].items() if v != {})}"
        for name in ("run", "probe")
    ]
    page = f"# {escaped(title)}\n\n{markdown(table(probed.outcomes))}\n\n{bullets(origins)}\n"
    content = json.dumps(
        found, indent=None if found.get("attention") else 1
    )  # not one number per line
    written = {"json": f"{content}\n".encode(), "md": page.encode()}
    if drawn and probed.costs:
        written["svg"] = overlay([probed])
    paths = {stem.with_name(f"{stem.name}.{kind}"): content for kind, content in written.items()}
    check_ours(
        stem.with_name(f"{stem.name}.md"),
        escaped(f"# {found['task']} · {found['position']} · seed"),
    )
    for path, content in paths.items():
        write_whole(path, content)
    return list(paths)


def overlay(probed: list[Probed]) -> bytes:
    """The costs of runs of one task and scale as SVG: a dot a run, a bar a scheme's mean."""
    known = Published()
    schemes = sorted({run.position for run in probed})
    labels = list(
        dict.fromkeys(
            label for run in sorted(probed, key=lambda run: run.position) for label in run.costs
        )
    )
    with styled():
        plot = Figure(figsize=(WIDTH, 0.19 * len(labels) + 1), layout="constrained")
        ax = plot.subplots()
        for row in range(0, len(labels), 2):
            ax.axhspan(row - 0.5, row + 0.5, color="black", alpha=0.04, lw=0)
        for rank, scheme in enumerate(schemes):
            runs = [run.costs for run in probed if run.position == scheme]
            color, beside = known.color(scheme, schemes), 0.7 * ((rank + 0.5) / len(schemes) - 0.5)
            ax.plot(
                [], [], color=color, lw=2, label=plain(f"{known.title(scheme)} (n = {len(runs)})")
            )
            for at, label in enumerate(labels):
                if values := [run[label] for run in runs if label in run]:
                    ax.plot(
                        values,
                        [at + beside] * len(values),
                        "o",
                        ms=3,
                        mew=0,
                        alpha=0.7,
                        color=color,
                    )
                    ax.plot(
                        [fmean(values)] * 2,
                        [at + beside - 0.18, at + beside + 0.18],
                        color=color,
                        lw=2,
                    )
        ax.axvline(0, color="black", lw=0.6)
        ax.set_xscale("symlog", linthresh=LINEAR)
        ax.set_xlim(
            min(-LINEAR / 2, *(cost for run in probed for cost in run.costs.values())), None
        )
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set(
            yticks=range(len(labels)),
            yticklabels=map(plain, labels),
            ylim=(len(labels) - 0.5, -0.5),
        )
        ax.set(xlabel="increase of the held-out loss, nats per answer token")
        ax.legend(loc="upper right")
        plot.suptitle(
            f"cost of one change at a time: {plain(probed[0].task)}, {plain(probed[0].scale)}",
            fontsize=9,
        )
        return rendered(plot)


def rebuild(paths: list[Path]) -> None:
    """Remake the pages of reports, and for two or more of one task and scale OVERLAY beside them.

    Raises ConfigError for a path without a report.
    """
    found = []
    for path in paths:
        try:
            found.append(read(path))
            write(json.loads(path.read_bytes()), path.with_suffix(""), drawn=len(paths) == 1)
        except ConfigError:
            raise
        except DAMAGE as error:
            raise ConfigError(
                f"{path}: holds no probes ({type(error).__name__}: {first_line(error)})"
            ) from None
    if (
        len(found) > 1
        and len({(run.task, run.scale) for run in found}) == 1
        and any(run.costs for run in found)
    ):
        write_whole(paths[0].with_name(OVERLAY), overlay(found))
