"""Scores of schemes on tasks: one scheme, all that were run, and the board of entries."""
