"""Answers that would mislead: what a page says, and what it must not say."""

import re
from itertools import product
from string import ascii_lowercase

import numpy as np
import pytest
from builders import headings, make_pairs, make_run, row, table_rows
from conftest import ROOT, TINY
from judged import (
    HIGH,
    LOW,
    MINE,
    PLAN,
    commit,
    keep,
    main_of,
    runs_of,
    said,
)

pytestmark = pytest.mark.usefixtures("undrawn")

INDEX, NEEDLE = "Substring by Index", "Needle in a Haystack"
BEST = "each scheme at its best value"
ONE_RATE = "one learning rate, not searched"


def reported(folder, *words) -> str:
    """The HTML of `rope-lab report`, up to its charts."""
    page = folder / "page.html"
    main_of("report")([*map(str, words or [folder]), "--out", str(page)])
    return page.read_text().partition("<h2>Runs</h2>")[0]


def first_word(html: str) -> str:
    """The first emphasized word of a report; empty without any."""
    return next(iter(re.findall("<strong[^>]*>(.*?)</strong>", html)), "")


# 6: a planned outcome leads


@pytest.fixture
def reversed_plan(tmp_path):
    """A plan of one's own that ended reversed; a folder of other runs beside it."""
    folder = tmp_path / "plan"
    folder.mkdir()
    text = PLAN.replace("roper", "alibi").replace("first scheme", "ALiBi")
    (folder / "plan.yaml").write_text(text)
    code = commit(folder, "plan.yaml")
    runs_of(folder / "runs", "rope", HIGH, code)
    runs_of(folder / "runs", "alibi", LOW, code)
    keep(folder / "runs", folder / "kept")
    make_pairs(tmp_path / "other", [0.5, 0.6, 0.4, 0.5], [0.7, 0.5, 0.4, 0.45])
    return folder


def test_a_planned_outcome_is_the_first_line_of_the_report(reversed_plan, tmp_path):
    html = reported(tmp_path, reversed_plan / "kept")
    assert first_word(html) == "reversed"
    assert "No verdict" not in html
    assert "Does RoPER beat RoPE?" not in html
    line = html.partition("reversed")[2].partition("</p>")[0]
    assert "ALiBi" in line
    assert "p 0.031" in line
    assert "plan.yaml" in line


def test_a_planned_outcome_comes_before_other_folders(reversed_plan, tmp_path):
    for words in ((tmp_path / "other", reversed_plan / "kept"), (reversed_plan / "kept",)):
        assert first_word(reported(tmp_path, *words)) == "reversed"


# 7: learning rates


def sweep_of_rates(folder, ends):
    """Scheme → the accuracies of seeds 0, 1, 2 at each of three rates; 0.002 is the recipe's."""
    for scheme, each in ends.items():
        for rate, values in zip((0.001, 0.002, 0.004), each, strict=True):
            rated(folder, scheme, rate, dict(enumerate(values)))


def rated(folder, scheme, rate, ends):
    train = {"steps": 100, "batch_size": 4, "seq_len": 64, "decay": "none", "lr": rate}
    for seed, last in ends.items():
        make_run(folder, scheme, seed, last, name=f"{rate}", config__train=train)


INSIDE = {
    "rope": [[0.1, 0.2, 0.15], [0.5, 0.6, 0.55], [0.3, 0.4, 0.35]],
    "roper": [[0.2, 0.3, 0.2], [0.9, 0.8, 0.75], [0.6, 0.4, 0.7]],
}


def test_a_verdict_at_one_rate_says_so(tmp_path, capsys):
    make_pairs(tmp_path, [0.5, 0.6, 0.4], [0.8, 0.97, 0.75])
    text = said(capsys, "results", tmp_path, "--print")
    assert ONE_RATE in row(text, INDEX)["comparison"]
    (sentence,) = [line for line in text.splitlines() if line.startswith(f"{INDEX}, quick, seeds")]
    assert ONE_RATE in sentence
    assert ONE_RATE in reported(tmp_path)


def test_a_verdict_beside_a_sweep_of_rates_does_not(tmp_path, capsys):
    sweep_of_rates(tmp_path, INSIDE)
    assert ONE_RATE not in said(capsys, "results", tmp_path, "--print")
    assert ONE_RATE not in reported(tmp_path)


@pytest.mark.parametrize("edge", [0, 2])
def test_a_best_value_at_the_edge_asks_for_more(tmp_path, capsys, edge):
    ends = INSIDE | {"roper": [[0.2, 0.3, 0.2]] * 3}
    ends["roper"][edge] = [0.9, 0.8, 0.75]
    sweep_of_rates(tmp_path, ends)
    text = said(capsys, "results", tmp_path, "--print")
    (line,) = [line for line in text.splitlines() if "at the first or last" in line]
    assert "RoPER" in line
    assert "RoPE " not in line
    assert "beyond" in line


def test_a_best_value_inside_asks_for_nothing(tmp_path, capsys):
    sweep_of_rates(tmp_path, INSIDE)
    assert "at the first or last" not in said(capsys, "results", tmp_path, "--print")


# 8: fresh seeds


def test_fresh_seeds_at_one_value_choose_no_best(tmp_path, capsys):
    """As of a plan that was run after the search, into the same folder."""
    sweep_of_rates(tmp_path, INSIDE)
    fresh = range(20, 24)
    rated(tmp_path, "rope", 0.004, dict.fromkeys(fresh, 0.99))
    rated(tmp_path, "roper", 0.002, dict.fromkeys(fresh, 0.1))
    text = said(capsys, "results", tmp_path, "--print")
    (difference,) = [
        each[BEST] for each in table_rows(text) if each.get("train.lr =") == "RoPER − RoPE"
    ]
    searched = np.mean(INSIDE["roper"][1]) - np.mean(INSIDE["rope"][1])
    assert difference.startswith(f"{128 * searched:+.1f} ")
    section = text.partition("by train.lr")[2]
    assert re.search("seeds 20–23.* not", section)


# 9: an edited scheme


@pytest.mark.torture
def test_an_edited_scheme_trains_again_and_codes_never_mix(tmp_path, capsys):
    from trained import spawn

    words = ["-m", *TINY, "out=runs", "position=./mine.py"]
    (tmp_path / "mine.py").write_text(MINE)
    assert spawn([*words, "seed=0"], tmp_path).returncode == 0
    (tmp_path / "mine.py").write_text(MINE.replace("pass", "edited = True"))
    done = spawn([*words, "seed=0,1"], tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("finished after") == 2
    text = said(capsys, "results", tmp_path / "runs", "--print")
    assert row(text, "mine")["mean, correct out of 128"].endswith("n=2")
    assert "mine seed 0 is by other code" in text


def test_the_report_is_about_the_newest_code_of_a_scheme(tmp_path, capsys):
    old, new = {"position": "a" * 12}, {"position": "b" * 12}
    for seed in range(5):
        make_run(tmp_path, "rope", seed, 0.4 + 0.01 * seed)
        code, start, last = (old, "2026-11-01", 0.1) if seed < 2 else (new, "2026-11-02", 0.7)
        changes = {"provenance__plugin": code, "provenance__start": f"{start}T00:00:00+00:00"}
        make_run(tmp_path, "mine", seed, last, **changes)
    text = said(capsys, "results", tmp_path, "--print")
    verdict = row(text, INDEX)
    assert verdict["seeds"] == "3"
    assert verdict["mine ahead?"] == "ahead"
    assert row(text, "mine")["mean, correct out of 128"].startswith("89.6")
    assert [f"mine seed {seed} is by other code" in text for seed in range(3)] == [
        True,
        True,
        False,
    ]
    assert "Does mine beat RoPE?" in reported(tmp_path)


# 10: own runs count


def test_results_and_report_count_ones_own_of_two_runs(tmp_path, capsys):
    theirs = make_pairs(tmp_path / "theirs", LOW, HIGH)
    keep(theirs, tmp_path / "kept")
    ours = make_pairs(tmp_path / "runs", LOW, [last - 0.1 for last in HIGH])
    gain = f"{128 * (np.mean(HIGH) - 0.1 - np.mean(LOW)):+.1f} ["
    for words in ((ours, tmp_path / "kept"), (tmp_path / "kept", ours)):
        text = said(capsys, "results", *words, "--print")
        assert row(text, INDEX)["measured gain [95% interval]"].startswith(gain)
        html = reported(tmp_path, *words)
        assert gain in html
        for page in (text, (tmp_path / "page.html").read_text()):
            assert "your own" in page


def test_results_and_report_judge_an_unusual_recipe_alike(tmp_path, capsys):
    """Kept runs of another recipe of the task leave the verdict as it is."""
    keep(make_pairs(tmp_path / "theirs", LOW, HIGH), tmp_path / "kept")
    ours = make_pairs(tmp_path / "runs", LOW, HIGH, recipe="0123456789")
    text = said(capsys, "results", ours, tmp_path / "kept", "--print")
    gain = row(text, INDEX)["measured gain [95% interval]"]
    assert gain in reported(tmp_path, ours, tmp_path / "kept")


# 12: what a score is of


def test_scores_name_lengths_and_show_longer_ones(tmp_path, capsys):
    train = {"steps": 100, "batch_size": 4, "seq_len": 64, "lr": 0.002}
    about = {"task": "needle", "scale": "length", "config__task": {"string_length": 64}}
    about |= {"config__train": train}
    for scheme, (short, long) in {"rope": (0.984, 0.17), "alibi": (1.0, 0.9)}.items():
        slices = {"length": {"64": [64, short], "256": [64, long]}}
        for seed in range(3):
            make_run(tmp_path / "runs", scheme, seed, short, slices=slices, **about)
    keep(tmp_path / "runs", tmp_path / "kept")
    rows = table_rows(said(capsys, "scores", tmp_path / "kept"))
    rope = next(each for each in rows if each["scheme"] == "RoPE")
    trained, longer = (value for name, value in rope.items() if NEEDLE in name)
    assert trained.startswith("0.984")
    assert longer.startswith("0.170")
    names = [name for name in rope if NEEDLE in name]
    assert "trained lengths" in names[0]
    assert "256" in names[1]


# 13: fewer than three pairs


@pytest.mark.parametrize(("pairs", "add"), [(1, "add 2 seeds"), (2, "add 1 seed")])
@pytest.mark.parametrize("contender", ["roper", "pope"])
def test_below_three_pairs_there_is_no_verdict(tmp_path, capsys, pairs, add, contender):
    rope, other = [0.5, 0.6][:pairs], [0.8, 0.902][:pairs]
    for seed in range(pairs):
        make_run(tmp_path, "rope", seed, rope[seed])
        make_run(tmp_path, contender, seed, other[seed])
        make_run(tmp_path, "none", seed, 0.1)
    text = said(capsys, "results", tmp_path, "--contender", contender, "--print")
    title = {"roper": "RoPER", "pope": "PoPE"}[contender]
    verdict = row(text, INDEX)
    assert verdict[f"{title} ahead?"] == f"no verdict: {add}"
    assert verdict["p (corrected for)"] == "–"
    gain = verdict["measured gain [95% interval]"]
    assert gain.startswith("+38.4 (one seed)" if pairs == 1 else "+38.5 (+38.4 to +38.7)")
    schemes = [each for each in table_rows(text) if "p" in each]
    assert {each["p"] for each in schemes} == {"–"}
    html = reported(tmp_path, tmp_path, "--contender", contender)
    assert add in html
    assert not re.search(">(ahead|behind|unsure)<", html)


def test_three_pairs_have_a_verdict(tmp_path, capsys):
    make_pairs(tmp_path, LOW[:3], HIGH[:3])
    assert row(said(capsys, "results", tmp_path, "--print"), INDEX)["RoPER ahead?"] == "ahead"


# 14: at chance


@pytest.mark.parametrize(
    ("task", "settings", "guess"),
    [
        ("flip_flop", {"instructions": 16}, 0.5),
        ("state_tracking", {"group": "S3", "word_length": 6}, 1 / 6),
        (
            "indirect_indexing",
            {"string_length": 30, "shortest": 10, "distinct": False, "letters": ascii_lowercase},
            0.159,
        ),
    ],
)
def test_two_schemes_at_chance_have_learned_nothing(tmp_path, capsys, task, settings, guess):
    """A difference between guesses may be significant."""
    for seed, noise in enumerate([0.0, 0.001, 0.002, 0.001]):
        for scheme, last in (("rope", guess - 0.03), ("roper", guess - 0.01)):
            changes = {"task": task, "config__task": settings}
            make_run(tmp_path, scheme, seed, last + noise * (scheme == "rope"), **changes)
    main_of("results")([str(tmp_path), "--print"])
    text = capsys.readouterr().out
    verdict = next(each for each in table_rows(text) if "RoPER ahead?" in each)
    assert verdict["RoPER ahead?"].strip("*") == "neither learned it"
    assert verdict["p (corrected for)"] == "–"
    difference = next(each for each in table_rows(text) if each.get("scheme") == "RoPER")
    assert "**" not in "".join(difference.values())
    assert "neither learned it" in reported(tmp_path)


def test_one_scheme_above_chance_has_a_verdict(tmp_path, capsys):
    for seed, (scheme, last) in product(range(4), (("rope", 0.5), ("roper", 0.9))):
        make_run(tmp_path, scheme, seed, last + 0.001 * seed * (last > 0.5), task="flip_flop")
    text = said(capsys, "results", tmp_path, "--print")
    assert row(text, "Flip-Flop")["RoPER ahead?"] == "ahead"


# 15: published numbers


def test_nanogpts_loss_stands_only_beside_its_corpus_and_characters(tmp_path, capsys):
    for tokens, corpus in (("bpe", "86c4e6aa9db7c042"), ("characters", "aaaa")):
        config = {"corpus": corpus, "tokens": tokens}
        folder = tmp_path / tokens
        for scheme in ("rope", "learned"):
            make_run(folder, scheme, 0, -3.39, task="text", config__task=config)
        assert "nanoGPT" not in said(capsys, "results", folder, "--print")
    assert "nanoGPT" in (ROOT / "results" / "text" / "README.md").read_text()


SETUP = {
    "config__task": {"letters": "abcd", "first_length": 16, "copy_length": 16}
    | {"gap_min": 1, "gap_max": 11},
    "config__model": {"d_model": 128, "attention": "softmax", "n_layers": 3}
    | {"n_heads": 4, "norm": "pre"},
    "config__train": {"batch_size": 16, "seq_len": 512, "steps": 4096},
}


@pytest.mark.parametrize("width", [128, 64])
def test_published_numbers_stand_beside_their_set_up_alone(tmp_path, capsys, width):
    changes = SETUP | {"config__model": SETUP["config__model"] | {"d_model": width}}
    make_pairs(tmp_path, LOW[:4], HIGH[:4], task="substring_by_prefix", scale="paper", **changes)
    text = said(capsys, "results", tmp_path, "--print")
    published = [row["published"] for row in table_rows(text) if "published" in row]
    assert ("0.3329 / 0.3269 in the later version" in published) == (width == 128)
    assert ("published gain" in text) == (width == 128)


# 16: every kept run of a recipe


def test_own_runs_stand_beside_all_kept_schemes(tmp_path, capsys):
    """Those of folders below the kept one too; not those of plans, nor of other recipes."""
    kept = tmp_path / "kept"
    for place, scheme in ((kept, "rope"), (kept / "schemes", "alibi"), (kept / "planned", "pope")):
        folder = tmp_path / f"runs of {scheme}"
        for seed in range(3):
            make_run(folder, scheme, seed, 0.5 + 0.1 * seed)
            make_run(folder, scheme, seed, 0.5, recipe="abc", name="abc")
        keep(folder, place)
    plan = PLAN.replace("rows: kept", "rows: planned").replace("roper", "pope")
    (kept / "plan.yaml").write_text(plan)
    for seed in range(3):
        make_run(tmp_path / "mine", "roper", seed, 0.6 + 0.1 * seed**2)
    text = said(capsys, "results", tmp_path / "mine", kept, "--print")
    assert {each["scheme"] for each in table_rows(text) if "scheme" in each} == {
        "RoPE",
        "RoPER",
        "ALiBi",
    }
    assert headings(text) == ["Substring by Index, scale quick"]
    assert row(text, INDEX)["RoPER ahead?"]


# 30 and 46: asked for, and left out


def test_another_baseline_is_compared_with_the_only_other_scheme(tmp_path, capsys):
    for seed in range(4):
        make_run(tmp_path, "rope", seed, 0.5 + 0.01 * seed)
        make_run(tmp_path, "mine", seed, 0.7 + 0.02 * seed)
    text = said(capsys, "results", tmp_path, "--against", "mine", "--print")
    verdict = row(text, INDEX)
    assert verdict["RoPE ahead?"] == "behind"
    assert verdict["measured gain [95% interval]"].startswith("-27.5 ")


def test_power_of_a_huge_difference_is_a_number(tmp_path, capsys):
    make_pairs(tmp_path, LOW, HIGH)
    text = said(capsys, "power", tmp_path, "--difference", "1e300")
    assert "nan" not in text
    assert "(100%)" in text


def test_power_is_of_every_recipe(tmp_path, capsys):
    make_pairs(tmp_path, LOW, HIGH)
    make_pairs(tmp_path, LOW, HIGH, recipe="abc", name="abc")
    found = headings(said(capsys, "power", tmp_path))
    assert len(found) == 2
    assert sum("task.letters=abc" in heading for heading in found) == 1
