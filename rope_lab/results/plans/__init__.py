"""Planned studies: the plan, its runs, and the families of comparisons that it fixed."""
