"""Test planned comparisons: `rope-lab plan [PLAN.yaml]` (default: results/plan.yaml).

A plan is a list of studies, written before their first run. Its outcome is written beside it,
PLAN.md, from the kept runs in the folders that the studies name. Nothing of a study is tested
before its last run has ended.
"""

from pathlib import Path

from rope_lab.places import RESULTS
from rope_lab.results.plans.evidence import removed
from rope_lab.results.plans.outcomes import read
from rope_lab.results.plans.study import NAME, load
from rope_lab.results.records.catalogue import Catalogue
from rope_lab.results.views.plan_page import HEAD, section
from rope_lab.results.views.tables import Strong, bullets, write_page
from rope_lab.text import ConfigError, Words, argument_parser, errors_as_exit, short_path

COMPARED = "compare/*/verdict.md"  # pages of rope-lab compare, beside results/plan.yaml


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = argument_parser("plan", __doc__)
    parser.add_argument("plan", nargs="?", type=Path, default=RESULTS / NAME, metavar="PLAN.yaml")
    path = parser.parse_args(arguments).plan
    if not path.exists():
        raise ConfigError(f"{short_path(path)}: there is no plan; name one, PLAN.yaml")
    studied, left_out = read(path, Catalogue())
    families = [results[0].family for results in studied]
    problems = left_out + [flaw.line for family in families for flaw in family.flaws]
    problems += removed(path)
    notes = load(path).corrections
    others = sorted(path.parent.glob(COMPARED))
    parts = [
        section(results, Catalogue(), notes.get(results[0].family.study.name, ""))
        for results in studied
    ]
    if problems:
        parts.append("## Problems\n\n" + bullets(map(Strong, problems)))
    head = [HEAD.rstrip()]
    if others:
        links = [f"[{each.parent.name}]({each.relative_to(path.parent)})" for each in others]
        head.append("Comparisons with plans of their own:\n\n- " + "\n- ".join(links))
    write_page(path.with_suffix(".md"), [*head, *parts])
