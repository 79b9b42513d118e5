"""The generators, held against parsers that are written from the formats and share no code with them."""

import re
from collections import Counter
from string import ascii_letters, ascii_lowercase
from typing import Any

import numpy as np
import pytest
from conftest import GENERATED, TASKS, random_examples
from hypothesis import given
from hypothesis import strategies as st
from trained import load

from rope_lab import sample
from rope_lab.train import config, data
from tasks.arithmetic_addition import ArithmeticAddition
from tasks.base import PackedTask, Problem, Task
from tasks.indirect_indexing import IndirectIndexing
from tasks.split import is_held_out
from tasks.substring_by_index import SubstringByIndex
from tasks.substring_by_prefix import SubstringByPrefix

examples = random_examples(300)
seeds = st.integers(0, 2**32 - 1)
MAKES = [ArithmeticAddition, SubstringByIndex, IndirectIndexing, SubstringByPrefix]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rows_of(task: Task, seed: int, rows: int, length: int, held_out: bool = False) -> list[tuple[str, list[int]]]:
    """Each row's characters and answer positions."""
    text = task.text(rng(seed), rows, length, held_out)
    assert text.tokens.shape == text.answer_position.shape == (rows, length)
    return [(task.decode(row), position.tolist()) for row, position in zip(*text, strict=True)]


def text_of(problem: Problem) -> str:
    return problem.prompt + problem.completion


# Parsers, written from the formats. Each takes a whole problem and the bounds of its sizes, and returns the key of its
# split, where its answer begins, its attributes, and its sizes.


def parse_addition(problem: str, digits: range) -> tuple[Any, int, dict[str, int], set[int]]:
    match = re.fullmatch(r"\?d=([1-9]\d*)\+([1-9]\d*); (.+) and d==(\d+)#", problem)
    assert match, problem
    a, b = match[1], match[2]
    assert {len(a), len(b)} <= set(digits)
    assert match[4] == str(int(a) + int(b))
    carry, place, carries = 0, 0, 0
    for step in match[3].split(" and "):
        terms = re.fullmatch(r"(\d)e(\d+)\+(\d)e(\d+)\+([01])e(\d+)==(\d+)e(\d+)", step)
        assert terms, step
        assert {terms[2], terms[4], terms[6], terms[8]} == {str(place)}
        x, y = (int(n[::-1][place]) if place < len(n) else 0 for n in (a, b))
        assert (int(terms[1]), int(terms[3]), int(terms[5])) == (x, y, carry)
        assert terms[7] == str(x + y + carry)
        assert place < len(a) or place < len(b) or carry, "a step although nothing is left"
        carry, place = (x + y + carry) // 10, place + 1
        carries += carry
    assert place >= max(len(a), len(b)), "a place is missing"
    assert carry == 0, "the last carry has no step"
    attributes = {"digits_a": len(a), "digits_b": len(b), "digits": max(len(a), len(b)), "carries": carries}
    return frozenset((a, b)), problem.index("; ") + 2, attributes, {len(a), len(b)}


def parse_index(problem: str, lengths: range, letters: str) -> tuple[Any, int, dict[str, int], set[int]]:
    match = re.fullmatch(r"\?s='([^']*)'; s\[(\d+):\]=='([^']*)'#", problem)
    assert match, problem
    string, index, suffix = match[1], int(match[2]), match[3]
    assert len(string) in lengths
    assert set(string) <= set(letters)
    assert match[2] == str(index)
    assert 0 <= index < len(string)
    assert suffix == string[index:]
    return string, match.start(3), {"index": index, "suffix_length": len(suffix)}, {len(string)}


def parse_indirect(
    problem: str, lengths: range, letters: str, furthest: int, distinct: bool
) -> tuple[Any, int, dict[str, int], set[int]]:
    match = re.fullmatch(r"\?([^;]*); (.)([-+])(\d+)=(.)#", problem)
    assert match, problem
    string, source, sign, distance, answer = match.groups()
    assert len(string) in lengths
    assert set(string) <= set(letters)
    assert string.count(source) == 1
    assert not distinct or len(set(string)) == len(string)
    assert distance == str(int(distance))
    assert 1 <= int(distance) <= furthest
    shift = int(sign + distance)
    assert 0 <= string.index(source) + shift < len(string)
    assert answer == string[string.index(source) + shift]
    return string, match.start(5), {"shift": shift, "string_length": len(string)}, {len(string)}


def parse_prefix(row: str, task: SubstringByPrefix) -> list[int]:
    """Positions 1, 2, … of the copied letters after each copy's first, 0 elsewhere; the row's end may cut a part."""
    parts = row.split(">")
    positions, letters = [0] * len(parts[0]), parts[0]
    gaps = [len(parts[0]) - task.first_length]
    for part in parts[1:]:
        positions.append(0)
        copied = part[: task.copy_length]
        assert copied in letters
        positions += [*range(len(copied)), *[0] * (len(part) - len(copied))]
        letters += part
        gaps.append(len(part) - task.copy_length)
    assert set(letters) <= set(task.letters)
    assert all(task.gap_min <= gap <= task.gap_max for gap in gaps[:-1])
    assert gaps[-1] <= task.gap_max
    return positions


def parse(task: PackedTask, problem: str, n: int | None = None) -> tuple[Any, int, dict[str, int], set[int]]:
    """Of a packed task, or of its problems of length `n`."""
    shortest, longest = task.lengths if n is None else (n, n)
    lengths = range(shortest, longest + 1)
    if isinstance(task, ArithmeticAddition):
        return parse_addition(problem, lengths)
    if isinstance(task, SubstringByIndex):
        return parse_index(problem, lengths, task.letters)
    return parse_indirect(problem, lengths, task.letters, task.max_distance, task.distinct)


def problems_of(row: str) -> list[str]:
    """The whole problems of a packed row, without the one that its end cuts."""
    return [part + "#" for part in row.split("#")[:-1]]


def check_packed(task: PackedTask, row: str, positions: list[int]) -> set[int]:
    """Every problem of a row parses, and positions cover answers alone, also of a problem cut off; the sizes."""
    expected, sizes = [], set()
    for problem in problems_of(row):
        _, answer, _, found = parse(task, problem)
        expected += [0] * answer + list(range(1, len(problem) - answer + 1))
        sizes |= found
    assert expected
    assert positions[: len(expected)] == expected
    assert row[len(expected) : len(expected) + 1] in ("?", "")
    cut = [position for position in positions[len(expected) :] if position]
    assert positions[len(positions) - len(cut) :] == cut == list(range(1, len(cut) + 1))
    return sizes


@st.composite
def packed_tasks(draw) -> PackedTask:
    """Tasks of all sizes."""
    kind, longest = draw(st.sampled_from(MAKES[:3])), draw(st.integers(6, 40))
    shortest = draw(st.integers(5, longest))
    if kind is ArithmeticAddition:
        return kind(longest % 13 + 1, shortest=draw(st.integers(1, longest % 13 + 1)))
    letters = draw(st.sampled_from(["abcd", ascii_lowercase, "SxY_z"]))
    if kind is SubstringByIndex:
        return kind(longest, letters, shortest=shortest)
    distinct, furthest = draw(st.booleans()), draw(st.integers(1, shortest - 1))
    return kind(longest, ascii_letters if distinct else letters, "answer", shortest, furthest, distinct)


@examples
@given(task=packed_tasks(), seed=seeds, held_out=st.booleans(), n=st.integers(41, 52))
def test_packed_text_and_problems_are_right_to_the_letter(task, seed, held_out, n):
    sizes = set()
    for row, positions in rows_of(task, seed, 6, 3 * task.max_length, held_out):
        sizes |= check_packed(task, row, positions)
    assert len(sizes) > 1 or task.lengths[1] - task.lengths[0] < 4
    for made, length in ((task, None), (task.of_length(n), n)):
        for problem in made.problems(rng(seed), 5):
            _, answer, attributes, sizes = parse(task, text_of(problem), length)
            assert len(problem.prompt) == answer
            assert problem.attributes == attributes
            assert length is None or sizes == {n}


@examples
@given(seed=seeds, copy=st.integers(2, 20), gap=st.integers(1, 5), extra=st.integers(0, 10), held_out=st.booleans())
def test_prefix_text_is_right_to_the_letter(seed, copy, gap, extra, held_out):
    task = SubstringByPrefix(copy_length=copy, gap_min=gap, gap_max=gap + extra, first_length=20, context=400)
    for row, positions in rows_of(task, seed, 4, 60 + seed % 340, held_out):
        assert positions == parse_prefix(row, task)


@examples
@given(seed=seeds, n=st.integers(60, 700))
def test_prefix_of_a_given_length(seed, n):
    """Its last copy that fits: no other one would, whatever the gap before it."""
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
        sources = [letters[i : i + task.copy_length] for i in range(len(letters) - task.copy_length + 1)]
        assert sum(source.startswith(known) for source in sources) == 1
        assert sum(source.startswith(known[:-1]) for source in sources) > 1  # one letter fewer would not do
        assert letters[at:].startswith(known + problem.completion)
        distance = problem.attributes.pop("distance")  # from the first unknown letter back to its source
        assert text[len(problem.prompt) - distance] == problem.completion[0]
        assert problem.attributes == {"known": len(known), "copy": before.count(">")}


def test_the_write_ups_own_examples_are_parsed_and_written():
    """Guards the parsers themselves; and drawn numbers in, the write-up's text out, a final carry among them."""
    task = ArithmeticAddition(8)
    for a, b, steps in (
        (
            66623,
            401,
            "3e0+1e0+0e0==4e0 and 2e1+0e1+0e1==2e1 and 6e2+4e2+0e2==10e2 and 6e3+0e3+1e3==7e3 and 6e4+0e4+0e4==6e4",
        ),
        (99, 1, "9e0+1e0+0e0==10e0 and 9e1+0e1+1e1==10e1 and 0e2+0e2+1e2==1e2"),
    ):
        problem = f"?d={a}+{b}; {steps} and d=={a + b}#"
        parse(task, problem)
        drawn = np.array([[int(c) for c in str(n)[::-1].ljust(8, "0")] for n in (a, b)]).reshape(1, -1)
        assert "".join(bytes(part[0][part[0] != 0]).decode() for part in task.write(drawn)) == problem
    for problem in ("?s='dyjeofuxvejmg'; s[8:]=='vejmg'#", "?s='syoktpufifxes'; s[0:]=='syoktpufifxes'#"):
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
    """And every source from which a shift stays within the string is as likely as another."""
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


def test_prefix_copies_come_from_uniform_offsets():
    """The first copy's source is uniform over every offset there is, the last of them included."""
    task = SubstringByPrefix(letters=ascii_lowercase, first_length=20, gap_min=1, gap_max=1, context=100)
    parts = [row.split(">") for row, _ in rows_of(task, 0, 6000, 40)]
    check_uniform(np.array([first.index(copied[:16]) for first, copied, *_ in parts]), range(6))


def keys_of(task: Task, row: str) -> list[Any]:
    """What decides on which side of the split the problems of a row are (for Prefix: the row), parsed from its text."""
    if isinstance(task, SubstringByPrefix):
        return [row[: task.first_length]]
    return [parse(task, problem)[0] for problem in problems_of(row)]


def training_keys(task: Task, length: int, n: int) -> list[Any]:
    """The keys of at least `n` training problems."""
    keys, k = [], 0
    while len(keys) < n:
        text = task.text(data.generator(0, data.TRAINING_TEXT, k), 256, length)
        keys += [key for row in text.tokens for key in keys_of(task, task.decode(row))]
        k += 1
    return keys


def check_split(name: str, scale: str, problems: int, n: int) -> None:
    cfg = load(f"task={name}", f"scale={scale}")
    task = config.build_task(cfg)
    rows = [task.decode(row) for row in data.evaluation_text(task, 64, cfg.train.seq_len).inputs_BT.numpy()]
    held_out = {key for row in rows for key in keys_of(task, row)}
    assert len(held_out) >= 30
    held_out |= {key for p in data.evaluation_problems(task, problems) for key in keys_of(task, text_of(p))}
    assert not held_out & set(training_keys(task, cfg.train.seq_len + 1, n))


@pytest.mark.parametrize(("name", "scale"), GENERATED)
def test_no_evaluation_problem_is_in_training(name, scale):
    check_split(name, scale, 512, 5_000 if scale == "quick" else 500)


@pytest.mark.torture
@pytest.mark.parametrize(("name", "scale"), GENERATED)
def test_no_evaluation_problem_is_in_a_hundred_thousand_of_training(name, scale):
    check_split(name, scale, 2048, 100_000)


def test_the_split_holds_where_there_are_few_problems():
    """One-digit sums: training and held-out text share no pair, in either order, and both sides are well fed."""
    task = ArithmeticAddition(1)
    trained, held_out = (
        {key for row, _ in rows_of(task, 0, 200, 300, side) for key in keys_of(task, row)} for side in (False, True)
    )
    assert not held_out & trained
    assert held_out
    assert len(held_out | trained) == 45  # every unordered pair of 1 … 9 is on one side


@pytest.mark.parametrize(
    ("task", "n"),
    [
        (ArithmeticAddition(3), 2),
        (SubstringByIndex(8, "abc"), 8),
        (SubstringByIndex(8, "abc", shortest=4), 5),
        (IndirectIndexing(8, "abc", shortest=6, max_distance=3), 6),
    ],
)
def test_a_string_is_trained_on_with_every_index_or_shift_or_with_none(task, n):
    """Also where problems of one length are asked for."""
    trained = {key for row, _ in rows_of(task, 0, 3000, 120) for key in keys_of(task, row)}
    held_out = [parse(task, text_of(problem))[0] for problem in task.of_length(n).problems(rng(1), 30)]
    assert not trained & set(held_out)
    assert isinstance(task, ArithmeticAddition) or len(set(held_out)) < len(held_out)


def test_the_split_is_what_it_was():
    """If this fails, every recorded run was split otherwise than today's code splits: do not change the hash."""
    columns = (np.arange(400) * 7919 % 1009).reshape(100, 4)
    assert np.flatnonzero(is_held_out(columns)).tolist() == [8, 34, 62, 64, 70]
    share = is_held_out(rng().integers(26, size=(100_000, 13))).mean()
    assert abs(share - 1 / 16) < 0.003


def test_where_the_first_problems_are_too_few_more_follow():
    """As if problems came out shorter than they are in the mean."""
    task = SubstringByIndex()
    task._mean_length *= 8
    rows = rows_of(task, 0, 40, 200)
    for row, positions in rows:
        check_packed(task, row, positions)
    assert len({row for row, _ in rows}) == 40


def test_the_floor_is_what_a_brute_force_predictor_reaches():
    """An ideal predictor written with strings, on the same rows; the last copy may be cut."""
    task = SubstringByPrefix(letters="abc", copy_length=6, first_length=6, gap_min=1, gap_max=3, context=60)
    text = task.text(rng(3), 30, 80)
    for tokens, positions, floor in zip(*text, task.floor(text.tokens), strict=True):
        expected, letters = [], ""
        for i, part in enumerate(task.decode(tokens).split(">")):
            sources = [letters[o : o + 6] for o in range(len(letters) - 5)]
            for j in range(len(part) + 1 if i else len(part)):  # the arrow before a copy counts as its position 0
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


def test_the_floor_of_the_write_ups_task_is_about_a_quarter_nat():
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
        ("5e0+7e0+0e0==11e0 and 1e1+0e1+1e1==2e1 and d==22#", False, True),  # a wrong step, a right sum
        ("5e0+7e0+0e0==12e0 and 1e1+0e1+1e1==2e1 and d==23#", False, False),
        ("5e0+7e0+0e0==12e0 and 1e1+0e1+1e1==2e1 and d==22", False, False),  # never ended
        ("d==22#", False, True),
        ("d==022#", False, False),
        ("22#", False, False),
        ("", False, False),
    ],
)
def test_grading_addition_tells_the_sum_from_the_derivation(written, accuracy, total):
    task = ArithmeticAddition(2)
    prompt, completion = "?d=15+7; ", "5e0+7e0+0e0==12e0 and 1e1+0e1+1e1==2e1 and d==22#"
    problem = Problem(task.encode(prompt + completion), len(prompt), {}, task.decode)
    assert (problem.prompt, problem.completion) == (prompt, completion)
    assert task.grade(problem, written) == {"accuracy": accuracy, "sum_accuracy": total}


@pytest.mark.parametrize("make", MAKES)
def test_every_character_is_encoded_and_decoded_and_lengths_keep_the_settings(make):
    task = make(loss_on="all")
    assert task.of_length(60).loss_on == "all"
    assert task.decode(task.encode(task.alphabet)) == task.alphabet
    with pytest.raises(ValueError, match=r"'~é'"):
        task.encode("~é")


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (ArithmeticAddition, {"digits": 0}, "digits=0"),
        (ArithmeticAddition, {"loss_on": "some"}, "loss_on=some"),
        (ArithmeticAddition, {"digits": 4, "shortest": 5}, "shortest=5: must be a whole number from 1 to 4"),
        (SubstringByIndex, {"shortest": 0}, "shortest=0: must be a whole number from 1 to 13"),
        (SubstringByIndex, {"string_length": True}, "string_length=True"),
        (SubstringByIndex, {"letters": "ab'"}, "letters=ab'"),
        (IndirectIndexing, {"string_length": 27, "distinct": True}, "string_length=27: .*from 2 to 26"),
        (IndirectIndexing, {"letters": "ab"}, "letters=ab: must be at least 3"),
        (IndirectIndexing, {"max_distance": 10}, "max_distance=10: must be a whole number from 1 to 9"),
        (SubstringByPrefix, {"gap_min": 5, "gap_max": 4}, "gap_max=4"),
        (SubstringByPrefix, {"copy_length": 40}, "copy_length=40"),
        (SubstringByPrefix, {"context": 20}, "context=20"),
    ],
)
def test_tasks_check_their_arguments(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    ("task", "n"),
    [
        (ArithmeticAddition(1), 50),
        (SubstringByIndex(2, "ab"), 50),
        (SubstringByIndex(4, "abcdefghij"), 100_000),
        (IndirectIndexing(2, "abc", shortest=2, max_distance=1), 50),
        (SubstringByPrefix("ab", first_length=3, copy_length=2, gap_min=1, gap_max=1, context=8), 10_000),
    ],
)
def test_more_problems_than_there_are_is_an_error(task, n):
    with pytest.raises(ValueError, match=r"more than the task has|too small|too few"):
        task.problems(rng(), n)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_shows_itself(name, capsys):
    sample.main([f"task={name}"])
    shown = capsys.readouterr().out
    assert ("^^" in shown, " → " in shown) == (True, True)
