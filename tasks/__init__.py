"""Generated algorithmic tasks: packed training text, evaluation problems and their grading (numpy only)."""

import sys

if sys.argv[:1] == ["-m"]:  # python -m tasks.…: importing rope_lab sees to its screen
    import rope_lab  # noqa: F401
