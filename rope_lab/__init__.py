"""A lab bench for comparing position encodings of transformers. From Python:
`rope_lab.fit("position=rope")`.
"""

import importlib
import os
import sys
from typing import Any

from rope_lab.places import IN_CHECKOUT, ROOT

SETUP = (
    f"in {ROOT}: `make setup` once, then `source .venv/bin/activate`"
    if IN_CHECKOUT
    else "install it with pip"
)
_is_command = (
    sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0] if sys.argv else "") == "rope-lab"
)
if _is_command and sys.version_info < (3, 11):
    sys.exit(
        f"rope_lab needs Python 3.11 or newer; this is {sys.version.split()[0]}, {sys.executable}\n{SETUP}"
    )

# `tasks` stands beside this package and must come before a folder of that name in the working
# directory. If the package is installed, and imported by a program of others, it comes last: a
# package `tasks` of theirs stays theirs.
sys.path.insert(0 if IN_CHECKOUT or _is_command else len(sys.path), str(ROOT))

if _is_command:  # before anything is imported that takes long
    importlib.import_module("rope_lab.command").begin(SETUP)


def __getattr__(name: str) -> Any:
    if name == "fit":  # it imports torch
        return importlib.import_module("rope_lab.notebook").fit
    raise AttributeError(f"module 'rope_lab' has no attribute {name!r}")
