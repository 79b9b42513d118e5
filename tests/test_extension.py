"""The pages of longer texts, on Shakespeare and on needles, against the runs beside them."""

import functools
from dataclasses import dataclass

import pytest
from conftest import ROOT

from rope_lab.continuing import ways
from rope_lab.results.comparisons.continued import AS_IS, WINDOWS
from rope_lab.results.records.kept import read_kept
from rope_lab.results.records.run import Run

OLD = 64  # the length of training, in tokens or letters
DROPPED = ("DroPE", "DroPE, q and k norms")
METHODS = {setting: name for name, setting in (ways.SCALINGS | ways.REMAPPED).items()}
EVERY = [AS_IS, *ways.SCALINGS, *ways.REMAPPED, WINDOWS, *DROPPED]
SCHEMES = ("rope", "roper", "rope_partial", "pope")


@dataclass
class Study:
    """A folder of extended runs.

    metric:  of the problems or tokens of a length
    trained: the setting that further training for a length changes
    factors: of position interpolation and its kin, by how many times as far they read
    groups:  of SelfExtend, likewise
    steps:   of further training
    """

    folder: str
    metric: str
    trained: str
    factors: dict[int, float]
    groups: dict[int, int]
    steps: int
    shown: str
    times: int = 1

    def page(self) -> str:
        return (ROOT / "results" / self.folder / "README.md").read_text("utf-8")

    def fits(self, run: Run, method: str, steps: int, times: int) -> bool:
        """Whether a run is one of this method, at this length."""
        settings = run.settings
        length = OLD * times if steps and method not in DROPPED else OLD
        fits = (method_of(run), settings["train.steps"]) == (method, steps)
        fits &= settings[self.trained] == length
        if method in ways.SCALINGS:
            fits &= settings.get("position.factor") == pytest.approx(self.factors[times])
        if method == "SelfExtend":
            fits &= settings.get("position.group") == self.groups[times]
        return fits

    def mean(self, scheme: str, method: str, steps: int, times: int) -> str:
        """The mean of a method at its length, as the page shows it; – without runs."""
        metric, found = f"{self.metric}/{OLD * times}", {}
        for run in runs_of(self.folder):
            began = run.parent.rpartition("-")[0] or run.position
            value = run.final(metric)
            if began == scheme and value is not None and self.fits(run, method, steps, times):
                found[run.seed] = value
        if not found:
            return "–"
        assert sorted(found) == [400, 401, 402, 403, 404]
        return self.shown.format(self.times * sum(found.values()) / 5)

    def across(self, method: str) -> str:
        """The row of a method: before and after further training for four times the length."""
        cells = []
        for scheme in SCHEMES:
            both = [self.mean(scheme, method, steps, 4) for steps in (0, self.steps)]
            cells.append(" → ".join(both) if both != ["–", "–"] else "–")
        return f"| {method} | {' | '.join(cells)} |"


ON_TEXT = Study(
    folder="extension_text",
    metric="length_loss",
    trained="train.seq_len",
    factors={2: 2, 4: 4, 8: 8},
    groups={2: 5, 4: 9, 8: 19},
    steps=100,
    shown="{:.3f}",
)
ON_NEEDLES = Study(  # eight tokens of a text are not of the haystack
    folder="extension",
    metric="length",
    trained="task.string_length",
    factors={times: (OLD * times + 8) / (OLD + 8) for times in (2, 4, 8)},
    groups={2: 4, 4: 9, 8: 17},
    steps=50,
    shown="{:.1f}",
    times=100,
)


@functools.cache
def runs_of(folder: str) -> list[Run]:
    return read_kept(ROOT / "results" / folder)[0]


def method_of(run: Run) -> str:
    settings = run.settings
    if run.position == "none":
        return DROPPED[settings["model.qk_norm"]]
    if settings.get("position.window"):
        return WINDOWS
    named = settings.get("position.method") or settings.get("position.scaling")
    return METHODS.get(named, AS_IS)


@pytest.mark.claims
@pytest.mark.parametrize("study", [ON_TEXT, ON_NEEDLES], ids=lambda study: study.folder)
def test_pages_of_longer_texts_compare_schemes_as_their_rows_do(study):
    text = study.page()
    for method in EVERY:
        assert study.across(method) in text


@pytest.mark.claims
def test_the_page_on_text_has_every_length_of_its_rows():
    text = ON_TEXT.page()
    for method in EVERY:
        cells = [ON_TEXT.mean("rope", method, n, times) for n in (0, 100) for times in (2, 4, 8)]
        assert f"| {method} | {' | '.join(cells)} |" in text
