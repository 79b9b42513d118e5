"""Real text: lossless tokens, no training on held-out text, corpora identified by their bytes."""

import hashlib
import importlib.util
import json
import math
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT, TINY, one_line, only_folder, slow_except
from trained import command, run

from rope_lab import probe, sample
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.records.folders import read
from rope_lab.results.records.run import from_record, to_record
from rope_lab.results.records.setups import setups_of
from rope_lab.text import ConfigError
from rope_lab.train import config
from rope_lab.train.evaluate import evaluate
from rope_lab.train.trainer import build, resolve
from tasks import corpus
from tasks.text import RealText

WORDS = ["Er", "läuft", "so", "schnell", "er", "kann,", "naïve", "→", "x", "\n"]
KINDS = ["bytes", "characters", "bpe"]


def words(n: int, seed: int = 0) -> str:
    return " ".join(WORDS[i] for i in np.random.default_rng(seed).integers(len(WORDS), size=n))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    corpus.warn.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def written(tmp_path) -> Path:
    """A corpus of about 60,000 bytes, with characters of one to three bytes."""
    path = tmp_path / "corpus.txt"
    path.write_text(words(12_000), "utf-8")
    return path


@pytest.fixture
def folder(written, tmp_path) -> Path:
    """A folder with that corpus as a.txt."""
    (tmp_path / "many").mkdir()
    shutil.copy(written, tmp_path / "many" / "a.txt")
    return tmp_path / "many"


def make(path, kind="bytes") -> RealText:
    if kind == "bpe":
        pytest.importorskip("tokenizers")
    return RealText(str(path), None, kind, vocabulary=300, context=32)


def decoded(task: RealText) -> tuple[str, str]:
    """The training and the held-out part."""
    return tuple(task.decode(part) for part in task.parts[:2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [7, 2**16])
def test_tokens_do_not_depend_on_the_blocks_read(written, kind, size, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", size)
    text = words(800).encode()
    halves = (
        part.decode("utf-8", "ignore")
        for part in (text[: -len(text) // 10], text[-len(text) // 10 :])
    )
    written.write_text("ﷺ".join(["", *halves]), "utf-8")  # a three-byte character at the split
    task = make(written, kind)
    training, held_out = decoded(task)
    assert (training + held_out).encode() == written.read_bytes()
    assert task.decode(task.encode("naïve → schnell")) == "naïve → schnell"
    assert abs(len(held_out.encode()) - written.stat().st_size / 10) <= 3


def test_every_held_out_token_is_evaluated_once(written):
    task = make(written)
    text = task.text(np.random.default_rng(0), 10**6, 33, held_out=True)
    joined = np.concatenate([text.tokens[0, :1], text.tokens[:, 1:].ravel()])
    assert np.array_equal(joined, task.parts[1][: len(joined)])
    assert len(task.parts[1]) - len(joined) < 32
    assert (text.answer_position == np.arange(33)).all()
    few = task.text(np.random.default_rng(0), 5, 33, held_out=True).tokens
    assert len(few) == 5
    assert {row.tobytes() for row in few} <= {row.tobytes() for row in text.tokens}


def test_training_stays_a_window_apart_from_held_out_text(written):
    task, context = make(written), 32
    end = len(task.parts[0]) - context
    task.parts = np.arange(len(task.parts[0]) % 2**16, dtype=np.uint16), *task.parts[1:]
    drawn = [task.text(np.random.default_rng(seed), 4096, context + 1).tokens for seed in range(20)]
    assert end - 100 < np.max(drawn) < end  # all but the window is used
    assert np.min(drawn) < 100


def test_a_corpus_is_known_by_its_bytes_not_its_path(written, tmp_path):
    copy = tmp_path / "other" / "name.txt"
    copy.parent.mkdir()
    copy.write_bytes(written.read_bytes())
    one, other = (config.load("task=text", f"task.path={path}") for path in (written, copy))
    ids = [config.identity(resolve(cfg)).run_id for cfg in (one, other)]
    assert ids[0] == ids[1]
    copy.write_bytes(written.read_bytes()[:-1] + b"!")
    assert config.identity(resolve(other)).run_id != ids[0]
    both = config.load("task=text", f"task.path={written}", "task.corpus=0123456789abcdef")
    with pytest.raises(ConfigError, match=r"task\.path is another one"):
        resolve(both)


def test_rows_longer_than_sixteen_bits_are_counted_whole(written):
    task = RealText(str(written))
    task.parts = task.parts[0], np.zeros(40_001, dtype=np.uint8), task.parts[2]
    text = task.text(np.random.default_rng(0), 1, 40_000, held_out=True)
    assert (text.answer_position[:, 1:] > 0).all()


def test_a_folder_is_its_files_and_a_pattern_some(written, tmp_path):
    content, folder = written.read_bytes(), tmp_path / "many"
    folder.mkdir()
    for name, part in (
        ("b.txt", content[30_000:]),
        ("a.txt", content[:30_000]),
        (".hidden", b"no"),
        ("c.md", b"no"),
    ):
        (folder / name).write_bytes(part)
    assert corpus.register(str(folder / "*.txt")) == corpus.register(str(written))
    assert corpus.register(str(folder)) != corpus.register(str(written))


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_with_two_names_is_read_once(written, folder, link, caplog):
    link(folder / "latest.txt", folder / "a.txt")
    training, held_out = decoded(make(folder))
    assert held_out[-500:] not in training
    assert training + held_out == written.read_text("utf-8")
    assert not caplog.messages


def test_two_files_with_the_same_text_are_named(folder, caplog):
    shutil.copy(folder / "a.txt", folder / "b.txt")
    (folder / "c.txt").write_bytes((folder / "a.txt").read_bytes().swapcase())
    make(folder)
    (warning,) = caplog.messages
    assert f"{folder}/b.txt is a copy of {folder}/a.txt" in warning


def test_a_corpus_that_grows_is_known_by_the_bytes_read(written, cache, monkeypatch, caplog):
    pieces = corpus._pieces

    def growing(files):
        yield from pieces(files)
        with written.open("a") as file:
            file.write("more, while it was read\n")

    monkeypatch.setattr(corpus, "_pieces", growing)
    task = make(written)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    copy = (cache / "rope_lab" / task.corpus / "text").read_bytes()
    assert task.corpus == hashlib.sha256(copy).hexdigest()[:16]
    assert any("changed while it was read" in message for message in caplog.messages)
    assert make(written).corpus != task.corpus  # it has grown since


def test_text_that_is_not_utf8_is_named_in_each_run(folder, caplog):
    (folder / "utf16.txt").write_bytes("ä".encode("utf-16") * 100)
    for _ in range(2):
        assert len(make(folder).alphabet) == 256
        assert len(make(folder).alphabet) == 256
        corpus.warn.cache_clear()  # as another process
    assert len(caplog.messages) == 2
    assert all("utf16.txt is not UTF-8 text" in warning for warning in caplog.messages)


def test_characters_of_the_held_out_part_alone_are_tokens_too(written):
    written.write_bytes(b"abc " * 5000 + b"`x")
    task = make(written, "characters")
    assert task.alphabet == list(" `abcx")
    assert "`" not in decoded(task)[0]
    assert decoded(task)[1].endswith("`x")
    with pytest.raises(ValueError, match=r"'é' not in the corpus; .*task.tokens=bytes"):
        task.encode("cabé")


# Bytes that BPE tokens show unchanged.
SHOWN = [
    *range(33, 127),
    *range(161, 173),
    *range(174, 256),
]
BYTE_OF = {chr(byte): byte for byte in SHOWN}
BYTE_OF |= {chr(256 + i): byte for i, byte in enumerate(sorted(set(range(256)) - set(SHOWN)))}
BYTES = {
    "bytes": lambda alphabet, tokens: bytes(tokens),
    "characters": lambda alphabet, tokens: "".join(alphabet[t] for t in tokens).encode(),
    "bpe": lambda alphabet, tokens: bytes(BYTE_OF[c] for t in tokens for c in alphabet[t]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 10**6])
def test_bits_per_byte_are_of_the_bytes_that_were_predicted(tmp_path, kind, rows):
    """ASCII, then Japanese, so that the bytes per token vary along the text."""
    japanese = "".join(map(chr, np.random.default_rng(0).integers(0x3042, 0x3090, size=600)))
    path = tmp_path / "mixed.txt"
    path.write_text((words(1800, 1) + japanese) * 4 + words(600, 2) + japanese, "utf-8")
    settings = [
        f"task.path={path}",
        f"task.tokens={kind}",
        "task.vocabulary=300",
        f"eval.sequences={rows}",
    ]
    trainer = build(resolve(config.load("task=text", *TINY, *settings)))
    found = evaluate(trainer.model.eval(), trainer.task, trainer.text, trainer.problems, 64).metrics
    nats, size = 0.0, 0
    for inputs, targets in zip(
        trainer.text.batch.inputs_BT, trainer.text.batch.targets_BT.tolist(), strict=True
    ):
        with torch.inference_mode():
            probabilities = trainer.model(inputs[None])[0].double().softmax(-1)
        nats -= sum(math.log(p[t]) for p, t in zip(probabilities.tolist(), targets, strict=True))
        predicted = BYTES[kind](trainer.task.alphabet, targets)
        assert predicted in path.read_bytes()
        size += len(predicted)
    assert found["eval/bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_a_text_run_learns_resumes_samples_and_names_no_path(written, tmp_path, capsys):
    chosen = [
        *TINY,
        "task=text",
        f"task.path={written}",
        "task.tokens=characters",
        "eval.lengths=[64,128]",
    ]
    chosen += [f"out={tmp_path / 'runs'}", "train.steps=60", "train.lr=1e-2", "eval.every=30"]
    content = run(chosen)
    assert content["status"] == "finished"
    assert content["metrics"]["eval/loss"] < 0.8 * math.log(25)
    assert content["slices"]["length_loss"].keys() == {"64", "128"}
    assert content["slices"]["answer_position"].keys() == {str(i) for i in range(1, 65)}
    assert all(row.keys() == {"prompt", "completion", "written"} for row in content["samples"])
    (shown,) = setups_of(read(tmp_path / "runs")[0], Catalogue())
    assert shown.title == f"Text ({written.name}, characters)"
    kept = shown.runs.run.iloc[0]
    assert from_record(to_record(kept)).data == kept.data == written.name
    folder = only_folder(tmp_path / "runs")
    told = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not any(
        str(written.parent).encode() in each for each in [json.dumps(content).encode(), *told]
    )
    sample.main([str(folder), "-n", "2"])
    assert capsys.readouterr().out.count(" → ") >= 2
    assert run(chosen) == content


@pytest.mark.parametrize("kind", slow_except(["characters"], ["characters", "bpe"]))
def test_a_finished_run_needs_its_corpus_for_held_out_text(written, tmp_path, cache, kind, capsys):
    chosen = [
        *TINY,
        "task=text",
        f"task.path={written}",
        f"task.tokens={kind}",
        "task.vocabulary=300",
    ]
    text = written.read_bytes()
    content = run([*chosen, f"out={tmp_path / 'runs'}"])
    folder = only_folder(tmp_path / "runs")

    def sampled() -> str:
        capsys.readouterr()
        sample.main([str(folder), "Er läuft", "--seed", "3"])
        return capsys.readouterr().out

    before = sampled()
    written.write_bytes(text[::-1])
    probe.main([str(folder), "shift=1"])  # the cache has a copy
    assert sampled() == before
    shutil.rmtree(cache)
    assert sampled() == before
    with pytest.raises(
        SystemExit, match=r"there is no copy of its text in .*task.path=…/corpus.txt"
    ) as refused:
        probe.main([str(folder), "shift=1"])
    assert "\n" not in str(refused.value)
    written.write_bytes(text)
    assert run([*chosen, f"out={tmp_path / 'runs'}"]) == content  # restores the cached copy
    capsys.readouterr()
    probe.main([str(folder), "shift=1"])
    assert "%" not in capsys.readouterr().out  # no problem of text is right or wrong


def test_runs_in_a_folder_do_not_change_its_corpus(folder):
    """Also with W&B files, tables and figures among the runs."""
    for _ in range(2):
        done = command([*TINY, "task=text", "task.path=.", "out=runs"], folder)
        assert (done.returncode, done.stderr) == (0, "")
        for name in ("wandb/run-1/files", "figures"):
            (folder / "runs" / name).mkdir(parents=True, exist_ok=True)
        for name in ("README.md", "report.html", "wandb/run-1/files/output.log", "figures/a.svg"):
            (folder / "runs" / name).write_text("of the program")
    assert len([*folder.glob("runs/*/run.json")]) == 1


BAD = {
    "no.txt": (None, [], "no.txt: there is no text"),
    "": (None, [], "there is no text"),
    "empty": (Path.mkdir, [], "empty: there is no text"),
    "pipe": (os.mkfifo, [], "pipe: there is no text"),
    "empty.txt": (b"", [], "empty.txt: there is no text"),
    "tiny.txt": (b"a few words" * 20, [], "too small"),
    "latin.txt": (
        "läuft ".encode("latin-1") * 5000,
        ["task.tokens=characters"],
        "latin.txt is not UTF-8",
    ),
    "small.txt": (
        b"abc " * 5000,
        ["task.tokens=bpe", "task.vocabulary=256"],
        "more than the 256 bytes",
    ),
    "short.txt": (
        b"abc " * 15_000,
        ["task.context=32", "train.seq_len=8000"],
        "8001 tokens in a row are more than the 6000",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_unusable_corpus_is_one_line(name, tmp_path):
    content, settings, said = BAD[name]
    path = tmp_path / name if name else ""
    if callable(content):
        content(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=one_line(said)) as refused:
        build(resolve(config.load("task=text", *TINY, *settings, f"task.path={path}")))
    assert str(refused.value).startswith(("task.", "task="))


def test_byte_pairs_without_their_package_are_answered(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match="needs the package tokenizers"):
        build(resolve(config.load("task=text", f"task.path={written}", "task.tokens=bpe", *TINY)))


@pytest.fixture
def script():
    """The module scripts/get_corpus.py."""
    spec = importlib.util.spec_from_file_location("get_corpus", ROOT / "scripts" / "get_corpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_download_is_a_file_that_replaces_none(script, tmp_path, monkeypatch):
    rows = [{"text": "first"}, {"page": "second"}]
    monkeypatch.setitem(
        sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *_, **__: rows)
    )
    with pytest.raises(KeyError):
        script.main(["wikitext103", "--into", str(tmp_path)])
    assert not (tmp_path / "wikitext103.txt").exists()
    rows[1] = {"text": "second"}
    script.main(["wikitext103", "--into", str(tmp_path)])
    assert (tmp_path / "wikitext103.txt").read_text() == "first\nsecond\n"
    with pytest.raises(SystemExit, match="is there already"):
        script.main(["wikitext103", "--into", str(tmp_path)])


def test_a_text_of_one_file_is_downloaded_as_it_is(script, tmp_path, monkeypatch):
    source = tmp_path / "input.txt"
    source.write_bytes(b"First Citizen:\r\nBefore\n")
    monkeypatch.setitem(script.TEXTS, "tinyshakespeare", source.as_uri())
    script.main(["tinyshakespeare", "--into", str(tmp_path / "corpora")])
    assert (tmp_path / "corpora" / "tinyshakespeare.txt").read_bytes() == source.read_bytes()
    monkeypatch.setitem(script.TEXTS, "tinyshakespeare", (tmp_path / "none").as_uri())
    with pytest.raises(SystemExit, match="none: "):
        script.main(["tinyshakespeare", "--into", str(tmp_path)])


def test_of_two_downloads_at_once_one_writes(script, tmp_path, monkeypatch, capsys):
    """The second one begins and ends while the first reads."""
    path = tmp_path / "wikitext103.txt"

    def first():
        yield {"text": "of the first"}
        monkeypatch.setitem(sys.modules, "datasets", loading([{"text": "of the second"}]))
        script.main(["wikitext103", "--into", str(tmp_path)])

    def loading(rows):
        return SimpleNamespace(load_dataset=lambda *_, **__: rows)

    monkeypatch.setitem(sys.modules, "datasets", loading(first()))
    with pytest.raises(SystemExit, match="nothing was written"):
        script.main(["wikitext103", "--into", str(tmp_path)])
    assert path.read_text() == "of the second\n"
    assert capsys.readouterr().out == f"written: {path}\n"
    assert list(tmp_path.iterdir()) == [path]
