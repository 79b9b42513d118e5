"""The import of a file from its source alone."""

from importlib.machinery import SourceFileLoader
from typing import Any


class FromSource(SourceFileLoader):
    """Compiles a file at each import: its bytecode is stale after an edit within a second."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)
