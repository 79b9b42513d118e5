"""Trains one run: `python -m rope_lab.train [overrides]`, or with `-m` a sweep of them."""

from rope_lab.launch.main import command_line
from rope_lab.train.signals import ignore

try:
    command_line()
finally:
    ignore()
