"""Training steps for scripts/benchmark.py: ours against peers, their time and their memory."""

import argparse
import dataclasses
import functools
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np
import peers
import torch
import torch.nn.functional as F
from timing import SHAPES, TEXT, Shape, Watch, flop, most_memory, spread, table
from torch import nn
from tqdm import tqdm

from rope_lab.train import config, data
from rope_lab.train.trainer import build, resolve, update

BIASED = ("alibi", "t5_bias", "fire")
SCHEMES = ("none", "sinusoidal", "learned", "rope", "roper", "roper_double_rotation", *BIASED)


@dataclass(frozen=True)
class Subject:
    """One way to take a training step."""

    model: str  # a scheme of ours, or a peer
    precision: str
    compiled: bool = False
    alone: bool = False  # in a process of its own: in this one `keep_freed_memory` speeds up peers too

    def __str__(self) -> str:
        said = ", compiled" * self.compiled + ", in a process of its own" * self.alone
        return f"{self.model}, {self.precision}{said}"


LIKE_OURS = {"x-transformers": peers.x_transformers, "Llama": peers.Llama}
LABML = {
    "labml-nn RoPE": functools.partial(peers.Labml, "rope"),
    "labml-nn RoPER": functools.partial(peers.Labml, "roper"),
}
NANO = {"nanoGPT": peers.NanoGPT}
PEERS = LIKE_OURS | LABML | NANO
PRECISIONS = ("bfloat16", "float32")
WAYS = [(precision, compiled) for compiled in (False, True) for precision in ("float32", "bfloat16")]


def subjects_of(shape: Shape) -> list[Subject]:
    """The training steps that are compared: on text RoPE and learned positions, against nanoGPT too."""
    if shape in TEXT:
        compiled = ("rope", "learned", *LIKE_OURS, *NANO)
        shipped = [as_shipped(peer) for peer in (*LIKE_OURS, *NANO)]
        return [*(Subject(model, *way) for model in compiled for way in WAYS), *shipped]
    return [
        *(Subject(scheme, "bfloat16") for scheme in SCHEMES if scheme not in ("rope", "roper")),
        *(Subject(model, *way) for model in ("rope", "roper", *LIKE_OURS) for way in WAYS),
        *(Subject(model, precision) for model in LABML for precision in PRECISIONS),
        *(as_shipped(peer) for peer in (*LIKE_OURS, *LABML)),
    ]


def as_shipped(peer: str) -> Subject:
    return Subject(peer, "float32", alone=True)


@contextmanager
def taken_alone(subject: Subject, shape: Shape) -> Iterator[Callable[[], None]]:
    """Its training step, taken by another process whenever it is called for here."""
    asked = json.dumps([dataclasses.asdict(subject), dataclasses.asdict(shape)])
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__, "step", asked],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:

        def step() -> None:
            process.stdin.write(b"\n")
            if not process.stdout.readline():
                raise RuntimeError(f"{subject}: its process has ended")

        yield step
        process.stdin.close()


def step_when_asked(subject: Subject, shape: Shape) -> None:
    """What that process does: a step for each line that it reads."""
    step = step_of(subject, shape)
    for _ in sys.stdin:
        step()
        print(flush=True)


def step_of(subject: Subject, shape: Shape) -> Callable[[], None]:
    """A training step: ours as training runs it, with its batch and checks; a peer's on a batch made before."""
    cfg = dataclasses.replace(shape.cfg, threads=None)
    if subject.model in SCHEMES:
        settings = (f"position={subject.model}", f"train.precision={subject.precision}")
        overrides = (
            *shape.overrides,
            *settings,
            "eval.problems=1",
            "eval.problems_at_end=null",
            "eval.sequences=1",
            f"train.compile={str(subject.compiled).lower()}",
        )
        trainer = build(resolve(config.load("wandb.mode=disabled", *overrides)))
        steps = iter(range(10**9))
        return lambda: update(trainer, next(steps))
    task = config.build_task(cfg)
    batch = data.training_batch(task, 0, 0, cfg.train.batch_size, cfg.train.seq_len)
    m = cfg.model
    torch.manual_seed(0)
    model = PEERS[subject.model](len(task.alphabet), m.d_model, m.n_layers, m.n_heads, cfg.train.seq_len)
    forward = torch.compile(model) if subject.compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=subject.precision == "bfloat16"):
            logits_BTV = forward(batch.inputs_BT)
        targets = batch.targets_BT.flatten()
        loss = F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets, ignore_index=data.IGNORED)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def products_of(shape: Shape, precision: str) -> tuple[Callable[[], None], float, float]:
    """A training step's matrix products of linear layers alone; their FLOP; and the FLOP of the whole step."""
    cfg = shape.cfg
    d, layers = cfg.model.d_model, cfg.model.n_layers
    tokens, vocabulary = cfg.train.batch_size * cfg.train.seq_len, len(config.build_task(cfg).alphabet)
    random = functools.partial(torch.randn, dtype=getattr(torch, precision))
    sizes = ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d), (d, vocabulary))
    made = {(i, o): (random(tokens, i), random(o, i), random(tokens, o)) for i, o in sizes}

    def products() -> None:
        for (_, o), (x, w, g) in made.items():
            for _ in range(1 if o == vocabulary else layers):
                _ = x @ w.T, g @ w, g.T @ x

    return products, *flop(cfg, vocabulary)


def steps(watch: Watch, given: argparse.Namespace) -> str:
    """Training steps, ours against peers, and the share of matrix-product throughput that they reach.

    Peers as shipped are in float32 and a process of their own.
    """
    torch._dynamo.config.recompile_limit = 64  # every model here compiles the same functions again
    shapes = [shape for shape in [*SHAPES, *TEXT] if not given.shape or shape.name in given.shape]
    return "\n\n".join(steps_of(watch, shape) for shape in shapes)


def steps_of(watch: Watch, shape: Shape) -> str:
    """The same of one shape."""
    cfg, subjects = shape.cfg, subjects_of(shape)
    products = {precision: products_of(shape, precision) for precision in PRECISIONS}
    with warnings.catch_warnings(), ExitStack() as processes:
        warnings.simplefilter("ignore")
        made = {
            subject: processes.enter_context(taken_alone(subject, shape)) if subject.alone else step_of(subject, shape)
            for subject in tqdm(subjects, f"{shape.name}: building", leave=False)
        }
        calls = made | {precision: action for precision, (action, _, _) in products.items()}
        seconds = watch.compare(calls, 9 if shape.name != "20M" else 5, what=shape.name)
    t = {name: median(values) for name, values in seconds.items()}
    lines = []
    for subject in subjects:
        _, linear, whole = products[subject.precision]
        share = (whole / t[subject]) / (linear / t[subject.precision])
        lines.append([str(subject), spread(seconds[subject]), f"{share:.0%}"])
    rates = ", ".join(f"{products[p][1] / t[p] / 1e9:.0f} GFLOP/s in {p}" for p in products)
    return (
        f"### {shape.name}: {cfg.train.batch_size} × {cfg.train.seq_len} tokens, width {cfg.model.d_model}, "
        f"{cfg.model.n_layers} layers, {cfg.model.n_heads} heads\n\n"
        f"Matrix products of its linear layers alone: {rates}.\n\n"
        f"{table(['model', 'ms a step', 'share of matrix products'], lines)}\n\n{ratios(shape, seconds)}"
    )


def ratios(shape: Shape, seconds: dict) -> str:
    """The shape's times as ratios, each of one repetition: above 1, ours is faster."""
    t = {name: np.array(values) for name, values in seconds.items()}
    rivals = [name for name in (*LIKE_OURS, *NANO) if Subject(name, "float32") in t]
    best = {way: np.min([t[Subject(peer, *way)] for peer in rivals], axis=0) for way in WAYS}
    ours = resolve(shape.cfg).train.precision
    rope, ways = t[Subject("rope", ours)], {way: f"{way[0]}, {'compiled' if way[1] else 'eager'}" for way in WAYS}
    shipped = np.min([t[as_shipped(peer)] for peer in rivals], axis=0)
    found = {f"best of {', '.join(rivals)} as shipped / our RoPE as shipped": shipped / rope}
    found |= {f"best of them / our RoPE, {ways[way]}": best[way] / t[Subject("rope", *way)] for way in WAYS}
    other = "learned" if shape in TEXT else "roper"
    found |= {f"our {other} / our RoPE, {ways[w]}": t[Subject(other, *w)] / t[Subject("rope", *w)] for w in WAYS}
    if shape not in TEXT:
        labml = t[as_shipped("labml-nn RoPER")] / t[Subject("roper", ours)]
        found = {"labml-nn's RoPER as shipped / ours as shipped": labml} | found
        found |= {f"our {name} / our RoPE, {ours}": t[Subject(name, ours)] / rope for name in BIASED}
    lines = [[name, f"{median(each):.2f} ({min(each):.2f} to {max(each):.2f})"] for name, each in found.items()]
    return table(["ratio", shape.name], lines)


def memory(watch: Watch, _: argparse.Namespace) -> str:
    """Peak memory of two training steps, without the imported libraries, each subject in its own process."""
    models = ("rope", "roper", *LIKE_OURS, *LABML)
    subjects = [Subject(model, precision) for model in models for precision in PRECISIONS]
    shown = tqdm(subjects, "memory", leave=False)
    lines = [[str(subject), *(peak(subject, shape) for shape in SHAPES)] for subject in shown]
    return table(["peak memory, MiB", *(shape.name for shape in SHAPES)], lines)


def peak(subject: Subject, shape: Shape) -> str:
    asked = json.dumps([dataclasses.asdict(subject), dataclasses.asdict(shape)])
    done = subprocess.run([sys.executable, __file__, "peak", asked], capture_output=True, text=True)
    return done.stdout.split()[-1] if done.returncode == 0 else "failed"


def measure_peak(subject: Subject, shape: Shape) -> None:
    before = most_memory()
    step = step_of(subject, shape)
    step(), step()
    print((most_memory() - before) // 1024)


if __name__ == "__main__":
    asked_subject, asked_shape = json.loads(sys.argv[2])
    {"peak": measure_peak, "step": step_when_asked}[sys.argv[1]](Subject(**asked_subject), Shape(**asked_shape))
