"""One question from two schemes to a verdict: search, freeze, run, verdict."""
