"""Runs that begin from trained ones: ways to read longer texts, and schemes that are adopted."""
