"""A scheme on one page: formula, picture, cost, scores, verdicts, and how to use it."""
