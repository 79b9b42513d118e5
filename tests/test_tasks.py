"""Task generators, checked with independent parsers of the text formats."""

import json
from collections import Counter
from string import ascii_letters, ascii_lowercase
from typing import Any

import numpy as np
import pytest
from conftest import GENERATED, TASKS, TEXTS, fuzz
from hypothesis import given, settings
from hypothesis import strategies as st
from parsers import parse, parse_prefix, problems_of
from trained import load

from rope_lab import sample
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.text import flat
from rope_lab.train import config, data
from rope_lab.train.config import recorded
from rope_lab.train.generate import likeliest
from rope_lab.train.trainer import build, resolve
from tasks import mqar
from tasks.arithmetic_addition import ArithmeticAddition
from tasks.base import PackedTask
from tasks.flip_flop import FlipFlop
from tasks.indirect_indexing import IndirectIndexing
from tasks.mqar import AssociativeRecall
from tasks.needle import Needle
from tasks.rewriting import Rewriting
from tasks.split import is_held_out
from tasks.state_tracking import StateTracking
from tasks.substring_by_index import SubstringByIndex
from tasks.substring_by_prefix import SubstringByPrefix
from tasks.task import Problem, Task

examples, seeds = settings(max_examples=fuzz(300), deadline=None), st.integers(0, 2**32 - 1)
LARGE = [  # each with a requested length
    (ArithmeticAddition(), 41),
    (SubstringByIndex(), 52),
    (IndirectIndexing(), 45),
    (AssociativeRecall(), 128),
    (FlipFlop(), 100),
    (StateTracking("S2", 24), 64),
    (StateTracking("S3"), 64),
    (Rewriting("copy"), 64),
    (Rewriting("reverse"), 64),
    (Rewriting("sort"), 64),
    (Needle(), 256),
]
SMALL = [
    (ArithmeticAddition(4, shortest=4), 2),
    (SubstringByIndex(40, "SxY_z", shortest=5), 7),
    (IndirectIndexing(12, ascii_letters, "answer", 6, 5, distinct=True), 6),
    (AssociativeRecall(24, 5, 12), 40),
    (FlipFlop(12, 50, 70, 0), 20),
    (StateTracking("A5", 7, None), 3),
    (Rewriting("sort", 9, None, "bca"), 30),
    (Needle(9, 3, 3, "abcd"), 5),
]

CATALOGUE = Catalogue()


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rows_of(
    task: Task, seed: int, rows: int, length: int, held_out: bool = False
) -> list[tuple[str, list[int]]]:
    """Characters and answer positions of each row."""
    text = task.text(rng(seed), rows, length, held_out)
    assert text.tokens.shape == text.answer_position.shape == (rows, length)
    rows = zip(text.tokens, text.answer_position, strict=True)
    return [(task.decode(row), position.tolist()) for row, position in rows]


def text_of(problem: Problem) -> str:
    return problem.prompt + problem.completion


def check_packed(task: PackedTask, row: str, positions: list[int]) -> list[Any]:
    """Assert that each problem parses and positions cover only answers, even if cut off; return the
    split keys.
    """
    parsed = [parse(task, problem) for problem in problems_of(task, row)]
    expected = [position for each in parsed for position in each.positions]
    assert expected
    assert positions[: len(expected)] == expected
    if task.stop:
        assert row[len(expected) : len(expected) + 1] in ("?", "")
        cut = [position for position in positions[len(expected) :] if position]
        assert positions[len(positions) - len(cut) :] == cut == list(range(1, len(cut) + 1))
    return [each.key for each in parsed]


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("task", "n", "most"),
    [
        *(pytest.param(*case, 20_000, marks=pytest.mark.slow) for case in LARGE),
        *((*case, 1_000) for case in SMALL),
    ],
)
def test_packed_text_and_problems_are_right_to_the_letter(task, n, most):
    length, sides = 3 * task.max_length, []
    for held_out in (False, True):
        sides.append(
            [
                check_packed(task, *row)
                for row in rows_of(task, 0, fuzz(600_000) // length, length, held_out)
            ]
        )
    trained, held_out = ({key for keys in side for key in keys} for side in sides)
    assert not trained & held_out
    for made, count in ((task, fuzz(most)), (task.of_length(n), 5)):
        for problem in made.problems(rng(1), count):
            parsed = parse(made, text_of(problem))
            assert len(problem.prompt) == len(text_of(problem)) - parsed.positions[-1]
            assert problem.attributes.items() >= parsed.attributes.items()
            assert made is task or parsed.sizes == {n} or isinstance(task, AssociativeRecall)


@pytest.mark.fuzz
@examples
@given(
    seed=seeds,
    copy=st.integers(2, 20),
    gap=st.integers(1, 5),
    extra=st.integers(0, 10),
    held_out=st.booleans(),
)
def test_prefix_text_is_right_to_the_letter(seed, copy, gap, extra, held_out):
    task = SubstringByPrefix(
        copy_length=copy, gap_min=gap, gap_max=gap + extra, first_length=20, context=400
    )
    for row, positions in rows_of(task, seed, 4, 60 + seed % 340, held_out):
        assert positions == parse_prefix(row, task)


@pytest.mark.fuzz
@examples
@given(seed=seeds, n=st.integers(60, 700))
def test_prefix_of_a_given_length(seed, n):
    """The length is at most n, short by less than one copy with the longest gap."""
    task = SubstringByPrefix()
    for problem in task.of_length(n).problems(rng(seed), 3):
        parse_prefix(text_of(problem), task)
        assert n - (task.gap_max + 1 + task.copy_length) < problem.length <= n


def test_a_prefix_problem_asks_only_for_what_can_be_known():
    task = SubstringByPrefix()
    for problem in task.problems(rng(), 200):
        text = text_of(problem)
        assert parse_prefix(text, task)[-1] == task.copy_length - 1
        before, _, known = problem.prompt.rpartition(">")
        letters = before.replace(">", "")
        (at,) = (i for i in range(len(letters)) if letters.startswith(known, i))
        sources = [
            letters[i : i + task.copy_length] for i in range(len(letters) - task.copy_length + 1)
        ]
        assert sum(source.startswith(known) for source in sources) == 1
        # One letter fewer is ambiguous.
        assert sum(source.startswith(known[:-1]) for source in sources) > 1
        assert letters[at:].startswith(known + problem.completion)
        # From the first unknown letter back to its source.
        distance = problem.attributes.pop("distance")
        assert text[len(problem.prompt) - distance] == problem.completion[0]
        assert problem.attributes == {"known": len(known), "copy": before.count(">")}


def test_the_write_ups_own_examples_are_parsed_and_written():
    """Checks the parsers themselves, and that `write` gives the write-up's text, including a final
    carry.
    """
    task = ArithmeticAddition(8)
    for a, b, steps in (
        (
            66623,
            401,
            "3e0+1e0+0e0==4e0 2e1+0e1+0e1==2e1 6e2+4e2+0e2==10e2 6e3+0e3+1e3==7e3 6e4+0e4+0e4==6e4",
        ),
        (99, 1, "9e0+1e0+0e0==10e0 9e1+0e1+1e1==10e1 0e2+0e2+1e2==1e2"),
    ):
        problem = f"?d={a}+{b}; {steps.replace(' ', ' and ')} and d=={a + b}#"
        parse(task, problem)
        drawn = np.array([[int(c) for c in str(n)[::-1].ljust(8, "0")] for n in (a, b)]).reshape(
            1, -1
        )
        assert (
            "".join(bytes(part[0][part[0] != 0]).decode() for part in task.write(drawn)) == problem
        )
    for problem in (
        "?s='dyjeofuxvejmg'; s[8:]=='vejmg'#",
        "?s='syoktpufifxes'; s[0:]=='syoktpufifxes'#",
    ):
        parse(SubstringByIndex(), problem)
    with pytest.raises(AssertionError):
        parse(task, "?d=95+5; 5e0+5e0+0e0==10e0 and 9e1+0e1+1e1==10e1 and d==100#")


def check_uniform(values: np.ndarray, expected: range | list[int]) -> None:
    counts, mean = Counter(values.tolist()), len(values) / len(expected)
    assert set(counts) == set(expected)
    assert all(abs(n - mean) < 5 * mean**0.5 for n in counts.values())


def test_what_is_drawn_is_uniform():
    addition = ArithmeticAddition(8)
    drawn = addition.draw(rng(), 40_000)
    digits = addition.attributes(drawn)["digits_a"]
    check_uniform(digits, range(1, 9))
    check_uniform(drawn[digits > 1, 0], range(10))
    check_uniform(drawn[digits == 1, 0], range(1, 10))  # no leading zero
    drawn = SubstringByIndex().draw(rng(), 26_000)
    for column, size in ((0, 26), (12, 26), (13, 13)):
        check_uniform(drawn[:, column], range(size))


@pytest.mark.parametrize("distinct", [False, True])
def test_drawn_shifts_lengths_and_letters_are_uniform(distinct):
    """All sources that keep the shift inside the string are equally likely."""
    task = IndirectIndexing(7, "abcdefg", shortest=5, max_distance=4, distinct=distinct)
    drawn = task.draw(rng(), 60_000)
    strings, index, shift = drawn[:, :-2], drawn[:, -2], drawn[:, -1]
    lengths, rows = (strings >= 0).sum(axis=1), np.arange(60_000)
    sources, answers = strings[rows, index], strings[rows, index + shift]
    assert (sources != answers).all()
    check_uniform(shift, [-4, -3, -2, -1, 1, 2, 3, 4])
    check_uniform(lengths, [5, 6, 7])
    check_uniform(index[(lengths == 6) & (shift == -2)], [2, 3, 4, 5])
    check_uniform(index[(lengths == 6) & (shift == 4)], [0, 1])
    check_uniform(sources, range(7))
    check_uniform(answers[sources == 2], [0, 1, 3, 4, 5, 6])


def test_recall_and_flip_flops_are_drawn_as_they_say():
    """Keys, values, the last queried pair and the places of repeated keys are uniform."""
    task = AssociativeRecall(24, 3, 16, fewest=2)
    drawn = task.draw(rng(), 40_000)
    check_uniform(drawn[:, 0], [2, 3])
    check_uniform(drawn[drawn[:, 0] == 3, 1], range(3))
    check_uniform(drawn[:, 3 + 2], range(8))
    check_uniform(drawn[:, 3 + 1], range(8, 16))
    places = np.nonzero(task.answers_within(drawn[drawn[:, 0] == 3]))[1]
    check_uniform(places, range(7, 23, 2))
    assert {problem.attributes["pairs"] for problem in task.problems(rng(), 200)} == {2, 3}
    instructions = FlipFlop(100, 70).draw(rng(), 1000)[:, 1:99]
    share = {letter: (instructions == ord(letter)).mean() for letter in "wir"}
    assert share == pytest.approx({"w": 0.15, "i": 0.7, "r": 0.15}, abs=0.01)


def begins_in_row(lengths: np.ndarray, row: int) -> np.ndarray:
    """The chance that a problem begins at each token of a row of problems of random `lengths`."""
    share = np.bincount(lengths, minlength=row + 1) / len(lengths)
    chance = np.zeros(row)
    chance[0] = 1.0
    for at in range(1, row):
        chance[at] = share[1 : at + 1] @ chance[:at][::-1]
    return chance


def problem_sizes(task: PackedTask, drawn: np.ndarray) -> np.ndarray:
    """The attribute that says how long each drawn problem is."""
    attributes = task.attributes(drawn)
    if isinstance(task, SubstringByIndex):
        return attributes["index"] + attributes["suffix_length"]
    return next(attributes[name] for name in SIZES if name in attributes)


SIZES = ("string_length", "word_length", "digits")


WHOLE = [  # a task whose docstring says how often, and a scale
    ("needle", "quick"),
    ("copy_string", "quick"),
    ("state_tracking", "quick"),
    ("indirect_indexing", "quick"),
    ("substring_by_index", "length"),
    ("arithmetic_addition", "quick"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), WHOLE)
def test_a_task_says_how_often_short_problems_are_whole(name, scale):
    """Its docstring has the ratio of shortest to longest, and so has its text."""
    cfg = load(f"task={name}", f"scale={scale}")
    task, row = config.build_task(cfg), cfg.train.seq_len + 1
    drawn = task.of_side(rng(), 150_000, held_out=False)
    lengths = task._packed(drawn)[2]
    whole = np.cumsum(begins_in_row(lengths, row + 1))[row - lengths]
    sizes = problem_sizes(task, drawn)
    ratio = whole[sizes == sizes.min()].mean() / whole[sizes == sizes.max()].mean()
    assert f"whole {ratio:.2f} times as often" in " ".join(type(task).__doc__.split())

    middle = np.median(lengths)
    found = Counter()
    for tokens in task.text(rng(1), 10_000, row).tokens:
        ends = np.flatnonzero(tokens == task.alphabet.index(task.stop))
        found.update(np.diff(ends, prepend=-1) <= middle)
    expected = whole[lengths <= middle].sum() / whole[lengths > middle].sum()
    assert found[True] / found[False] == pytest.approx(expected, rel=0.04)


def test_state_tracking_says_how_many_words_are_evaluated():
    trainer = build(resolve(load("task=state_tracking")))
    found = Counter(problem.attributes["word_length"] for problem in trainer.problems)
    *most, last = (found[length] for length in range(1, 7))
    said = f"{', '.join(map(str, most))} and {last} of 1 to 6 letters"
    assert said in " ".join(StateTracking.__doc__.split())


def guessed(task: Task, problem: Problem) -> list[str]:
    """The answers among which a model guesses that knows only a task's format."""
    if isinstance(task, StateTracking):
        return list(task.letters)
    if isinstance(task, FlipFlop):
        return ["0", "1"]
    if isinstance(task, AssociativeRecall):
        return list(problem.prompt[1 : 2 * problem.attributes["pairs"] : 2])
    string, _, asked = problem.prompt[1:].partition("; ")
    others = [letter for letter in string if letter != asked[0]]
    most = max(map(others.count, others))
    return [letter for letter in others if others.count(letter) == most]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, report in CATALOGUE.tasks.items() if "guesses" in report]
)
def test_the_guess_beside_a_result_is_a_guessers(name):
    for each in CATALOGUE.tasks[name]["guesses"]:
        given = [f"{key}={json.dumps(value)}" for key, value in each["of"].items()]
        if "task.distinct" in each["of"]:
            given.append(f"task.letters={ascii_letters}")
        settings = flat(recorded(load(f"task={name}", *given)))
        assert CATALOGUE.report(name, set(), settings).guess == each["share"]
        assert CATALOGUE.report(name, set(), {}).guess in (None, 0.5)  # settings not known

        larger = ["task.word_length=16"] if name == "state_tracking" else []
        larger.append("train.seq_len=2048")
        task, right = config.build_task(load(f"task={name}", *given, *larger)), []
        for problem in task.problems(rng(), 4000):
            answers = guessed(task, problem)
            right.append(answers.count(problem.completion[0]) / len(answers))
        assert np.mean(right) == pytest.approx(each["share"], abs=0.012)


@pytest.mark.slow
def test_recall_says_how_often_values_repeat():
    task = config.build_task(load("task=mqar"))
    values = task.draw(rng(), 20_000)[:, 4 : 4 + 2 * task.pairs : 2]
    repeat = np.mean([len(set(row)) < task.pairs for row in values.tolist()])
    exact = 1 - np.prod(1 - np.arange(task.pairs) / (task.vocabulary // 2))
    assert repeat == pytest.approx(exact, abs=0.004)
    assert f"({100 * exact:.1f}% of problems with 4 pairs and 512 characters)" in " ".join(
        mqar.__doc__.split()
    )


def test_prefix_copies_come_from_uniform_offsets():
    """The first copy's source is uniform over all offsets, including the last."""
    task = SubstringByPrefix(
        letters=ascii_lowercase, first_length=20, gap_min=1, gap_max=1, context=100
    )
    parts = [row.split(">") for row, _ in rows_of(task, 0, 6000, 40)]
    check_uniform(np.array([first.index(copied[:16]) for first, copied, *_ in parts]), range(6))


def keys_of(task: Task, row: str) -> list[Any]:
    """Split keys of a row's problems (for Prefix: of the row), parsed from its text."""
    if isinstance(task, SubstringByPrefix):
        return [row[: task.first_length]]
    return [parse(task, problem).key for problem in problems_of(task, row)]


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("name", "scale"),
    [
        pytest.param(*recipe, marks=[] if recipe[1] == "quick" else pytest.mark.slow)
        for recipe in GENERATED
    ],
)
def test_no_evaluation_problem_is_in_training(name, scale):
    cfg = load(f"task={name}", f"scale={scale}")
    task, tokens = config.build_task(cfg), cfg.train.seq_len
    rows = [
        task.decode(row) for row in data.evaluation_text(task, 64, tokens).batch.inputs_BT.numpy()
    ]
    held_out = {key for row in rows for key in keys_of(task, row)}
    assert len(held_out) >= 30
    held_out |= {
        key for p in data.evaluation_problems(task, 512) for key in keys_of(task, text_of(p))
    }
    left, k = fuzz(50_000 if tokens < 200 else 5_000), 0
    while left > 0:
        text = task.text(data.generator(0, data.TRAINING_TEXT, k), 64, tokens + 1)
        keys = [key for row in text.tokens for key in keys_of(task, task.decode(row))]
        assert not held_out & set(keys)
        left, k = left - len(keys), k + 1


@pytest.mark.parametrize(
    ("task", "n"),
    [
        (ArithmeticAddition(3), 2),
        (SubstringByIndex(8, "abc"), 8),
        (SubstringByIndex(8, "abc", shortest=4), 5),
        (IndirectIndexing(8, "abc", shortest=6, max_distance=3), 6),
    ],
)
def test_a_string_has_every_index_or_shift_in_training(task, n):
    """Also for problems of one requested length."""
    trained = {key for row, _ in rows_of(task, 0, 3000, 120) for key in keys_of(task, row)}
    held_out = [
        key
        for problem in task.of_length(n).problems(rng(1), 30)
        for key in keys_of(task, text_of(problem))
    ]
    assert not trained & set(held_out)
    assert isinstance(task, ArithmeticAddition) or len(set(held_out)) < len(held_out)


def test_the_split_is_what_it_was():
    """A failure means that recorded runs used another split: do not change the hash."""
    columns = (np.arange(400) * 7919 % 1009).reshape(100, 4)
    assert np.flatnonzero(is_held_out(columns)).tolist() == [8, 34, 62, 64, 70]
    share = is_held_out(rng().integers(26, size=(100_000, 13))).mean()
    assert abs(share - 1 / 16) < 0.003


def test_the_floor_is_what_a_brute_force_predictor_reaches():
    """A Bayes-optimal predictor on strings, for the same rows; the last copy may be cut off."""
    task = SubstringByPrefix(
        letters="abc", copy_length=6, first_length=6, gap_min=1, gap_max=3, context=60
    )
    text = task.text(rng(3), 30, 80)
    rows = zip(text.tokens, text.answer_position, task.floor(text.tokens), strict=True)
    for tokens, positions, floor in rows:
        expected, letters = [], ""
        for i, part in enumerate(task.decode(tokens).split(">")):
            sources = [letters[o : o + 6] for o in range(len(letters) - 5)]
            # The arrow before a copy is its position 0.
            for j in range(len(part) + 1 if i else len(part)):
                nats = 0.0
                if i and 2 <= j <= 6:
                    matching = [s for s in sources if s.startswith(part[: j - 1])]
                    right = [s for s in matching if s.startswith(part[:j])]
                    nats = -np.log(len(right) / len(matching))
                expected.append(nats)
            letters += part
        np.testing.assert_allclose(floor, expected, atol=1e-12)
        assert (floor[positions == 0] == 0).all()
    assert task.floor(text.tokens).max() > 0.5


@pytest.mark.slow
def test_the_floor_of_the_write_ups_task_is_known():
    task = SubstringByPrefix()
    text = task.text(rng(), 600, 513)
    nats = task.floor(text.tokens)
    assert abs(nats[text.answer_position > 0].mean() - 0.247) < 0.006
    by_position = [nats[text.answer_position == position].mean() for position in range(1, 6)]
    np.testing.assert_allclose(by_position, [1.20, 0.86, 0.48, 0.22, 0.14], atol=0.035)


@pytest.mark.parametrize(
    ("written", "accuracy", "total"),
    [
        ("5e0+7e0+0e0==12e0 and 1e1+0e1+1e1==2e1 and d==22#", True, True),
        ("5e0+7e0+0e0==12e0 and 1e1+0e1+1e1==2e1 and d==22#?d=3", True, True),
        (
            "5e0+7e0+0e0==11e0 and 1e1+0e1+1e1==2e1 and d==22#",
            False,
            True,
        ),  # a wrong step, a right sum
        ("5e0+7e0+0e0==12e0 and 1e1+0e1+1e1==2e1 and d==23#", False, False),
        ("d==22#", False, True),
        ("d==022#", False, False),
        ("", False, False),
    ],
)
def test_grading_addition_tells_the_sum_from_the_derivation(written, accuracy, total):
    task = ArithmeticAddition(2)
    prompt, completion = "?d=15+7; ", "5e0+7e0+0e0==12e0 and 1e1+0e1+1e1==2e1 and d==22#"
    problem = Problem(task.encode(prompt + completion), len(prompt), {}, task.decode)
    assert (problem.prompt, problem.completion) == (prompt, completion)
    assert task.grade(problem, written) == {"accuracy": accuracy, "sum_accuracy": total}


@pytest.mark.parametrize(
    "make", [SubstringByPrefix, *dict.fromkeys(type(task) for task, _ in LARGE)]
)
def test_characters_are_encoded_and_lengths_keep_the_settings(make):
    task = make(loss_on="all")
    assert task.of_length(60).loss_on == "all"
    assert task.decode(task.encode(task.alphabet)) == task.alphabet
    with pytest.raises(ValueError, match=r"'~é'"):
        task.encode("~é")


TOO_FEW = "more than the task has|too small|too few"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: ArithmeticAddition(4, shortest=5),
            "shortest=5: must be a whole number from 1 to 4",
        ),
        (lambda: SubstringByIndex(letters="ab'"), "letters=ab'"),
        (lambda: IndirectIndexing(27, distinct=True), "string_length=27: .*from 2 to 26"),
        (
            lambda: IndirectIndexing(max_distance=10),
            "max_distance=10: must be a whole number from 1 to 9",
        ),
        (lambda: AssociativeRecall(tokens=63), "vocabulary=8192, tokens=63: must be even numbers"),
        (lambda: FlipFlop(dense=100), "dense=100: must be a whole number from 0 to 99"),
        (lambda: StateTracking(group="S7"), "group=S7: must be one of S2, S3, A5"),
        (lambda: SubstringByPrefix(gap_min=5, gap_max=4), "gap_max=4"),
        (lambda: ArithmeticAddition(1).problems(rng(), 50), TOO_FEW),
        (lambda: SubstringByIndex(2, "ab").problems(rng(), 50), TOO_FEW),
        (
            lambda: SubstringByPrefix("ab", 3, 2, gap_min=1, gap_max=1, context=8).problems(
                rng(), 10_000
            ),
            TOO_FEW,
        ),
    ],
)
def test_impossible_settings_and_more_problems_than_there_are_are_errors(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


def test_a_model_of_few_problems_completes_a_prompt():
    few = [
        "task.tokens=4",
        "task.pairs=1",
        "task.vocabulary=16",
        "eval.problems=6",
        "train.seq_len=8",
    ]
    cfg = resolve(load("task=mqar", "scale=quick", "position=rope", "device=cpu", *few))
    trainer = build(cfg)
    assert sample.complete(cfg, trainer.task, trainer.model, trainer.problems[0].prompt, likeliest)


@pytest.mark.parametrize("name", sorted({*TASKS} - TEXTS))
def test_a_task_shows_itself(name, capsys):
    sample.main([f"task={name}"])
    shown = capsys.readouterr().out
    assert ("«" in shown, " → " in shown) == (True, True)


def test_a_task_shows_itself_with_several_settings(capsys):
    sample.main(["task=mqar", "scale=quick", "task.pairs=3", "-n", "6"])
    assert capsys.readouterr().out.count("'pairs': 3") == 6
    with pytest.raises(SystemExit):
        sample.main(["task=mqar", "--seed", "3"])
    assert "are of the completion of a PROMPT" in capsys.readouterr().err


def test_padding_is_not_shown_as_text(capsys):
    sample.main(["task=addition"])
    assert capsys.readouterr().out.count("#»\n") == 4
