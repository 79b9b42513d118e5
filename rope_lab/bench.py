"""Time training steps of schemes and of other libraries: `rope-lab bench [MODEL…]
[SETTING=VALUE…]`.

MODEL is a position encoding, or a peer: a transformer of the same size in another library. Default:
rope, roper and installed peers. The settings describe the run whose steps are timed; default: five
shapes. Models take steps in turn: a busy machine then disturbs all alike.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from rope_lab import command  # first: from here on Ctrl-C is quiet

# isort: split
import numpy as np
import torch
from tqdm import tqdm

from rope_lab.peers import PEERS, installed
from rope_lab.results.views.tables import Table, markdown
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, first_line
from rope_lab.train import config, data
from rope_lab.train.instantiate import names
from rope_lab.train.provenance import hardware
from rope_lab.train.trainer import autocast, build, evaluate_now, resolve, update, write_samples

OURS = ["rope", "roper"]
SHAPES = {
    "quick": ("task=substring_by_index", "scale=quick"),
    "0.6M": ("task=substring_by_prefix", "scale=paper"),
    "20M": ("task=substring_by_index", "scale=paper", "train.batch_size=4"),
    "text 0.8M": ("task=text", "scale=quick"),
    "text 3M": ("task=text", "scale=reduced"),
}
FEW_PROBLEMS = ("eval.problems=2", "eval.problems_at_end=null", "eval.sequences=2")
SMALL = (
    "model.d_model=64",
    "model.n_layers=2",
    "model.n_heads=4",
    "train.batch_size=4",
    *FEW_PROBLEMS,
)
# Relative difference from the CPU's loss and gradient norm.
ALLOWED = {"float32": 1e-3, "bfloat16": 3e-2}
WARM = 2  # calls of each that are not counted
Subject = tuple[str, str, bool]  # model, precision, whether it is compiled


def load(*settings: str) -> config.Config:
    return resolve(config.load("wandb.mode=disabled", *settings))


def step_of(subject: Subject, settings: Sequence[str]) -> Callable[[], object]:
    """A training step: ours draws its batch, a peer takes the same one each time."""
    model, precision, compiled = subject
    settings = [*settings, f"train.precision={precision}", f"train.compile={str(compiled).lower()}"]
    if model not in PEERS:
        trainer = build(load(*settings, *FEW_PROBLEMS, f"position={model}"))
        steps = itertools.count()
        return lambda: update(trainer, next(steps))
    cfg = load(*settings)
    device, sizes, train = torch.device(cfg.device), cfg.model, cfg.train
    task = config.build_task(cfg)
    batch = data.training_batch(task, 0, 0, train.batch_size, train.seq_len).to(device)
    torch.manual_seed(0)
    make, _ = PEERS[model]
    peer = make(len(task.alphabet), sizes.d_model, sizes.n_layers, sizes.n_heads, train.seq_len)
    peer.to(device)
    forward = torch.compile(peer) if train.compile else peer
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-4, weight_decay=0.0, fused=True)

    def step() -> None:
        with autocast(cfg, device):
            output = forward(batch.inputs_BT)
        logits_BTV = getattr(output, "logits", output)  # of Llama, with more
        targets_N = batch.targets_BT.flatten()
        loss = torch.nn.functional.cross_entropy(
            logits_BTV.flatten(0, 1).float(), targets_N, ignore_index=data.IGNORED
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()

    return step


def alternate(calls: Sequence[Callable[[], object]], repeats: int, device: str) -> np.ndarray:
    """Seconds of each call, [calls, repeats], called in turn."""
    seconds = np.empty((len(calls), repeats))
    for repeat in tqdm(range(-WARM, repeats), "repeats", leave=False, disable=None):
        for index, call in enumerate(calls):
            begun = time.perf_counter()
            call()
            if device != "cpu":
                torch.accelerator.synchronize()
            if repeat >= 0:
                seconds[index, repeat] = time.perf_counter() - begun
    return seconds


def compare(name: str, settings: Sequence[str], subjects: list[Subject], repeats: int) -> str:
    """A Markdown table of the subjects' steps: milliseconds, and the ratio to the first model's,
    repeat by repeat.
    """
    cfg = load(*settings)
    seconds = alternate([step_of(subject, settings) for subject in subjects], repeats, cfg.device)
    first, rows = subjects[0][0], []
    for (model, precision, compiled), mine in zip(subjects, seconds, strict=True):
        row = {
            "model": model,
            "computed in": f"{precision}, compiled" if compiled else precision,
            "ms per step": spread(mine * 1e3),
        }
        ratio = mine / seconds[subjects.index((first, precision, compiled))]
        rows.append(row | {f"time / {first}'s": spread(ratio)})
    sizes, train = cfg.model, cfg.train
    size = f"{train.batch_size} × {train.seq_len} tokens, width {sizes.d_model}, "
    size += f"{sizes.n_layers} layers, {sizes.n_heads} heads"
    return f"## {name}: {size}\n\n{markdown(Table(rows))}\n"


def spread(values: np.ndarray) -> str:
    return f"{np.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def difference(scheme: str, attention: str, precision: str, device: str) -> float:
    """The largest relative difference of a step's loss and gradient norm from the CPU's in
    float32.
    """
    settings = (*SMALL, f"position={scheme}", f"model.attention={attention}")
    expected = update(build(load(*settings, "device=cpu", "train.precision=float32")), 0)[:2]
    trainer = build(load(*settings, device, f"train.precision={precision}"))
    measured = update(trainer, 0)[:2]
    evaluate_now(trainer)
    write_samples(trainer)
    return max(abs(a - b) / abs(b) for a, b in zip(measured, expected, strict=True))


def check_gpu(schemes: list[str], device: str) -> bool:
    """Take a step, evaluate and complete problems in every scheme, attention and precision; whether
    all worked.

    schemes: none: all
    device:  as a setting, `device=cuda`
    """
    here = hardware(torch.device(load(device).device))
    print(f"{here['name']} · torch {torch.__version__} · CUDA {here['cuda']}\n")
    works = True
    for scheme, attention, precision in itertools.product(
        schemes or names("position"), ("softmax", "linear"), ALLOWED
    ):
        try:
            off = difference(scheme, attention, precision, device)
            right, how = off <= ALLOWED[precision], f"differs from the CPU's numbers by {off:.0e}"
        except ConfigError as error:  # of a scheme that needs scores
            right, how = True, str(error)
        except Exception as error:
            right, how = False, f"{type(error).__name__}: {first_line(error)[:200]}"
        works &= right
        mark = "ok   " if right else "WRONG"
        print(f"{mark}  {scheme} {attention} {precision}: {how}")
    print()
    return works


def parse(arguments: list[str] | None) -> tuple[argparse.Namespace, list[str], list[str]]:
    """The options, models and settings of a command line. Exits if they cannot be used."""
    parser = argument_parser("bench", __doc__)
    parser.add_argument(
        "words", nargs="*", metavar="MODEL|SETTING=VALUE", help=f"peers: {', '.join(PEERS)}"
    )
    parser.add_argument("--precision", choices=ALLOWED, action="append", help="default: both")
    parser.add_argument("--compile", action="store_true", help="compiled models too")
    parser.add_argument("--repeats", type=int, default=9, help="steps of each (default: 9)")
    parser.add_argument(
        "--gpu", action="store_true", help="first check which schemes give a CPU's numbers on a GPU"
    )
    given = parser.parse_intermixed_args(arguments)
    if given.repeats < 1:
        parser.error("--repeats must be at least 1")
    models = [word for word in given.words if "=" not in word]
    settings = [word for word in given.words if "=" in word]
    for word in settings:
        if word.startswith(("position=", "train.precision=", "train.compile=")):
            parser.error(f"{word}: write MODEL, --precision or --compile")
    for model in models:
        if not installed(model):
            package = PEERS[model][1]
            parser.error(f"{model}: {package} is not installed; results/benchmark.md says how")
    return given, models, settings


def subjects_of(
    models: Sequence[str], precisions: Iterable[str], with_compiled: bool
) -> list[Subject]:
    """Every model in every precision; compiled ones too if asked for."""
    compiled = (False, True) if with_compiled else (False,)
    variants = itertools.product(precisions, compiled, models)
    return [(model, precision, is_compiled) for precision, is_compiled, model in variants]


def main(arguments: list[str] | None = None) -> None:
    given, models, settings = parse(arguments)
    shapes, works = {" ".join(settings): settings} if settings else SHAPES, True
    with errors_as_exit():
        if given.gpu:
            device = next((word for word in settings if word.startswith("device=")), "device=cuda")
            works = check_gpu([model for model in models if model not in PEERS], device)
            shapes = {name: [*shape, device] for name, shape in shapes.items()}
        models = models or [model for model in (*OURS, *PEERS) if installed(model)]
        subjects = subjects_of(models, given.precision or ALLOWED, given.compile)
        # All models here share the functions that are compiled.
        torch._dynamo.config.recompile_limit = 64
        for name, shape in shapes.items():
            print(compare(name, shape, subjects, given.repeats), flush=True)
    sys.exit(not works)


if __name__ == "__main__":
    command.begin()
    main()
