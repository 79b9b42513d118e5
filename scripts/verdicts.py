"""The pages of results/compare/, from the rows that are kept there: `python scripts/verdicts.py`.

What was not tested, other comparisons of the same schemes and titles may have changed since a page
was written. A PDF is dated: it stays if its figure does.
"""

from pathlib import Path

from rope_lab.comparing import command
from rope_lab.launch.job import EXIT_BAD_CONFIG
from rope_lab.places import RESULTS
from rope_lab.results.plans import study as studies
from rope_lab.results.plans.names import position_of
from rope_lab.results.records.measures import OF_LENGTHS


def words_of(folder: Path) -> list[str]:
    """The command that makes the page of a comparison again."""
    (study,) = studies.load(folder / studies.NAME).studies.values()
    schemes = [position_of(scheme) for scheme in study.seeds]
    words = ["--task", study.task, "--scale", study.scale, "--out", str(folder)]
    test = study.primary[0]
    if test.value == "log_steps":
        words += ["--measure", "steps"]
    elif test.metric.partition("/")[0] in OF_LENGTHS:
        words += ["--measure", test.metric]
    return [*schemes, *words]


def rebuild(folder: Path) -> None:
    """Write a page and its figures again. Raises SystemExit if the command refuses."""
    figure, pdf = folder / "verdict.svg", folder / "verdict.pdf"
    before = figure.read_bytes(), pdf.read_bytes()
    try:
        command.main(words_of(folder))
    except SystemExit as ended:  # other statuses are the verdict's
        if ended.code == EXIT_BAD_CONFIG:
            raise
    if figure.read_bytes() == before[0]:
        pdf.write_bytes(before[1])


if __name__ == "__main__":
    for page in sorted(RESULTS.glob("compare/*/verdict.md")):
        rebuild(page.parent)
