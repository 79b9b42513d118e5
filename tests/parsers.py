"""Parsers of problems, written from the definitions of the tasks; they share no code with the
generators.

Each takes a whole problem and returns its split key, answer positions (1, 2, … along each answer, 0
elsewhere), attributes, and length in the task's own unit (for addition, the lengths of both
numbers).
"""

import functools
import math
import re
from itertools import combinations, permutations
from string import ascii_letters
from typing import Any, NamedTuple

from tasks.addition import Addition
from tasks.arithmetic_addition import ArithmeticAddition
from tasks.base import PackedTask
from tasks.events import Events
from tasks.flip_flop import FlipFlop
from tasks.grid import Grid
from tasks.indirect_indexing import IndirectIndexing
from tasks.mqar import AssociativeRecall
from tasks.needle import Needle
from tasks.rewriting import Rewriting
from tasks.state_tracking import StateTracking
from tasks.substring_by_index import SubstringByIndex
from tasks.substring_by_prefix import SubstringByPrefix


class Parsed(NamedTuple):
    key: Any
    positions: list[int]
    attributes: dict[str, int]
    sizes: set[int]


def after(problem: str, begin: int) -> list[int]:
    """Answer positions of a problem with one answer, from `begin` to its end."""
    return [0] * begin + list(range(1, len(problem) - begin + 1))


def parse_addition(task: ArithmeticAddition, problem: str) -> Parsed:
    match = re.fullmatch(r"\?d=([1-9]\d*)\+([1-9]\d*); (.+) and d==(\d+)#", problem)
    assert match, problem
    a, b = match[1], match[2]
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
    attributes = {
        "digits_a": len(a),
        "digits_b": len(b),
        "digits": max(len(a), len(b)),
        "carries": carries,
    }
    return Parsed(
        frozenset((a, b)), after(problem, problem.index("; ") + 2), attributes, {len(a), len(b)}
    )


def parse_index(task: SubstringByIndex, problem: str) -> Parsed:
    match = re.fullmatch(r"\?s='([^']*)'; s\[(\d+):\]=='([^']*)'#", problem)
    assert match, problem
    string, index, suffix = match[1], int(match[2]), match[3]
    assert set(string) <= set(task.letters)
    assert match[2] == str(index)
    assert 0 <= index < len(string)
    assert suffix == string[index:]
    attributes = {"index": index, "suffix_length": len(suffix)}
    return Parsed(string, after(problem, match.start(3)), attributes, {len(string)})


def parse_indirect(task: IndirectIndexing, problem: str) -> Parsed:
    match = re.fullmatch(r"\?([^;]*); (.)([-+])(\d+)=(.)#", problem)
    assert match, problem
    string, source, sign, distance, answer = match.groups()
    assert set(string) <= set(task.letters)
    assert string.count(source) == 1
    assert not task.distinct or len(set(string)) == len(string)
    assert distance == str(int(distance))
    assert 1 <= int(distance) <= task.max_distance
    shift = int(sign + distance)
    assert 0 <= string.index(source) + shift < len(string)
    assert answer == string[string.index(source) + shift]
    attributes = {"shift": shift, "string_length": len(string)}
    return Parsed(string, after(problem, match.start(5)), attributes, {len(string)})


def parse_recall(task: AssociativeRecall, problem: str) -> Parsed:
    """For tasks in which all problems have the same number of pairs."""
    pairs = {problem[2 * i]: problem[2 * i + 1] for i in range(task.pairs)}
    half = task.alphabet[task.vocabulary // 2]
    assert max(pairs) < half <= min(pairs.values())
    assert len(pairs) == task.pairs
    rest = problem[2 * task.pairs :]
    asked = [i for i, character in enumerate(rest) if character in pairs]
    assert len({rest[i] for i in asked}) == len(asked), (
        "a filler overwrites a pair, or a key comes again twice"
    )
    assert asked[-1] == len(rest) - 2
    assert all(rest[i + 1] == pairs[rest[i]] for i in asked)
    positions = [0] * 2 * task.pairs + [int(i - 1 in asked) for i in range(len(rest))]
    distance = len(problem) - 1 - (problem.index(rest[-2]) + 1)
    return Parsed(
        problem[: 2 * task.pairs],
        positions,
        {"distance": distance, "pairs": task.pairs},
        {len(problem)},
    )


def parse_flip_flop(task: FlipFlop, problem: str) -> Parsed:
    """Without the attribute `ignored`, which is a probability."""
    instructions, bits, positions = problem[::2], problem[1::2], []
    assert set(instructions) <= set("wir")
    assert set(bits) <= set("01")
    assert instructions[0] + instructions[-1] == "wr"
    for instruction, bit in zip(instructions, bits, strict=True):
        if instruction == "w":
            written = bit
        assert instruction != "r" or bit == written
        positions += [0, int(instruction == "r")]
    distance = 2 * (len(instructions) - 1 - instructions.rindex("w"))
    return Parsed(problem, positions, {"distance": distance}, {len(instructions)})


def is_even(permutation: tuple[int, ...]) -> bool:
    """Whether the number of inversions is even."""
    return sum(before > after for before, after in combinations(permutation, 2)) % 2 == 0


@functools.cache
def elements(group: str) -> list[tuple[int, ...]]:
    size = {"S2": 2, "S3": 3, "A5": 5}[group]
    return [p for p in permutations(range(size)) if group != "A5" or is_even(p)]


def parse_state(task: StateTracking, problem: str) -> Parsed:
    match = re.fullmatch(r"\?(\w+)=(\w)#", problem)
    assert match, problem
    every = elements(task.group)
    places = list(every[0])  # the current place of each thing
    for letter in match[1]:
        moved = every[(ascii_letters + "01234567").index(letter)]
        places = [moved[place] for place in places]
    assert (ascii_letters + "01234567").index(match[2]) == every.index(tuple(places))
    return Parsed(
        match[1], after(problem, match.start(2)), {"word_length": len(match[1])}, {len(match[1])}
    )


def parse_rewriting(task: Rewriting, problem: str) -> Parsed:
    match = re.fullmatch(r"\?([^=]+)=([^=]+)#", problem)
    assert match, problem
    string = match[1]
    assert set(string) <= set(task.letters)
    orders = {
        "copy": string,
        "reverse": string[::-1],
        "sort": "".join(sorted(string, key=task.letters.index)),
    }
    assert match[2] == orders[task.order]
    return Parsed(
        string, after(problem, match.start(2)), {"string_length": len(string)}, {len(string)}
    )


def parse_needle(task: Needle, problem: str) -> Parsed:
    match = re.fullmatch(r"\?([^>]*)>([^=]+)=([^=]+)#", problem)
    assert match, problem
    string = match[1] + match[2]
    assert set(string) <= set(task.letters)
    assert match[3] == match[2][: task.needle]
    assert len(match[3]) == task.needle
    attributes = {"depth": int(10 * len(match[1]) / len(string)), "string_length": len(string)}
    return Parsed(string, after(problem, match.start(3)), attributes, {len(string)})


def parse_grid(task: Grid, problem: str) -> Parsed:
    match = re.fullmatch(r"\?([a-zA-Z]?)/([a-zA-Z/]+)=([a-zA-Z/]+)#", problem)
    assert match, problem
    named, rows, answer = match[1], match[2].split("/"), match[3]
    width, height = len(rows[0]), len(rows)
    assert {len(row) for row in rows} == {width}
    assert task.lowest <= height <= task.height
    if task.ask == "copy":
        assert answer == match[2]
    elif task.ask == "transpose":
        assert answer == "/".join("".join(column) for column in zip(*rows, strict=True))
    else:
        cells = {(y, x): letter for y, row in enumerate(rows) for x, letter in enumerate(row)}
        assert len(set(cells.values())) == len(cells)
        ((y, x),) = (cell for cell, letter in cells.items() if letter == named)
        if task.ask == "nearest":
            assert named.islower()
            capitals = [cell for cell, letter in cells.items() if letter.isupper()]
            there = min(capitals, key=lambda cell: (math.hypot(cell[0] - y, cell[1] - x), cell))
        else:
            there = (y, x + 1) if task.ask == "right" else (y + 1, x)
        assert answer == cells[there]
    attributes = {"width": width, "height": height}
    return Parsed(match[2], after(problem, match.start(3)), attributes, {width})


def parse_column_addition(task: Addition, problem: str) -> Parsed:
    match = re.fullmatch(r"(\d+)\+(\d+)=(\d+)#", problem)
    assert match, problem
    a, b = match[1], match[2]
    if not task.highest_first:
        a, b = a[::-1], b[::-1]
    assert len(b) == len(a)
    assert match[3][::-1] == str(int(a) + int(b)).zfill(len(a) + 1)
    carries = sum(int(a[i:]) + int(b[i:]) >= 10 ** (len(a) - i) for i in range(len(a)))
    attributes = {"digits": len(a), "carries": carries}
    return Parsed(frozenset((a, b)), after(problem, match.start(3)), attributes, {len(a)})


def parse_events(task: Events, problem: str) -> Parsed:
    match = re.fullmatch(r"\?((?:\d[a-z])+)=([a-z]+)#", problem)
    assert match, problem
    series, clock = [], 0
    for digit, letter in re.findall(r"(\d)([a-z])", match[1]):
        clock += int(digit)
        series.append((clock, letter))
    recent = [letter for time, letter in series if clock - time <= task.within]
    assert match[2] == "".join(recent)
    attributes = {"events": len(series), "recent": len(recent)}
    return Parsed(match[1], after(problem, match.start(2)), attributes, {len(series)})


PARSERS = {
    ArithmeticAddition: parse_addition,
    SubstringByIndex: parse_index,
    IndirectIndexing: parse_indirect,
    AssociativeRecall: parse_recall,
    FlipFlop: parse_flip_flop,
    StateTracking: parse_state,
    Rewriting: parse_rewriting,
    Needle: parse_needle,
    Grid: parse_grid,
    Addition: parse_column_addition,
    Events: parse_events,
}


def parse(task: PackedTask, problem: str) -> Parsed:
    """Parse a complete problem of a packed task, and check its length."""
    parsed = PARSERS[type(task)](task, problem)
    assert parsed.sizes <= set(range(task.lengths[0], task.lengths[1] + 1)) or isinstance(
        task, AssociativeRecall
    )
    return parsed


def problems_of(task: PackedTask, row: str) -> list[str]:
    """The complete problems of a packed row, without one cut by its end."""
    if task.stop:
        return [part + task.stop for part in row.split(task.stop)[:-1]]
    return [
        row[end - task.max_length : end]
        for end in range(task.max_length, len(row) + 1, task.max_length)
    ]


def parse_prefix(row: str, task: SubstringByPrefix) -> list[int]:
    """Answer positions 1, 2, … after the first letter of each copy, 0 elsewhere; the row may end
    within a part.
    """
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
