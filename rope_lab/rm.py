"""Delete runs: `rope-lab rm RUN… [--yes]`; a RUN is the folder of one, or its name below
results/runs.

It asks first; without a terminal it needs --yes. Only files that the program has written are
deleted: other files stay, and links are not followed.
"""

import sys
from contextlib import suppress
from pathlib import Path

from rope_lab import command
from rope_lab.places import RESULTS
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, say, short_path
from rope_lab.train.run import RunFolder, read


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("rm", __doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    given = parser.parse_args(arguments)
    named = (
        path if path.exists() or "/" in str(path) else RESULTS / "runs" / path
        for path in given.folders
    )
    folders = list({path.resolve(): path for path in named}.values())
    with errors_as_exit(EOFError):
        for folder in folders:
            if folder.is_symlink():
                raise ConfigError(f"{short_path(folder)}: is a link; name the folder itself")
            if (folder / "run.json").is_symlink() or read(folder) is None:
                raise ConfigError(
                    f"{short_path(folder)}: has no readable run.json; if it is a run, delete it by hand"
                )
        say("\n".join(map(short_path, folders)))
        question = f"delete {len(folders)} run(s) for good? [y/N] "
        if not given.yes and not (sys.stdin.isatty() and input(question).lower() in ("y", "yes")):
            raise ConfigError("nothing was deleted; --yes deletes without asking")
        for folder in folders:
            with RunFolder(folder) as run:  # refused while another process trains it
                run.clear()
            with suppress(OSError):  # of files of others in it
                folder.rmdir()
            say(
                f"{short_path(folder)}: {'files that are not ours stay' if folder.exists() else 'deleted'}"
            )


if __name__ == "__main__":
    command.begin()
    main()
