"""Launching runs: one, or a sweep of them, here or on a cluster."""
