"""Moved: `python -m rope_lab.table TABLE`."""

import runpy

runpy.run_module("rope_lab.table", run_name="__main__")
