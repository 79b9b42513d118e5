"""Real text: tokens are what the corpus says, held-out text is never trained on, a corpus is known by its bytes."""

import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY, only_folder
from trained import run

from rope_lab import sample
from rope_lab.text import ConfigError
from rope_lab.train import config, data
from rope_lab.train.evaluate import evaluate, text_losses
from rope_lab.train.trainer import build, resolve
from tasks import coders, corpus
from tasks.text import RealText

WORDS = ["Er", "läuft", "so", "schnell", "er", "kann,", "naïve", "→", "x", "\n"]
KINDS = ["bytes", "characters", "bpe"]


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A corpus of 60,000 bytes or so, with characters of one to three bytes."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text(" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=12_000)), "utf-8")
    return path


def make(path, kind="bytes", context=32, vocabulary=300) -> RealText:
    if kind == "bpe":
        pytest.importorskip("tokenizers")
    return RealText(str(path), None, kind, vocabulary, context)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", [7, 1000, corpus.PIECE])
def test_tokens_are_the_corpus_however_it_is_read(written, kind, piece, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(corpus, "PIECE", piece)
    monkeypatch.setattr(coders, "BLOCK", 3)  # more than one block a piece
    monkeypatch.setattr(corpus.pieces, "__defaults__", (0, math.inf, piece))
    few = tmp_path / "corpus.txt"
    text = written.read_text("utf-8")[:4_000].encode()
    at = len(text) - len(text) // 10
    few.write_bytes((text[:at].decode("utf-8", "ignore") + "ﷺ" + text[at:].decode("utf-8", "ignore")).encode())
    task = make(few, kind)
    whole = few.read_bytes()
    decoded = task.decode(task.tokens.training), task.decode(task.tokens.held_out)
    assert "".join(decoded).encode() == whole
    assert len(decoded[1].encode()) == task.tokens.held_out_bytes
    assert abs(task.tokens.held_out_bytes - len(whole) / 10) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_encoded_is_decoded(written, kind):
    task = make(written, kind)
    assert task.decode(task.encode("naïve → schnell")) == "naïve → schnell"


def test_the_held_out_part_is_evaluated_whole_and_each_token_once(written):
    task = make(written)
    text = task.text(np.random.default_rng(0), 10**6, 33, held_out=True)
    joined = np.concatenate([text.tokens[0, :1], text.tokens[:, 1:].ravel()])
    assert np.array_equal(joined, task.tokens.held_out[: len(joined)])
    assert len(task.tokens.held_out) - len(joined) < 32
    assert (text.answer_position == np.arange(33)).all()
    few = task.text(np.random.default_rng(0), 5, 33, held_out=True).tokens
    assert len(few) == 5
    assert {row.tobytes() for row in few} <= {row.tobytes() for row in text.tokens}


def test_training_stays_a_window_apart_from_held_out_text(written):
    task, context = make(written), 32
    end = len(task.tokens.training) - context
    marked = np.arange(len(task.tokens.training) % 2**16, dtype=np.uint16)
    object.__setattr__(task.tokens, "training", marked)
    drawn = [task.text(np.random.default_rng(seed), 4096, context + 1).tokens for seed in range(20)]
    assert np.max(drawn) < end
    assert np.max(drawn) > end - 100  # all but the window is used
    assert np.min(drawn) < 100


def test_a_corpus_is_known_by_its_bytes_and_not_by_its_path(written, tmp_path):
    copy = tmp_path / "other" / "name.txt"
    copy.parent.mkdir()
    copy.write_bytes(written.read_bytes())
    one, other = (config.load("task=text", f"task.path={path}") for path in (written, copy))
    ids = [config.identity(resolve(cfg)).run_id for cfg in (one, other)]
    assert ids[0] == ids[1]
    copy.write_bytes(written.read_bytes()[:-1] + b"!")
    assert config.identity(resolve(other)).run_id != ids[0]


def test_a_folder_is_its_files_by_name_and_a_pattern_some_of_them(written, tmp_path):
    content = written.read_bytes()
    for name, part in (("b.txt", content[30_000:]), ("a.txt", content[:30_000]), (".hidden", b"no"), ("c.md", b"no")):
        (tmp_path / name).write_bytes(part)
    assert corpus.register(str(tmp_path / "*.txt")) == corpus.register(str(written))
    assert corpus.register(str(tmp_path)) != corpus.register(str(written))
    task = make(tmp_path / "*.txt")
    assert task.decode(task.tokens.training) + task.decode(task.tokens.held_out) == content.decode()


def test_a_token_file_that_was_cut_off_is_made_to_its_end(written, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(corpus.pieces, "__defaults__", (0, math.inf, 1000))
    encode, calls = coders.Characters.encode, []

    def killed(self, piece, last):
        calls.append(len(piece))
        if len(calls) == 20:
            raise KeyboardInterrupt
        return encode(self, piece, last)

    monkeypatch.setattr(coders.Characters, "encode", killed)
    with pytest.raises(KeyboardInterrupt):
        make(written, "characters")
    before = sum(calls)
    task = make(written, "characters")
    assert sum(calls) - before < 60_000 - 15_000  # it did not start over
    assert task.decode(task.tokens.training) + task.decode(task.tokens.held_out) == written.read_text("utf-8")
    whole = np.array(task.tokens.training)
    (made,) = tmp_path.rglob("characters-training.bin")
    made.write_bytes(made.read_bytes()[:-5])  # and one that is not whole is not believed
    assert np.array_equal(make(written, "characters").tokens.training, whole)


def test_byte_pairs_are_those_of_each_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(coders, "BLOCK", 50)
    monkeypatch.setattr(corpus.pieces, "__defaults__", (0, math.inf, 500))
    rng = np.random.default_rng(0)
    marks = ["\n", "\n\n", "\r\n", "  \n", "\n    ", "\t", " ", "  ", "\u2028", ""]
    text = "".join(WORDS[i] + marks[j] for i, j in rng.integers((len(WORDS), len(marks)), size=(4000, 2)))
    (tmp_path / "corpus.txt").write_bytes(text.encode())
    task = make(tmp_path / "corpus.txt", "bpe", vocabulary=600)
    made = np.concatenate([task.tokens.training, task.tokens.held_out])
    at = len(text.encode()) - task.tokens.held_out_bytes
    parts = text.encode()[:at].decode(), text.encode()[at:].decode()
    assert made.tolist() == [token for part in parts for token in task.encode(part)]
    learned = task._pairs()
    lines = [line for part in parts for line in part.splitlines(keepends=True)]
    assert made.tolist() == [token for line in lines for token in learned.encode(line).ids]


def test_two_processes_tokenize_a_corpus_once(written, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    encode, calls = coders.Characters.encode, []

    def slow(self, piece, last):
        calls.append(len(piece))
        time.sleep(0.2)
        return encode(self, piece, last)

    monkeypatch.setattr(coders.Characters, "encode", slow)
    digest = corpus.register(str(written))
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(corpus.tokens, digest, "characters", 300).result for _ in range(2)]
        one, other = both[0](), both[1]()
    assert len(calls) == 2  # the training part and the held-out part, by one of them
    assert np.array_equal(one.training, other.training)


def test_a_corpus_that_changes_while_it_is_read_is_refused_and_nothing_of_it_is_kept(written, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "corpus.txt"
    path.write_bytes(written.read_bytes())
    encode = coders.Characters.encode

    def changed(self, piece, last):
        path.write_bytes(written.read_bytes().swapcase())
        return encode(self, piece, last)

    with monkeypatch.context() as patch:
        patch.setattr(coders.Characters, "encode", changed)
        with pytest.raises(ValueError, match="the corpus changed while it was read"):
            make(path, "characters")
    path.write_bytes(written.read_bytes())
    task = make(path, "characters")
    assert task.decode(task.tokens.training) + task.decode(task.tokens.held_out) == written.read_text("utf-8")


@pytest.mark.parametrize("kind", ["characters", "bpe"])
@pytest.mark.parametrize("content", [b"", b'{"a": 1}', b'{"alphabet": [5]}', b'{"digest'])
def test_whatever_is_damaged_in_the_cache_is_made_again(written, tmp_path, monkeypatch, kind, content):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tokens = make(written, kind).tokens
    training, held_out = np.array(tokens.training), np.array(tokens.held_out)
    damaged = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert len(damaged) == 8
    for path in damaged:
        path.write_bytes(content)
        tokens = make(written, kind).tokens
        assert np.array_equal(tokens.training, training)
        assert np.array_equal(tokens.held_out, held_out)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_per_byte_are_the_loss_of_the_held_out_bytes(written, kind):
    task = make(written, kind)
    cfg = config.load("task=text", f"task.path={written}", f"task.tokens={kind}", "task.vocabulary=300", *TINY)
    trainer = build(resolve(cfg))
    evaluation = evaluate(trainer.model.eval(), task, trainer.text, trainer.problems, 64)
    with torch.inference_mode():
        nats_N, _, _ = text_losses(trainer.model, trainer.text)
    per_token = task.tokens.held_out_bytes / len(task.tokens.held_out)
    assert evaluation.metrics["eval/bits_per_byte"] == pytest.approx(nats_N.mean().item() / math.log(2) / per_token)
    assert evaluation.slices.keys() == {"answer_position"}
    assert evaluation.slices["answer_position"].keys() == {str(i) for i in range(1, 65)}


def test_a_run_from_the_command_line_learns_resumes_samples_and_tells_no_path(written, tmp_path, capsys):
    chosen = [*TINY, "task=text", f"task.path={written}", "task.tokens=characters", "eval.lengths=[64,128]"]
    content = run([*chosen, f"out={tmp_path}", "train.steps=60", "train.lr=1e-2", "eval.every=30"])
    assert content["status"] == "finished"
    assert content["metrics"]["eval/loss"] < 0.8 * math.log(25)
    assert content["slices"]["length_loss"].keys() == {"64", "128"}
    assert str(written.parent) not in json.dumps(content)
    assert all(row.keys() == {"prompt", "completion", "written"} for row in content["samples"])
    folder = only_folder(tmp_path)
    capsys.readouterr()
    sample.main([str(folder), "Er läuft", "--temperature", "0.5", "--top-k", "3"])
    first = capsys.readouterr().out
    sample.main([str(folder), "Er läuft", "--temperature", "0.5", "--top-k", "3"])
    assert capsys.readouterr().out == first
    sample.main([str(folder), "-n", "2"])
    assert capsys.readouterr().out.count(" → ") >= 2
    written_before = written.stat().st_mtime_ns
    assert run([*chosen, f"out={tmp_path}", "train.steps=60", "train.lr=1e-2", "eval.every=30"]) == content
    assert written.stat().st_mtime_ns == written_before


def test_a_corpus_that_has_changed_is_refused_where_a_run_is_read(written, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes(written.read_bytes())
    run([*TINY, "task=text", f"task.path={path}", f"out={tmp_path / 'runs'}"])
    path.write_bytes(written.read_bytes()[::-1])
    with pytest.raises(SystemExit, match=r"corpus=\w{16}: its files have changed since, they are \w{16} now"):
        sample.main([str(only_folder(tmp_path / "runs"))])


BAD = {
    "no.txt": (None, [], "no such file"),
    "": (None, [], "path: is empty"),
    "empty": (Path.mkdir, [], "empty: holds no file"),
    "pipe": (os.mkfifo, [], "pipe: is not a regular file"),
    "empty.txt": (b"", [], "empty.txt: the corpus is too small"),
    "tiny.txt": (b"a few words" * 20, [], "too small"),
    "latin.txt": ("läuft ".encode("latin-1") * 5000, ["task.tokens=characters"], "latin.txt is not UTF-8"),
    "other.txt": (b"abc " * 5000, ["task.corpus=0123456789abcdef"], "give one of the two"),
    "late.txt": (b"abc " * 5000 + b"xyz", ["task.tokens=characters"], "'xyz' stand in the held-out part alone"),
    "small.txt": (b"abc " * 5000, ["task.tokens=bpe", "task.vocabulary=256"], "more than the 256 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_corpus_that_cannot_be_used_is_named_in_one_line(name, tmp_path):
    content, settings, said = BAD[name]
    path = tmp_path / name if name else ""
    if callable(content):
        content(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        build(resolve(config.load("task=text", f"task.path={path}", *settings, *TINY)))
    assert said in str(refused.value)
    assert str(refused.value).startswith("task.")
    assert "\n" not in str(refused.value)


def test_bytes_take_any_file(tmp_path):
    (tmp_path / "latin.txt").write_bytes("läuft ".encode("latin-1") * 5000)
    assert len(make(tmp_path / "latin.txt").alphabet) == 256


def test_byte_pairs_without_their_package_are_answered(written, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ConfigError, match="needs the package tokenizers"):
        build(resolve(config.load("task=text", f"task.path={written}", "task.tokens=bpe", *TINY)))


def test_without_a_path_it_is_pythons_own_library():
    task = config.build_task(resolve_task("task=text"))
    assert len(task.tokens.training) > 10**6
    assert "import " in task.decode(task.tokens.training[:200_000])
    batch = data.training_batch(task, 0, 0, 4, 64)
    assert batch.inputs_BT.shape == (4, 64)


def resolve_task(*overrides: str):
    return resolve(config.load(*overrides))
