"""From run folders to a table."""

import json

from rope_lab import results


def make_run(out, position: str, seed: int, accuracy: float, status: str = "finished") -> None:
    folder = out / f"{position}-{seed}"
    folder.mkdir(parents=True)
    content = {
        "task": "t",
        "scale": "quick",
        "recipe_id": "r",
        "position": position,
        "seed": seed,
        "status": status,
        "metrics": {"eval/accuracy": accuracy, "eval/loss": 0.5},
        "progress": {"steps": 10},
    }
    (folder / "run.json").write_text(json.dumps(content))


def test_mean_and_spread_per_scheme(tmp_path, capsys):
    for seed, accuracy in enumerate((0.5, 0.7, 0.9)):
        make_run(tmp_path, "rope", seed, accuracy)
    make_run(tmp_path, "roper", 0, 0.25)
    make_run(tmp_path, "roper", 1, 0.0, status="diverged")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text('{"task": "t", ')
    (tmp_path / "foreign").mkdir()
    results.main([str(tmp_path)])
    shown = capsys.readouterr().out
    assert "| t | quick | r | rope | 3 | 0.7 ± 0.2 | – | 0.5 ± 0 |" in shown
    assert "| t | quick | r | roper | 1 | 0.25 | – | 0.5 |" in shown
    assert "not counted: roper-1, diverged at step 10" in shown
    assert "broken/run.json: cannot be read" in shown


def test_nothing_there(tmp_path, capsys):
    results.main([str(tmp_path / "nothing")])
    assert "no run in it" in capsys.readouterr().out
