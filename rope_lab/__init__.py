"""A lab bench for comparing how transformers are told position."""

import sys
from pathlib import Path

# `tasks` stands beside this package: whatever folder of that name lies where the user stands must not come before it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
