"""rope-lab extend: the ways to read longer texts, on trained runs."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from conftest import CONF, TINY, only_folder
from trained import command, run

from rope_lab.continuing import extend, parents, ways
from rope_lab.continuing.children import child
from rope_lab.places import RUNS
from rope_lab.results.comparisons.continued import AS_IS, WINDOWS, by_length, check_alike
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read, read_run
from rope_lab.results.views import longer_page
from rope_lab.shipped import with_class_names
from rope_lab.text import ConfigError, flat
from rope_lab.train import config
from rope_lab.train.instantiate import check_arguments
from rope_lab.train.trainer import build

PARENT = [
    *TINY,
    *("task=text", "task.tokens=characters", "position=roper"),
    *("train.steps=4", "train.batch_size=3", "train.seq_len=16", "eval.every=4"),
]
REPORT = Catalogue().report("text", {"eval/loss"}, {})
WORDS = ["--lengths", "2x", "--budget", "50%", "--out", "it", "hydra/launcher=basic"]


def shipped_node(name: str) -> dict:
    """The settings of a scheme's file."""
    return yaml.safe_load((CONF / "position" / f"{name}.yaml").read_text())


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """The folder of a trained run; tests must not change it."""
    out = tmp_path_factory.mktemp("parent")
    text = out / "text.txt"
    text.write_text(" ".join(f"{i * i} is {i} times {i}." for i in range(900)))
    run([*PARENT, f"task.path={text}", f"out={out}"])
    return only_folder(out)


@pytest.fixture(scope="module")
def found(parent, tmp_path_factory):
    """The runs of each way, made up from their settings, and the parent."""
    (own,) = parents.parents([str(parent)], [])
    trained, targets = parents.targets(own, "2x")
    jobs = ways.jobs([own], trained, targets, 2, tmp_path_factory.mktemp("found"))
    like, of_way = read_run(parent), {}
    for key, those in jobs.items():
        settings = [with_class_names(flat(config.recorded(job.resolved))) for job in those]
        of_way[key] = [replace(like, settings=each) for each in settings]
    return SimpleNamespace(parent=own, ways=of_way, jobs=jobs)


def some_ways(target_ways):
    """Two of the ways: all others take their time."""

    def chosen(parent, target):
        found = {way.name: way for way in target_ways(parent, target)}
        return [found[AS_IS], found[WINDOWS]]

    return chosen


@pytest.mark.slow
def test_one_command_goes_to_the_page_and_resumes(parent, tmp_path, monkeypatch):
    monkeypatch.setattr(ways, "ways", some_ways(ways.ways))
    said = command([str(parent), *WORDS], tmp_path, extend.main)
    assert said.returncode == 12
    assert "extend: 5 runs" in said.stdout
    assert not (tmp_path / "it" / RUNS).exists()
    said = command([str(parent), *WORDS, "--yes"], tmp_path, extend.main)
    assert said.returncode == 0, said.stderr
    page = (tmp_path / "it" / longer_page.PAGE).read_text()
    assert WINDOWS in page
    assert (tmp_path / "it" / "figures" / longer_page.FIGURE).exists()
    runs, problems = read(tmp_path / "it" / RUNS)
    assert (len(runs), problems) == (5, [])
    again = command([str(parent), *WORDS], tmp_path, extend.main)
    assert again.returncode == 0
    assert "runs finished" not in again.stdout


@pytest.mark.slow
def test_every_way_trains_and_is_on_the_page(parent, found, tmp_path):
    said = command([str(parent), *WORDS, "--yes"], tmp_path, extend.main)
    assert said.returncode == 0, said.stderr
    page = (tmp_path / "it" / longer_page.PAGE).read_text()
    assert [key.way for key in found.ways if key.way not in page] == []
    assert len(read(tmp_path / "it" / RUNS)[0]) == 11 + 12


def test_a_rotary_scheme_has_every_way(found):
    rotary = {*ways.SCALINGS, *ways.REMAPPED, AS_IS, WINDOWS, "DroPE", "DroPE, q and k norms"}
    assert {key.way for key in found.ways} == rotary


def test_windows_of_a_part_of_the_layers_are_no_way(parent, found):
    """Nor are scaled frequencies of other schemes."""
    target = parents.Target(2, 32, 32, 16)
    counts = {}
    for name in ("rope_partial", "pope", "rnope", "alibi"):
        position = check_arguments("position", shipped_node(name), [])
        cfg = replace(found.parent.cfg, position=position)
        counts[name] = len(ways.ways(replace(found.parent, cfg=cfg), target))
    assert counts == {"rope_partial": 11, "pope": 2, "rnope": 1, "alibi": 1}
    own = found.parent.cfg.position | {"_target_": "mine.Mine"}  # a subclass of Rotary
    cfg = replace(found.parent.cfg, position=own)
    names = {way.name for way in ways.ways(replace(found.parent, cfg=cfg), target)}
    assert names.isdisjoint(ways.REMAPPED)
    assert names > {*ways.SCALINGS}


def test_the_control_is_trained_at_both_lengths(found):
    controls = [key for key in found.ways if key.way == AS_IS and key.steps]
    assert sorted(key.at for key in controls) == [16, 32]
    for key in controls:
        (run_,) = found.ways[key]
        assert run_.settings["train.seq_len"] == key.at
        assert run_.settings["train.steps"] == 2
        assert run_.settings["train.batch_size"] == {16: 3, 32: 2}[key.at]


def test_all_ways_begin_from_the_parent_with_its_next_batches(found):
    """Those that train at the same length read the same batches."""
    batches = {}
    for key, (job,) in found.jobs.items():
        if key.steps:
            trainer = build(job.resolved)
            steps = trainer.cfg.parent["steps"]
            assert steps == 4
            batches.setdefault(key.at, []).append(trainer.batches(steps).inputs_BT.tolist())
    assert {at: len(each) for at, each in batches.items()} == {16: 3, 32: 9}
    for each in batches.values():
        assert all(batch == each[0] for batch in each)


def test_rotated_values_are_extended_too(found):
    """RoPER's values and outputs are rotated under every way that rotates."""
    for key, (job,) in found.jobs.items():
        own = job.cfg.position
        if not key.way.startswith("DroPE"):
            assert (own["v"], own["o"]) == (1, -1), key


def test_fair_runs_pass(found):
    check_alike(found.ways)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("train.steps", 1),
        ("train.lr", 0.5),
        ("train.batch_size", 1),
        ("train.seq_len", 8),
        ("train.warmup", 9),
        ("task.context", 8),
    ],
)
@pytest.mark.parametrize("at", [16, 32])
def test_an_unequal_control_is_noticed(found, setting, value, at):
    key = next(key for key in found.ways if key.way == AS_IS and key.at == at)
    (control,) = found.ways[key]
    wrong = replace(control, settings=control.settings | {setting: value})
    with pytest.raises(ConfigError, match=setting):
        check_alike(found.ways | {key: [wrong]})


def test_further_training_takes_another_rate(found, tmp_path):
    trained, targets = parents.targets(found.parent, "2x")
    own = found.parent.cfg.train.lr
    for key, (job,) in ways.jobs([found.parent], trained, targets, 2, tmp_path, lr=0.5).items():
        assert job.cfg.train.lr == (0.5 if key.steps else own), key


def test_a_control_of_other_seeds_is_noticed(found):
    key = next(key for key in found.ways if key.way == AS_IS and key.steps)
    other = replace(found.ways[key][0], seed=7)
    with pytest.raises(ConfigError, match="seeds"):
        check_alike(found.ways | {key: [other]})


def with_loss(run_, loss: float, seed: int):
    slices = {"length_loss": {"16": (100, 2.0), "32": (100, loss)}}
    return replace(run_, seed=seed, slices=slices)


def test_more_context_counts_only_with_its_interval(found):
    """Below windows on the same tokens in every pair of runs."""
    untrained = {key: runs for key, runs in found.ways.items() if not key.steps}
    losses = {"YaRN": [1.8, 1.9, 1.85], WINDOWS: [2.0, 2.1, 2.04], "NTK-aware": [1.5, 2.6, 2.0]}
    made = {}
    for key, (run_,) in untrained.items():
        own = losses.get(key.way, [2.5, 2.6, 2.4])
        made[key] = [with_loss(run_, loss, seed) for seed, loss in enumerate(own)]
    best, context = longer_page.conclusions(by_length(made, REPORT))
    assert "YaRN, 1.8500; unchanged, 2.5000" in best
    assert context.endswith("more context lowers the loss with: YaRN.")
    table = longer_page.table(by_length(made, REPORT)[0], 16)
    row = next(row for row in table.rows if row["method"] == "YaRN")
    assert row[f"minus {WINDOWS}"].startswith("-0.19")


def test_a_way_that_diverged_is_not_the_best(found):
    """It has the lowest loss on the seed that is left."""
    made = {}
    for key, (run_,) in found.ways.items():
        if key.way in (AS_IS, WINDOWS, "YaRN") and not key.steps:
            losses = [1.7, 2.0, 2.1] if key.way == "YaRN" else [1.75, 1.8, 1.9]
            made[key] = [with_loss(run_, loss, seed) for seed, loss in enumerate(losses)]
            if key.way == "YaRN":
                made[key][1:] = [replace(each, status="diverged") for each in made[key][1:]]
    (reading,) = by_length(made, REPORT)
    best, context = longer_page.conclusions([reading])
    assert "YaRN" not in best + context
    row = next(row for row in longer_page.table(reading, 16).rows if row["method"] == "YaRN")
    assert row["at 32"].endswith("2 diverged")
    assert row[f"minus {AS_IS}"] == row[f"minus {WINDOWS}"] == "–"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lengths", "1x"], "--lengths 1x: must be multiples above 1"),
        (["--lengths", f"{400 * '9'}x"], "at most 1000, 2x,4x,8x"),
        (["--budget", f"{400 * '9'}%"], "and at most 1000%"),
        (["--budget", "2h"], "--budget 2h: must be a share of the steps"),
        (["--at-most", "5%"], "--at-most 5%: must be a time"),
    ],
)
def test_wrong_words_are_one_line(parent, tmp_path, words, said):
    done = command([str(parent), *WORDS, *words], tmp_path, extend.main)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_two_runs_of_one_seed_are_no_pairs(parent):
    with pytest.raises(ConfigError, match="have the same seed"):
        parents.parents([str(parent), str(parent)], [])


def test_no_way_sees_more_than_a_windowed_control(found):
    own = found.parent.cfg.position | {"window": 16}
    parent = replace(found.parent, cfg=replace(found.parent.cfg, position=own))
    names = [way.name for way in ways.ways(parent, parents.Target(2, 32, 32, 16))]
    assert names == [AS_IS, *ways.SCALINGS]


def test_self_extend_stays_within_trained_distances(found):
    """With the group that is chosen for each length."""
    for times in (2, 4, 8):
        target = parents.Target(times, 64 * times, 64 * times, 64)
        for way in ways.ways(found.parent, target):
            own = way.position
            if own.get("method") == "self_extend":
                near, group = own["near"], own["group"]
                assert near + (target.tokens - near) / group <= 64 * 0.7


def test_problems_grow_with_the_length_and_are_graded(tmp_path):
    """Their factor is that of a problem's tokens: the format around it does not grow."""
    task = ["task=needle", "task.string_length=8", "task.shortest=4", "task.needle=2"]
    run([*TINY, *task, "position=rope", "train.seq_len=32", f"out={tmp_path}"])
    (own,) = parents.parents([str(only_folder(tmp_path))], [])
    trained, (target,) = parents.targets(own, "3x")
    assert (trained, target.length) == (8, 24)
    assert (target.trained, target.tokens) == (14, 30)
    assert target.factor == 30 / 14
    jobs = ways.jobs([own], trained, [target], 2, tmp_path)
    lengths, made = set(), {}
    for key, (job,) in jobs.items():
        cfg = job.resolved
        assert cfg.eval.lengths == [8, 24]
        if key.steps:
            lengths.add((key.at, cfg.task["string_length"], cfg.train.seq_len))
        made[key] = [read_run(own.folder)]
    assert lengths == {(14, 8, 32), (30, 24, 96)}
    report = Catalogue().report("needle", {"eval/accuracy"}, {})
    assert longer_page.conclusions(by_length(made, report)) == []  # of runs without these lengths
    assert WINDOWS not in " ".join(longer_page.table(by_length(made, report)[0], trained).columns)


OWN = """
from rope_lab.tasks.base import PackedTask, join, spell

class Reverse(PackedTask):
    letters = "abcdefghijklmnopqrstuvwxyz"
    alphabet = letters + "?=#"

    def __init__(self, word_length: int = 8, shortest: int | None = 1):
        super().__init__()
        self.set_lengths(shortest, least=2, NAME=word_length)

    def draw(self, rng, n):
        return self.draw_strings(rng, n)[0]

    def write(self, drawn):
        word, reverse = spell(self.letters, drawn), spell(self.letters, drawn[:, ::-1])
        return join("?", word, "="), join(reverse, "#")
"""


@pytest.mark.parametrize("name", ["word_length", "longest"])
def test_tasks_of_ones_own_become_longer(tmp_path, monkeypatch, name):
    """If set_lengths names an argument."""
    monkeypatch.chdir(tmp_path)
    file = f"./by_{name}.py"
    (tmp_path / file).write_text(OWN.replace("NAME", name))
    words = [f"task={file}", "task.word_length=6", "task.shortest=4", "position=rope"]
    run([*TINY, *words, "train.seq_len=32", "train.steps=1", f"out={tmp_path / 'runs'}"])
    (own,) = parents.parents([str(only_folder(tmp_path / "runs"))], [file])
    if name == "longest":
        with pytest.raises(ConfigError, match="longest is no argument"):
            parents.targets(own, "2x")
        return
    trained, (target,) = parents.targets(own, "2x")
    assert (trained, target.length) == (6, 12)
    jobs = ways.jobs([own], trained, [target], 1, tmp_path)
    assert {tuple(job.cfg.eval.lengths) for (job,) in jobs.values()} == {(6, 12)}


def test_a_task_without_lengths_is_refused(parent, monkeypatch):
    (own,) = parents.parents([str(parent)], [])
    names = replace(own.cfg.names, task="mine")
    monkeypatch.setattr(config, "build_task", lambda cfg: SimpleNamespace(longest_setting=""))
    with pytest.raises(ConfigError, match="has no longest_setting"):
        parents.targets(replace(own, cfg=replace(own.cfg, names=names)), "2x")


def test_shares_by_depth_are_means_over_parents(found):
    key, (one,) = next(iter(found.ways.items()))
    slices = [{f"depth_at_{key.length}": {"0": (9, share), "10": (9, 1.0)}} for share in (0.2, 0.4)]
    runs = [replace(one, seed=seed, slices=each) for seed, each in enumerate(slices)]
    table = longer_page.details(by_length({key: runs}, REPORT)[0], Catalogue())
    assert table.note == "Share of problems correct by tenths of the haystack before the needle:"
    assert table.rows == [
        {"method": key.way, "further training": "–", "0": "0.30", "10": "1.00"},
    ]
    assert longer_page.details(by_length({key: [one]}, REPORT)[0], Catalogue()).rows == []


def test_losses_stand_by_position_up_to_the_length(found):
    key, (one,) = next(iter(found.ways.items()))
    slices = {"length_loss": {"64": (9, 9.0), "16": (9, 2.0), "32": (9, 2.5)}}
    reading = by_length({key: [replace(one, slices=slices)]}, REPORT)[0]
    table = longer_page.details(reading, Catalogue())
    assert table.rows == [
        {"method": key.way, "further training": "–", "16": "2.000", "32": "2.500"}
    ]


def test_longer_batches_are_whole_parts(found):
    """Of `train.accumulate`; three times as long, a batch of 32 has 11 sequences."""
    cfg = found.parent.cfg
    parted = replace(cfg, train=replace(cfg.train, batch_size=32, accumulate=4))
    target = parents.Target(3, 48, 48, 16)
    assert ways._longer(replace(found.parent, cfg=parted), target)["train.batch_size"] == 12


def test_the_control_is_the_model_that_was_trained(found):
    """A window or another share of the training length stays as it was."""
    own = found.parent.cfg.position["_target_"]
    lengths = [
        job.resolved.parent.get("seq_len")
        for (job,) in found.jobs.values()
        if job.cfg.position["_target_"] == own
    ]
    assert {*lengths} == {16}
    others = [job for (job,) in found.jobs.values() if job.cfg.position["_target_"] != own]
    assert [job.resolved.parent.get("seq_len") for job in others] == [None] * len(others)


def test_a_parent_of_other_machines_is_read_on_this_one(parent):
    """Of two processes of torchrun, or on a GPU that is not here."""
    (own,) = parents.parents([str(parent)], [], "cpu")
    spread = {"train": own.content["config"]["train"] | {"processes": 2}}
    other = replace(own, content=own.content | {"config": own.content["config"] | spread})
    job = child(other, {"train.steps": 0}, "", parent.parent)
    assert (job.cfg.train.processes, job.cfg.device) == (1, "cpu")
    (elsewhere,) = parents.parents([str(parent)], [], "cuda")
    assert child(elsewhere, {"train.steps": 0}, "", parent.parent).cfg.device == "cuda"
