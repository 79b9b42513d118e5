"""rope-lab adopt: other schemes in trained runs."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import ROOT, TINY, only_folder
from printed import is_rounded
from sources import block
from trained import command, run

from rope_lab.continuing import adopt
from rope_lab.places import RUNS
from rope_lab.results.comparisons.continued import (
    AS_IS,
    Continued,
    Key,
    control_of,
    steps_until_as_good,
)
from rope_lab.results.comparisons.stats import t_interval
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read, read_run
from rope_lab.results.views import adoption_page, longer_page
from rope_lab.train import loop
from rope_lab.train.trainer import update

SMALL = [*TINY, "task=copy_string", "train.steps=40", "eval.every=40"]
PARENT = [*SMALL, "position=rope"]
WORDS = ["--budget", "5%,20%", "--out", "it", "hydra/launcher=basic"]


CHEAT = """
from rope_lab.model.hooks import PositionScheme

class Cheat(PositionScheme):
    def output(self, o, at):
        return o + o.flip(1)
"""


OWN_BASE = """
from rope_lab.model.schemes import Rotary


class Mine(Rotary):
    def __init__(self, dims, base: float = 10_000.0):
        super().__init__(dims, q=1, k=1, base=base)
"""


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """The folder of a trained run; tests must not change it."""
    out = tmp_path_factory.mktemp("parent")
    run([*PARENT, f"out={out}"])
    return only_folder(out)


def test_schemes_are_adopted_beside_the_control_and_resume(parent, tmp_path):
    (tmp_path / "tempered.py").write_text(block("Your own scheme", "python", "README.md"))
    words = [str(parent), *WORDS, "--schemes", "roper,./tempered.py"]
    said = command(words, tmp_path, adopt.main)
    assert (said.returncode, "adopt: 9 runs" in said.stdout) == (12, True)
    assert not (tmp_path / "it" / RUNS).exists()
    said = command([*words, "--yes"], tmp_path, adopt.main)
    assert said.returncode == 0, said.stderr
    page = (tmp_path / "it" / adoption_page.PAGE).read_text()
    assert (tmp_path / "it" / "figures" / adoption_page.FIGURE).exists()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ")]
    shown = [(scheme.strip(), steps.strip().partition(" ")[0]) for scheme, steps in rows[1:]]
    schemes = ("**RoPE (control)**", "RoPER", "tempered")
    assert shown == [(scheme, steps) for steps in ("–", "2", "8") for scheme in schemes]
    runs, problems = read(tmp_path / "it" / RUNS)
    assert (len(runs), problems) == (9, [])
    assert {run_.settings["train.lr"] for run_ in runs} == {read_run(parent).settings["train.lr"]}
    again = command(words, tmp_path, adopt.main)
    assert (again.returncode, "runs finished" in again.stdout) == (0, False)


def test_without_steps_the_control_is_its_parent(parent, tmp_path):
    words = [str(parent), *WORDS, "--schemes", "roper", "--yes", "--lr", "0.5"]
    assert command(words, tmp_path, adopt.main).returncode == 0
    runs, _ = read(tmp_path / "it" / RUNS)
    (same,) = [each for each in runs if each.position == "rope" and not each.steps]
    before = read_run(parent)
    assert same.metrics["eval/loss"] == before.metrics["eval/loss"]
    rates = {each.steps: each.settings["train.lr"] for each in runs}
    assert rates == {0: before.settings["train.lr"], 2: 0.5, 8: 0.5}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--schemes", "ropper"], "position=ropper"),
        (["--schemes", "roper", "--budget", "5"], "--budget 5: must be a share"),
        (["--schemes", "roper", "--budget", "5%, 1%"], "--budget 1%: is less than one of 40 steps"),
        (["--schemes", "roper, roper"], "--schemes: RoPER is there twice"),
        (["--schemes", "./cheat.py"], "cheat fails the check causality"),
        (["--schemes", "rope_pp"], "does not fit this model"),
        (["--schemes", ","], "--schemes ,: must name a scheme"),
    ],
)
def test_wrong_words_are_one_line(parent, tmp_path, words, said):
    (tmp_path / "cheat.py").write_text(CHEAT)
    done = command([str(parent), *WORDS, *words], tmp_path, adopt.main)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


@pytest.fixture
def made_up(parent):
    """Three pairs of runs after 20 steps, their losses at steps 0, 10 and 20."""
    curves = {
        AS_IS: [(2.0, 1.9, 1.8), (2.1, 2.0, 1.9), (2.2, 2.1, 2.0)],
        "RoPER": [(3.0, 1.9, 1.5), (3.0, 2.2, 1.6), (3.0, 2.3, 1.8)],
        "none": [(3.0, 2.9, 2.5), (3.0, 2.2, 2.5), (3.0, 2.1, 2.6)],
    }
    like, ways = read_run(parent), {}
    for way, of_way in curves.items():
        runs = []
        for seed, losses in enumerate(of_way):
            own = {"curves": {"eval/loss": ([0, 10, 20], list(losses))}, "seed": seed}
            runs.append(replace(like, metrics={"eval/loss": losses[-1]}, **own))
        ways[Key("", 16, way, 20, 16)] = runs
    control, roper, none = ways
    untrained = []
    for run_ in ways[control]:
        before = run_.curves["eval/loss"][1][0]
        untrained.append(replace(run_, metrics={"eval/loss": before}))
    ways = {Key("", 16, AS_IS): untrained} | ways
    report = Catalogue().report("text", {"eval/loss"}, {})
    continued = Continued(ways, report, report.measure)
    return SimpleNamespace(continued=continued, control=control, roper=roper, none=none)


def test_as_good_means_as_the_same_parent_was(made_up):
    of_roper = steps_until_as_good(made_up.continued, made_up.roper)
    assert of_roper == [10, 20, 20]
    of_none = steps_until_as_good(made_up.continued, made_up.none)
    assert of_none == [math.inf, math.inf, math.inf]  # the third was, and then no more
    assert steps_until_as_good(made_up.continued, made_up.control) == [0, 0, 0]


def test_the_end_is_compared_on_as_many_problems(made_up):
    """More may be graded at the end: there the parent was worse than at its last evaluation."""
    ways = dict(made_up.continued.ways)
    untrained = Key("", 16, AS_IS)
    ways[untrained] = [replace(each, metrics={"eval/loss": 2.55}) for each in ways[untrained]]
    continued = replace(made_up.continued, ways=ways)
    assert steps_until_as_good(continued, made_up.none) == [20, 20, math.inf]


def test_each_scheme_has_its_sentence(made_up):
    of_roper, of_none = adoption_page.conclusions(made_up.continued, "RoPE")
    assert of_roper.startswith("RoPER: better than RoPE with the same 20 further steps, -0.26")
    assert of_roper.endswith("as good as before from step 20 on.")
    assert of_none.startswith("none: worse than RoPE")
    assert of_none.endswith("as good as before within 20 steps on 0 of 3 runs.")


def test_one_run_says_nothing_of_a_difference(made_up):
    ways = {key: runs[:1] for key, runs in made_up.continued.ways.items()}
    (of_roper, _) = adoption_page.conclusions(replace(made_up.continued, ways=ways), "RoPE")
    assert "RoPER: too few runs, 1, to say whether it is better" in of_roper


def test_a_diverged_run_is_named_and_never_as_good(made_up):
    ways = dict(made_up.continued.ways)
    ways[made_up.roper] = [
        replace(ways[made_up.roper][0], status="diverged"),
        *ways[made_up.roper][1:],
    ]
    continued = replace(made_up.continued, ways=ways)
    (of_roper, _) = adoption_page.conclusions(continued, "RoPE")
    assert of_roper.startswith("RoPER: not compared: 1 of 3 runs of RoPER diverged")
    assert steps_until_as_good(continued, made_up.roper) == [math.inf, 20, 20]
    measures, others = {"loss": continued.measure}, {"control": control_of}
    made = longer_page.of_ways("scheme", continued, "RoPE", measures, others)
    (row,) = [row for row in made.rows if row["scheme"] == "RoPER"]
    assert row["loss"].endswith("1 diverged")
    assert row["minus control"] == "–"


def test_changed_settings_of_the_parents_scheme_are_carried_over(tmp_path):
    run([*PARENT, "position.base=500", f"out={tmp_path / 'parent'}"])
    words = [str(only_folder(tmp_path / "parent")), *WORDS, "--schemes", "roper,none", "--yes"]
    assert command(words, tmp_path, adopt.main).returncode == 0
    runs, _ = read(tmp_path / "it" / RUNS)
    found = {each.position: each.scheme for each in runs}
    assert {name: each.get("base") for name, each in found.items()} == {
        "rope": 500.0,
        "roper": 500.0,
        "none": None,
    }
    assert (found["roper"]["v"], found["roper"]["o"]) == (1, -1)


def test_changed_settings_of_ones_own_scheme_are_carried_over_too(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(OWN_BASE)
    run([*SMALL, f"position={mine}", "position.base=500", f"out={tmp_path / 'parent'}"])
    words = [str(only_folder(tmp_path / "parent")), *WORDS, "--schemes", "roper", "--yes"]
    said = command([*words, "--allow", str(mine)], tmp_path, adopt.main)
    assert said.returncode == 0, said.stderr
    runs, _ = read(tmp_path / "it" / RUNS)
    assert {each.scheme["base"] for each in runs} == {500.0}


def test_a_parent_of_other_code_is_refused(tmp_path):
    mine = tmp_path / "edited.py"
    mine.write_text(OWN_BASE)
    run([*SMALL, f"position={mine}", f"out={tmp_path / 'parent'}"])
    mine.write_text(OWN_BASE.replace("k=1", "k=-5"))
    words = [str(only_folder(tmp_path / "parent")), *WORDS, "--schemes", "roper", "--yes"]
    done = command([*words, "--allow", str(mine)], tmp_path, adopt.main)
    assert (done.returncode, "the code of its scheme or task has changed" in done.stderr) == (
        2,
        True,
    )


@pytest.mark.slow
def test_children_of_a_retrained_parent_are_made_again(tmp_path, monkeypatch):
    words = [*PARENT, f"out={tmp_path / 'parent'}"]
    run(words)
    adoption = [str(only_folder(tmp_path / "parent")), *WORDS, "--schemes", "roper", "--yes"]
    assert command(adoption, tmp_path, adopt.main).returncode == 0
    with monkeypatch.context() as patch:  # other code
        patch.setattr(loop, "update", lambda trainer, step: update(trainer, step + 100))
        run([*words, "fresh=true"])
    done = command(adoption, tmp_path, adopt.main)
    assert (done.returncode, "adopt: 6 runs" in done.stdout) == (0, True), done.stderr


ADOPTED = {
    "RoPER": "roper",
    "partial key offset, half of the features rotated": "partial_key_offset",
    "PoPE": "pope",
    "K = V, output rotated back": "kv_shared_back",
    "K = V": "kv_shared",
}


@pytest.mark.claims
def test_adopted_schemes_have_the_losses_of_kept_runs():
    losses = {}
    for each in read(ROOT / "results" / "adoption")[0]:
        losses.setdefault((each.position, each.steps), {})[each.seed] = each.final("eval/loss")
    text = (ROOT / "results" / "adoption" / "README.md").read_text("utf-8")
    for title, scheme in ADOPTED.items():
        (row,) = re.findall(rf"^\| {re.escape(title)} \| (\d.*) \|$", text, re.M)
        cells = row.split(" | ")
        for steps, cell in zip((0, 20, 100, 400), cells, strict=True):
            control = losses["rope", steps]
            above = [loss - control[seed] for seed, loss in losses[scheme, steps].items()]
            assert len(above) == 5
            found = t_interval(above)
            printed = re.findall(r"[\d.]+", cell)
            exact = [found.mean, found.low, found.high][: len(printed)]
            for number, value in zip(printed, exact, strict=True):
                assert is_rounded(number, value)
