"""A lab bench for comparing position encodings of transformers.

    run = rope_lab.fit("position=rope", seed=1)                train a run, or get it back
    verdict = rope_lab.compare("./mine.py", "rope", task="needle", yes=True)
    frame = rope_lab.results.load("results/runs")              runs as a pandas frame
    position = rope_lab.scheme("pope", d_model=64, n_heads=4)  a position scheme as a torch module

A script calls `compare` below `if __name__ == "__main__":`, since child processes import it again.
Importing rope_lab changes nothing else in the process, and loads neither torch nor pandas.
"""

import importlib as _importlib
import sys as _sys
import time as _time
from typing import Any as _Any

__version__ = "0.1.0"
STARTED = _time.time()  # of the program, nearly
__all__ = [
    "ConfigError",
    "Stopped",
    "__version__",
    "compare",
    "fit",
    "results",
    "scheme",
    "tasks",
]
_HOME = {
    "ConfigError": "rope_lab.text",
    "Stopped": "rope_lab.experiments.launching",
    "compare": "rope_lab.comparing.command",
    "fit": "rope_lab.notebook",
    "scheme": "rope_lab.notebook",
}

if _sys.version_info < (3, 11):  # noqa: UP036  pip checks it, a checkout does not
    from rope_lab.places import SETUP as _SETUP

    _found = f"{_sys.version.split()[0]}, {_sys.executable}"
    raise ImportError(f"rope_lab needs Python 3.11 or newer; this is {_found}; {_SETUP}")


def __getattr__(name: str) -> _Any:
    if name in _HOME:
        return getattr(_importlib.import_module(_HOME[name]), name)
    if name in __all__:
        return _importlib.import_module(f"rope_lab.{name}")
    raise AttributeError(f"module 'rope_lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
