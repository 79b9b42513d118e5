"""Intervals, tests and comparisons: the one place that computes a difference or a p value."""
