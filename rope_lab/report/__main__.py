"""One HTML page of what was measured: `python -m rope_lab.report [FOLDER…] [--out FILE.html]`.

A FOLDER holds run folders, or is one, or holds kept rows; those in folders below it then come with it. Without one:
results/runs, or results/ if it is empty. The page opens from disk in any browser and asks the network for nothing.

Its question is whether RoPER beats RoPE; of other schemes: `--contender mine --against roper`.
"""

import json
import re
import sys
from pathlib import Path

from rope_lab.files import read_file, write_whole
from rope_lab.places import RESULTS, ROOT
from rope_lab.results import against, outcomes, probes, studies
from rope_lab.results.folders import is_kept, read
from rope_lab.results.groups import group
from rope_lab.results.pages import Content
from rope_lab.results.published import Published
from rope_lab.results.runs import DAMAGE, one_line
from rope_lab.text import argument_parser, say, short_path

NEEDS = ("altair", "jinja2", "vl_convert")
INSTALL = "pip install -c constraints.txt -e '.[report]'"
MADE = b"<!doctype html>\n<!-- made by python -m rope_lab.report"  # how each page begins
ADDRESS = re.compile(r"https://[\w.:-]+(/[\w.~%-]+)*")  # of a W&B run


def with_those_below(folder: Path) -> list[Path]:
    """A folder, and, of one of kept rows, the folders of kept rows in it."""
    below = sorted(path for path in folder.iterdir() if path.is_dir()) if is_kept(folder) else []
    return [folder, *(path for path in below if is_kept(path))]


def links(folder: Path) -> dict[str, str]:
    """run_id → address of the W&B run, of the run folders in a folder, or of the one that it is."""
    found = {}
    for path in [folder / "run.json", *sorted(folder.glob("*/run.json"))]:
        try:
            content = json.loads(read_file(path))
            if ADDRESS.fullmatch(content["wandb"]):
                found[content["run_id"]] = content["wandb"]
        except (OSError, *DAMAGE):  # logged nowhere, or damaged, which `read` reports
            continue
    return found


def read_probes(folder: Path) -> tuple[list[probes.Probed], list[str]]:
    """What was found by probes of the runs in a folder, and what of it cannot be read."""
    found, problems = [], []
    for path in [folder / "probes.json", *sorted(folder.glob("*/probes.json")), *sorted(folder.glob("probes/*.json"))]:
        try:
            found.append(probes.read(path))
        except FileNotFoundError:
            continue
        except (OSError, *DAMAGE) as error:
            problems.append(one_line(f"{path.relative_to(folder)}: holds no probes ({type(error).__name__})"))
    return found, problems


def named(folder: Path) -> str:
    """A folder of the checkout by its path there, another by its name alone."""
    path = folder.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def title(folder: Path) -> str:
    """What the page in a folder is called, or the folder's name."""
    try:
        first = read_file(folder / "README.md").decode().partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        first = ""
    return one_line(first.removeprefix("# ").strip() if first.startswith("# ") else folder.resolve().name, 80)


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("report", __doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, metavar="FILE.html", help="default: report.html in the first FOLDER")
    parser.add_argument("--contender", metavar="SCHEME", help="whom the verdicts are about (default: roper)")
    parser.add_argument("--against", metavar="SCHEME", help="whom it is compared with (default: rope)")
    given = parser.parse_args(arguments)
    try:
        from rope_lab.report import page
    except ModuleNotFoundError as error:
        if error.name not in NEEDS:
            raise
        sys.exit(f"the report needs {error.name}: {INSTALL}")
    folders = given.folders or [RESULTS / "runs" if any((RESULTS / "runs").glob("*/run.json")) else RESULTS]
    for folder in folders:
        if not folder.is_dir():
            wrong = "is a file, where a folder of runs is asked for" if folder.exists() else "no such folder"
            sys.exit(f"{folder}: {wrong}")
    out = given.out or folders[0] / "report.html"
    try:
        if not out.parent.is_dir():
            sys.exit(f"{out}: there is no folder {out.parent}")
        if out.exists() and not read_file(out).startswith(MADE):
            sys.exit(f"{out}: was not made by this command, and stays as it is; give another --out")
    except OSError as error:
        sys.exit(f"{out}: cannot be written ({error.strerror})")

    paths = dict.fromkeys(path for given in folders for path in with_those_below(given))
    recorded = {folder: read(folder) for folder in paths}
    published, sections, probed = Published(), [], []
    asks = given.contender or given.against
    if asks:
        groups = group([run for runs, _ in recorded.values() for run in runs], published)
        try:
            if given.against and against.is_recipe(given.against, groups):
                sys.exit(f"--against {given.against}: is no scheme; `python -m rope_lab.results` compares recipes")
            published = against.question(published, groups, given.contender, given.against)
        except against.NothingToCompare as error:
            sys.exit(str(error))
    for folder, (runs, problems) in recorded.items():
        try:
            planned, (studied, wrong) = studies.covers(folder), outcomes.of_folder(folder)
        except studies.PlanError as error:
            sys.exit(str(error))
        found, unread = read_probes(folder)
        probed += found
        content = Content(group(runs, published), published, problems + wrong + unread, planned, studied)
        below = folder not in folders and not asks
        sections.append(page.Section(named(folder), title(folder), content, links(folder), below))
    count = sum(len(group.runs) for section in sections for group in section.content.groups)
    if not count:
        problems = [problem for section in sections for problem in section.content.problems]
        sys.exit("\n".join([*problems, "there is no run to report; this makes one: python -m rope_lab.train"]))
    try:
        content = page.render(sections, probed, published).encode()
        write_whole(out, content)
    except OSError as error:
        sys.exit(f"{out}: cannot be written ({error.strerror})")
    runs = f"{count} run{'s' if count > 1 else ''}"
    say(f"written: {short_path(out)} ({len(content) / 1e6:.1f} MB, {runs}); any browser opens it")
    if hint := against.hint(published, [group for section in sections for group in section.content.groups]):
        say(hint)


if __name__ == "__main__":
    main()
