"""Positions that a task gives: from the problem alone, on their way to the model."""

import re

import numpy as np
import pytest
import torch
from conftest import only_folder
from parsers import parse, problems_of
from sources import SCHEME
from sums import D, H, make_model
from trained import run

from rope_lab import probe, sample
from rope_lab.checking.schemes import TOKENS, own_positions
from rope_lab.model.hooks import Dims
from rope_lab.text import ConfigError
from rope_lab.train import config, data
from rope_lab.train.evaluate import exact_matches
from rope_lab.train.generate import generate
from rope_lab.train.trainer import build, resolve
from tasks.addition import Addition
from tasks.base import PackedTask
from tasks.events import Events
from tasks.grid import Grid
from tasks.task import Problem, Text

ASKS = ("copy", "transpose", "right", "below", "nearest")
CASES = [*((Grid(ask), 8) for ask in ASKS), (Grid("nearest", 4, None, 4, 4), 6)]
CASES += [(Addition(), 30), (Addition(4, None, "lowest"), 7)]
CASES += [(Events(), 40), (Events(6, None, 0, "xyz"), 9)]
# Convolutions, and keys of the token before, do not end at a document's border.
NOT_WITHIN = ["kv_shift", "partial_key_offset", "partial_key_offset_none", "path"]
NOT_WITHIN += ["partial_key_offset_roper", "selective_rope", "selective_roper"]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def text_of(problem: Problem) -> str:
    return problem.prompt + problem.completion


def grid_coordinates(task: Grid, problem: str) -> list[list[int]]:
    """Row and column of each character, from the whole problem."""
    question, grid, answer = re.fullmatch(r"(\?\w?)(/.+)=(.+)#", problem).groups()
    outside = [[-1, -1]]
    found = outside * len(question)
    for row, letters in enumerate(grid[1:].split("/")):
        found += [[row, column] for column in range(-1, len(letters))]
    if task.names_a_cell:
        return found + 3 * outside
    for row, letters in enumerate(answer.split("/")):
        found += [[row, column] for column in range(-1, len(letters))]
    return [*found, [answer.count("/") + 1, -1]]


def digit_coordinates(task: Addition, problem: str) -> list[list[int]]:
    """The place of each digit as written, and 2 for units, 3 for tens and so on."""
    found = []
    for index, number in enumerate(re.split(r"[+=#]", problem)[:3]):
        places = list(range(len(number)))
        if index < 2 and task.highest_first:
            places.reverse()
        found += [[i + 1, place + 2] for i, place in enumerate(places)]
        found.append([0, 0 if index == 2 else 1])
    return found


def times(task: Events, problem: str) -> list[list[int]]:
    """The time of each character: digits move the clock."""
    clock, found = 0, []
    for character in problem:
        clock += int(character) if character.isdigit() else 0
        found.append([clock])
    return found


WRITTEN_OUT = {Grid: grid_coordinates, Addition: digit_coordinates, Events: times}


def coordinates_of(task: PackedTask, problem: str) -> list[list[int]]:
    found = WRITTEN_OUT[type(task)](task, problem)
    return [[number, *axes] for number, axes in enumerate(found)]


@pytest.mark.parametrize(("task", "n"), CASES)
def test_problems_and_their_coordinates_are_right(task, n):
    """Those of the answer too, although positions are made from the prompt alone."""
    for made, count in ((task, 100), (task.of_length(n), 5)):
        for problem in made.problems(rng(1), count):
            parsed = parse(made, text_of(problem))
            assert problem.positions.tolist() == coordinates_of(task, text_of(problem))
            assert problem.attributes == parsed.attributes
            assert made is task or parsed.sizes == {n}


@pytest.mark.parametrize(("task", "n"), CASES)
def test_a_row_is_one_problem_with_its_prompts_positions(task, n):
    sides = []
    for held_out in (False, True):
        text = task.text(rng(), 300, task.max_length + 1, held_out)
        keys = set()
        for tokens, answers, pos in zip(text.tokens, text.answer_position, text.positions):  # noqa: B905
            row = task.decode(tokens)
            problem = problems_of(task, row)[0]
            parsed = parse(task, problem)
            assert answers.tolist() == parsed.positions + [0] * (len(row) - len(problem))
            prompt = tokens[: parsed.positions.index(1)]
            assert np.array_equal(pos[: len(problem)], task.positions(prompt, len(problem)))
            keys.add(parsed.key)
        sides.append(keys)
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("ask", ["right", "below", "nearest"])
def test_every_cell_of_a_grid_is_asked_for(ask):
    answers, cells = set(), set()
    for problem in Grid(ask, 3, None, 3, 3).problems(rng(), 400):
        letters = problem.prompt[2:-1].replace("/", "")
        cells.add(letters.index(problem.prompt[1]))
        answers.add(letters.index(problem.completion[0]))
    asked = {"right": {0, 1, 3, 4, 6, 7}, "below": set(range(6)), "nearest": set(range(9))}
    assert cells == asked[ask]
    assert answers == {cell + {"right": 1, "below": 3}.get(ask, 0) for cell in asked[ask]}


class Shared(Grid):
    """Positions [T] that all rows share, real numbers."""

    def text(self, *args, **more):
        text = super().text(*args, **more)
        return text._replace(positions=np.arange(text.tokens.shape[1]) / 2)

    def positions(self, prompt, length):
        return np.arange(length) / 2


@pytest.mark.parametrize("kind", [Grid, Shared])
def test_a_batch_has_the_positions_of_its_inputs(kind):
    task = kind()
    text = task.text(data.generator(0, data.TRAINING_TEXT, 0), 4, 65)
    batch = data.training_batch(task, 0, 0, 4, 64)
    inputs = text.positions[:-1] if kind is Shared else text.positions[:, :-1]
    assert batch.pos.tolist() == inputs.tolist()
    some = batch.rows(1, 3)
    assert some.inputs_BT.tolist() == batch.inputs_BT[1:3].tolist()
    assert some.pos.tolist() == (inputs if kind is Shared else inputs[1:3]).tolist()
    assert batch.given.keys() == {"pos"}


def test_documents_go_with_a_batch():
    text = Text(np.ones((2, 5)), np.ones((2, 5)), None, np.array([[0, 0, 1, 1, 1]] * 2))
    batch = data._batch(text, text.answer_position > 0)
    assert batch.given["documents_BT"].tolist() == [[0, 0, 1, 1]] * 2
    assert data._batch(text._replace(documents=None), text.answer_position > 0).given == {}


def model_for(task: PackedTask, name: str):
    longest = Dims(D, H, max_len=64, n_layers=2)
    return make_model(name, vocabulary=len(task.alphabet), dims=longest).eval()


@pytest.mark.parametrize(
    ("task", "name"), [(Grid("transpose"), "axial_roper"), (Addition(5), "position_coupling")]
)
def test_generation_and_grading_have_the_positions_of_problems(task, name):
    """As reading a problem alone, without a cache, at the positions written out."""
    model, problems = model_for(task, name), task.problems(rng(), 6)
    prompts, rights = [p.tokens[: p.prompt_length] for p in problems], []
    longest = max(p.length - p.prompt_length for p in problems)
    with torch.no_grad():
        written = generate(model, task, prompts, longest, 64)
        graded = exact_matches(model, problems)
        for problem, made in zip(problems, written, strict=True):
            text = problem.prompt
            pos = torch.tensor([coordinates_of(task, text_of(problem))])
            for _ in range(min(len(made), problem.length - problem.prompt_length)):
                tokens = torch.tensor(task.encode(text).astype(int))[None]
                text += task.alphabet[int(model(tokens, pos[:, : len(text)])[0, -1].argmax())]
            expected = text[problem.prompt_length :]
            assert task.decode(made)[: len(expected)] == expected
            rights.append(expected == problem.completion)
    assert graded == rights


def test_a_problem_that_is_right_is_graded_right():
    task = Addition(3)
    problem = task.problems(rng(), 1)[0]
    coordinates = torch.tensor(problem.positions)[None]

    class Seer(torch.nn.Module):
        embedding = torch.nn.Embedding(len(task.alphabet), 4)

        def forward(self, tokens, pos=None):
            assert torch.equal(pos, coordinates[:, :-1])
            following = torch.tensor(problem.tokens[1:].astype(int))
            return torch.nn.functional.one_hot(following, len(task.alphabet))[None].double()

    assert exact_matches(Seer(), [problem]) == [True]


QUICK = ["axial_rope", "rope_mixed", "alibi", "t5_bias", "inkling", "cope", "pope_roper", "fire"]
QUICK += ["randomized_rope", "kv_shared_back", "selective_rope", "gemma4", "ssmax", "grape_a"]


NEAR = "rope_remapped position.original=12 position.near=5 position.v=1 position.o=-1"
REMAPPED = [f"{NEAR} position.method={method}" for method in ("rerope", "dual_chunk")]


@pytest.mark.parametrize("written", [*QUICK, *REMAPPED])
def test_rows_with_their_own_positions_are_equal_however_read(written):
    """In one pass, alone, in parts with a cache, and left-padded; [B, T] is [T] in each row.
    test_check asks it of all schemes.
    """
    name, *settings = written.split()
    model = make_model(name, *settings)
    note = own_positions(model)
    assert note is None or (name in NOT_WITHIN and "tokens before it" in note)
    pos = torch.arange(TOKENS.shape[1]) // torch.arange(1, 4)[:, None]
    with torch.no_grad():
        rows = [model(TOKENS[[row]], pos[row]) for row in range(3)]
        torch.testing.assert_close(torch.cat(rows), model(TOKENS, pos), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["rope", "grape_a", "inkling"])
def test_gradients_stay_finite_within_documents(name):
    model, documents = make_model(name), torch.arange(16).expand(3, -1) // 5
    model(TOKENS, documents_BT=documents).square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


@torch.no_grad()
def test_documents_are_kept_in_a_cache():
    model, documents = make_model("ssmax").eval(), torch.arange(16).expand(3, -1) // 5
    full, cache = model(TOKENS, documents_BT=documents), model.new_cache(3, 16)
    parts = [model(TOKENS[:, :7], None, cache, documents[:, :7])]
    cache, rows = [layer.rows(torch.tensor([True, False, True])) for layer in cache], [0, 2]
    for place in range(7, 16):
        now = slice(place, place + 1)
        parts.append(model(TOKENS[rows, now], None, cache, documents[rows, now]))
    made = torch.cat([parts[0][rows], *parts[1:]], dim=1)
    torch.testing.assert_close(made, full[rows], rtol=0, atol=1e-9)


def test_documents_are_read_as_if_alone():
    """At positions that begin again, by a scheme that counts keys too; linear attention cannot."""
    model, documents = make_model("ssmax"), torch.tensor([0] * 6 + [1] * 10).expand(3, -1)
    pos = torch.cat([torch.arange(6), torch.arange(10)])
    alone = [model(TOKENS[:, :6]), model(TOKENS[:, 6:])]
    packed = model(TOKENS, pos, documents_BT=documents)
    torch.testing.assert_close(packed, torch.cat(alone, 1), rtol=0, atol=1e-9)
    with pytest.raises(ConfigError, match="has no scores"):
        make_model("rope", attention="linear")(TOKENS, documents_BT=documents)


@pytest.mark.parametrize(
    ("name", "pos", "message"),
    [
        ("learned", torch.arange(16) / 2, "Learned has a table of whole positions"),
        ("randomized_rope", torch.rand(3, 16), "Randomized has a table of whole positions"),
        ("random_rotations", torch.rand(3, 16), "RandomRotations has a table of whole"),
        ("learned", torch.arange(16).expand(3, -1) - 1, "positions from -1 to 14 are outside"),
        ("abacus", torch.full((3, 16, 2), 200), "positions from 200 to 200 are outside"),
        ("position_coupling", torch.zeros(3, 16, 2), "needs positions with 3 axes, the task's"),
        ("m_rope", torch.zeros(3, 16, 2), "MRope needs positions with 3 axes"),
    ],
)
def test_a_scheme_refuses_positions_in_one_line(name, pos, message):
    with pytest.raises(ConfigError, match=rf"\A.*{re.escape(message)}.*\Z"):
        make_model(name).eval()(TOKENS, pos)


MIXES = """from rope_lab.model.hooks import PositionScheme

class Mixes(PositionScheme):
    several_axes = True

    def embed(self, x, at):
        return x.roll(int(at.sum()), -1) if at.dim() > 1 else x
"""


@pytest.mark.parametrize("source", [MIXES, SCHEME])
def test_training_refuses_a_scheme_that_mixes_rows(source, write, tiny):
    write("mixes.py", source)
    words = [*tiny, "task=grid", "position=mixes.py"]
    with pytest.raises(ConfigError, match=r"\A.* does not serve positions that differ between"):
        build(resolve(config.load(*words)))


@pytest.mark.slow
def test_a_run_with_coordinates_is_sampled_probed_and_continued(tiny, tmp_path, capsys, undrawn):
    words = [*tiny, "task=grid", "eval.lengths=[6]", "task.height=3"]
    content = run([*words, "position=axial_roper"])
    assert content["status"] == "finished"
    assert content["slices"]["length"].keys() == {"6"}
    folder = only_folder(tmp_path / "runs")
    sample.main([str(folder), "?/ab/cd="])
    probe.main([str(folder), "shift=3"])
    assert "shift=3" in capsys.readouterr().out
    child = run([*words, f"init_from={folder}", "position=m_rope", "train.steps=2"])
    assert child["status"] == "finished"
