"""Whether today's code gives the numbers of kept runs: `python -m rope_lab.repeat [FOLDER…]`.

Of each code, task, scale, scheme and kind of attention among the kept runs, one run is repeated up to its first
evaluation after step 0. Every metric that is kept of these steps is compared, to the six digits that are kept. Where
all runs of a code and task agree, results/same_code.yaml says so, and runs of either code are paired. Runs of another
processor or another torch are left out: they would not agree for reasons of their own.
"""

import argparse
import sys
from pathlib import Path

import torch
import yaml
from tqdm import tqdm

from rope_lab import config, provenance
from rope_lab.config import ROOT, Config
from rope_lab.files import write_whole
from rope_lab.instantiate import ConfigError
from rope_lab.results.codes import SAME, numbers_of
from rope_lab.results.folders import read, short
from rope_lab.results.runs import Run
from rope_lab.text import nested, plain, say
from rope_lab.trainer import build, evaluate_now, update

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


def differences(run: Run) -> list[str]:
    """Each metric up to the first evaluation that is not what it was, when the run is repeated. Raises ConfigError."""
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
        if name in found.get(step, {}) and short(found[step][name]) != value
    ]


def chosen(runs: list[Run]) -> list[Run]:
    """One run of each kind, of those that this machine can repeat."""
    here = provenance.hardware(torch.device("cpu"))
    kinds = {}
    for run in sorted(runs, key=lambda run: run.seed):
        known = run.status == "finished" and not run.mixed and run.hardware == here["name"] and first_evaluation(run)
        if known and run.torch == torch.__version__ and run.settings["device"] == "cpu":
            kind = (run.code, run.task, run.scale, run.position, run.settings.get("model.attention"))
            kinds.setdefault(kind, run)
    return list(kinds.values())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m rope_lab.repeat", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    results = ROOT / "results"
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="of kept rows; none: all")
    parser.add_argument("--record", action="store_true", help=f"write what agrees into {SAME.relative_to(ROOT)}")
    given = parser.parse_args(arguments)
    folders = given.folders or [results, *(path.parent for path in sorted(results.glob("*/rows.csv")))]
    runs = [run for folder in folders for run in read(folder)[0]]
    if not (repeated := chosen(runs)):
        sys.exit("no kept run is of this processor, this torch and whole: nothing can be repeated here")
    agreeing: dict[tuple[str, str, str], list[str]] = {}
    unlike = set()
    for run in tqdm(repeated, unit="run", disable=None):
        try:
            now = provenance.code_digest(config_of(run))
            if numbers_of(run.code) == numbers_of(now):
                continue
            wrong = differences(run)
        except ConfigError as error:
            wrong = [str(error)]
        say(plain(f"{run}, code {run.code}: " + ("; ".join(wrong) or f"the same up to step {first_evaluation(run):,}")))
        agreeing.setdefault((run.code, run.task, now), []).append(f"{run.scale} {run.position} seed {run.seed}")
        if wrong:
            unlike.add((run.code, run.task, now))
    found = [
        {"code": code, "same_as": now, "task": task, "runs": each}
        for (code, task, now), each in agreeing.items()
        if (code, task, now) not in unlike
    ]
    if given.record and found:
        before = yaml.safe_load(SAME.read_text("utf-8")) if SAME.exists() else []
        text = yaml.safe_dump([*before, *found], sort_keys=False, width=120, allow_unicode=True)
        write_whole(SAME, (HEAD + text).encode())
        say(f"written: {SAME.relative_to(ROOT)}")
    sys.exit(1 if unlike else 0)


if __name__ == "__main__":
    main()
