"""The page of longer texts on tiny Shakespeare, against the runs beside it."""

import pytest
from conftest import ROOT

from rope_lab.continuing import ways
from rope_lab.results.comparisons.continued import AS_IS, WINDOWS
from rope_lab.results.records.kept import read_kept

METHODS = {setting: name for name, setting in (ways.SCALINGS | ways.REMAPPED).items()}
GROUPS = {2: 5, 4: 9, 8: 19}  # of SelfExtend, by how many times as far it reads


def method_of(run) -> str:
    settings = run.settings
    if run.position == "none":
        return "DroPE, q and k norms" if settings["model.qk_norm"] else "DroPE"
    if settings.get("position.window"):
        return WINDOWS
    named = settings.get("position.method") or settings.get("position.scaling")
    return METHODS.get(named, AS_IS)


def mean_loss(runs, scheme: str, method: str, steps: int, times: int) -> str:
    """The mean loss of a method at its length, as the page shows it."""
    length, found = 64 * times, {}
    for each in runs:
        began = each.parent.rpartition("-")[0] or each.position
        settings = each.settings
        same = (began, method_of(each), settings["train.steps"]) == (scheme, method, steps)
        at = length if steps and "DroPE" not in method else 64
        fits = settings["train.seq_len"] == at
        fits &= method not in ways.SCALINGS or settings.get("position.factor") == times
        fits &= method != "SelfExtend" or settings.get("position.group") == GROUPS[times]
        if same and fits and str(length) in each.slices["length_loss"]:
            found[each.seed] = each.final(f"length_loss/{length}")
    if not found:
        return "–"
    assert sorted(found) == [400, 401, 402, 403, 404]
    return f"{sum(found.values()) / 5:.3f}"


@pytest.mark.claims
def test_the_page_on_text_says_what_its_rows_say():
    folder = ROOT / "results" / "extension_text"
    runs, text = read_kept(folder)[0], (folder / "README.md").read_text("utf-8")
    every = [AS_IS, *ways.SCALINGS, *ways.REMAPPED, WINDOWS, "DroPE", "DroPE, q and k norms"]
    for method in every:
        cells = [mean_loss(runs, "rope", method, n, times) for n in (0, 100) for times in (2, 4, 8)]
        assert f"| {method} | {' | '.join(cells)} |" in text
        cells = []
        for scheme in ("rope", "roper", "rope_partial", "pope"):
            both = [mean_loss(runs, scheme, method, steps, 4) for steps in (0, 100)]
            cells.append(" → ".join(both) if both != ["–", "–"] else "–")
        assert f"| {method} | {' | '.join(cells)} |" in text
