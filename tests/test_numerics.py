"""Golden losses: a change to any of them requires a higher NUMERICS in rope_lab/identity.py.

Only then run `python tests/test_numerics.py` to rewrite tests/numerics.json.
"""

import json
from pathlib import Path

import pytest
from conftest import KINDS, SCHEMES, TASKS, TEXTS

from rope_lab.identity import NUMERICS

GOLDEN = Path(__file__).with_name("numerics.json")
STEPS = 20
FEW = 2  # steps, except for RoPER; `make torture` runs STEPS
# Relative. Without AVX (ATEN_CPU_CAPABILITY=default, ONEDNN_MAX_CPU_ISA=SSE41) losses differ by at
# most 5e-6; between two EPYCs MiMo's differ by 6e-5 after 14 steps. The two schemes with the most
# similar first losses, none and FIRE, differ by 1.2e-4.
WITHIN = 1e-4
SMALL = [
    *("scale=quick", "device=cpu", "threads=1", "train.precision=float32", "wandb.mode=disabled"),
    *(
        "model.d_model=32",
        "model.n_layers=2",
        "model.n_heads=2",
        f"train.steps={STEPS}",
        "train.warmup=1",
    ),
    *("train.lr=0.01", "train.batch_size=8", "eval.problems=8", "eval.sequences=2"),
]
INDEX = "task=substring_by_index"
ROPER = f"position=roper {INDEX}"
# Its gradient jumps at integer positions: after 20 steps rounding errors reach 3e-4.
COPE = "position=cope"
CASES = [
    *(f"position={scheme} {INDEX}" for scheme in SCHEMES),
    *(f"position=roper task={task}" for task in TASKS if task not in INDEX),
    f"position=roper {INDEX} model.attention=linear",
]


def slow_unless_of_a_kind(case: str) -> list:
    """Marks of a short test: `make test` runs one scheme of each kind, and every task."""
    position, task = case.split()[:2]
    fast = task != INDEX or position.removeprefix("position=") in KINDS
    return [] if fast else [pytest.mark.slow]


def losses(case: str, folder: Path, steps: int = STEPS) -> list[float]:
    """Training losses of the first `steps` steps, plus the held-out loss if that is all STEPS."""
    from trained import load

    from rope_lab.train.trainer import build, evaluate_now, resolve, update

    words = [*SMALL, *case.split()]
    if not TEXTS.isdisjoint(word.removeprefix("task=") for word in words):
        text = folder / "text.txt"
        text.write_text(" ".join(f"{i * i} is {i} times {i}." for i in range(2000)))
        words.append(f"task.path={text}")
    trainer = build(resolve(load(*words)))
    found = [float(update(trainer, step)[0]) for step in range(steps)]
    return [*found, evaluate_now(trainer).metrics["eval/loss"]] if steps == STEPS else found


@pytest.mark.parametrize(
    ("case", "steps"),
    [pytest.param(case, FEW, marks=slow_unless_of_a_kind(case)) for case in CASES]
    + [
        pytest.param(case, STEPS, marks=[] if case == ROPER else pytest.mark.torture)
        for case in CASES
        if COPE not in case
    ],
)
def test_losses_are_those_that_numerics_stands_for(case, steps, tmp_path):
    golden = json.loads(GOLDEN.read_text())
    assert golden["numerics"] == NUMERICS
    found = losses(case, tmp_path, steps)
    assert found == pytest.approx(golden["losses"][case][: len(found)], rel=WITHIN), (
        "numbers changed: if that is meant, raise NUMERICS in rope_lab/identity.py, "
        "then python tests/test_numerics.py"
    )


def main(folder: Path) -> None:
    lines = [
        f"{json.dumps(case)}: {json.dumps([float(f'{x:.8g}') for x in losses(case, folder)])}"
        for case in CASES
    ]
    GOLDEN.write_text(f'{{"numerics": {NUMERICS}, "losses": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
