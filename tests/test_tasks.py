"""The generators, held against parsers that are written from the formats and share no code with them."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Container
from dataclasses import replace
from itertools import pairwise
from string import ascii_letters

import numpy as np
import pytest
from conftest import GENERATED, TASKS, random_examples
from hypothesis import given
from hypothesis import strategies as st
from trained import load

from rope_lab.check import problems as check_problems
from rope_lab.train import config, data
from tasks.arithmetic_addition import ArithmeticAddition
from tasks.base import PackedTask, Problem, Task, decimal, is_held_out, join
from tasks.indirect_indexing import IndirectIndexing
from tasks.substring_by_index import SubstringByIndex
from tasks.substring_by_prefix import SubstringByPrefix

examples = random_examples(300)
seeds = st.integers(0, 2**32 - 1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rows_of(task: Task, seed: int, rows: int, length: int, held_out: bool = False) -> list[tuple[str, str, np.ndarray]]:
    """Each row's characters, its mask as a string of ^ and spaces, and its answer positions."""
    text = task.text(rng(seed), rows, length, held_out)
    assert text.tokens.shape == text.counted.shape == text.answer_position.shape == (rows, length)
    marks = ["".join("^" if c else " " for c in row) for row in text.counted]
    return list(zip([task.decode(row) for row in text.tokens], marks, text.answer_position, strict=True))


# Parsers, written from the formats. Each takes one whole problem and returns the positions that make up its answer.


def parse_addition(problem: str, digits: int) -> tuple[tuple[int, int], slice]:
    match = re.fullmatch(r"\?d=([1-9]\d*)\+([1-9]\d*); (.+) and d==(\d+)#", problem)
    assert match, problem
    a, b = match[1], match[2]
    assert len(a) <= digits
    assert len(b) <= digits
    assert int(a) + int(b) == int(match[4])
    assert match[4] == str(int(match[4]))
    carry, place = 0, 0
    for step in match[3].split(" and "):
        terms = re.fullmatch(r"(\d)e(\d+)\+(\d)e(\d+)\+([01])e(\d+)==(\d+)e(\d+)", step)
        assert terms, step
        assert {terms[2], terms[4], terms[6], terms[8]} == {str(place)}
        x, y = (int(n[::-1][place]) if place < len(n) else 0 for n in (a, b))
        assert (int(terms[1]), int(terms[3]), int(terms[5])) == (x, y, carry)
        assert terms[7] == str(x + y + carry)
        assert place < len(a) or place < len(b) or carry, "a step although nothing is left"
        carry, place = (x + y + carry) // 10, place + 1
    assert place >= max(len(a), len(b)), "a place is missing"
    assert carry == 0, "the last carry has no step"
    return (int(a), int(b)), slice(problem.index("; ") + 2, len(problem))


def parse_index(problem: str, lengths: Container[int], letters: str) -> tuple[tuple[str, int], slice]:
    match = re.fullmatch(r"\?s='([^']*)'; s\[(\d+):\]=='([^']*)'#", problem)
    assert match, problem
    string, index, suffix = match[1], int(match[2]), match[3]
    assert len(string) in lengths
    assert set(string) <= set(letters)
    assert match[2] == str(index)
    assert 0 <= index < len(string)
    assert suffix == string[index:]
    return (string, index), slice(match.start(3), len(problem))


def parse_indirect(problem: str, lengths: Container[int], letters: str, furthest: int) -> tuple[tuple[str, int], slice]:
    match = re.fullmatch(r"\?([^;]*); (.)([-+])(\d+)=(.)#", problem)
    assert match, problem
    string, source, sign, distance, answer = match.groups()
    assert len(string) in lengths
    assert set(string) <= set(letters)
    assert string.count(source) == 1
    assert distance == str(int(distance))
    assert 1 <= int(distance) <= furthest
    shift = int(sign + distance)
    at = string.index(source) + shift
    assert 0 <= at < len(string)
    assert answer == string[at]
    return (string, shift), slice(match.start(5), len(problem))


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


def problems_of(row: str) -> list[str]:
    """The whole problems of a packed row; what the row's end cuts is left out."""
    return [part + "#" for part in row.split("#")[:-1]]


@examples
@given(seed=seeds, digits=st.integers(1, 12), held_out=st.booleans())
def test_addition_text_is_right_to_the_letter(seed, digits, held_out):
    task = ArithmeticAddition(digits)
    for row, marks, positions in rows_of(task, seed, 3, 3 * task.max_length, held_out):
        check_packed(row, marks, positions, lambda problem: parse_addition(problem, digits)[1])


def text_of(problem: Problem) -> str:
    return problem.prompt + problem.completion


@examples
@given(seed=seeds, digits=st.integers(1, 12), n=st.integers(2, 33))
def test_addition_of_a_given_length(seed, digits, n):
    for problem in ArithmeticAddition(digits).of_length(n).problems(rng(seed), 3):
        numbers, _ = parse_addition(text_of(problem), n)
        assert {len(str(number)) for number in numbers} == {n}


@examples
@given(seed=seeds, length=st.integers(1, 20), n=st.integers(2, 60))
def test_index_of_a_given_length(seed, length, n):
    for problem in SubstringByIndex(length).of_length(n).problems(rng(seed), 3):
        parse_index(text_of(problem), {n}, SubstringByIndex().letters)


@examples
@given(seed=seeds, n=st.integers(60, 700))
def test_prefix_of_a_given_length(seed, n):
    """Its last copy that fits: no other one would, whatever the gap before it."""
    task = SubstringByPrefix()
    for problem in task.of_length(n).problems(rng(seed), 3):
        text = text_of(problem)
        parse_prefix(text, task)
        assert n - (task.gap_max + 1 + task.copy_length) < len(text) <= n


@examples
@given(seed=seeds, data=st.data())
def test_indirect_text_is_right_to_the_letter(seed, data):
    shortest = data.draw(st.integers(6, 20))
    task = IndirectIndexing(
        string_length=shortest + data.draw(st.integers(0, 12)),
        letters=data.draw(st.sampled_from(["abcd", "abcdefghijklmnopqrstuvwxyz", "SxY_z'"])),
        shortest=shortest,
        max_distance=data.draw(st.integers(1, shortest - 1)),
    )
    parse = parser_of(task)
    for row, marks, positions in rows_of(task, seed, 3, 3 * task.max_length, data.draw(st.booleans())):
        check_packed(row, marks, positions, lambda problem: parse(problem)[1])


def parser_of(task: IndirectIndexing):
    """Parses a problem of that task's sizes."""
    lengths = range(task.lengths[0], task.lengths[1] + 1)
    return lambda problem: parse_indirect(problem, lengths, task.letters, task.max_distance)


@examples
@given(seed=seeds, n=st.integers(20, 52))
def test_indirect_strings_of_distinct_letters(seed, n):
    """The sizes of the paper."""
    task = IndirectIndexing(40, ascii_letters, shortest=20, max_distance=15, distinct=True)
    lengths = set()
    for row, marks, positions in rows_of(task, seed, 3, 300):
        check_packed(row, marks, positions, lambda problem: parser_of(task)(problem)[1])
        strings = [problem[1 : problem.index(";")] for problem in problems_of(row)]
        assert all(len(set(string)) == len(string) for string in strings)
        lengths |= set(map(len, strings))
    assert len(lengths) > 5
    for problem in task.of_length(n).problems(rng(seed), 3):
        (string, _), _ = parse_indirect(text_of(problem), {n}, ascii_letters, 15)
        assert len(set(string)) == n
    with pytest.raises(ValueError, match="string_length=53"):
        task.of_length(53)


@examples
@given(seed=seeds, furthest=st.integers(1, 9), n=st.integers(10, 60))
def test_indirect_indexing_of_a_given_length(seed, furthest, n):
    for problem in IndirectIndexing(max_distance=furthest).of_length(n).problems(rng(seed), 3):
        parse_indirect(text_of(problem), {n}, IndirectIndexing().letters, furthest)


def test_a_length_that_no_shift_of_max_distance_leaves_is_the_shortest_there_is():
    task = IndirectIndexing(max_distance=4)
    assert task.of_length(5).problems(rng(), 3)
    with pytest.raises(ValueError, match="string_length=4: must be a whole number from 5"):
        task.of_length(4)


@pytest.mark.parametrize(
    ("task", "n"),
    [
        (ArithmeticAddition(3), 2),
        (SubstringByIndex(8, "abc"), 8),
        (SubstringByIndex(8, "abc", shortest=4), 5),
        (IndirectIndexing(8, "abc", shortest=6, max_distance=3), 6),
    ],
)
def test_problems_of_a_length_stay_on_their_side_of_the_split(task, n):
    trained = "".join(task.decode(row) for row in task.text(rng(), 3000, 120).tokens)
    problems = task.of_length(n).problems(rng(1), 30)
    assert not [p for p in problems if p.prompt[: p.prompt.index("; ") + 2] in trained]


def test_an_indirect_string_is_trained_on_with_every_shift_or_with_none():
    task = IndirectIndexing(6, "abc", shortest=None, max_distance=3)
    trained = {string for row, *_ in rows_of(task, 0, 200, 300) for string in re.findall(r"\?(\w{6});", row)}
    held_out = [p.prompt[1:7] for p in task.problems(rng(1), 30)]
    assert len(trained) > 300
    assert not trained & set(held_out)
    assert len(set(held_out)) < len(held_out)  # some with more than one source or shift


def test_a_string_is_trained_on_with_every_index_or_with_none():
    task = SubstringByIndex(6, "abc")
    trained = {string for row, *_ in rows_of(task, 0, 200, 300) for string in re.findall(r"\?s='(\w{6})'", row)}
    held_out = [p.prompt.split("'")[1] for p in task.problems(rng(1), 30)]
    assert len(trained) > 500
    assert not trained & set(held_out)
    assert len(set(held_out)) < len(held_out)  # some with more than one index


@pytest.mark.parametrize("make", [ArithmeticAddition, SubstringByIndex, SubstringByPrefix, IndirectIndexing])
def test_a_task_of_a_given_length_counts_what_the_task_counts(make):
    for loss_on in ("all", "answer"):
        assert make(loss_on=loss_on).of_length(60).loss_on == loss_on


@examples
@given(seed=seeds, length=st.integers(2, 20), data=st.data())
def test_index_text_of_a_range_of_lengths(seed, length, data):
    shortest = data.draw(st.integers(1, length))
    task, lengths, seen = SubstringByIndex(length, shortest=shortest), range(shortest, length + 1), set()
    for row, marks, positions in rows_of(task, seed, 12, 3 * task.max_length):
        check_packed(row, marks, positions, lambda p: parse_index(p, lengths, task.letters)[1])
        seen |= {problem.index("'; s") - 4 for problem in problems_of(row)}
    assert len(seen) > 1 or shortest == length


def test_where_the_first_problems_are_too_few_more_follow():
    """As where problems come out shorter than they are in the mean."""
    task = SubstringByIndex()
    task._mean_length *= 8
    for row, marks, positions in rows_of(task, 0, 40, 200):
        check_packed(row, marks, positions, lambda p: parse_index(p, {13}, task.letters)[1])
    assert len({row for row, *_ in rows_of(task, 0, 40, 200)}) == 40


def test_addition_text_of_a_range_of_digits():
    task = ArithmeticAddition(4, shortest=3)
    numbers = [parse_addition(problem, 4)[0] for row, *_ in rows_of(task, 0, 50, 300) for problem in problems_of(row)]
    assert {len(str(n)) for pair in numbers for n in pair} == {3, 4}


@pytest.mark.parametrize("shortest", [0, 5, 1.5, True])
@pytest.mark.parametrize("make", [ArithmeticAddition, SubstringByIndex])
def test_a_range_without_lengths_is_a_clear_error(make, shortest):
    with pytest.raises(ValueError, match=f"shortest={shortest}: must be a whole number from 1 to 4"):
        make(4, shortest=shortest)


@examples
@given(seed=seeds, length=st.integers(2, 40), letters=st.sampled_from(["ab", "abcdefghijklmnopqrstuvwxyz", "SxY_z"]))
def test_index_text_is_right_to_the_letter(seed, length, letters):
    task = SubstringByIndex(length, letters)
    if len(letters) ** length < 1000:
        return
    for row, marks, positions in rows_of(task, seed, 3, 3 * task.max_length):
        check_packed(row, marks, positions, lambda problem: parse_index(problem, {length}, letters)[1])


def check_packed(row: str, marks: str, positions: np.ndarray, parse) -> None:
    """Every problem of a row parses, and mask and positions cover answers and nothing else, also in one cut off."""
    expected = []
    for problem in problems_of(row):
        answer = parse(problem)
        expected += [0] * answer.start + list(range(1, len(problem) - answer.start + 1))
    assert len(problems_of(row)) >= 1
    whole = len(expected)
    assert positions[:whole].tolist() == expected
    assert marks[:whole] == "".join("^" if e else " " for e in expected)
    assert row[whole : whole + 1] in ("?", "")
    cut = positions[whole:]
    first = np.flatnonzero(cut)[0] if cut.any() else len(cut)
    assert cut[first:].tolist() == list(range(1, len(cut) - first + 1))


@examples
@given(
    seed=seeds,
    copy=st.integers(2, 20),
    gap_min=st.integers(1, 5),
    extra=st.integers(0, 10),
    length=st.integers(60, 400),
    held_out=st.booleans(),
)
def test_prefix_text_is_right_to_the_letter(seed, copy, gap_min, extra, length, held_out):
    task = SubstringByPrefix(copy_length=copy, gap_min=gap_min, gap_max=gap_min + extra, first_length=20, context=400)
    for row, marks, positions in rows_of(task, seed, 4, length, held_out):
        expected = parse_prefix(row, task)
        assert positions.tolist() == expected
        assert marks == "".join("^" if p else " " for p in expected)


@pytest.mark.parametrize("make", [ArithmeticAddition, SubstringByIndex, SubstringByPrefix, IndirectIndexing])
def test_loss_on_all_counts_everything_and_changes_nothing_else(make):
    answer, everything = (make(loss_on=on).text(rng(5), 4, 300) for on in ("answer", "all"))
    assert everything.counted.all()
    assert not answer.counted.all()
    assert np.array_equal(answer.tokens, everything.tokens)
    assert np.array_equal(answer.answer_position, everything.answer_position)


def test_the_write_ups_own_examples_parse():
    """Guards the parsers themselves: problems as they are printed in the write-up."""
    for problem in (
        "?d=66623+401; 3e0+1e0+0e0==4e0 and 2e1+0e1+0e1==2e1 and 6e2+4e2+0e2==10e2 and 6e3+0e3+1e3==7e3 and "
        "6e4+0e4+0e4==6e4 and d==67024#",
        "?d=25481082+3301219; 2e0+9e0+0e0==11e0 and 8e1+1e1+1e1==10e1 and 0e2+2e2+1e2==3e2 and 1e3+1e3+0e3==2e3 and "
        "8e4+0e4+0e4==8e4 and 4e5+3e5+0e5==7e5 and 5e6+3e6+0e6==8e6 and 2e7+0e7+0e7==2e7 and d==28782301#",
    ):
        parse_addition(problem, 8)
    for problem in ("?s='dyjeofuxvejmg'; s[8:]=='vejmg'#", "?s='syoktpufifxes'; s[0:]=='syoktpufifxes'#"):
        parse_index(problem, {13}, "abcdefghijklmnopqrstuvwxyz")
    with pytest.raises(AssertionError):
        parse_addition("?d=95+5; 5e0+5e0+0e0==10e0 and 9e1+0e1+1e1==10e1 and d==100#", 8)


def test_the_generator_writes_the_write_ups_own_examples():
    """Drawn numbers in, the write-up's text out: the other direction, a final carry among them."""
    task = ArithmeticAddition(8)
    for a, b, ending in (
        (66623, 401, "6e4+0e4+0e4==6e4 and d==67024#"),
        (95000000, 5000000, "9e7+0e7+1e7==10e7 and 0e8+0e8+1e8==1e8 and d==100000000#"),
    ):
        drawn = np.array([[int(c) for c in str(n)[::-1].ljust(8, "0")] for n in (a, b)]).reshape(1, -1)
        prompt, completion = (bytes(part[0][part[0] != 0]).decode() for part in task.write(drawn))
        assert prompt == f"?d={a}+{b}; "
        assert completion.endswith(ending)


def test_drawn_numbers_have_uniformly_many_digits_and_no_leading_zero():
    drawn = ArithmeticAddition(8).draw(rng(), 40_000)
    counts = Counter(ArithmeticAddition(8).attributes(drawn)["digits_a"].tolist())
    assert set(counts) == set(range(1, 9))
    assert all(abs(n - 5000) < 300 for n in counts.values())
    units = Counter(drawn[:, 0].tolist())
    assert set(units) == set(range(10))  # and no digit of 10
    single = drawn[ArithmeticAddition(8).attributes(drawn)["digits_a"] == 1, 0]
    assert set(single.tolist()) == set(range(1, 10))


def test_drawn_indices_and_letters_are_uniform():
    drawn = SubstringByIndex().draw(rng(), 26_000)
    for column, size in ((0, 26), (12, 26), (13, 13)):
        counts = np.bincount(drawn[:, column], minlength=size)
        expected = 26_000 / size
        assert len(counts) == size
        assert abs(counts - expected).max() < 5 * expected**0.5


def test_drawn_shifts_lengths_and_letters_are_uniform():
    """And every source from which a shift stays within the string is as likely as another."""
    task = IndirectIndexing(7, "abcde", shortest=5, max_distance=4)
    drawn = task.draw(rng(), 60_000)
    strings, index, shift = drawn[:, :-2], drawn[:, -2], drawn[:, -1]
    lengths, rows = (strings >= 0).sum(axis=1), np.arange(60_000)
    sources, answers = strings[rows, index], strings[rows, index + shift]
    assert (sources != answers).all()

    def check_uniform(values: np.ndarray, expected: list[int]) -> None:
        counts, mean = Counter(values.tolist()), len(values) / len(expected)
        assert set(counts) == set(expected)
        assert all(abs(n - mean) < 5 * mean**0.5 for n in counts.values())

    check_uniform(shift, [-4, -3, -2, -1, 1, 2, 3, 4])
    check_uniform(lengths, [5, 6, 7])
    check_uniform(index[(lengths == 6) & (shift == -2)], [2, 3, 4, 5])
    check_uniform(index[(lengths == 6) & (shift == 4)], [0, 1])
    check_uniform(sources, [0, 1, 2, 3, 4])
    check_uniform(answers[sources == 2], [0, 1, 3, 4])


def test_prefix_copies_come_from_uniform_offsets():
    """The first copy's source is uniform over every offset there is, the last of them included."""
    task = SubstringByPrefix(letters="abcdefghijklmnopqrstuvwxyz", first_length=20, gap_min=1, gap_max=1, context=100)
    offsets = Counter()
    for row, _, _ in rows_of(task, 0, 6000, 40):
        first, copied = row.split(">")[:2]
        offsets[first.index(copied[:16])] += 1
    assert set(offsets) == set(range(6))
    assert all(abs(n - 1000) < 150 for n in offsets.values())


def make_recipe(task: str, scale: str) -> tuple[Task, config.Config]:
    cfg = load(f"task={task}", f"scale={scale}")
    return config.build_task(cfg), cfg


def problem_key(task: Task, problem: str):
    """What makes two problems the same, parsed from their text."""
    if isinstance(task, ArithmeticAddition):
        return tuple(sorted(parse_addition(problem, task.digits)[0]))
    if isinstance(task, SubstringByIndex):
        return parse_index(problem, range(1, task.string_length + 1), task.letters)[0][0]
    if isinstance(task, IndirectIndexing):
        return parser_of(task)(problem)[0][0]
    return problem[: task.first_length]


def training_keys(task: Task, cfg: config.Config, n: int) -> list:
    """The keys of at least `n` training problems (for prefix: of rows)."""
    keys, k = [], 0
    while len(keys) < n:
        text = task.text(data.generator(0, data.TRAINING_TEXT, k), 256, cfg.train.seq_len + 1)
        for row in text.tokens:
            characters = task.decode(row)
            if isinstance(task, SubstringByPrefix):
                keys.append(problem_key(task, characters))
            else:
                keys += [problem_key(task, p) for p in problems_of(characters)]
        k += 1
    return keys


@pytest.mark.parametrize(("task", "scale"), GENERATED)
def test_no_evaluation_problem_is_in_training(task, scale):
    made, cfg = make_recipe(task, scale)
    evaluated = {problem_key(made, p.prompt + p.completion) for p in data.evaluation_problems(made, 512)}
    text = data.evaluation_text(made, 64, cfg.train.seq_len)
    rows = [made.decode(row) for row in text.inputs_BT.numpy()]
    if isinstance(made, SubstringByPrefix):
        held_out = {problem_key(made, row) for row in rows}
    else:
        held_out = {problem_key(made, p) for row in rows for p in problems_of(row)}
    assert len(held_out) >= 30
    assert not (evaluated | held_out) & set(training_keys(made, cfg, 5_000 if scale == "quick" else 500))


def test_the_split_holds_where_there_are_few_problems():
    """One-digit sums: training and held-out text share no pair, in either order, and both sides are well fed."""
    task, cfg = ArithmeticAddition(1), load("task=arithmetic_addition", "task.digits=1")
    trained = set(training_keys(task, cfg, 5_000))
    held_out = {
        problem_key(task, p) for row, _, _ in rows_of(task, 0, 50, 300, held_out=True) for p in problems_of(row)
    }
    assert held_out
    assert trained
    assert not held_out & trained
    assert len(held_out | trained) == 45  # every unordered pair of 1 … 9 stands on one side


# Bugs planted in the generators. Each is what somebody has written at some time; what is said above has to find them.


def wrong_carry(patch):
    def write(self, drawn, write=ArithmeticAddition.write):
        prompts, completions = write(self, drawn)
        text = np.where(completions == ord("1"), ord("0"), completions)
        carry = (completions == ord("+")).cumsum(1) % 2 == 0  # the third term of a step stands after its second plus
        return prompts, np.where(carry, text, completions).astype(np.uint8)

    patch.setattr(ArithmeticAddition, "write", write)


def digit_of_ten(patch):
    def draw(self, rng, n, draw=ArithmeticAddition.draw):
        drawn = draw(self, rng, n)
        return np.where(drawn == 7, 10, drawn)

    patch.setattr(ArithmeticAddition, "draw", draw)


def index_off_by_one(patch):
    def write(self, drawn, write=SubstringByIndex.write):
        moved = drawn.copy()
        moved[:, -1] = (moved[:, -1] + 1) % self.string_length
        return write(self, drawn)[0], write(self, moved)[1]

    patch.setattr(SubstringByIndex, "write", write)


def shift_the_other_way(patch):
    def write(self, drawn, write=IndirectIndexing.write):
        moved = drawn.copy()
        opposite = moved[:, -2] - moved[:, -1]
        there = (opposite >= 0) & (opposite < (moved[:, :-2] >= 0).sum(axis=1))
        moved[there, -1] *= -1
        return write(self, drawn)[0], write(self, moved)[1]

    patch.setattr(IndirectIndexing, "write", write)


def source_that_occurs_twice(patch):
    def draw(self, rng, n, draw=IndirectIndexing.draw):
        drawn = draw(self, rng, n)
        drawn[:, 0] = drawn[np.arange(n), drawn[:, -2]]
        return drawn

    patch.setattr(IndirectIndexing, "draw", draw)


def shifted_mask(task):
    def plant(patch):
        def text(self, *arguments, text=task.text, **named):
            made = text(self, *arguments, **named)
            counted, position = (np.roll(mask, 1, axis=1) for mask in (made.counted, made.answer_position))
            return replace(made, counted=counted, answer_position=position)

        patch.setattr(task, "text", text)

    return plant


def repeated_evaluation_problem(patch):
    """Training no longer passes over what belongs to evaluation."""
    patch.setattr(PackedTask, "_draw_split", lambda self, rng, n, held_out, all=PackedTask.draw: self.draw(rng, n))


def a_split_of_addition():
    test_no_evaluation_problem_is_in_training("arithmetic_addition", "quick")


def addition_text():
    test_addition_text_is_right_to_the_letter.hypothesis.inner_test(seed=0, digits=3, held_out=False)


def index_text():
    test_index_text_is_right_to_the_letter.hypothesis.inner_test(seed=0, length=13, letters="abcdefgh")


def indirect_text():
    task = IndirectIndexing()
    for row, marks, positions in rows_of(task, 0, 3, 3 * task.max_length):
        check_packed(row, marks, positions, lambda problem: parser_of(task)(problem)[1])


def prefix_text():
    inner = test_prefix_text_is_right_to_the_letter.hypothesis.inner_test
    inner(seed=0, copy=16, gap_min=1, extra=10, length=400, held_out=False)


@pytest.mark.parametrize(
    ("plant", "test"),
    [
        (wrong_carry, addition_text),
        (digit_of_ten, addition_text),
        (index_off_by_one, index_text),
        (shift_the_other_way, indirect_text),
        (source_that_occurs_twice, indirect_text),
        (shifted_mask(PackedTask), addition_text),
        (shifted_mask(PackedTask), index_text),
        (shifted_mask(SubstringByPrefix), prefix_text),
        (repeated_evaluation_problem, test_the_split_holds_where_there_are_few_problems),
        (
            repeated_evaluation_problem,
            a_split_of_addition,
        ),
    ],
)
def test_planted_bugs_are_caught(plant, test, monkeypatch):
    test()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        test()


@pytest.mark.torture
@pytest.mark.parametrize(("task", "scale"), GENERATED)
def test_no_evaluation_problem_is_in_a_hundred_thousand_of_training(task, scale):
    made, cfg = make_recipe(task, scale)
    evaluated = {problem_key(made, p.prompt + p.completion) for p in data.evaluation_problems(made, cfg.eval.problems)}
    trained = training_keys(made, cfg, 100_000)
    assert len(trained) >= 100_000
    assert not evaluated & set(trained)


@pytest.mark.parametrize(("task", "scale"), GENERATED)
def test_the_problems_of_a_recipe_differ_fit_and_are_graded(task, scale):
    made, cfg = make_recipe(task, scale)
    check_problems(made, cfg.train.seq_len)


def test_problems_of_the_packed_tasks_parse_and_their_attributes_are_right():
    for problem in ArithmeticAddition().problems(rng(), 200):
        (a, b), answer = parse_addition(problem.prompt + problem.completion, 8)
        assert len(problem.prompt) == answer.start
        carries, carry = 0, 0
        for x, y in zip(f"{a:09d}"[::-1], f"{b:09d}"[::-1], strict=True):
            carry = (int(x) + int(y) + carry) // 10
            carries += carry
        digits = {"digits_a": len(str(a)), "digits_b": len(str(b)), "digits": len(str(max(a, b)))}
        assert problem.attributes == {**digits, "carries": carries}
    for problem in SubstringByIndex().problems(rng(), 200):
        (string, index), answer = parse_index(problem.prompt + problem.completion, {13}, "abcdefghijklmnopqrstuvwxyz")
        assert len(problem.prompt) == answer.start
        assert problem.attributes == {"index": index, "suffix_length": len(string) - index}
    for problem in IndirectIndexing().problems(rng(), 200):
        (string, shift), answer = parser_of(IndirectIndexing())(text_of(problem))
        assert len(problem.prompt) == answer.start
        assert problem.attributes == {"shift": shift, "string_length": len(string)}


def test_a_prefix_problem_asks_only_for_what_can_be_known():
    task = SubstringByPrefix()
    for problem in task.problems(rng(), 200):
        positions = parse_prefix(problem.prompt + problem.completion, task)
        assert positions[-1] == task.copy_length - 1
        before, _, known = problem.prompt.rpartition(">")
        letters = before.replace(">", "")
        (at,) = (i for i in range(len(letters)) if letters.startswith(known, i))
        sources = [letters[i : i + task.copy_length] for i in range(len(letters) - task.copy_length + 1)]
        assert sum(source.startswith(known) for source in sources) == 1
        assert sum(source.startswith(known[:-1]) for source in sources) > 1  # one letter fewer would not do
        assert letters[at:].startswith(known + problem.completion)
        assert problem.attributes["known"] == len(known)
        assert problem.attributes["copy"] == before.count(">")
        # `distance` tokens before the first unknown letter stands its source
        text = problem.prompt + problem.completion
        assert text[len(problem.prompt) - problem.attributes["distance"]] == problem.completion[0]


def test_the_floor_is_what_a_brute_force_predictor_reaches():
    """An ideal predictor written with strings, on the same rows; the last copy may be cut."""
    task = SubstringByPrefix(letters="abc", copy_length=6, first_length=6, gap_min=1, gap_max=3, context=60)
    text = task.text(rng(3), 30, 80)
    for tokens, positions, floor in zip(text.tokens, text.answer_position, task.floor(text.tokens), strict=True):
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


@pytest.mark.parametrize("make", [ArithmeticAddition, SubstringByIndex, IndirectIndexing])
def test_answers_that_follow_from_the_prompt_have_no_floor(make):
    assert not make().floor(make().text(rng(), 4, 300).tokens).any()


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


@pytest.mark.parametrize("name", sorted({name for name, _ in GENERATED}))
def test_every_character_is_encoded_and_decoded(name):
    task = config.build_task(load(f"task={name}", "train.seq_len=1000"))
    assert len(set(task.alphabet)) == len(task.alphabet)
    assert task.decode(task.encode(task.alphabet)) == task.alphabet
    with pytest.raises(ValueError, match=r"'~é'"):
        task.encode("~é")


def test_the_split_is_what_it_was():
    """If this fails, every recorded run was split otherwise than today's code splits: do not change the hash."""
    columns = (np.arange(400) * 7919 % 1009).reshape(100, 4)
    assert np.flatnonzero(is_held_out(columns)).tolist() == HELD_OUT
    share = is_held_out(rng().integers(26, size=(100_000, 13))).mean()
    assert abs(share - 1 / 16) < 0.003


HELD_OUT = [8, 34, 62, 64, 70]


def test_writing_helpers():
    assert bytes(join("ab", np.array([[65], [66]], dtype=np.uint8))[1]) == b"abB"
    assert [bytes(row).replace(b"\0", b" ") for row in decimal(np.array([0, 7, 10, 305]), 3)] == [
        b"  0",
        b"  7",
        b" 10",
        b"305",
    ]


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (ArithmeticAddition, {"digits": 0}, "digits=0"),
        (ArithmeticAddition, {"loss_on": "some"}, "loss_on=some"),
        (SubstringByIndex, {"string_length": 0}, "string_length=0"),
        (SubstringByIndex, {"letters": "aa"}, "letters=aa"),
        (SubstringByIndex, {"letters": "ab'"}, "letters=ab'"),
        (IndirectIndexing, {"string_length": 1}, "string_length=1"),
        (IndirectIndexing, {"letters": "ab"}, "letters=ab: must be at least 3"),
        (IndirectIndexing, {"letters": "abc-"}, "letters=abc-"),
        (IndirectIndexing, {"shortest": 31}, "shortest=31: must be a whole number from 1 to 30"),
        (IndirectIndexing, {"max_distance": 10}, "max_distance=10: must be a whole number from 1 to 9"),
        (
            IndirectIndexing,
            {"max_distance": 30, "shortest": None},
            "max_distance=30: must be a whole number from 1 to 29",
        ),
        (IndirectIndexing, {"max_distance": 0}, "max_distance=0"),
        (IndirectIndexing, {"max_distance": -2}, "max_distance=-2"),
        (IndirectIndexing, {"max_distance": 1.5}, "max_distance=1.5"),
        (SubstringByPrefix, {"letters": "ab>"}, "letters=ab>"),
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
        (IndirectIndexing(2, "abc", shortest=2, max_distance=1), 50),
        (SubstringByPrefix("ab", first_length=3, copy_length=2, gap_min=1, gap_max=1, context=8), 10_000),
    ],
)
def test_more_problems_than_there_are_is_an_error(task, n):
    with pytest.raises(ValueError, match=r"more than the task has|too small|too few"):
        task.problems(rng(), n)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_shows_itself(name):
    shown = subprocess.run(
        [sys.executable, "-m", f"tasks.{name}"], cwd=config.ROOT, capture_output=True, text=True, check=True
    )
    assert "^^" in shown.stdout
    assert "completion" in shown.stdout


def test_rows_of_a_batch_are_not_the_same():
    for a, b in pairwise(SubstringByIndex().text(rng(), 8, 200).tokens):
        assert not np.array_equal(a, b)
