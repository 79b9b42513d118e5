"""Delete runs: `rope-lab rm RUN… [--yes]`; a RUN is the folder of one, or its name below
results/runs.

It asks first; without a terminal it needs --yes. Only files that the program has written are
deleted, and W&B's offline record of the run. Other files stay, and links are not followed. Runs
that W&B has online stay there.
"""

import sys
from contextlib import suppress
from pathlib import Path

from rope_lab import command
from rope_lab.places import RESULTS
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, say, short_path
from rope_lab.train.run import RunFolder, read
from rope_lab.train.tracking import remove_offline


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("rm", __doc__)
    parser.add_argument("folders", nargs="+", metavar="RUN")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    given = parser.parse_args(arguments)
    with errors_as_exit(EOFError):
        folders = runs_named(given.folders)
        say("\n".join(map(short_path, folders)))
        if not given.yes and not agreed(f"delete {len(folders)} run(s) for good? [y/N] "):
            raise ConfigError("nothing was deleted; --yes deletes without asking")
        for folder in folders:
            delete(folder)


def runs_named(names: list[str]) -> list[Path]:
    """The run folders of that name, each once. Raises ConfigError if one is not a run folder."""
    folders = {}
    for name in names:
        if not name.strip():
            raise ConfigError("a RUN has an empty name: name the folder of a run")
        path = Path(name)
        if not path.exists() and "/" not in name:
            path = RESULTS / "runs" / name
        folders[path.resolve()] = path
    for folder in folders.values():
        if folder.is_symlink():
            raise ConfigError(f"{short_path(folder)}: is a link; name the folder itself")
        if (folder / "run.json").is_symlink() or read(folder) is None:
            remedy = "if it is a run, delete it by hand"
            raise ConfigError(f"{short_path(folder)}: has no readable run.json; {remedy}")
    return list(folders.values())


def agreed(question: str) -> bool:
    """Whether somebody at a terminal says yes."""
    return sys.stdin.isatty() and input(question).lower() in ("y", "yes")


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


if __name__ == "__main__":
    command.begin()
    main()
