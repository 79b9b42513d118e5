"""What every scheme and every task has to hold: `python -m rope_lab.check` says it of one, the tests of all of ours."""
