"""rope-lab ladder: leads over sizes."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import make_run
from conftest import ROOT, TINY, only_folder
from scipy import stats
from trained import command, composed, run

from rope_lab.experiments import launching, timing
from rope_lab.laddering import command as laddering
from rope_lab.laddering import sizes
from rope_lab.places import RUNS
from rope_lab.results.comparisons.ladder import (
    Law,
    Lead,
    Rung,
    fitted,
    may_change_sign,
    speedup,
)
from rope_lab.results.comparisons.stats import Interval, t_interval
from rope_lab.results.records.folders import read, read_run
from rope_lab.results.records.kept import read_kept
from rope_lab.results.views import ladder_page, render
from rope_lab.text import ConfigError
from rope_lab.train import config
from rope_lab.train.config import load

LAW = Law(1.6, 40.0, 0.0941)
SMALL = [word for word in TINY if not word.startswith(("model.", "train.steps", "train.warmup"))]
SMALL = [word for word in SMALL if not word.startswith("eval.every")]
WORDS = ["position=rope,roper", "task=substring_by_prefix", *SMALL]
OWN = ["--sizes", "16x1,32x1,32x2", "--search", "3x1", "--pairs", "2", "--out", "it"]
OWN += ["--tokens-per-parameter", "1", "hydra/launcher=basic"]


@pytest.fixture(scope="module")
def like(tmp_path_factory):
    """A run to make others of."""
    run = read_run(make_run(tmp_path_factory.mktemp("like"), "rope", 0, 0.5))
    return replace(run, settings=run.settings | {"train.lr": 0.001})


def runs_of(like, losses: list[float], tokens: int, seconds: float = 1.0) -> list:
    made = []
    for seed, loss in enumerate(losses):
        own = {"metrics": {"eval/loss": loss}, "tokens": tokens, "seconds": seconds}
        made.append(replace(like, seed=seed, **own))
    return made


def test_the_law_that_made_the_losses_is_found():
    compute = [1e12, 1e13, 1e14, 1e15]
    law = fitted(compute, [LAW.loss(each) for each in compute])
    found = law.floor, law.scale, law.exponent
    assert found == pytest.approx((LAW.floor, LAW.scale, LAW.exponent), rel=2e-3)


def test_two_sizes_or_a_rising_loss_have_no_law():
    assert fitted([1e12, 1e13], [2.0, 1.9]) is None
    assert fitted([1e12, 1e13, 1e14], [2.0, 2.1, 2.2]) is None


def test_speedup_is_the_compute_that_the_baseline_needs(like):
    """A scheme as good as the baseline at 1.2 times the compute."""
    tokens = 10**6
    compute = 6 * 1000 * tokens
    loss, lead = LAW.loss(compute), LAW.loss(compute) - LAW.loss(1.2 * compute)
    runs = {
        "rope": runs_of(like, [loss] * 3, tokens),
        "mine": runs_of(like, [loss - lead] * 3, tokens, 2.0),
    }
    rung = Rung("size", 1000, runs)
    assert rung.compute == compute
    assert speedup(LAW, loss, lead) == pytest.approx(1.2)
    assert speedup(LAW, loss, loss - LAW.floor) == math.inf
    (row,) = ladder_page.table(lead_of(like, [rung]), LAW).rows
    assert row["speedup at equal speed"] == "1.20 [1.20, 1.20]"
    assert row["as timed here"] == "0.60"


def test_a_flat_law_gives_no_speedup_of_trillions():
    assert speedup(replace(LAW, exponent=7e-4), LAW.floor + 2.0, 1.0) == math.inf


def test_a_lead_that_may_be_none_has_no_speedup(like):
    (rung,) = ladder_of(like, [[0.1, -0.1, 0.05]])
    (row,) = ladder_page.table(lead_of(like, [rung]), LAW).rows
    assert row["speedup at equal speed"] == row["as timed here"] == "–"


@pytest.mark.parametrize("who", ["rope", "mine"])
def test_a_size_with_a_diverged_run_has_no_lead(like, who):
    """Neither from the other seeds, nor a slope or a law through it."""
    rungs = ladder_of(like, [[0.1, 0.11, 0.12]] * 4)
    runs = rungs[-1].runs
    runs[who][0] = replace(runs[who][0], status="diverged")
    lead = lead_of(like, rungs)
    assert [len(each) for each in lead.by_size] == [3, 3, 3, 0]
    assert lead.slope.n == 0
    said = " ".join(ladder_page.sentences(lead, None))
    assert "may change sign" in said
    assert rungs[-1].diverged(who) == 1
    losses = [rung.loss("rope") for rung in rungs]
    assert (fitted([1e12, 1e13, 1e14, 1e15], losses) is None) == (who == "rope")


def ladder_of(like, leads: list[list[float]]) -> list[Rung]:
    """Sizes of 1, 2, 4 … million parameters; the lead of `mine` by size and seed."""
    rungs = []
    for number, own in enumerate(leads):
        theirs = [2.0 - 0.1 * number + 0.01 * seed for seed in range(len(own))]
        ours = [loss - lead for loss, lead in zip(theirs, own, strict=True)]
        tokens = 10**6 * 2**number
        mine = replace(like, position="mine")
        runs = {"rope": runs_of(like, theirs, tokens), "mine": runs_of(mine, ours, tokens)}
        rungs.append(Rung(f"{2**number}M", 10**6 * 2**number, runs))
    return rungs


def lead_of(like, rungs: list[Rung]) -> Lead:
    report = ladder_page.Catalogue().report(like.task, {"eval/loss"}, {})
    return Lead(rungs, "mine", "rope", {"mine": "Mine", "rope": "RoPE"}, report)


def test_slope_of_two_sizes_is_the_difference_of_welch(like):
    """Welch's t interval, over four doublings."""
    leads = [[0.10, 0.14, 0.11], [0.2, 0.31, 0.22, 0.25]]
    small, _, _, _, large = ladder_of(like, [leads[0], [], [], [], leads[1]])
    lead = lead_of(like, [small, large])
    made, expected = lead.slope, stats.ttest_ind(*reversed(leads), equal_var=False)
    low, high = expected.confidence_interval()
    assert (4 * made.low, 4 * made.high) == pytest.approx((low, high))
    there, once_more = lead.projected(large.parameters), t_interval(leads[1])
    assert (there.mean, there.low) == pytest.approx((once_more.mean, once_more.low))


def test_slope_is_that_of_least_squares(like):
    leads = [[0.10, 0.2], [0.11, 0.23], [0.15, 0.26]]
    lead = lead_of(like, ladder_of(like, leads))
    places = np.repeat([0.0, 1.0, 2.0], 2)
    found = stats.linregress(places, np.ravel(leads))
    assert lead.slope.mean == pytest.approx(found.slope)
    assert lead.projected(16e6).mean == pytest.approx(found.intercept + 4 * found.slope)


def test_the_smallest_size_counts_pairs(like):
    lead = lead_of(like, ladder_of(like, [[0.1, 0.2, 0.1], [0.1, 0.2], [0.1, 0.2, 0.1]]))
    assert lead.slope.n == 2


@pytest.mark.parametrize(
    ("lead", "change", "may"),
    [
        ((0.01, 0.03), (0.0, 0.01), False),
        ((0.01, 0.03), (-0.001, 0.01), True),
        ((-0.03, -0.01), (-0.02, -0.001), False),
        ((-0.03, -0.01), (-0.02, 0.001), True),
        ((-0.01, 0.03), (0.001, 0.01), True),
        ((math.nan, math.nan), (0.001, 0.01), True),
        ((0.01, 0.03), (math.nan, math.nan), True),
    ],
)
def test_a_sign_stays_only_if_both_intervals_say_so(lead, change, may):
    largest, found = (Interval(np.mean(each), *each, 5) for each in (lead, change))
    assert may_change_sign(largest, found) is may


def test_sentences_say_so(like):
    grows = ladder_of(like, [[0.10, 0.11, 0.1], [0.12, 0.13, 0.121], [0.14, 0.15, 0.142]])
    shrinks = ladder_of(like, [[0.14, 0.15, 0.1], [0.12, 0.13, 0.121], [0.10, 0.11, 0.142]])
    texts = []
    for rungs in (grows, shrinks):
        texts.append(" ".join(ladder_page.sentences(lead_of(like, rungs), 8e6)))
    assert ["may change sign" in text for text in texts] == [False, True]
    assert "Projected to 8,000,000" in texts[0]


def test_two_pairs_give_no_interval(like):
    lead = lead_of(like, ladder_of(like, [[0.10, 0.11], [0.12, 0.13], [0.14, 0.15]]))
    text = " ".join(ladder_page.sentences(lead, None))
    assert "+0.1450 (+0.1400 to +0.1500)" in text
    assert "may change sign" in text
    assert t_interval(lead.by_size[-1]).side == 0


def test_tokens_per_parameter_are_those_of_all_sizes(like):
    diverged = runs_of(like, [1.0], 10)
    few = Rung("few", 100, {"rope": diverged, "mine": runs_of(like, [1.0], 100)})
    many = Rung("many", 100, {"rope": runs_of(like, [1.0], 250)})
    assert "read 1.00 to 2.50 tokens" in " ".join(ladder_page.notes([few, many], "RoPE", None))


def test_a_best_rate_at_an_end_comes_first(like, tmp_path, monkeypatch):
    monkeypatch.setattr(render, "svg", lambda chart: b"")
    rungs = ladder_of(like, [[0.1, 0.2], [0.1, 0.2], [0.1, 0.2]])
    page = tmp_path / ladder_page.PAGE
    ladder_page.write(page, rungs, [("mine", "1M")], None)
    first = page.read_text().partition("\n- ")[2]
    assert first.startswith("**The best rate of mine at 1M is the lowest or the highest tried")


def test_curves_of_the_lead_have_the_right_sign(like):
    curves = {"eval/loss": ([0, 50, 100], [3.0, 2.0, 1.0])}
    better = {"eval/loss": ([0, 50, 100], [3.0, 1.5, 0.9])}
    runs = {"rope": [replace(like, curves=curves)], "mine": [replace(like, curves=better)]}
    points = ladder_page.panel(lead_of(like, [Rung("1M", 10**6, runs)])).points
    expected = pd.DataFrame({"x": [50.0, 100.0], "y": [0.5, 0.1]})
    assert np.allclose(points[["x", "y"]].to_numpy(), expected.to_numpy())


def test_training_grows_with_the_parameters():
    usual = load("task=text", "scale=quick")
    every = sizes.sizes(sizes.SIZES, usual, None)
    assert [size.n_heads for size in every] == [2, 3, 5, 8]
    assert [size.parameters for size in every] == [196608, 552960, 1843200, 6291456]
    ratio = [size.steps / size.parameters for size in every]
    assert ratio == pytest.approx([2000 / (12 * 4 * 128**2)] * 4, rel=2e-3)
    assert [size.warmup / size.steps for size in every] == pytest.approx([0.05] * 4, rel=2e-2)


def test_default_sizes_have_whole_heads():
    """The heads of mqar's recipe are 64 wide."""
    every = sizes.sizes("", load("task=mqar", "scale=quick"), None)
    assert [size.name for size in every] == ["64x4", "128x5", "192x6", "256x8"]
    assert sizes.default(32) == sizes.SIZES


@pytest.mark.parametrize(
    "text", ["64x4,96x5", "64x4,96x5,100x2", "64x4,64x5,96x6", "64,96x5,160x6", "0x4,64x1"]
)
def test_sizes_that_cannot_be_are_refused(text):
    with pytest.raises(ConfigError, match="--sizes"):
        sizes.sizes(text, load("task=text", "scale=quick"), None)


@pytest.mark.parametrize("ratio", [math.nan, math.inf, 0, -1, 1e300])
def test_tokens_per_parameter_have_limits(ratio):
    with pytest.raises(ConfigError, match="--tokens-per-parameter"):
        sizes.sizes(sizes.SIZES, composed("task=text", "scale=quick"), ratio)


def test_a_model_beyond_the_memory_is_one_line(monkeypatch):
    def build(cfg):
        raise RuntimeError("cannot allocate memory")

    monkeypatch.setattr(timing, "resolve", lambda cfg: cfg)
    monkeypatch.setattr(timing, "build", build)
    with pytest.raises(ConfigError, match=r"model\.d_model=\d+ .* cannot allocate memory"):
        timing.seconds_of(composed("task=text", "scale=quick"))


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ((0.004, 0.002), (0.001, 0.0005)),  # −½ for four times the parameters
        ((0.004, 0.001), (0.0005, 0.00025)),  # steeper is kept at −½
        ((0.002, 0.002), (0.002, 0.002)),
        ((0.002, 0.004), (0.004, 0.004)),  # no rise
    ],
)
def test_rates_are_carried_by_the_stated_rule(best, expected):
    every = [sizes.ModelSize(2**number * 16, 1, 1, 1, 0) for number in range(4)]
    assert sizes.carried(best, every) == pytest.approx([*best, *expected])


def test_the_interval_of_a_negative_lead_is_below_zero(like):
    runs: dict[str, list] = {"rope": [], "mine": []}
    for seed in range(3):
        for scheme, loss in (("rope", 1.0), ("mine", 1.1 + 0.01 * seed)):
            own = {"curves": {"eval/loss": ([0, 100], [3.0, loss])}, "seed": seed}
            runs[scheme].append(replace(like, **own))
    (row,) = ladder_page.panel(lead_of(like, [Rung("1M", 10**6, runs)])).means().itertuples()
    expected = t_interval([-0.10, -0.11, -0.12])
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high))


@pytest.fixture
def untrained(like, monkeypatch):
    """Launching makes up the runs; yields the jobs by the name of their stage.

    The best rate is the recipe's, 0.001, at 16x1 and half of that at 32x1; RoPER leads.
    """
    launched, ended = {}, {}

    def launch(launcher, jobs, name, shows_scores):
        launched.setdefault(name, []).extend(jobs)
        for job in jobs:
            cfg = job.cfg
            best = 0.001 * 16 / cfg.model.d_model
            off = math.log2(cfg.train.lr / best) ** 2
            lead = 0.1 if cfg.names.position == "roper" else 0
            loss = 3 - 0.1 * math.log2(sizes.parameters(cfg.model.d_model, cfg.model.n_layers))
            own = {"metrics": {"eval/loss": loss + 0.01 * off - lead - 0.001 * cfg.seed}}
            own |= {"seed": cfg.seed, "tokens": cfg.train.steps * 256}
            own["position"] = cfg.names.position
            own["settings"] = like.settings | {"train.lr": cfg.train.lr, "train.steps": 100}
            ended[job.identity.run_id] = replace(like, **own)

    def read_ended(jobs, folder, rows):
        ids = {job: job.identity.run_id for job in jobs}
        return {job: ended[run_id] for job, run_id in ids.items() if run_id in ended}

    monkeypatch.setattr(config, "load", composed)  # Hydra composes each run once
    monkeypatch.setattr(launching, "launch", launch)
    monkeypatch.setattr(launching, "ended", read_ended)
    monkeypatch.setattr(timing, "run_seconds", lambda jobs, launcher: 2.0)
    return launched


@pytest.mark.slow
def test_the_stages_follow_each_other_and_resume(untrained, tmp_path):
    said = command([*WORDS, *OWN, "train.seq_len=64"], tmp_path, laddering.main)
    assert said.returncode == 12
    assert "ladder: 24 runs" in said.stdout  # 2 searches of 6, 3 sizes of 4
    assert "from a few steps of 6 kinds" in " ".join(said.stdout.split())  # 2 schemes, 3 sizes
    assert untrained == {}
    said = command([*WORDS, *OWN, "--yes"], tmp_path, laddering.main)
    assert said.returncode == 0, said.stderr
    stages_ = ["search at 16x1", "search at 32x1", "size 16x1", "size 32x1", "size 32x2"]
    assert list(untrained) == stages_
    assert {job.cfg.seed for job in untrained["size 32x2"]} == {200, 201}
    assert {job.cfg.seed for job in untrained["search at 16x1"]} == {100}
    page = (tmp_path / "it" / ladder_page.PAGE).read_text()
    assert "the lead of RoPER over RoPE is +0.1000" in page
    assert (tmp_path / "it" / "figures" / ladder_page.FIGURE).exists()
    assert "The best rate of RoPE at" not in page  # both are within those tried
    untrained.clear()
    again = command([*WORDS, *OWN], tmp_path, laddering.main)
    assert (again.returncode, untrained) == (0, {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.lr=0.1"], "train.lr=0.1: ladder decides it"),
        (["train={lr: 0.1}"], "train={lr: 0.1}: write each setting by its whole name"),
        (["position=rope"], "position is given twice"),
        (["--to", "1e9"], "at most 4 times the largest size"),
        (["--pairs", "1"], "--pairs 1: must be 2 or more"),
        (["--search", "2x2"], "--search 2x2: must be rates x seeds, 5x2; 3 rates at least"),
        (["--budget", "5%"], "--budget 5%: must be a time"),
    ],
)
def test_what_a_ladder_cannot_do_is_one_line(tmp_path, words, said):
    done = command([*WORDS, *OWN, *words], tmp_path, laddering.main)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_one_scheme_has_no_ladder(tmp_path):
    done = command(["position=rope", *WORDS[1:], *OWN], tmp_path, laddering.main)
    assert "position=rope: must be two schemes or more" in done.stderr


def test_a_damaged_run_of_a_search_is_named(tmp_path):
    """Its record says that it has finished, so that nothing would make it again."""
    words = [*TINY, "position=rope"]
    run([*words, f"out={tmp_path / RUNS}"])
    jobs = launching.jobs_of([words], tmp_path)
    assert len(launching.ended(jobs, tmp_path)) == 1
    metrics = only_folder(tmp_path / RUNS) / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes() + b"\n")
    with pytest.raises(ConfigError, match="rope-lab rm FOLDER"):
        launching.ended(jobs, tmp_path)


@pytest.mark.torture
def test_one_command_trains_a_ladder(tmp_path):
    said = command([*WORDS, *OWN, "--yes"], tmp_path, laddering.main)
    assert said.returncode == 0, said.stderr
    runs, problems = read(tmp_path / "it" / RUNS)
    assert problems == []
    assert len(runs) >= 24


@pytest.mark.claims
@pytest.mark.parametrize(
    ("folder", "layers"),
    [("sizes", {64: 4, 96: 5, 160: 6}), ("sizes_prefix", {48: 3, 64: 4, 96: 4})],
)
def test_the_page_over_sizes_says_what_its_rows_say(folder, layers):
    """The table of leads, from the rows beside the page."""
    text = (ROOT / "results" / folder / "README.md").read_text("utf-8").replace("−", "-")
    runs = [run for run in read_kept(ROOT / "results" / folder)[0] if run.seed >= 200]
    for scheme in ("roper", "pope", "partial_key_offset"):
        rungs = []
        for width, depth in layers.items():
            of_size = [run for run in runs if run.settings["model.d_model"] == width]
            both = {
                name: [run for run in of_size if run.position == name] for name in (scheme, "rope")
            }
            assert [len(each) for each in both.values()] == [3, 3]
            rungs.append(Rung(str(width), sizes.parameters(width, depth), both))
        report = ladder_page.Catalogue().report_of(runs[0])
        lead = Lead(rungs, scheme, "rope", {scheme: scheme, "rope": "rope"}, report)
        cells = [*(t_interval(each) for each in lead.by_size), lead.slope]
        row = " | ".join(f"{each.mean:.3f} ({each.low:.3f} to {each.high:.3f})" for each in cells)
        assert row in text
