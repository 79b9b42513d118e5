"""Show a scheme on one page: `rope-lab show SCHEME`, or `rope-lab show ./mine.py`.

Formula, settings, what it costs beside RoPE, and the scores and planned tests of kept runs.
`--html FILE` writes the page with its picture: scores by distance, and what else the scheme does to
values and keys, computed from the scheme itself. Pages of our schemes are in docs/schemes.
"""

import argparse
import contextlib
import html
import inspect
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

from rope_lab.exporting.command import TARGETS, supported
from rope_lab.files import check_ours, write_whole
from rope_lab.model.portrait import DIMS, portrait, same_values
from rope_lab.places import ROOT
from rope_lab.results.plans.names import recorded_name
from rope_lab.results.views.terminal import fitted
from rope_lab.shipped import choices
from rope_lab.showing import costs, measured
from rope_lab.showing.facts import facts
from rope_lab.showing.measured import Measured
from rope_lab.showing.page import Shown, page, picture
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, say, screen_width
from rope_lab.train import config, instantiate, trainer
from rope_lab.train.plugin import error_line

PAGES = ROOT / "docs" / "schemes"
FIGURE = "figures/{}.svg"
BEGIN = "<!doctype html>\n<!-- written by rope-lab show -->"
HTML = """{begin}
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark }}
body {{ max-width: 60rem; margin: 0 auto; padding: 1rem; font: 16px/1.5 system-ui, sans-serif }}
table {{ display: block; overflow-x: auto; border-collapse: collapse }}
th, td {{ padding: .2rem .6rem; border: 1px solid #8888; text-align: left }}
pre {{ overflow-x: auto; padding: .8rem; background: #8882 }}
svg {{ max-width: 100%; height: auto }}
</style></head><body>
{body}</body></html>
"""
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)\n\n[^\n]*\n\n")  # and its caption
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^)]*)\)")


def look(word: str, kept: Measured) -> Shown:
    """All that a page shows of a scheme, a name of ours or a file. Raises ConfigError."""
    cfg = trainer.resolve(config.load(f"position={word}", *costs.SIZE))
    with errors_of_hooks(word, cfg), same_values():
        scheme = config.build_position(cfg, DIMS)
        return Shown(
            word,
            facts(cfg.names.position, cfg.position),
            portrait(scheme),
            costs.cost(cfg),
            costs.usual(kept.catalogue.baseline),
            kept,
            TARGETS if cfg.names.position in supported() else (),
            costs.windowed(word, kept.catalogue.baseline),
        )


@contextlib.contextmanager
def errors_of_hooks(word: str, cfg: config.Config) -> Iterator[None]:
    """Raise an error of a scheme as a ConfigError that names its file, hook and line."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        file = inspect.getsourcefile(next(instantiate.classes(cfg.position)))
        every = traceback.extract_tb(error.__traceback__)
        hooks = [frame.name for frame in every if frame.filename == file]
        place = f"{hooks[0]}, " if hooks else ""
        said = f"{word}: {place}{error_line(error, file)}"
        raise ConfigError(f"{said}; rope-lab check position={word} says more") from None


def made(word: str) -> tuple[str, bytes] | None:
    """The page of one of our schemes, and its picture, as they stand in docs/; None if there is no
    such page.
    """
    path = PAGES / f"{word}.md"
    if word not in choices("position") or not path.exists():
        return None
    return path.read_text("utf-8"), (PAGES / FIGURE.format(word)).read_bytes()


def plain_text(text: str) -> str:
    """A page for a terminal: without its picture, with the addresses of links to other sites."""

    def written(link: re.Match) -> str:
        _, label, address = link.groups()
        return f"{label} ({address})" if "://" in address else label

    shown = LINK.sub(written, PICTURE.sub("", text))
    return fitted(re.sub(r"\n{3,}", "\n\n", shown), screen_width()).rstrip()


def as_html(text: str, svg: bytes) -> str:
    """A page as HTML that needs no other file; links to other pages become text. Raises
    ConfigError.
    """
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError:
        remedy = "pip install markdown-it-py"
        raise ConfigError(f"--html: markdown-it-py is not installed; {remedy}") from None

    def written(link: re.Match) -> str:
        is_picture, label, address = link.groups()
        return link[0] if is_picture or "://" in address else label

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    body = markdown.render(LINK.sub(written, text))
    body = re.sub("<img [^>]*>", lambda _: svg.decode(), body)
    title = text.partition("\n")[0].removeprefix("# ")
    return HTML.format(begin=BEGIN, title=html.escape(title), body=body)


@errors_as_exit()
def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("show", __doc__)
    parser.add_argument("scheme", metavar="SCHEME", help="a name, or a file: ./mine.py")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page as HTML")
    parser.add_argument("settings", nargs="*", default=[], help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args(arguments)
    if given.settings:
        remedy = "write a class in ./mine.py that has it as default, and show that"
        raise ConfigError(f"{given.settings[0]}: show takes a scheme without settings; {remedy}")
    found = made(given.scheme)
    if found is None:
        shown = look(given.scheme, measured.read(own=recorded_name(given.scheme)))
        found = page(shown, FIGURE.format(shown.facts.name)), picture(shown.portrait)
    say(plain_text(found[0]))
    if given.html:
        check_ours(given.html, BEGIN)
        write_whole(given.html, as_html(*found).encode())
        say(f"\nwritten: {given.html}")
