"""Download a corpus of conf/corpus/: `python scripts/get_corpus.py NAME [--into FOLDER]`.

Training downloads nothing: `+corpus=NAME` reads the file that this writes. Needs the package
datasets.
"""

import argparse
import os
import secrets
import sys
from pathlib import Path

SOURCES = {  # name → arguments of datasets.load_dataset
    "wikitext103": ("Salesforce/wikitext", "wikitext-103-raw-v1"),
    "fineweb_edu": ("HuggingFaceFW/fineweb-edu", "sample-10BT"),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=SOURCES)
    parser.add_argument(
        "--into", type=Path, default=Path(os.environ.get("ROPE_LAB_CORPORA", "corpora"))
    )
    given = parser.parse_args(arguments)
    path = given.into / f"{given.name}.txt"
    if os.path.lexists(path):
        sys.exit(f"{path} is there already")
    try:
        import datasets
    except ImportError:
        sys.exit("needs the package datasets: pip install datasets")
    rows = datasets.load_dataset(*SOURCES[given.name], split="train", streaming=True)
    given.into.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            for row in rows:
                file.write(row["text"] + "\n")
        os.link(part, path)  # unlike a rename, replaces nothing
    except FileExistsError:
        sys.exit(f"{path} is there already, from another download; nothing was written")
    finally:
        part.unlink(missing_ok=True)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
