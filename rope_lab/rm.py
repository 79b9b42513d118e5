"""Delete runs: `rope-lab rm RUN… [--yes]`; a RUN is the folder of one, or its name below
results/runs.

It asks first; without a terminal it needs --yes. Only files that the program has written are
deleted, and W&B's offline record of the run. Other files stay, and links are not followed. Runs
that W&B has online stay there.
"""

import sys
from contextlib import suppress
from pathlib import Path

from rope_lab.command import says_yes
from rope_lab.places import RESULTS, RUNS
from rope_lab.text import (
    ConfigError,
    Words,
    argument_parser,
    errors_as_exit,
    is_terminal,
    say,
    short_path,
)
from rope_lab.train.run_folder import RunFolder, read
from rope_lab.train.tracking import remove_offline


@errors_as_exit()
def main(arguments: Words = None) -> None:
    parser = argument_parser("rm", __doc__)
    parser.add_argument("folders", nargs="+", metavar="RUN")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    given = parser.parse_args(arguments)
    named = [run_folder(name) for name in given.folders]
    folders = {folder.resolve(): folder for folder in named}.values()
    say("\n".join(map(short_path, folders)))
    question = f"delete {len(folders)} run(s) for good? [y/N] "
    if not (given.yes or (is_terminal(sys.stdin) and says_yes(question))):
        raise ConfigError("nothing was deleted; --yes deletes without asking")
    for folder in folders:
        delete(folder)


def run_folder(name: str) -> Path:
    """The run folder of that name. Raises ConfigError if it is not one."""
    path = Path(name)
    if not path.exists() and "/" not in name:
        path = RESULTS / RUNS / name
    links = path.is_symlink() or (path / "run.json").is_symlink()
    if not name.strip() or links or read(path) is None:
        problem = "is a link, or has no readable run.json"
        raise ConfigError(f"{name!r}: {problem}; name the folder of a run, or delete it by hand")
    return path


def delete(folder: Path) -> None:
    """Delete the records of a run, W&B's offline record too. Raises ConfigError while it is
    trained.
    """
    with RunFolder(folder) as run:  # locks it
        removed = remove_offline(folder)
        run.clear()
    with suppress(OSError):  # of files of others in it
        folder.rmdir()
    stays = "files that are not ours stay" if folder.exists() else "deleted"
    say(f"{short_path(folder)}: {stays}")
    for record in removed:
        say(f"{short_path(record)}: deleted")
