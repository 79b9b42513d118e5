"""Build pages for a static web host, README, docs/ and results/ as HTML: `python
scripts/make_site.py FOLDER`.

Pages keep their places. Files of the repository that they link to are copied.
"""

import html
import re
import shutil
import sys
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
MARK = ".made_by_rope_lab"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark }}
body {{ max-width: 66rem; margin: 0 auto; padding: 1rem; font: 16px/1.5 system-ui, sans-serif }}
table {{ display: block; overflow-x: auto; border-collapse: collapse }}
th, td {{ padding: .2rem .6rem; border: 1px solid #8888; text-align: left }}
p code, li code {{ overflow-wrap: anywhere }}
pre {{ overflow-x: auto; padding: .8rem; background: #8882 }}
img {{ max-width: 100% }} img[src*="figures/"], img[src$="overlay.svg"] {{ background: #fff }}
</style></head><body><nav>
<a href="{up}index.html">rope_lab</a> · <a href="{up}results/README.html">results</a> ·
<a href="{up}report.html">report</a>
</nav><main>
{body}</main></body></html>
"""


def address(page: Path) -> Path:
    """The path of a page in the site: the repository's README.md is index.html, others keep their
    names.
    """
    place = page.relative_to(ROOT)
    return Path("index.html") if place == Path("README.md") else place.with_suffix(".html")


def slug(heading: str) -> str:
    """A heading's anchor, as repository hosts make it."""
    text = html.unescape(re.sub(r"<.*?>", "", heading)).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def build(out: Path) -> None:
    """Write all pages, and the files that they link to, into `out`."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/*.md")]
    pages += [page for page in ROOT.glob("results/*/*.md") if page.parent.name != "runs"]
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    for page in pages:

        def linked(match: re.Match, page: Path = page) -> str:
            """A link or picture of the site; the text alone if the target (a folder) is not
            there.
            """
            name, link = match.groups()
            target = (page.parent / html.unescape(link)).resolve()
            if "://" in link:
                return match[0]
            if target in pages:
                return f'{name}="{Path(link).parent / address(target).name}'
            if not target.is_relative_to(ROOT) or not target.is_file():
                return f'data-{name}="{link}'
            copy = out / target.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)
            return match[0]

        # A badge of the host.
        text = re.sub(r"^\[!\[.*/actions/.*\n", "", page.read_text("utf-8"), flags=re.M)
        body = re.sub(r'\b(href|src|srcset)="([^"#]+)', linked, markdown.render(text))
        body = re.sub(
            r"<h(\d)>(.*?)</h\1>", lambda m: f'<h{m[1]} id="{slug(m[2])}">{m[2]}</h{m[1]}>', body
        )
        place = address(page)
        title, up = (
            html.escape(text.partition("\n")[0].removeprefix("# ")),
            "../" * (len(place.parts) - 1),
        )
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        (out / place).write_text(PAGE.format(title=title, up=up, body=body), "utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        sys.exit(f"{folder}: was not made by this command, and stays as it is; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    build(folder)
