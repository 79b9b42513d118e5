"""A lab bench for comparing how transformers are told position."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETUP = f"in {ROOT}: `make setup` once, then `source .venv/bin/activate`"

# python -m rope_lab.…, python -m tasks.… or python scripts/…
_script = getattr(sys.modules["__main__"], "__file__", None)
_is_command = sys.argv[:1] == ["-m"] or (_script and Path(_script).resolve().parent == ROOT / "scripts")
if _is_command and sys.version_info < (3, 11):
    sys.exit(f"rope_lab needs Python 3.11 or newer; this is {sys.version.split()[0]}, {sys.executable}\n{SETUP}")

from rope_lab import command  # noqa: E402 - older versions of Python do not even read it

# `tasks` stands beside this package: whatever folder of that name lies where the user stands must not come before it.
sys.path.insert(0, str(ROOT))

if _is_command:  # before anything is imported that takes long
    command.begin(SETUP)
    if not (ROOT / "conf").is_dir():
        sys.exit(f"{ROOT} has no conf/: rope_lab runs from its checkout; there: `make setup`, or `pip install -e .`")
