"""The model: a position scheme's hooks, the schemes by kind, attention and the transformer."""

import sys

from rope_lab.model import schemes

# Former modules of the schemes: users' files import them, and older run.json files name them.
for _former in ("positions", "more_positions", "biases", "shared", "content"):
    sys.modules[f"{__name__}.{_former}"] = schemes
