"""Longer texts than in training: the ways to read them, tried on trained runs."""
