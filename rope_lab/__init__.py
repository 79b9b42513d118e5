"""A lab bench for comparing how transformers are told position."""

import os
import sys
from pathlib import Path

from rope_lab.places import IN_CHECKOUT, ROOT

SETUP = f"in {ROOT}: `make setup` once, then `source .venv/bin/activate`" if IN_CHECKOUT else "install it with pip"

# python -m rope_lab.…, python -m tasks.…, python scripts/… or rope-lab …
_script = getattr(sys.modules["__main__"], "__file__", None)
_is_script = _script and (Path(_script).name == "rope-lab" or Path(_script).resolve().parent == ROOT / "scripts")
_is_command = sys.argv[:1] == ["-m"] or _is_script
if _is_command and sys.version_info < (3, 11):
    sys.exit(f"rope_lab needs Python 3.11 or newer; this is {sys.version.split()[0]}, {sys.executable}\n{SETUP}")

from rope_lab import command  # noqa: E402 - older versions of Python do not even read it

# `tasks` stands beside this package: whatever folder of that name lies where the user stands must not come before it.
# Installed, and imported by a program of others, it comes last: a package `tasks` of theirs stays theirs. A launcher's
# worker is no such program, though its main module is the launcher's: it inherits COMMAND.
COMMAND = "ROPE_LAB_COMMAND"
_is_first = IN_CHECKOUT or _is_command or COMMAND in os.environ
sys.path.insert(0 if _is_first else len(sys.path), str(ROOT))

if _is_command:  # before anything is imported that takes long
    os.environ[COMMAND] = "yes"
    command.begin(SETUP)
    if not (ROOT / "conf").is_dir():
        sys.exit(f"{ROOT} has no conf/: rope_lab runs from its checkout; there: `make setup`, or `pip install -e .`")
