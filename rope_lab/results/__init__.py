"""From records to frames, statistics, tables and figures. Reads files; knows neither torch nor how
runs are made.
"""

from typing import Any

__all__ = ["load", "load_kept"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rope_lab.results.records import (
            frame,  # it imports pandas, which `rope-lab list` does not need
        )

        return getattr(frame, name)
    raise AttributeError(f"module 'rope_lab.results' has no attribute {name!r}")
