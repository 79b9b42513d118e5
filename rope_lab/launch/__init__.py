"""Launching runs: sweeps, tables of runs, clusters."""
