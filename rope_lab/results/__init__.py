"""From records to frames, statistics, tables and figures. Reads files; knows neither torch nor how
runs are made.
"""

from rope_lab.results.records.frame import load

__all__ = ["load"]
