"""Evaluation, compared with an oracle model and with token-by-token generation."""

from contextlib import nullcontext
from itertools import pairwise
from statistics import mean

import pytest
import torch
from conftest import ROOT, TASKS, TEXTS
from sums import make_model
from torch import nn
from trained import load

from rope_lab.model.schemes import Dims
from rope_lab.model.transformer import Transformer
from rope_lab.train import config, data
from rope_lab.train.evaluate import by_length, evaluate, exact_matches, grade
from rope_lab.train.generate import generate, sampled
from tasks.arithmetic_addition import ArithmeticAddition
from tasks.needle import Needle
from tasks.substring_by_index import SubstringByIndex
from tasks.substring_by_prefix import SubstringByPrefix


def model_of(task, scheme: str = "rope", **more) -> Transformer:
    return make_model(
        scheme, dims=Dims(32, 2, 256, n_layers=2), vocabulary=len(task.alphabet), **more
    )


def greedy(model, task, prompt: str, longest: int, max_len: int) -> str:
    """Greedy decoding by definition: without a cache, one problem at a time."""
    text = prompt
    while len(text) - len(prompt) < longest:
        logits = model(torch.tensor(task.encode(text), dtype=torch.long)[None])[0, -1]
        text += task.alphabet[int(logits.argmax())]
        if text[-1] == task.stop or len(text) > max_len:
            break
    return text[len(prompt) :]


def written_after(model, task, prompts: list[str], longest: int, max_len: int) -> list[str]:
    """Completions by `generate`, as text."""
    tokens = generate(model, task, [task.encode(prompt) for prompt in prompts], longest, max_len)
    return [task.decode(row) for row in tokens]


class Oracle(nn.Module):
    """A mock model that predicts every next token of `texts` correctly, except at the position in
    `wrong`.
    """

    def __init__(self, task, texts: list[str], wrong: dict[str, int] | None = None):
        super().__init__()
        self.embedding = nn.Embedding(1, 1)
        self.task, self.texts, self.wrong = task, texts, wrong or {}

    def forward(self, tokens_BT):
        logits = torch.zeros(*tokens_BT.shape, len(self.task.alphabet))
        for b, row in enumerate(tokens_BT):
            read = self.task.decode(row)
            for text in self.texts:
                if read.startswith(text[:-1]) or text.startswith(
                    read.rstrip(self.task.alphabet[0])
                ):
                    for t in range(min(len(text) - 1, len(read))):
                        right = self.task.alphabet.index(text[t + 1])
                        logits[b, t, right] = -1.0 if self.wrong.get(text) == t + 1 else 1.0
        return logits


@pytest.mark.parametrize("wrong_at", ["prompt", "first", "last", "nowhere"])
def test_a_completion_is_right_if_each_of_its_tokens_is(wrong_at):
    task = SubstringByIndex(6)
    problems = data.evaluation_problems(task, 20)
    texts = [p.prompt + p.completion for p in problems]
    wrong = {
        "prompt": len(problems[3].prompt) - 1,
        "first": len(problems[3].prompt),
        "last": len(texts[3]) - 1,
    }
    model = Oracle(task, texts, {texts[3]: wrong[wrong_at]} if wrong_at in wrong else {})
    expected = [i != 3 or wrong_at in ("prompt", "nowhere") for i in range(20)]
    assert exact_matches(model, problems) == expected


SOME = [
    "sinusoidal",
    "roper",
    "alibi",
    "pope",
    "kv_shared_back",
    "randomized_rope",
    "rnope_swa",
    "fox",
    "path",
    "gemma4",
    "partial_key_offset",
    "grape_ap",
    "rope_pp",
]


@pytest.mark.parametrize(
    ("scheme", "attention"), [*((name, "softmax") for name in SOME), ("roper", "linear")]
)
def test_generation_with_a_cache_is_greedy_decoding(scheme, attention):
    """Prompts of different lengths share a batch; some completions stop early."""
    task = SubstringByIndex(6)
    model = model_of(task, scheme, attention=attention)
    with torch.no_grad():
        model.unembedding.bias[task.alphabet.index("#")] += 0.2
    prompts = [p.prompt[: 3 + 4 * i] for i, p in enumerate(data.evaluation_problems(task, 4))]
    written = written_after(model, task, prompts, longest=16, max_len=24)
    assert written == [greedy(model, task, p, 16, 24) for p in prompts]
    assert len({len(w) for w in written}) > 1


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_what_ends_early_ends_however_long_other_prompts_are(attention):
    """Rows are dropped while longer prompts are still read, and nothing follows a stop."""
    task = SubstringByIndex(6)
    model = model_of(task, attention=attention)
    with torch.no_grad():
        model.unembedding.bias[task.alphabet.index("#")] += 1.5
    text = "".join(p.prompt + p.completion for p in data.evaluation_problems(task, 2))
    prompts = [text[: 1 + n % 48] for n in range(0, 480, 16)]
    written = written_after(model, task, prompts, longest=50, max_len=80)
    assert written == [greedy(model, task, p, 50, 80) for p in prompts]
    assert sum(w.endswith("#") for w in written) > 15


def test_only_wrong_completions_are_generated_and_graded_in_parts(monkeypatch):
    """Problem 1 has a wrong first step; its mocked completion ends with the right sum."""
    task = ArithmeticAddition(2)
    problems = data.evaluation_problems(task, 5)
    texts = [p.prompt + p.completion for p in problems]
    asked = []

    def right_sum_alone(model, task, prompts, longest, max_len, choose):
        asked.extend(task.decode(prompt) for prompt in prompts)
        return [task.encode("d==" + problems[1].completion.rpartition("d==")[2])]

    monkeypatch.setattr("rope_lab.train.evaluate.generate", right_sum_alone)
    grades = grade(
        Oracle(task, texts, {texts[1]: len(problems[1].prompt)}), task, problems, max_len=250
    )
    assert asked == [problems[1].prompt]
    assert grades == [{"accuracy": i != 1, "sum_accuracy": True} for i in range(5)]


def test_losses_are_means_over_tokens_and_by_answer_position():
    task = SubstringByIndex(6)
    model = model_of(task)
    text = data.evaluation_text(task, 5, 90)
    evaluation = evaluate(model, task, text, data.evaluation_problems(task, 10), 90)
    nats, right, by_position = [], [], {}
    for row in range(5):
        log_probabilities = model(text.batch.inputs_BT[row : row + 1])[0].log_softmax(-1)
        for t in range(90):
            target = int(text.batch.targets_BT[row, t])
            if target != data.IGNORED:
                nats.append(-log_probabilities[t, target].item())
                right.append(int(log_probabilities[t].argmax()) == target)
                by_position.setdefault(str(int(text.answer_position_BT[row, t])), []).append(
                    nats[-1]
                )
    assert evaluation.metrics["eval/loss"] == pytest.approx(mean(nats), rel=1e-6)
    assert evaluation.metrics["eval/token_accuracy"] == pytest.approx(mean(right))
    assert evaluation.slices["answer_position"].keys() == by_position.keys()
    for position, (count, loss) in evaluation.slices["answer_position"].items():
        assert (count, loss) == (
            len(by_position[position]),
            pytest.approx(mean(by_position[position]), rel=1e-6),
        )


@pytest.mark.parametrize("name", TASKS)
def test_evaluation_names_its_metrics(name):
    cfg = load(f"task={name}", *([f"task.path={ROOT / 'rope_lab'}"] if name in TEXTS else []))
    task = config.build_task(cfg)
    model = model_of(task).train()
    text, problems = (
        data.evaluation_text(task, 1, cfg.train.seq_len),
        data.evaluation_problems(task, 5),
    )
    evaluation = evaluate(model, task, text, problems, cfg.train.seq_len)
    metrics = evaluation.metrics
    graded = {"eval/accuracy"} if task.grades else {"eval/bits_per_byte"}
    assert {"eval/loss", "eval/token_accuracy"} | graded <= set(metrics)
    assert "eval/score" not in metrics  # it needs 128 problems
    assert ("eval/sum_accuracy" in metrics) == ("sum_accuracy" in task.grades)
    assert evaluation.slices.keys() == {"answer_position"} | problems[0].attributes.keys()


def test_the_score_counts_128_by_the_write_ups_grade():
    task = SubstringByIndex(6)
    problems = data.evaluation_problems(task, 140)
    texts = [p.prompt + p.completion for p in problems]
    wrong = {texts[i]: len(texts[i]) - 1 for i in (0, 5, 130)}
    text = data.evaluation_text(task, 1, 60)
    evaluation = evaluate(Oracle(task, texts, wrong), task, text, problems, 60)
    assert evaluation.metrics["eval/score"] == 126
    assert evaluation.metrics["eval/accuracy"] == pytest.approx(137 / 140)
    for index, (count, accuracy) in evaluation.slices["index"].items():
        there = [i for i, p in enumerate(problems) if p.attributes["index"] == int(index)]
        assert (count, accuracy) == (
            len(there),
            pytest.approx(mean(i not in (0, 5, 130) for i in there)),
        )


def test_each_length_is_graded_with_its_own_positions(monkeypatch):
    """So the random positions for one length do not depend on the other lengths."""
    task, read = SubstringByIndex(6), []
    longer = data.longer(task, [3, 9], 10, 2, torch.device("cpu"))
    texts = [p.prompt + p.completion for problems in longer.problems.values() for p in problems]
    model = Oracle(task, texts, {text: len(text) - 1 for text in texts[:4]})
    as_evaluated = lambda model, cfg, tokens: read.append(tokens) or nullcontext()  # noqa: E731
    monkeypatch.setattr("rope_lab.train.evaluate.as_evaluated", as_evaluated)
    found = by_length(model, task, None, longer)
    assert found == {"length": {"3": [10, 0.6], "9": [10, 1.0]}}
    assert read == [max(p.length for p in problems) - 1 for problems in longer.problems.values()]
    assert longer.tokens == max(map(len, texts)) - 1


def test_a_crossed_attribute_slices_the_problems_of_each_length(monkeypatch):
    task = Needle(8, 4, 2)
    longer = data.longer(task, [6, 12], 40, 2, torch.device("cpu"))
    texts = [p.prompt + p.completion for problems in longer.problems.values() for p in problems]
    wrong = texts[3:30:3] + texts[50:60]
    model = Oracle(task, texts, {text: len(text) - 1 for text in wrong})
    monkeypatch.setattr("rope_lab.train.evaluate.as_evaluated", lambda *_: nullcontext())
    found = by_length(model, task, None, longer)
    assert found.keys() == {"length", "depth_at_6", "depth_at_12"}
    for n, problems in longer.problems.items():
        right = {}
        for problem in problems:
            depth = 10 * (problem.prompt.index(">") - 1) // n
            right.setdefault(str(depth), []).append(
                problem.prompt + problem.completion not in wrong
            )
        assert found[f"depth_at_{n}"] == {
            d: [len(each), pytest.approx(mean(each))] for d, each in right.items()
        }


def test_loss_by_context_length_is_the_mean_between_lengths():
    task = SubstringByPrefix(first_length=4, copy_length=4, gap_max=3, context=20)
    model, lengths = model_of(task), [20, 40, 70]
    longer = data.longer(task, lengths, 5, 3, torch.device("cpu"))
    assert longer.tokens == 70  # the text's length; problems are shorter
    slices = by_length(model, task, load(), longer)
    assert slices["length"].keys() == slices["length_loss"].keys() == {"20", "40", "70"}
    log_probabilities = model(longer.text.batch.inputs_BT).log_softmax(-1)
    for begin, end in pairwise([0, *lengths]):
        above = [
            -log_probabilities[row, t, target].item() - longer.text.floor_BT[row, t].item()
            for row in range(3)
            for t in range(begin, end)
            if (target := int(longer.text.batch.targets_BT[row, t])) != data.IGNORED
        ]
        assert slices["length_loss"][str(end)] == [len(above), pytest.approx(mean(above), rel=1e-6)]


def test_the_lowest_temperature_gives_the_likeliest_token():
    logits_BV = torch.tensor([[1.0, 3.0, 2.9], [-1e4, -2e4, -1e4 - 1]])
    for temperature in (1e-300, 1e-5):
        assert sampled(temperature, 40, 0)(logits_BV).tolist() == [1, 0]
