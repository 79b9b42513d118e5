"""Run folders and kept files that were crafted or damaged, to harm whoever reads them: `python tests/crafted.py OUT`.

The same each time. FOLDERS and KEPT say what each is; SHOWN and HARMLESS, which of them are nothing to refuse.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]  # done to a good run's folder


def edited(**changes: Any) -> Damage:
    """`config__model={…}`: run.json with another value in that place."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / "run.json").read_text())
        for path, value in changes.items():
            node, keys = content, path.split("__")
            for key in keys[:-1]:
                node = node[key]
            node[keys[-1]] = value
        (folder / "run.json").write_text(json.dumps(content))

    return damage


def replaced(old: str, new: str) -> Damage:
    """run.json with another text in the place of one."""

    def damage(folder: Path) -> None:
        text = (folder / "run.json").read_text()
        assert old in text
        (folder / "run.json").write_text(text.replace(old, new))

    return damage


def written(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content) and None


def both(*damages: Damage) -> Damage:
    return lambda folder: [damage(folder) for damage in damages] and None


def cut(folder: Path) -> None:
    os.truncate(folder / "run.json", 300)


def huge(name: str) -> Damage:
    return lambda folder: os.truncate(folder / name, 2**31)  # sparse


def pipe(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


def folder_instead(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return damage


def link(name: str, target: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return damage


def appended(*lines: str) -> Damage:
    """metrics.jsonl with more lines."""

    def damage(folder: Path) -> None:
        with open(folder / "metrics.jsonl", "a") as file:
            file.write("".join(line + "\n" for line in lines))

    return damage


def parts(**changes: Any) -> Damage:
    """A run that was resumed: in its first part something was otherwise."""
    git, hardware = {"commit": "abcdef0123456789", "dirty": False}, {"device": "cpu", "name": "CPU", "threads": 1}
    first = {"code": "c0de", "git": git, "versions": {"torch": "2.13.0"}, "hardware": hardware}
    return edited(provenance__earlier=[first | changes])


MARKS = "<!-- to here --> <!-- generated from here -->"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202eevil\u2066\u200b"
MARKDOWN = "a | b\n\n# c\n- [d](http://e) ![f](http://g) `h` **i** <b>j</b> &amp; $k$ ~l~ _m_"
FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "'=quoted", "\t=tab")
MANY_KEYS = {str(i): [10**9, 0.5] for i in range(50)}
LOSSES = [json.dumps({"step": 100 + i, "train/loss": 1.0}) for i in range(1, 10)]

# What stands where such a thing may stand is shown, as it is.
SHOWN: dict[str, Damage] = {
    "mathtext in a setting": edited(config__model={"init": r"$\frac{1}{$ $\undefined$"}),
    "mathtext in a scheme": edited(config__position={"_target_": "Mine", "q": r"$x_{$"}),
    "markdown in a setting": edited(config__model={"init": MARKDOWN}),
    "markdown in a scheme": edited(config__position={"_target_": "Mine", "q": MARKDOWN}),
    "end marks in a setting": edited(config__model={"init": MARKS}),
    "escape sequences in a setting": edited(config__model={"init": ESCAPES}),
    "escape sequences in a scheme": edited(config__position={"_target_": ESCAPES}),
    "2,000 characters in a scheme": edited(config__position={"_target_": "m" * 2000}),
    "2,000 characters in a setting": edited(config__model={"init": "x" * 2000}),
    "markdown as hardware": edited(provenance__hardware__name=MARKDOWN),
    "end marks as hardware": edited(provenance__hardware__name=MARKS),
    "escape sequences as torch": edited(provenance__versions__torch=ESCAPES),
    **{f"formula {i} as hardware": edited(provenance__hardware__name=text) for i, text in enumerate(FORMULAS)},
    "formula as code": edited(provenance__code=FORMULAS[0]),
    "formula as a metric": edited(metrics={"eval/accuracy": 0.5, "eval/loss": 0.5, "=cmd|x": -1.5}),
    "markdown as an attribute": edited(slices={MARKDOWN[:100]: {"1": [10, 0.5]}}),
    "mathtext as an attribute": edited(slices={r"$\frac{$": {"1": [10, 0.5]}}),
    "letters that no font has": edited(config__position={"_target_": "位置 🜁"}),
    "32 attributes": edited(slices={f"a{i}": {"1": [10, 0.5], "2": [10, 0.25]} for i in range(32)}),
    "counts that no memory holds": edited(slices={"index": MANY_KEYS}),
    "negative attributes": edited(slices={"index": {"-5": [1, 0.5], "7": [2, 0.5]}}),
    "other lengths than the rest": edited(slices={"length": {"3": [9, 0.5]}}),
    "5,000 lengths": edited(slices={"length": {str(i): [9, 0.5] for i in range(5000)}}),
    "text as the length of training": edited(config__task={"string_length": "long"}, slices={"length": {"3": [9, 1]}}),
    "a length of training of 1e99": edited(config__task={"string_length": 10**99}, slices={"length": {"3": [9, 1]}}),
    "a floor without places": edited(floor={"loss": 0.25, "place": {}}),
    "one attribute value": edited(slices={"index": {"0": [1, 0.0]}}),
    "no slices and no floor": edited(slices={}, floor={}),
    "a seed of 18 digits": edited(seed=10**17),
    "parts of other code": parts(code="other"),
    "parts of another torch": parts(versions={"torch": "1.0"}),
    "parts on other hardware": parts(hardware={"device": "cpu", "name": "GPU | <b>", "threads": 2}),
    "no commit": edited(provenance__git={"commit": None, "dirty": None}),
    "a commit of unknown changes": edited(provenance__git={"commit": "abcdef0123456789", "dirty": None}),
    "a last line that is cut": appended('{"step": 100, "eval/acc'),
    "metrics that are not numbers": appended('{"step": 110, "eval/loss": "x"}', '{"step": 120, "eval/loss": NaN}'),
    "steps that are none": appended('{"step": true, "a/b": 1}', '{"step": -5, "a/b": 1}', '{"step": 1.5, "a/b": 1}'),
    "steps that go back": appended('{"step": 50, "eval/loss": 1}', '{"step": 0, "eval/loss": 1}'),
    "deep nesting in metrics": appended("[" * 100_000, '{"step": ' * 100_000),
    "bytes in metrics": written("metrics.jsonl", bytes(range(256)) * 10 + b"\n"),
    "no metrics": lambda folder: (folder / "metrics.jsonl").unlink(),
    "a million lines": written("metrics.jsonl", b'{"step": 1, "eval/accuracy": 0.5}\n' * 1_000_000),
    "a hundred thousand evaluations": both(
        edited(progress__steps=99_999, metrics={"eval/accuracy": 0.0}),
        written(
            "metrics.jsonl", b"".join(b'{"step": %d, "eval/accuracy": 0.%d}\n' % (i, i % 9) for i in range(100_000))
        ),
    ),
}

# Of these one line says what is wrong, and they are left out.
REFUSED: dict[str, Damage] = {
    "no problems": edited(config__eval={"problems": 0}),
    "no problems at the end": edited(config__eval={"problems": 8, "problems_at_end": 0}),
    "no batch": edited(config__train={"steps": 1, "batch_size": 0, "seq_len": 8}),
    "a true batch": edited(config__train={"steps": 1, "batch_size": True, "seq_len": 8}),
    "text as steps": edited(config__train={"steps": "many", "batch_size": 1, "seq_len": 8}),
    "text as seed": edited(seed="0"),
    "a true seed": edited(seed=True),
    "a negative seed": edited(seed=-1),
    "negative steps": edited(progress__steps=-100),
    "tokens of 4,000 digits": edited(progress__tokens=10**4000),
    "tokens of 5,000 digits": replaced('"tokens": 25600', f'"tokens": 1{"0" * 5000}'),
    "seconds that are no number": edited(progress__seconds=float("nan")),
    "a rate of 400 digits": edited(config__model={"d_model": 10**400}),
    "a rate that is infinite": edited(config__model={"dropout": float("inf")}),
    "text as metric": edited(metrics={"eval/accuracy": "0.5"}),
    "metrics that are none": edited(metrics={"eval/accuracy": float("nan")}),
    "more than all right": edited(metrics={"eval/accuracy": 7.0}),
    "a list of metrics": edited(metrics=[["eval/accuracy", 0.5]]),
    "400 metrics": edited(metrics={f"eval/{i}": 0.5 for i in range(400)}),
    "a metric without a name": edited(metrics={"": 0.5, "eval/accuracy": 0.5}),
    "another accuracy than its curve": edited(metrics={"eval/accuracy": 0.99, "eval/loss": 0.5}),
    "no task": edited(task=None),
    "mathtext as task": edited(task="$x$"),
    "a path as scheme": edited(position="../../escaped"),
    "an option as scheme": edited(position="-rf"),
    "250 characters as scheme": edited(position="p" * 250),
    "250 characters as task": edited(task="t" * 250),
    "a newline as scale": edited(scale="quick\n"),
    "a surrogate as scale": edited(scale="\ud800"),
    "a surrogate in a setting": edited(config__model={"init": "\udfff"}),
    "a surrogate as a setting": edited(config__model={"\ud800": 1}),
    "a setting of 100,000 characters": edited(config__model={"init": "x" * 100_000}),
    "a list of 100,000": edited(config__model={"init": [1] * 100_000}),
    "settings that are lists of lists": edited(config__model={"init": [[1]]}),
    "500 settings": edited(config__model={f"s{i}": i for i in range(500)}),
    "hardware of 100,000 characters": edited(provenance__hardware__name="x" * 100_000),
    "an option as commit": edited(provenance__git={"commit": "--output=x", "dirty": False}),
    "an arrow as code": edited(provenance__code="a → b"),
    "an unheard-of status": edited(status="done\n"),
    "parts that are no list": edited(provenance__earlier="c0de"),
    "parts that say nothing": edited(provenance__earlier=[{}]),
    "400 attributes": edited(slices={f"a{i}": {"1": [10, 0.5]} for i in range(400)}),
    "attributes without values": edited(slices={"index": {}}),
    "a list of slices": edited(slices=[1, 2]),
    "a slice of nothing": edited(slices={"index": {"0": [0, 0.5]}}),
    "a slice of one number": edited(slices={"index": {"0": [1]}}),
    "slices by words": edited(slices={"index": {"zero": [1, 0.5]}}),
    "slices by other digits": edited(slices={"index": {"１": [1, 0.5]}}),
    "a floor that is a list": edited(floor=[0.5]),
    "a floor without a loss": edited(floor={"place": {}}),
    "a floor with more": edited(floor={"loss": 0.1, "place": {}, "more": [[]]}),
    "deep nesting": replaced('"d_model": 16', '"d_model": ' + "[" * 100_000 + "]" * 100_000),
    "nesting as deep as may be read": replaced('"d_model": 16', '"d_model": ' + '{"a": ' * 900 + "1" + "}" * 900),
    "a list": written("run.json", b"[1, 2]"),
    "a number": written("run.json", b"5"),
    "nothing": written("run.json", b""),
    "half": cut,
    "bytes": written("run.json", bytes(range(256))),
    "2 GiB": huge("run.json"),
    "2 GiB of metrics": huge("metrics.jsonl"),
    "a pipe": pipe("run.json"),
    "a pipe of metrics": pipe("metrics.jsonl"),
    "a folder": folder_instead("run.json"),
    "a folder of metrics": folder_instead("metrics.jsonl"),
    "a link to nowhere": link("run.json", "nowhere"),
    "a link to itself": link("run.json", "run.json"),
    "a link without end": link("run.json", "/dev/zero"),
    "steps after the end": appended(*LOSSES),
    "metrics that are not those of run.json": edited(digests={"metrics.jsonl": "0" * 16}),
    "a seal that is broken": edited(format=1, digest="0" * 16),
}
FOLDERS = SHOWN | REFUSED


def name_of(what: str) -> str:
    """The name of a crafted folder."""
    return what.replace(" ", "-").replace(",", "")


# Kept files: (rows.csv, curves.jsonl) to the same, damaged. Both hold two runs or more, of several metrics each.
Kept = Callable[[str, str], tuple[str | bytes, str | bytes]]


def line(number: int, change: Callable[[str], str]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        lines = text.split("\n")
        lines[number] = change(lines[number])
        return "\n".join(lines)

    return changed


def in_rows(change: Callable[[str], str | bytes]) -> Kept:
    return lambda rows, curves: (change(rows), curves)


def in_curves(change: Callable[[str], str | bytes]) -> Kept:
    return lambda rows, curves: (rows, change(curves))


def cell(number: int, value: str, at: int = 3) -> Kept:
    """Another value in a cell of a line of rows.csv."""

    def change(text: str) -> str:
        cells = text.split(",")
        cells[number] = value
        return ",".join(cells)

    return in_rows(line(at, change))


def swapped(text: str) -> str:
    head, *lines = text.split("\n")
    return "\n".join([head, *reversed(lines[:-1]), ""])


def json_line(change: Callable[[dict], Any]) -> Kept:
    """Another object in the first line of curves.jsonl."""

    def changed(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return in_curves(line(0, changed))


def curve(part: int, change: Callable[[list], Any]) -> Kept:
    """Other steps (0) or values (1) in the curve of accuracy."""
    return json_line(lambda content: change(content["curves"]["eval/accuracy"][part]))


HARMLESS: dict[str, Kept] = {
    "line ends of Windows": in_rows(lambda text: text.replace("\n", "\r\n")),
    "no line end at the end": in_rows(lambda text: text.rstrip("\n")),
    "every cell quoted": in_rows(
        lambda text: "\n".join(f'"{row.replace(",", chr(34) + "," + chr(34))}"' for row in text.split("\n")[:-1])
    ),
    "rows in another order": in_rows(swapped),
}
DAMAGED: dict[str, Kept] = {
    "a stray quote before a cell": in_rows(line(2, lambda row: row.replace(",quick", ',"quick', 1))),
    "a stray quote in a cell": in_rows(line(2, lambda row: row.replace("quick", 'qu"ick', 1))),
    "a stray quote after a cell": in_rows(line(2, lambda row: row.replace("quick", 'quick"', 1))),
    "a stray quote in a quoted cell": in_rows(line(2, lambda row: row.replace("quick", '"qu"ick"', 1))),
    "a stray quote at the end": in_rows(lambda text: text + '"'),
    "two stray quotes": in_rows(
        lambda text: line(4, lambda row: row.replace(",quick", ',"quick', 1))(text).replace("CPU", 'CPU"', 1)
    ),
    "a byte of Latin-1 in rows": in_rows(lambda text: text.replace("CPU", "µCPU", 1).encode("latin-1")),
    "a byte of Latin-1 in curves": in_curves(lambda text: text.replace("quick", "qüick", 1).encode("latin-1")),
    "a byte order mark in rows": in_rows(lambda text: "\ufeff" + text),
    "a byte order mark in curves": in_curves(lambda text: "\ufeff" + text),
    "semicolons": in_rows(lambda text: text.replace(",", ";")),
    "tabs": in_rows(lambda text: text.replace(",", "\t")),
    "decimal commas": in_rows(lambda text: text.replace(".", ",")),
    "UTF-16 rows": in_rows(lambda text: text.encode("utf-16")),
    "UTF-16 curves": in_curves(lambda text: text.encode("utf-16")),
    "no bytes of rows": in_rows(lambda text: ""),
    "no bytes of curves": in_curves(lambda text: ""),
    "zeros": in_rows(lambda text: "\0" * len(text)),
    "zeros at the end": in_rows(lambda text: text[:-200] + "\0" * 200),
    "a head that is missing": in_rows(lambda text: text.partition("\n")[2]),
    "a head that is renamed": in_rows(lambda text: text.replace("run_id", "run id", 1)),
    "a head in the middle": in_rows(lambda text: text + text.partition("\n")[0] + "\n"),
    "a column that is missing": in_rows(lambda text: "\n".join(row.partition(",")[2] for row in text.split("\n"))),
    "a cell too many": in_rows(line(3, lambda row: row + ",")),
    "a cell too few": in_rows(line(3, lambda row: row.rpartition(",")[0])),
    "half of the last row": in_rows(lambda text: text[:-40]),
    "a row twice": in_rows(line(3, lambda row: row + "\n" + row)),
    "a row that is missing": in_rows(lambda text: "\n".join(row for i, row in enumerate(text.split("\n")) if i != 2)),
    "an empty row": in_rows(line(3, lambda row: "")),
    "a cell of 200,000 characters": cell(15, "x" * 200_000),
    "another accuracy": cell(-1, "0.123456", at=1),
    "another loss": cell(-1, "0.123456", at=2),
    "text as value": cell(-1, "0.5x"),
    "nothing as value": cell(-1, ""),
    "not a number": cell(-1, "nan"),
    "infinity": cell(-1, "-inf"),
    "more than is": cell(-1, "1e400"),
    "another name of a metric": cell(-2, "eval/los", at=2),
    "other steps in one row": cell(7, "101"),
    "other hardware in one row": cell(15, "GPU"),
    "text as seed": cell(4, "zero"),
    "a negative seed": cell(4, "-1"),
    "another status": cell(6, "done"),
    "a path as scale": cell(1, "../x"),
    "marks of a merge in rows": in_rows(line(3, lambda row: f"<<<<<<< HEAD\n{row}\n=======\n{row}\n>>>>>>> other")),
    "marks of a merge in curves": in_curves(lambda text: f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> other\n"),
    "a line of curves twice": in_curves(line(0, lambda text: text + "\n" + text)),
    "a line of curves that is missing": in_curves(lambda text: text.partition("\n")[2]),
    "half of the last line": in_curves(lambda text: text[:-200]),
    "an escape sequence as a run's name": json_line(lambda run: run.update(run_id="gone", run=ESCAPES * 1000)),
    "a number as a line": in_curves(line(0, lambda text: "5")),
    "a list as a line": in_curves(line(0, lambda text: "[]")),
    "deep nesting in curves": in_curves(line(0, lambda text: "[" * 100_000)),
    "another last value": curve(1, lambda values: values.__setitem__(-1, 0.123456)),
    "a curve with a value too few": curve(1, lambda values: values.pop()),
    "a curve with no values": json_line(lambda run: run["curves"].update({"eval/accuracy": [[], []]})),
    "a curve of objects": json_line(lambda run: run["curves"].update({"eval/accuracy": [{}, {}]})),
    "a curve that is a number": json_line(lambda run: run["curves"].update({"eval/accuracy": 5})),
    "curves that are a list": json_line(lambda run: run.update(curves=[])),
    "steps that go back in a curve": curve(0, lambda steps: steps.reverse()),
    "a step after the end": curve(0, lambda steps: steps.__setitem__(-1, 10**6)),
    "a step that is true": curve(0, lambda steps: steps.__setitem__(0, False)),
    "a value that is text": curve(1, lambda values: values.__setitem__(0, "0")),
    "a value that is none": curve(1, lambda values: values.__setitem__(0, float("nan"))),
    "slices that are empty": json_line(lambda run: run["slices"].update(index={})),
    "settings that are missing": json_line(lambda run: run["settings"].clear()),
    "a key that is missing": json_line(lambda run: run.pop("floor")),
    "a key too many": json_line(lambda run: run.update(more=1)),
}
KEPT = HARMLESS | DAMAGED


def make_folders(make_run: Callable[..., Path], place: Path, what: str) -> list[Path]:
    """A crafted run twice in `place`: among the good runs there, and as the only one of its recipe."""
    seed = list(FOLDERS).index(what)
    folders = []
    for recipe in ("usual", f"crafted{seed}"):
        changes = {} if recipe == "usual" else {"recipe": recipe}
        folder = make_run(place, "none", seed, 0.5, **changes, name=f"{recipe}-{seed}")
        FOLDERS[what](folder)
        folders.append(folder.rename(place / f"{name_of(what)}-{recipe}"))
    return folders


def make_kept(place: Path, what: str, rows: str, curves: str) -> None:
    """Kept files that are damaged."""
    place.mkdir(parents=True, exist_ok=True)
    for name, content in zip(("rows.csv", "curves.jsonl"), KEPT[what](rows, curves), strict=True):
        (place / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def main() -> None:
    """Writes each crafted folder beside two good ones, and each pair of kept files, to try them by hand."""
    from builders import make_run

    from rope_lab.results.__main__ import main as results

    out = Path(sys.argv[1])
    for what in FOLDERS:
        for scheme in ("rope", "roper"):
            make_run(out / "folders" / name_of(what), scheme, 0, 0.5, slices={"length": {"3": [9, 0.5], "9": [9, 0.5]}})
        make_folders(make_run, out / "folders" / name_of(what), what)
    for scheme in ("rope", "roper"):
        make_run(out / "good", scheme, 0, 0.5)
    results([str(out / "good"), "--keep", "--into", str(out / "whole")])
    rows, curves = ((out / "whole" / name).read_text() for name in ("rows.csv", "curves.jsonl"))
    for what in KEPT:
        make_kept(out / "kept" / name_of(what), what, rows, curves)


if __name__ == "__main__":
    main()
