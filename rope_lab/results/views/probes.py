"""Reports of `rope-lab probe`: read from a .json; tables and figures, a page per run."""

import json
from collections import Counter
from pathlib import Path

import pandas as pd
from pydantic.dataclasses import dataclass

from rope_lab.files import check_ours, write_whole
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.run import DAMAGE
from rope_lab.results.views.tables import NONE, Table, bullets, escaped, markdown
from rope_lab.text import ConfigError, Record, first_line, plain

OVERLAY = "overlay.svg"  # all runs of a folder


def _length(wavelength: float) -> str:
    return f"{wavelength:,.3g}" if wavelength < 1000 else f"{wavelength:,.0f}"


@dataclass(frozen=True)
class Measurement:
    """A run under a probe: loss in nats per answer token, share of problems correct, None if it
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
    """A run, the origin of run and probe, the outcomes, first without a probe, and the attention if
    it was recorded.
    """

    task: str
    position: str
    scale: str
    seed: int
    run: Record
    probe: Record
    outcomes: list[Measurement]
    attention: AttentionWeights | None = None

    @property
    def costs(self) -> dict[str, float]:
        """The increase of the held-out loss under each probe that the run could take."""
        return {o.label: o.loss - self.outcomes[0].loss for o in self.outcomes[1:] if not o.cannot}

    def title(self, catalogue: Catalogue) -> str:
        """`Substring by Prefix, paper, RoPER, seed 2`"""
        task = catalogue.report(self.task, set(), {}).title
        return f"{task}, {self.scale}, {catalogue.title(self.position)}, seed {self.seed}"


def read(path: Path) -> Probed:
    """The report in a .json. Raises OSError, or one of runs.DAMAGE."""
    return Probed(**json.loads(path.read_bytes()))


def table(outcomes: list[Measurement], title: str = "Probes") -> Table:
    """The outcomes: first without a probe, then the others with their costs."""
    whole, rows = outcomes[0], []
    for outcome in outcomes:
        row = {
            "probe (positions)": outcome.label or "as it is",
            "nats per answer token": _cell("{:.4f}", outcome.loss),
            "change": outcome.cannot,
            "problems correct": _cell("{:.1%}", outcome.accuracy),
            "in points": "",
        }
        if outcome is not whole and outcome.loss is not None:
            row["change"] = f"{outcome.loss - whole.loss:+.4f}"
            if outcome.accuracy is not None:
                row["in points"] = f"{100 * (outcome.accuracy - whole.accuracy):+.1f}"
        rows.append(row)
    return Table(rows, title)


def _cell(form: str, value: float | None) -> str:
    return NONE if value is None else form.format(value)


HEAD = "# {task} · {position} · seed"
ABOUT = " {seed} ({scale})"
UNFINISHED = ", {status}, weights of step {steps:,}"


def write(found: Record, stem: Path, drawn: bool = True) -> list[Path]:
    """Write a report as `stem`.json, .md and, if it is to be drawn, .svg."""
    probed = Probed(**found)
    title = HEAD + ABOUT
    if found.get("status", "finished") != "finished":
        title += UNFINISHED
    origins = [_origin(name, found[name]) for name in ("run", "probe")]
    parts = [escaped(title.format(**found)), markdown(table(probed.outcomes)), bullets(origins)]
    # Not one number per line.
    whole = json.dumps(found, indent=None if found.get("attention") else 1)
    page = f"{stem.name}.md"
    text = "\n\n".join(parts) + "\n"
    files = {f"{stem.name}.json": f"{whole}\n".encode(), page: text.encode()}
    if drawn and probed.costs:
        files[f"{stem.name}.svg"] = overlay([probed])
    check_ours(stem.parent / page, escaped(HEAD.format(**found)))
    for name, content in files.items():  # the folder may be a link of the user's
        write_whole(stem.parent / name, content)
    return [stem.parent / name for name in files]


def _origin(name: str, about: Record) -> str:
    parts = [f"{key} {value}" for key, value in about.items() if value != {}]
    return f"{name}: {', '.join(parts)}"


def overlay(probed: list[Probed]) -> bytes:
    """The costs of runs of one task and scale as SVG: a dot a run, a bar a scheme's mean."""
    from rope_lab.results.views import dots, render  # here: slow to import

    known = Catalogue()
    counts = Counter(sorted(run.position for run in probed))
    names = {s: plain(f"{known.title(s)} (n = {n})") for s, n in counts.items()}
    colors = {name: known.color(scheme, names) for scheme, name in names.items()}
    rows = []
    for run in sorted(probed, key=lambda run: run.position):
        for probe, cost in run.costs.items():
            rows.append((plain(probe), names[run.position], cost))
    points = pd.DataFrame(rows, columns=["probe", "scheme", "cost"])
    about = f"{plain(probed[0].task)}, {plain(probed[0].scale)}"
    return render.svg(dots.costs(points, colors, f"Cost of one change at a time: {about}"))


def rebuild(paths: list[Path]) -> list[Path]:
    """Remake the pages of reports, and for several OVERLAY beside the first; the files' paths.

    Raises ConfigError for a path without a report, and for reports of several tasks or scales.
    """
    found, written = [], []
    for path in paths:
        try:
            found.append(read(path))
        except DAMAGE as error:
            what = f"{type(error).__name__}: {first_line(error)}"
            raise ConfigError(f"{path}: holds no probes ({what})") from None
    if len({(run.task, run.scale) for run in found}) > 1:
        raise ConfigError(f"{paths[0]} and others: one figure compares runs of one task and scale")
    for path in paths:
        alone = len(paths) == 1
        written += write(json.loads(path.read_bytes()), path.with_suffix(""), drawn=alone)
    if len(found) > 1:
        written.append(paths[0].with_name(OVERLAY))
        write_whole(written[-1], overlay(found))
    return written
