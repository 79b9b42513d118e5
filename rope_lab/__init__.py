"""A lab bench for comparing how transformers are told position."""

import sys
from pathlib import Path

from rope_lab import command

ROOT = Path(__file__).resolve().parent.parent

# `tasks` stands beside this package: whatever folder of that name lies where the user stands must not come before it.
sys.path.insert(0, str(ROOT))

# Before anything is imported that takes long: python -m rope_lab.…, python -m tasks.… or python scripts/….
_script = getattr(sys.modules["__main__"], "__file__", None)
if sys.argv[:1] == ["-m"] or (_script and Path(_script).resolve().parent == ROOT / "scripts"):
    command.begin()
