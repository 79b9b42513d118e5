"""Build pages for a static web host, README, docs/ and results/ as HTML: `python
scripts/make_site.py FOLDER`.

Pages keep their places. Files of the repository that they link to are copied. search.html looks
through the sections of all pages.
"""

import html
import json
import re
import shutil
import sys
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
MARK = ".made_by_rope_lab"
NAV = {
    "rope_lab": "index.html",
    "schemes": "docs/schemes/README.html",
    "which scheme for what": "docs/which.html",
    "results": "results/README.html",
    "board": "results/board.html",
    "report": "report.html",
    "search": "search.html",
}
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
{nav}
</nav><main>
{body}</main></body></html>
"""
SEARCH = Path(__file__).with_name("site_search.html")
BADGE = re.compile(r"^\[!\[.*/actions/.*\n", re.MULTILINE)  # of the repository's host
HEADING = re.compile(r"<h(\d)>(.*?)</h\1>")
SECTION = re.compile(r'<h\d id="(.*?)">(.*?)</h\d>(.*?)(?=<h\d id=|\Z)', re.DOTALL)
TAG = re.compile(r"<[^>]*>")


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


def nav(up: str) -> str:
    """The links at the top of a page; up: the way to the site's root."""
    return " ·\n".join(f'<a href="{up}{place}">{name}</a>' for name, place in NAV.items())


def rendered(page: Path, pages: list[Path], out: Path) -> str:
    """The body of a page; files of the repository that it links to are copied."""

    def linked(match: re.Match) -> str:
        """A link or picture of the site; only its text if there is no such file."""
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

    def anchored(match: re.Match) -> str:
        level, heading = match.groups()
        return f'<h{level} id="{slug(heading)}">{heading}</h{level}>'

    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    body = markdown.render(BADGE.sub("", page.read_text("utf-8")))
    body = re.sub(r'\b(href|src|srcset)="([^"#]+)', linked, body)
    return HEADING.sub(anchored, body)


def plain(body: str) -> str:
    """The text of HTML, on one line."""
    return " ".join(html.unescape(TAG.sub(" ", body)).split())


def sections(place: Path, title: str, body: str) -> list[dict[str, str]]:
    """What the search finds of a page: `title address text` of each section."""
    found = []
    for anchor, heading, text in SECTION.findall(body):
        name = plain(heading)
        of_page = name if name == title else f"{title}: {name}"
        found.append({"title": of_page, "address": f"{place}#{anchor}", "text": plain(text)})
    return found


def build(out: Path) -> None:
    """Write all pages, and the files that they link to, into `out`."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/*.md")]
    pages += [page for page in ROOT.glob("results/*/*.md") if page.parent.name != "runs"]
    pages += ROOT.glob("results/compare/*/*.md")
    searched = []
    for page in pages:
        place = address(page)
        title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        body = rendered(page, pages, out)
        up = "../" * (len(place.parts) - 1)
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        text = PAGE.format(title=html.escape(title), nav=nav(up), body=body)
        (out / place).write_text(text, "utf-8")
        searched += sections(place, title, body)
    content = json.dumps(searched, ensure_ascii=False).replace("<", "\\u003c")
    search = SEARCH.read_text("utf-8").replace("{nav}", nav("")).replace("{sections}", content)
    (out / "search.html").write_text(search, "utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        sys.exit(f"{folder}: was not made by this command, and stays as it is; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    build(folder)
