"""Measure how a trained run uses its positions: `rope-lab probe FOLDER [PROBE…]`.

Evaluates the run as it is, and with one thing changed at a time. PROBE is one of
  shift=N         all positions are N further on, on each axis
  window=N        attention sees the last N tokens only, itself among them
  ablate=PARTS    PARTS (of q, k, v and o, the output) are not rotated:
                  ablate=v, ablate=vo
  ablate=PARTS:P  the same for pair P of each head's features alone, or for
                  pairs P-P: ablate=qk:0, ablate=vo:4-7 (under PoPE features
                  of q and k instead, each with a frequency of its own)
Teacher-forced, on the run's own held-out text and problems. The table is printed. Without a PROBE,
all that apply to the scheme are run, and the table, a figure and attention weights are written
beside the run; `rope-lab report` shows them. Given such .json files instead of a folder, it remakes
their tables and figures; of several, one figure that compares them.
"""

import copy
from dataclasses import asdict
from pathlib import Path

from rope_lab import command  # first: from here on Ctrl-C is quiet

# isort: split
import torch
from tqdm import tqdm

from rope_lab.model.hooks import TooLong
from rope_lab.model.probes import ablate, all_probes, attention_maps, changed
from rope_lab.model.transformer import Transformer
from rope_lab.results.records.folders import origin
from rope_lab.results.views.probes import Measurement, rebuild, table, write
from rope_lab.results.views.tables import markdown
from rope_lab.results.views.terminal import say_markdown
from rope_lab.text import Record, Words, argument_parser, errors_as_exit, filled, say
from rope_lab.train import config, data
from rope_lab.train.evaluate import Diverged, as_evaluated, exact_matches, text_losses
from rope_lab.train.instantiate import config_errors
from rope_lab.train.load import add_allow, load_run
from rope_lab.train.provenance import provenance

IDS = ("task", "position", "scale", "seed", "run_id", "recipe_id", "status")  # of run.json
TEXTS = 16  # held-out texts of which attention is recorded


def evaluated(probe: str, model: Transformer, cfg: config.Config, text, problems) -> Measurement:
    """The run's held-out loss and accuracy under a probe; unchanged if `probe` is empty."""
    trained, wavelengths = model.position, None
    if probe:
        model.position = changed(probe, model)
    if ":" in probe:  # of named pairs
        wavelengths = ablate(probe, copy.deepcopy(trained))
    try:
        with as_evaluated(model, cfg):
            nats_N, _, _ = text_losses(model, text)
            right = exact_matches(model, problems)
    except TooLong as error:
        return Measurement(probe, cannot=str(error))
    finally:
        model.position = trained
    accuracy = sum(right) / len(right) if right else None
    return Measurement(probe, nats_N.mean().item(), accuracy, wavelengths=wavelengths)


def report(
    cfg: config.Config,
    content: Record,
    outcomes: list[Measurement],
    seen: Record,
) -> Record:
    """The outcomes and attention maps with the ids of the run (`content`: its run.json) and the
    origin of run and probe.
    """
    about = {key: content[key] for key in IDS}
    now = provenance(cfg, torch.device("cpu"), None)
    about |= {
        "steps": content["progress"]["steps"],
        "run": origin(content["provenance"]),
        "probe": origin(now),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    if seen:
        about["attention"] = seen
    return about


@errors_as_exit(Diverged)
def main(arguments: Words = None) -> None:
    parser = argument_parser("probe", __doc__)
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a run's folder, or .json files written before"
    )
    parser.add_argument("probes", nargs="*", metavar="PROBE")
    add_allow(parser)
    given = parser.parse_intermixed_args(arguments)
    if given.folder.suffix == ".json":
        written = rebuild([given.folder, *map(Path, given.probes)])
        say(filled(f"written: {', '.join(map(str, written))}"))
        return
    cfg, task, model, content = load_run(given.folder, given.allow)
    probes = given.probes or all_probes(model, cfg.train.seq_len)
    for probe in probes:
        changed(probe, model)
    with config_errors():
        text = data.evaluation_text(task, cfg.eval.sequences, cfg.train.seq_len)
        n = cfg.eval.problems_at_end or cfg.eval.problems
        problems = data.evaluation_problems(task, n) if task.grades else []
    each = tqdm(["", *probes], unit="probe", leave=False, disable=None)
    outcomes = [evaluated(probe, model, cfg, text, problems) for probe in each]
    say_markdown(markdown(table(outcomes)))
    if not given.probes:  # a few must not replace all
        with as_evaluated(model, cfg):
            some = text.batch.rows(0, TEXTS)
            seen = attention_maps(model, some.inputs_BT, **some.given)
        written = write(report(cfg, content, outcomes, seen), given.folder / "probes")
        say(filled(f"written: {', '.join(map(str, written))}"))


if __name__ == "__main__":
    command.begin()
    main()
