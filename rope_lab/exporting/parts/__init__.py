"""The parts of exported files: a scheme's own, one for each scheme, and those that all share.

An exported file is these modules one after another, without their imports of each other.
"""
