"""Download a corpus of conf/corpus/: `python scripts/get_corpus.py NAME [--into FOLDER]`.

Training downloads nothing: `+corpus=NAME` reads the file that this writes. Data sets need the
package datasets; tinyshakespeare, one file, does not.
"""

import argparse
import os
import secrets
import sys
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

DATA_SETS = {  # name → arguments of datasets.load_dataset
    "wikitext103": ("Salesforce/wikitext", "wikitext-103-raw-v1"),
    "fineweb_edu": ("HuggingFaceFW/fineweb-edu", "sample-10BT"),
}
TEXTS = {
    "tinyshakespeare": "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=[*TEXTS, *DATA_SETS])
    parser.add_argument(
        "--into", type=Path, default=Path(os.environ.get("ROPE_LAB_CORPORA", "corpora"))
    )
    given = parser.parse_args(arguments)
    path = given.into / f"{given.name}.txt"
    if os.path.lexists(path):
        sys.exit(f"{path} is there already")
    parts = text(given.name) if given.name in TEXTS else rows(given.name)
    given.into.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.writelines(parts)
        os.link(part, path)  # unlike a rename, replaces nothing
    except FileExistsError:
        sys.exit(f"{path} is there already, from another download; nothing was written")
    finally:
        part.unlink(missing_ok=True)
    print(f"written: {path}")


def text(name: str) -> list[bytes]:
    """A text that is one file."""
    try:
        with urllib.request.urlopen(TEXTS[name], timeout=60) as response:
            return [response.read()]
    except (OSError, HTTPException) as error:
        sys.exit(f"{TEXTS[name]}: {error}")


def rows(name: str) -> Iterator[bytes]:
    """The rows of a data set, each with a line break."""
    try:
        import datasets
    except ImportError:
        sys.exit("needs the package datasets: pip install datasets")
    found = datasets.load_dataset(*DATA_SETS[name], split="train", streaming=True)
    return (f"{row['text']}\n".encode() for row in found)


if __name__ == "__main__":
    main()
