"""Run folders that were crafted or damaged: SHOWN are shown as they are, REFUSED are named in a line and left out."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rope_lab.files import as_json, sealed

Damage = Callable[[Path], Any]  # done to a good run's folder


def edited(**changes: Any) -> Damage:
    """`config__model={…}`: run.json with another value in that place, and its digest."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / "run.json").read_text())
        for path, value in changes.items():
            node, keys = content, path.split("__")
            for key in keys[:-1]:
                node = node[key]
            node[keys[-1]] = value
        (folder / "run.json").write_bytes(as_json(sealed(content)))

    return damage


def appended(*lines: str) -> Damage:
    """metrics.jsonl with more lines."""

    def damage(folder: Path) -> None:
        with open(folder / "metrics.jsonl", "a") as file:
            file.writelines(line + "\n" for line in lines)

    return damage


def instead(name: str, make: Callable[[Path], Any]) -> Damage:
    """Something else in the place of a file."""

    def damage(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return damage


MARKS = "<!-- to here --> <!-- generated from here -->"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202eevil\u2066\u200b"
MARKDOWN = "a | b\n\n# c\n- [d](http://e) ![f](http://g) `h` **i** <b>j</b> &amp; $k$ ~l~ _m_"

SHOWN: dict[str, Damage] = {
    "mathtext in a setting": edited(config__model={"init": r"$\frac{1}{$ $\undefined$"}),
    "mathtext in a scheme": edited(config__position={"_target_": "Mine", "q": r"$x_{$"}),
    "markdown in a setting": edited(config__model={"init": MARKDOWN}),
    "markdown as hardware": edited(provenance__hardware__name=MARKDOWN),
    "end marks in a scheme": edited(config__position={"_target_": MARKS}),
    "escapes as torch": edited(provenance__versions__torch=ESCAPES),
    "no metrics": edited(metrics={}),
    "no slices": edited(slices={}),
    "no commit": edited(provenance__git={"commit": None, "dirty": None}),
    "half a line of metrics": appended('{"step": 150, "eval/accu'),
}
REFUSED: dict[str, Damage] = {
    "half of run.json": lambda folder: os.truncate(folder / "run.json", 300),
    "an empty run.json": lambda folder: os.truncate(folder / "run.json", 0),
    "a pipe as run.json": instead("run.json", os.mkfifo),
    "a link to nowhere": instead("run.json", lambda path: path.symlink_to("nowhere")),
    "a changed bit": lambda folder: (folder / "run.json").write_text(
        (folder / "run.json").read_text().replace('"seed": 0', '"seed": 1').replace('"steps": 100', '"steps": 101')
    ),
    "other metrics than its digest": edited(digests={"metrics.jsonl": "0" * 16}),
    "no progress": edited(progress={}),
    "a path as scale": edited(scale="../../escaped"),
    "text as seed": edited(seed="zero"),
    "a status of another program": edited(status="done"),
    "text as accuracy": edited(metrics={"eval/accuracy": "good"}),
    "an accuracy above 1": edited(metrics={"eval/accuracy": 1.5}),
    "no steps": edited(config__train={"batch_size": 4, "seq_len": 64}),
    "steps that go back": appended('{"step": 50, "eval/accuracy": 0.5}'),
    "an infinite loss": appended('{"step": 110, "eval/loss": Infinity}'),
    "code without numerics": edited(provenance__numerics=None),
}
FOLDERS = SHOWN | REFUSED


def make_folders(make_run: Callable[..., Path], place: Path, what: str) -> list[Path]:
    """A crafted run twice in `place`: among the good runs there, and as the only one of its recipe."""
    seed, folders = list(FOLDERS).index(what), []
    for recipe in ("usual", f"crafted{seed}"):
        changes = {} if recipe == "usual" else {"recipe": recipe}
        folder = make_run(place, "none", seed, 0.5, **changes, name=f"{recipe}-{seed}")
        FOLDERS[what](folder)
        folders.append(folder.rename(place / f"{what.replace(' ', '-')}-{recipe}"))
    return folders
