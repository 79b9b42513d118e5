"""Whether today's code gives the numbers of kept runs: `python -m rope_lab.repeat [FOLDER…]`.

Of each code, task, precision, scale, scheme and kind of attention among the kept runs, one run is repeated up to its
first evaluation after step 0. Every metric that is kept of these steps is compared, to the six digits that are kept.
Where all runs of a code, task and precision agree, results/same_code.yaml says so, and runs of either code are paired.
Runs of another processor or another torch are left out: they do not agree to six digits for reasons of their own. With
--within 0.001 they are repeated too, and losses agree that are no further apart than this share.
"""

import sys
from pathlib import Path

import torch
import yaml
from tqdm import tqdm

from rope_lab.files import write_whole
from rope_lab.places import ROOT
from rope_lab.results.codes import SAME, numbers_of
from rope_lab.results.folders import read, short
from rope_lab.results.runs import Run
from rope_lab.text import ConfigError, argument_parser, nested, plain, say
from rope_lab.train import config, provenance
from rope_lab.train.config import Config
from rope_lab.train.trainer import build, evaluate_now, update

HEAD = """\
# Codes that give the same numbers: written by `python -m rope_lab.repeat`, which says what it compares. Runs of these
# codes are paired as if they were of one.
"""


def config_of(run: Run) -> Config:
    """The configuration of a kept run. Raises ConfigError."""
    scheme = {f"position.{name}": value for name, value in run.position_settings.items()}
    names = {"task": run.task, "position": run.position, "scale": run.scale}
    return config.from_record(nested(run.settings | scheme) | {"seed": run.seed, "names": names})


def first_evaluation(run: Run) -> int:
    """The first step after 0 at which the run was evaluated; 0 where none is kept."""
    steps = [step for name, (steps, _) in run.curves.items() if name.startswith("eval/") for step in steps]
    return min((step for step in steps if step > 0), default=0)


def differences(run: Run, within: float = 0.0) -> list[str]:
    """Each metric up to the first evaluation that is not what it was, when the run is repeated. Raises ConfigError.

    within: the share by which losses may differ; only these are then compared
    """
    cfg, last = config_of(run), first_evaluation(run)
    torch.set_num_threads(int(run.threads))
    trainer = build(cfg)
    found, losses = {0: evaluate_now(trainer).metrics}, []
    for step in range(1, last + 1):
        losses.append(update(trainer, step - 1)[0])
        if step % cfg.train.log_every == 0 or step == cfg.train.steps:
            found[step] = {"train/loss": sum(losses) / len(losses)}
            losses = []
    found[last] = found.get(last, {}) | evaluate_now(trainer, at_end=last == cfg.train.steps).metrics
    return [
        f"{name} at step {step} was {value}, and is {short(found[step][name])}"
        for name, (steps, values) in run.curves.items()
        for step, value in zip(steps, values, strict=True)
        if name in found.get(step, {}) and (not within or name.endswith("loss"))
        if abs(short(found[step][name]) - value) > within * abs(value)
    ]


def chosen(runs: list[Run], everywhere: bool = False) -> list[Run]:
    """One run of each kind, of those that this machine can repeat; `everywhere`: wherever they were made."""
    here = provenance.hardware(torch.device("cpu"))
    kinds = {}
    for run in sorted(runs, key=lambda run: run.seed):
        made_here = (run.hardware, run.torch) == (here["name"], torch.__version__)
        whole = run.status == "finished" and not run.mixed and first_evaluation(run)
        if whole and (made_here or everywhere) and run.settings["device"] == "cpu":
            kind = (run.code, run.task, run.precision, run.scale, run.position, run.settings.get("model.attention"))
            kinds.setdefault(kind, run)
    return list(kinds.values())


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("repeat", __doc__)
    results = ROOT / "results"
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="of kept rows; none: all")
    parser.add_argument("--record", action="store_true", help=f"write what agrees into {SAME.relative_to(ROOT)}")
    parser.add_argument("--task", help="repeat runs of this task alone")
    parser.add_argument("--scale", help="repeat runs of this scale alone")
    parser.add_argument("--within", type=float, default=0.0, metavar="SHARE", help="default: the same to six digits")
    given = parser.parse_args(arguments)
    folders = given.folders or [results, *(path.parent for path in sorted(results.glob("*/rows.csv")))]
    runs = [run for folder in folders for run in read(folder)[0]]
    runs = [run for run in runs if given.task in (None, run.task) and given.scale in (None, run.scale)]
    if not runs:
        sys.exit("no kept run is of this task and scale")
    if not (repeated := chosen(runs, everywhere=given.within > 0)):
        sys.exit(
            "no kept run is of this processor, this torch and whole: nothing can be repeated here, "
            "but for --within 0.001"
        )
    agreeing: dict[tuple[str, ...], list[str]] = {}
    unlike = set()
    for run in tqdm(repeated, unit="run", disable=None):
        try:
            now = provenance.code_digest(config_of(run))
            if numbers_of(run.code, run.precision) == numbers_of(now, run.precision):
                continue
            wrong = differences(run, given.within)
        except ConfigError as error:
            wrong = [str(error)]
        say(plain(f"{run}, code {run.code}: " + ("; ".join(wrong) or f"the same up to step {first_evaluation(run):,}")))
        kind = (run.code, run.task, run.precision, now)
        agreeing.setdefault(kind, []).append(f"{run.scale} {run.position} seed {run.seed}")
        if wrong:
            unlike.add(kind)
    if not agreeing:
        say("every code of these runs is known to give today's numbers")
    found = [
        {"code": code, "same_as": now, "task": task, "precision": precision, "runs": each}
        | ({"within": given.within} if given.within else {})
        for (code, task, precision, now), each in agreeing.items()
        if (code, task, precision, now) not in unlike
    ]
    if given.record and found:
        before = yaml.safe_load(SAME.read_text("utf-8")) if SAME.exists() else []
        text = yaml.safe_dump([*before, *found], sort_keys=False, width=120, allow_unicode=True)
        write_whole(SAME, (HEAD + text).encode())
        say(f"written: {SAME.relative_to(ROOT)}")
    sys.exit(1 if unlike else 0)


if __name__ == "__main__":
    main()
