"""Pages of schemes: pictures by formula, facts from the source, kept pages, and `rope-lab show`."""

import functools
import math
import re
import shutil
from dataclasses import replace

import pytest
from builders import CATALOGUE, make_rows, table_rows
from conftest import KINDS, ROOT, SCHEMES, script

import rope_lab
from rope_lab.model.portrait import DIMS, PLACE, portrait
from rope_lab.results.comparisons import score_columns as columns
from rope_lab.results.plans import evidence
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import one_each, read
from rope_lab.results.records.kept import keep
from rope_lab.results.records.setups import setups_of
from rope_lab.results.views import plan_page
from rope_lab.showing import command, costs, facts, gains, measured, which
from rope_lab.showing.goals import goals
from rope_lab.showing.measured import Measured
from rope_lab.showing.page import page, picture

pages = script("scheme_pages")
PAGES = ROOT / "docs" / "schemes"
FAST = ["alibi", "roper", "partial_key_offset"]  # make torture rebuilds all
OWN = '''
"""Mine."""
from torch import nn
import torch
from rope_lab.model.hooks import PositionScheme


class LogDistance(PositionScheme):
    """Scores fall with *the* logarithm of the distance.

    bias = −s ln(1 + n − i)

    slope: s at first
    """

    def __init__(self, dims, slope: float = 2.0):
        super().__init__(dims)
        self.slope = nn.Parameter(torch.tensor(slope))

    def bias(self, at_T, at_S):
        return -self.slope * (at_T[:, None] - at_S).clamp(min=0).log1p().unsqueeze(0)
'''


def of(name: str):
    sizes = {"d_model": DIMS.d_model, "n_heads": DIMS.n_heads}
    more = {"max_len": DIMS.max_len, "n_layers": DIMS.n_layers}
    return portrait(rope_lab.scheme(name, **sizes, **more))


def rope_score(distance: int, theta: list[float]) -> float:
    """ln of the weight over that of the token itself, of queries and keys of ones."""
    change = sum(2 * math.cos(distance * each) - 2 for each in theta)
    return change / math.sqrt(DIMS.d_head)


def theta(width: int) -> list[float]:
    return [10_000 ** (-2 * j / width) for j in range(width // 2)]


def test_a_portrait_shows_scores_by_distance():
    alibi = of("alibi").scores
    assert [alibi["head 1"][d] for d in (0, 1, 100)] == [0, -0.25, -25]
    rope = of("rope")
    expected = [rope_score(d, theta(64)) for d in range(DIMS.max_len)]
    assert rope.scores["every head"] == pytest.approx(expected, abs=2e-4)
    assert (rope.values, rope.reach, rope.content) == ({}, {}, False)


def test_a_portrait_shows_the_rotation_of_values():
    (feature, curve), *_ = of("roper").values.items()
    pair = (int(feature.split()[1]) - 1) // 2
    expected = [math.cos(d * theta(64)[pair]) for d in range(DIMS.max_len)]
    assert curve == pytest.approx(expected, abs=2e-4)


def test_a_portrait_shows_whom_a_token_reaches():
    """Of the key 20 back the rotated half stays, the other half is in the key after it."""
    (change,) = of("partial_key_offset").reach.values()
    rotated = 4 + rope_score(PLACE, theta(32))
    assert [change[PLACE], change[PLACE - 1]] == pytest.approx([rotated, 4], abs=1e-3)
    assert not any(change[: PLACE - 1] + change[PLACE + 1 :])


def test_a_portrait_shows_kinds_of_layers_and_content():
    scores = of("gemma4").scores
    assert list(scores) == ["layers 1, 2, 3, 4, 5", "layer 6"]
    seen = [[score is not None for score in curve].count(True) for curve in scores.values()]
    assert seen == [32, 128]
    assert of("fox").content


def test_facts_are_those_of_the_source(write):
    path = write("log_distance.py", OWN)
    shown = command.look(str(path), Measured())
    text = page(shown)
    assert "Scores fall with \\*the\\* logarithm of the distance." in text
    assert "bias = −s ln(1 + n − i)" in text
    assert "- `position.slope=2.0`: s at first" in text
    assert f"{costs.usual('rope').parameters + 1:,}" in text
    assert f"None yet: `rope-lab score {path}` makes them." in text
    assert f'rope_lab.scheme("{path}", ' in text


def test_a_yaml_files_comments_are_read(tmp_path):
    lines = ["# does [x](y)", "# Released in: A, B", "# Code: https://c", "# More", "# and more"]
    (tmp_path / "a.yaml").write_text("\n".join([*lines, "_target_: Mine", "# of q", "q: 1"]))
    expected = {"summary": "does [x](y)", "released": "A, B", "code": "https://c"}
    assert facts.read_comments(tmp_path / "a.yaml") == expected | {"notes": "More and more"}


def test_every_scheme_has_a_page_and_a_picture():
    made = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    assert made == {path.stem for path in (PAGES / "figures").glob("*.svg")} == {*SCHEMES}
    assert (PAGES / "README.md").read_text("utf-8") == pages.index()


@pytest.mark.parametrize("name", FAST)
def test_pages_are_rebuilt_but_for_their_scores(name):
    """If not, run `python scripts/scheme_pages.py`."""
    kept = (PAGES / f"{name}.md").read_text("utf-8")
    made = page(command.look(name, Measured()), command.FIGURE.format(name))
    for text in (kept, made):
        assert "\n## Scores\n" in text
    assert without_results(made) == without_results(kept)


def without_results(text: str) -> str:
    return re.sub(r"\n## Scores\n.*?\n## Use it\n", "\n", text, flags=re.DOTALL)


@functools.cache
def every_kept() -> Measured:
    with pytest.MonkeyPatch.context() as patch:  # a clone without history shows no plan
        patch.setattr(evidence, "flaws", lambda *_: [])
        return measured.read()


@pytest.mark.slow
@pytest.mark.xdist_group("every kept run")  # read once
@pytest.mark.parametrize("name", [each for each in SCHEMES if each in KINDS])
def test_pages_are_rebuilt_byte_for_byte(name):
    check_page(name)


@pytest.mark.torture
@pytest.mark.parametrize("name", [each for each in SCHEMES if each not in KINDS])
def test_other_pages_are_rebuilt_byte_for_byte(name):
    check_page(name)


def check_page(name: str) -> None:
    shown, figure = command.look(name, every_kept()), command.FIGURE.format(name)
    assert page(shown, figure) == (PAGES / f"{name}.md").read_text("utf-8")
    assert picture(shown.portrait) == (PAGES / figure).read_bytes()


@pytest.mark.slow
@pytest.mark.xdist_group("every kept run")
def test_which_scheme_for_what_is_rebuilt_byte_for_byte():
    assert which.page(every_kept()) == (ROOT / "docs" / "which.md").read_text("utf-8")


NEEDLE = "Needle in a Haystack, length, trained lengths"


def test_scores_of_ones_own_runs_stand_beside(tmp_path):
    """Runs of a scheme that has no kept ones."""
    copied = shutil.copytree(ROOT / "results" / "needle", tmp_path / "needle")
    runs, _ = read(copied)
    own = [replace(r, position="mine", run_id=f"m{r.seed}") for r in runs if r.position == "alibi"]
    (tmp_path / "mine").mkdir()
    keep(own, tmp_path / "mine")
    found = measured.read(tmp_path, "mine")
    row = next(row for row in measured.scores("mine", found).rows if row["task"] == NEEDLE)
    assert row["mine"] == measured.scores("alibi", found).rows[0]["ALiBi"]
    assert row["RoPE"].startswith("0.984")
    assert measured.read(tmp_path, "other").columns == []


def test_a_page_links_to_results_with_runs_of_the_scheme(tmp_path):
    for name in ("needle", "kv"):
        shutil.copytree(ROOT / "results" / name, tmp_path / name)
    kept = measured.read(tmp_path)
    needle = "[Needle in a haystack, beyond the trained length](../../results/needle/README.md)"
    assert f"Pages with runs of it: {needle}.\n" in page(command.look("alibi", kept))
    assert "results/kv/README.md" in page(command.look("kv_shared", kept))
    assert "Pages with runs of it" not in page(command.look("rope", kept))


def test_a_gain_is_of_rates_chosen_alike():
    """Searched schemes are compared with RoPE's best rates, others with its rate of the recipe."""
    ends = {5e-5: [0.1] * 3, 1e-4: [0.2, 0.3, 0.4], 2e-4: [0.9] * 3}
    made = []
    for rate, values in ends.items():
        schemes = {"rope": values, "roper": [each + 0.05 for each in values]}
        made += make_rows(schemes, settings={"train.lr": rate})
    made += make_rows({"none": [0.3, 0.4, 0.5]}, settings={"train.lr": 1e-4})
    setups = setups_of(made, CATALOGUE)
    column = columns.column(*columns.widest(setups), setups)
    ranked = gains.ranked(column, CATALOGUE, {})
    assert ranked.gains["none"].mean == pytest.approx(0.1)
    assert ranked.gains["roper"].mean == pytest.approx(0.05)
    text = "\n".join(which.section(ranked, [ranked], Measured(CATALOGUE, [column])))
    (row,) = table_rows(text)
    assert row["scheme"] == "RoPER"
    assert row["how sure"] == "3 seeds, best of 3 rates, the highest tried, exploratory"
    assert "Higher than RoPE, both at one learning rate: none 0.300 → 0.400." in text


def test_a_gain_is_of_runs_from_one_kind_of_hardware():
    """RoPE's runs were made on two; the later ones, of another kind than FoX's, do not count."""
    values = {"rope": [0.5, 0.6, 0.7], "fox": [0.5, 0.6, 0.71]}
    first = make_rows(values)
    later = [
        replace(run, hardware="other", metrics=run.metrics | {"eval/accuracy": 0.4})
        for run in first
        if run.position == "rope"
    ]
    twins = {}
    for hardware, runs in {"other": [*first, *later], first[0].hardware: [*later, *first]}.items():
        twins[hardware] = columns.all_columns(setups_of(one_each(runs)[0], CATALOGUE))
    (column,) = twins["other"]
    assert gains.ranked(column, CATALOGUE, {}).gains["fox"].mean == pytest.approx(0.61 / 3)
    assert gains.ranked(column, CATALOGUE, twins).gains["fox"].mean == pytest.approx(0.01 / 3)


@pytest.mark.parametrize(
    ("length", "metric", "same"),
    [
        (None, "eval/accuracy", True),
        (None, "length/256", False),
        (256, "length/256", True),
        (256, "length/128", False),
        (256, "eval/accuracy", False),
    ],
)
def test_a_planned_test_is_of_one_length(length, metric, same):
    (setup,) = setups_of(make_rows({"rope": [0.9, 0.8, 0.9]}, task="needle"), CATALOGUE)
    column = replace(columns.column(setup, [setup]), length=length)
    assert column.is_of(replace(setup.measure, metric=metric)) == same


def test_a_weakness_is_the_lowest_task():
    ends = {"rope": [0.9, 0.8, 0.9], "fox": [0.1, 0.2, 0.1]}
    every = []
    for task in ("mqar", "needle"):
        (setup,) = setups_of(make_rows(ends, task=task), CATALOGUE)
        column = columns.column(setup, [setup])
        every.append(gains.ranked(column, CATALOGUE, {}))
        ends = {"rope": ends["rope"], "fox": [0.0, 0.1, 0.0]}
    assert which.weakness("fox", every) == f"{every[1].column.title}: 0.03 against 0.87"
    assert which.weakness("rope", every) == "–"


@pytest.mark.xdist_group("every kept run")
def test_every_planned_study_belongs_to_one_goal():
    listed = [study for goal in goals() for study in goal.tests]
    kept = {result.family.study.name for result in every_kept().tests}
    assert sorted(listed) == sorted(kept)


@pytest.mark.xdist_group("every kept run")
@pytest.mark.parametrize(
    ("tests", "text"),
    [
        ([], "6 seeds, one rate, exploratory"),
        ([("paper", 0.01)], "6 seeds, one rate; planned test at scale paper: confirmed, {}"),
        (
            [("paper", 0.01), ("length", 0.5)],
            "undecided by a planned test of 16 pairs; before it, exploratory: 0.168 → 0.999, "
            "6 seeds, one rate",
        ),
        (
            [("length", 0.5), ("length", 0.01), ("paper", 0.01), ("length", 0.01)],
            "6 seeds, one rate; planned tests: 1 undecided, 2 confirmed",
        ),
    ],
)
def test_planned_tests_at_a_columns_own_scale_count_first(tests, text):
    kept = every_kept()
    (column,) = [
        each for each in kept.columns if each.setup.task == "needle" and each.length == 256
    ]
    (result,) = [
        each for each in kept.tests if each.comparison.ours.scheme.startswith("kerple_log")
    ]
    made = [
        replace(result, comparison=replace(result.comparison, scale=scale), p_family=p)
        for scale, p in tests
    ]
    ranked = gains.ranked(column, kept.catalogue, {})
    measured_so = replace(kept, tests=made)
    row = which.row("kerple_log", ranked, [ranked], measured_so)
    assert row["how sure"] == text.format(plan_page.result_text(result))
    has_own = text.startswith("undecided")
    assert row["RoPE → scheme"] == ("0.171 → 0.838" if has_own else "0.168 → 0.999")
    outcomes = which.by_outcome([*ranked.gains], ranked, measured_so)
    assert outcomes[which.FAILED] == (["kerple_log"] if has_own else [])
    assert ("kerple_log" in outcomes[which.HIGHER]) != has_own


def test_show_prints_the_kept_page(capsys):
    command.main(["roper"])
    shown = capsys.readouterr().out
    assert shown.startswith("# RoPER\n")
    assert "https://research.labml.ai/RoPER.html" in shown
    assert "](" not in shown
    assert "All tokens are alike" not in shown  # the caption of the picture
    assert "R((i−n)θ)" in shown


def test_show_writes_one_html_file(write, tmp_path, capsys):
    pytest.importorskip("markdown_it")
    write("log_distance.py", OWN)
    command.main(["./log_distance.py", "--html", "mine.html"])
    made = (tmp_path / "mine.html").read_text("utf-8")
    assert "<svg" in made
    assert "−s ln(1 + n − i)" in made
    assert not re.search(r'(src|href)="(?!http|#)', made)
    assert not re.search(r'src="http', made)
    (tmp_path / "other.html").write_text("<p>not ours</p>")
    with pytest.raises(SystemExit, match=r"other\.html: was not written by this command"):
        command.main(["./log_distance.py", "--html", "other.html"])
    assert (tmp_path / "other.html").read_text() == "<p>not ours</p>"


def test_show_names_file_hook_and_error(write):
    write("own_fails.py", OWN.replace("return -", "return none - "))
    said = r"^\./own_fails\.py: bias, own_fails\.py:\d+: NameError: .* rope-lab check position="
    with pytest.raises(SystemExit, match=said):
        command.main(["./own_fails.py"])


def test_show_takes_no_settings():
    with pytest.raises(SystemExit, match=r"^position\.base=100: show takes a scheme without"):
        command.main(["rope", "position.base=100"])


def test_step_times_are_those_of_the_file():
    assert costs.most_time("pope") == 1.36
    assert costs.step_time("pope").startswith("1.1 to 1.36 times (quick")
    assert costs.step_time("alibi") == ""


def test_titles_of_kinds_are_those_of_their_modules():
    every = facts.by_kind()
    assert sorted(name for names in every.values() for name in names) == SCHEMES
    assert facts.kind_title("biases")[0] == "Biases"
    assert Catalogue().title("fox") == "FoX"


def test_long_decimals_are_rounded_in_titles():
    title = Catalogue().title("rope (base=2.6666666666666665e-05, q=0)")
    assert title == "RoPE (base=2.667e-05, q=0)"
