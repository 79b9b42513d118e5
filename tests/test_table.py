"""rope_lab.table: a whole comparison as one resumable command."""

import re
from dataclasses import replace

import pytest
from builders import make_run
from conftest import ROOT, SCHEMES, TINY
from trained import command

from rope_lab import run_tables, searches, table
from rope_lab.blocks import Block
from rope_lab.launch.jobs import Job, compose_jobs
from rope_lab.plan import main as plan
from rope_lab.results.__main__ import main as results
from rope_lab.results.plans import study as studies
from rope_lab.results.records.folders import read, read_run
from rope_lab.results.records.kept import keep, read_kept
from rope_lab.searches import case_of
from rope_lab.shipped import choices

pytestmark = pytest.mark.usefixtures("undrawn")

BASIC = "hydra/launcher=basic"
MINE = (
    "{about: mine, blocks: [{task: substring_by_index, scale: quick, seeds: {rope: 0, roper: 0}}]}"
)
PLAN = """
studies:
  base:
    hypothesis: RoPE at base 100 ends with a lower loss than RoPER.
    rows: kept
    task: substring_by_index
    scale: quick
    settings: {train.lr: 1e-3, eval.problems_at_end: null}
    seeds: {rope position.base=100: 0-1, roper: 0-1}
    higher_is_better: false
    diverged: 4
    primary: [{name: loss, schemes: [rope position.base=100, roper], test: t, metric: eval/loss}]
"""


@pytest.fixture
def run(tmp_path):
    """Run `rope-lab table` in this process."""
    (tmp_path / "mine.yaml").write_text(MINE)
    return lambda *arguments: command(
        [arguments[0], *TINY, "out=runs", *arguments[1:]], tmp_path, table.main
    )


def test_each_cell_is_run_once_and_not_again(run, tmp_path):
    first, again = run("mine.yaml", BASIC), run("mine.yaml", BASIC)
    assert (first.returncode, again.returncode, first.stderr + again.stderr) == (0, 0, "")
    assert first.stdout.count("finished after 6 steps") == 2
    assert first.stdout.index("1/2 rope · 6 steps") < first.stdout.index("2/2 ")
    said = "2 of 2 runs have ended before\nmine: 2 of 2 runs finished\n"
    assert again.stdout.startswith(said)
    assert "\nrope " in again.stdout
    (next((tmp_path / "runs").glob("*rope-*")) / "run.json").unlink()
    assert run("mine.yaml", "--list").stdout.count("  not run:\n    rope\n") == 1


def test_another_machine_resumes_from_kept_rows(run, tmp_path):
    run("mine.yaml", BASIC)
    (roper,) = (tmp_path / "runs").glob("*roper-*")
    roper.rename(tmp_path / "lost")
    results([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path / "kept")])
    (tmp_path / "runs").rename(tmp_path / "before")
    listed = run("mine.yaml", "--list", "--kept", "kept").stdout
    assert listed.startswith("kept in kept: 1 of 2 runs\nmine: 0 of 1 runs finished\n")
    done = run("mine.yaml", BASIC, "--kept", "kept")
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in (tmp_path / "runs").glob("*/")] == [roper.name]


def test_only_rows_of_todays_numbers_count_as_made(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE)
    asked = [str(tmp_path / "mine.yaml"), TINY, None, [tmp_path / "kept", tmp_path / "others"]]
    (tmp_path / "others").mkdir()
    jobs = table.request(*asked[:2]).runs({})
    run = read_run(make_run(tmp_path / "runs", "rope", 0, 0.5))
    changes = {"numerics": 1}, {"status": "interrupted"}
    for job, change in zip(jobs, changes, strict=True):
        keep([replace(run, run_id=job.identity.run_id, **change)], tmp_path / "kept")
    assert len(table.request(*asked).not_kept({})) == 2
    keep([replace(run, run_id=jobs[0].identity.run_id)], tmp_path / "others")
    (left,) = table.request(*asked).not_kept({})
    assert left.identity == jobs[1].identity


def test_kept_rows_exist_and_are_not_made_afresh(run, tmp_path):
    assert "--kept none: there is no such folder" in run("mine.yaml", "--kept", "none").stderr
    (tmp_path / "kept").mkdir()
    said = run("mine.yaml", "--list", "--kept", "kept", "fresh=true").stderr
    assert "fresh=true makes all runs again" in said


@pytest.mark.slow
def test_parallel_runs_have_the_same_numbers(run, tmp_path):
    run("mine.yaml", BASIC, "out=alone")
    done = run("mine.yaml", "--jobs", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine: 2 of 2 runs finished" in done.stdout
    found, alone = (
        {run.run_id: run for run in read(tmp_path / out)[0]} for out in ("runs", "alone")
    )
    assert {key: run.metrics for key, run in found.items()} == {
        key: run.metrics for key, run in alone.items()
    }


def test_a_users_plan_is_run_kept_and_tested(run, tmp_path, capsys):
    (tmp_path / "plan.yaml").write_text(PLAN)
    done = run("plan.yaml", BASIC)
    assert (done.returncode, done.stderr) == (0, "")
    assert "plan: 4 of 4 runs finished" in done.stdout
    before_the_end = done.stdout.partition("plan: 4 of 4")[0]
    assert "finished after 6 steps" in before_the_end
    assert not re.search("loss|accuracy", before_the_end)
    assert done.stdout.count("held-out loss") == 1  # in the summary of the whole plan
    results([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path / "kept")])
    plan([str(tmp_path / "plan.yaml")])
    assert "All 4 runs have ended" in (tmp_path / "plan.md").read_text()
    (next((tmp_path / "runs").glob("*rope-s1*")) / "run.json").unlink()
    listed = run("plan.yaml", "--list").stdout
    assert "plan: 3 of 4 runs finished" in listed
    assert not re.search("loss|accuracy", listed)  # before all runs have ended


BAD_BLOCKS = {
    "task: text, seeds: {rope: x}": "seeds.rope is 'x': must be seeds",
    "task: text, seeds: {rope: 8-}": "seeds.rope is '8-': must be seeds",
    "task: text, seeds: {rope: 31-8}": "seeds.rope is '31-8': 8 is below 31",
    "task: text, seeds: {rope: 0}, more: 1": "more is 1: Unexpected keyword",
    "task: substring_by_index, seeds: {rpoe: 0}": "position=rpoe: there is no",
}
BAD = {
    f"{{about: a, blocks: [{{scale: quick, {block}}}]}}": said for block, said in BAD_BLOCKS.items()
}
BAD["{about: a"] = "mine.yaml: cannot be read"


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        *((content, ["mine.yaml", BASIC], said) for content, said in BAD.items()),
        (MINE, ["qiuck"], "did you mean quick?"),
        (MINE, ["none.yaml"], "none.yaml: there is no such table"),
        (MINE, ["mine.yaml", "position=none"], "position=none: the table sets it"),
        (
            MINE,
            ["mine.yaml", "hydra/launcher=slurm"],
            "submitit_slurm; look at hydra/launcher=slurm",
        ),
        (MINE, ["mine.yaml", "--jobs", "0"], "hydra.launcher.n_jobs=0: must be"),
        (MINE, ["mine.yaml", "hydra/launcher=ray", "--jobs", "2"], "hydra.launcher.n_jobs"),
        (
            MINE,
            ["mine.yaml", "hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=two"],
            "CPUs per run=two: must be a valid number",
        ),
    ],
)
def test_what_is_wrong_is_one_line_before_a_run_begins(run, tmp_path, content, arguments, said):
    (tmp_path / "mine.yaml").write_text(content)
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_tables_and_schemes_of_ones_own(run, tmp_path):
    mine = "from rope_lab.model.hooks import PositionScheme\nclass Mine(PositionScheme): ...\n"
    (tmp_path / "of_a_table.py").write_text(mine)  # a name that no other test imports
    (tmp_path / "page.txt").write_text("to be, or not to be, that is the question: " * 200)
    few = "{about: few, blocks: [{task: text, scale: quick, seeds: {alibi: 0, of_a_table.py: 0}}]}"
    (tmp_path / "few.yaml").write_text(few)
    done = run("few.yaml", f"task.path={tmp_path / 'page.txt'}", "task.tokens=characters", BASIC)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name.split("-")[1] for path in (tmp_path / "runs").iterdir()) == [
        "alibi",
        "of_a_table",
    ]


def test_a_schemes_own_setting_precedes_that_of_all_runs():
    (words,) = Block(["text"], "quick", {"rope train.lr=1e-3": [0]}, ["train.lr=2e-3"]).runs()
    assert words[-2:] == ["train.lr=2e-3", "train.lr=1e-3"]  # Hydra takes the last


KEPT = ["train.precision=bfloat16", "device=cpu"]


@pytest.mark.slow
def test_kept_runs_are_what_they_were_whatever_settings_came_later():
    """Kept runs of every kind of scheme, made before newer settings existed, still have the same
    run ids.
    """
    every = [f"position={p}" for p in ("randomized_rope", "rope_partial", "p_rope")]
    others = [["task=substring_by_index", name, "seed=0", "scale=quick"] for name in every]
    quick = [words for words in run_tables.find("quick")[0].runs() if "seed=0" in words]
    jobs = compose_jobs([[*words, *KEPT] for words in [*quick, *others]])
    kept = {
        run.run_id
        for folder in (ROOT / "results", *(ROOT / "results").glob("*/"))
        for run in read_kept(folder)[0]
    }
    assert not {job.identity.run_id for job in jobs} - kept


@pytest.mark.torture
def test_every_cell_of_the_tables_can_be_composed():
    """Each at its first occurrence in a table; every case of a table is a distinct run."""
    seen = set()
    beside = [str(path) for path in (ROOT / "results").rglob("table*.yaml")]
    for name in [*choices("table"), *beside, *studies.load().studies]:
        cases, first = run_tables.find(name)[0].runs(), []
        assert len({tuple(words) for words in cases}) == len(cases) > 1
        for words in cases:
            parts = {(words[0], words[3]), words[1], *words[4:]}
            if not parts <= seen:
                first.append([*words, *KEPT])
                seen |= parts
        assert len(compose_jobs(first)) == len(first)
    assert len(seen) > 50


def test_a_star_is_every_scheme_that_is_not_named():
    cases = run_tables.find("schemes")[0].runs()
    assert [words[1] for words in cases[: len(SCHEMES)]] == [f"position={name}" for name in SCHEMES]
    cases = Block("text", "quick", {"rope": "0-1", "*": 0}).runs(["none"])
    runs = ["position=rope seed=0", "position=none seed=0", "position=rope seed=1"]
    assert [" ".join(words[1:3]) for words in cases] == runs


SEARCH = """
about: mine
blocks:
  - {task: substring_by_prefix, scale: quick, seeds: {rope: 0-1, none: 0}, rates: [0.5, 1e-3]}
"""


@pytest.mark.parametrize(
    ("measure", "best"),
    [
        ("score", "train.lr=0.002"),
        ("eval/loss", "train.lr=0.004"),
        ("length/20", "train.lr=0.001"),
        ("length/30", "train.lr=0.002"),  # of equal ones the best score
    ],
)
def test_a_rate_is_chosen_by_the_measure_named(monkeypatch, tmp_path, measure, best):
    words = ["task=substring_by_index", "position=rope", "seed=100", "eval.lengths=[20,30]"]
    runs = [[*words, f"train.lr={rate}"] for rate in (0.001, 0.002, 0.004)]
    searched = searches.searched_rates(runs, [])
    jobs = searched[case_of(words)].values()
    of = {"eval/accuracy": [1, 3, 2], "eval/loss": [2, 3, 1]}
    of |= {"length/20": [3, 2, 1], "length/30": [0, 0, 0]}
    ended = {}
    for number, job in enumerate(jobs):
        make_run(tmp_path, "rope", number, 0.0, metrics={name: of[name][number] for name in of})
        ended[job.identity.run_id] = read(tmp_path)[0][-1]
    monkeypatch.setattr(searches, "read_ended", lambda _: (ended, []))
    case = case_of(words)
    assert searches.best_rates(searched, {case: measure}, {}) == {case: best}


UNUSABLE = {  # what a block says → the error
    "measure: lenth/6": "measure lenth/6: no run records it",
    "measure: length/6": "measure length/6: eval.lengths=[] has no 6",
    "measure: eval/loss, rates: []": "measure eval/loss: no `rates` are searched",
}


@pytest.mark.parametrize("words", UNUSABLE)
def test_an_unusable_measure_is_refused_before_any_run(run, tmp_path, words):
    block = f"task: [copy_string, sort_string], scale: quick, seeds: {{rope: 0}}, {words}"
    rates = "" if "rates" in words else ", rates: [1e-3]"
    (tmp_path / "mine.yaml").write_text(f"{{about: mine, blocks: [{{{block}{rates}}}]}}")
    done = run("mine.yaml", BASIC)
    assert done.returncode == 2
    assert UNUSABLE[words] in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("key", ["measure: eval/loss", "rates: [2e-3]", "search: 7"])
def test_two_blocks_search_the_rate_of_a_cell_alike(run, tmp_path, key):
    block = "task: copy_string, scale: quick, seeds: {rope: 0}"
    first = "measure: score, rates: [1e-3], search: 100"
    name = key.partition(":")[0]
    second = re.sub(rf"{name}: [^,]*", key, first)
    text = f"{{about: mine, blocks: [{{{block}, {first}}}, {{{block}, {second}}}]}}"
    (tmp_path / "mine.yaml").write_text(text)
    assert f"two blocks differ in `{name}`" in run("mine.yaml", BASIC).stderr


@pytest.fixture
def launched(monkeypatch):
    """What `rope-lab table` would launch, a list a call, if runs ended at once; those of `failing`
    overrides fail.
    """
    calls, ended, failing = [], {}, set()

    def launch(jobs, *_):
        began = [job for job in jobs if job.cfg.fresh or job.record()["status"] == "not run"]
        calls.append([" ".join(job.cfg.overrides) for job in began])
        for job in began:
            if not failing.intersection(job.cfg.overrides):
                ended[job.identity.run_id] = float(job.cfg.train.lr)
        return int(any(job.identity.run_id not in ended for job in jobs))

    def record(job):
        return {"status": "finished" if job.identity.run_id in ended else "not run"}

    monkeypatch.setattr(table.sweep, "launch", launch)
    monkeypatch.setattr(Job, "record", record)
    monkeypatch.setattr(searches, "read_ended", lambda _: (ended, []))
    monkeypatch.setattr(searches, "gain_of", lambda rate, _: -abs(rate - 2e-3))
    return calls, failing


def blocks(tmp_path, *lines):
    """The path of a table with these blocks."""
    text = "".join(f"\n  - {{{line}}}" for line in lines)
    (tmp_path / "mine.yaml").write_text(f"about: mine\nblocks:{text}\n")
    return str(tmp_path / "mine.yaml")


SEARCHED = "task: copy_string, scale: quick, seeds: {rope: 0, none: 0}, rates: [1e-3, 2e-3]"
NEXT = "task: sort_string, scale: quick, seeds: {rope: 0}, rates: [2e-3, 4e-3]"
PLAIN = "task: flip_flop, scale: quick, seeds: {rope: 0}, settings: [train.lr=1e-3]"


def test_the_runs_of_a_block_come_before_the_next_search(launched, tmp_path):
    calls, _ = launched
    assert table.run(table.request(blocks(tmp_path, SEARCHED, NEXT, PLAIN), [BASIC])) == 0
    tasks = [[words.split()[0] for words in call] for call in calls]
    copy, sort, flip = "task=copy_string", "task=sort_string", "task=flip_flop"
    assert tasks == [[copy] * 4, [copy, copy, sort, sort], [sort, flip]]
    assert all("train.lr=0.002" in words for words in (*calls[1][:2], calls[2][0]))


def test_a_failed_search_stops_no_other_block(launched, tmp_path):
    """Its runs are tried once by each command."""
    calls, failing = launched
    failing.add("position=none")
    assert table.run(table.request(blocks(tmp_path, SEARCHED, NEXT, PLAIN), [BASIC])) == 1
    every = [words for call in calls for words in call]
    assert len(every) == len(set(every)) == 4 + 1 + 2 + 1 + 1


def test_fresh_runs_are_made_once(launched, tmp_path):
    calls, _ = launched
    path = blocks(tmp_path, SEARCHED, NEXT)
    for own in ([], ["fresh=true"]):
        calls.clear()
        assert table.run(table.request(path, [BASIC, *own])) == 0
        assert [len(call) for call in calls] == [4, 2 + 2, 1]
        every = [words for call in calls for words in call]
        assert len(every) == len(set(every))


def test_a_table_without_rates_is_launched_once(launched, tmp_path):
    calls, _ = launched
    assert table.run(table.request(blocks(tmp_path, PLAIN), [BASIC])) == 0
    assert [len(call) for call in calls] == [1]


def test_cases_may_share_their_runs(launched, tmp_path):
    """And a rate of a block without a search is none of another's."""
    calls, _ = launched
    both = 'task: copy_string, scale: quick, seeds: {rope: 0, "rope position.q=1": 1}'
    other = "task: copy_string, scale: quick, seeds: {rope: 2}, settings: [train.lr=1.9e-3]"
    lines = other, f"{both}, rates: [1e-3, 4e-3]", PLAIN
    assert table.run(table.request(blocks(tmp_path, *lines), [BASIC])) == 0
    assert [len(call) for call in calls] == [1 + 2, 2 + 1]
    assert all("train.lr=0.001" in words for words in calls[1][:2])


@pytest.mark.slow
def test_each_scheme_is_run_at_its_best_rate(run, tmp_path):
    """First all rates on one seed, then the best on others; the same command again has no more."""
    (tmp_path / "mine.yaml").write_text(SEARCH)
    bill = run("mine.yaml", "--bill", BASIC)
    assert re.search(r"^substring_by_prefix, quick: 7 runs, 1 at once, .* few steps", bill.stdout)
    assert run("mine.yaml", "--list").stdout.startswith("mine: 0 of 4 runs finished")
    done = run("mine.yaml", BASIC)
    assert (done.returncode, done.stderr) == (0, "")
    runs = read(tmp_path / "runs")[0]
    at_end = {(each.position, each.seed): each.settings["train.lr"] for each in runs}
    assert at_end.keys() == {("rope", 100), ("none", 100), ("rope", 0), ("rope", 1), ("none", 0)}
    assert {at_end[scheme, 0] for scheme in ("rope", "none")} == {1e-3}
    assert "mine: 7 of 7 runs finished" in run("mine.yaml", "--list").stdout
    assert run("mine.yaml", "--bill").stdout == "all runs have ended\n"
    results([str(tmp_path / "runs"), "--keep", "--into", str(tmp_path / "kept")])
    (tmp_path / "runs").rename(tmp_path / "lost")
    at_best = run("mine.yaml", BASIC, "--kept", "kept")
    assert (at_best.returncode, at_best.stdout) == (0, "kept in kept: 7 of 7 runs\n")
    assert not (tmp_path / "runs").exists()
