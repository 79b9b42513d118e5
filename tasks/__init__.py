"""Generated algorithmic tasks: packed training text, evaluation problems and their grading (numpy
only).

The package is `rope_lab.tasks`. In a checkout `tasks` is a second name of the same modules.
"""

import importlib
import pkgutil
import sys

if __name__ == "tasks":
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"rope_lab.tasks.{found.name}")
        sys.modules[f"tasks.{found.name}"] = globals()[found.name] = module
