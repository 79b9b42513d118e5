"""The modules of `tasks/`, beside this package in a checkout. An installed package has them here.

No program can have another package of this name, as it may have another `tasks`.
"""

from rope_lab.places import TASKS

__path__ = [str(TASKS)]
