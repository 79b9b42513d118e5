"""Benchmarks, each comparison within one process: `python scripts/benchmark.py [SECTION…]` (default: all sections).

Subjects are timed alternately; each figure is the median, with minimum and maximum. Each section prints its tables and
replaces those it wrote to results/benchmark.md before. Run nothing else meanwhile.
"""

import argparse
import contextlib
import dataclasses
import functools
import io
import json
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import peers
import torch
import torch.nn.functional as F
from torch import nn

from rope_lab import checkpoint, config, data, evaluate, train
from rope_lab.generate import generate
from rope_lab.provenance import code_digest, hardware
from rope_lab.results import __main__ as results
from rope_lab.results.folders import read
from rope_lab.results.kept import keep
from rope_lab.trainer import as_evaluated, autocast, build, resolve, update

PAGE = config.ROOT / "results" / "benchmark.md"
BIASED = ("alibi", "t5_bias", "fire")
SCHEMES = ("none", "sinusoidal", "learned", "rope", "roper", "roper_double_rotation", *BIASED)


@dataclass(frozen=True)
class Shape:
    """A model and batch on which training steps are compared."""

    name: str
    overrides: tuple[str, ...]

    @property
    def cfg(self) -> config.Config:
        return config.load("wandb.mode=disabled", *self.overrides)


SHAPES = [
    Shape("quick", ("task=substring_by_index",)),
    Shape("0.6M", ("task=substring_by_prefix", "scale=paper")),
    Shape("20M", ("task=substring_by_index", "scale=paper", "train.batch_size=4")),
]


@dataclass(frozen=True)
class Subject:
    """One way to take a training step."""

    model: str  # a scheme of ours, or a peer
    precision: str
    compiled: bool = False

    def __str__(self) -> str:
        return f"{self.model}, {self.precision}" + (", compiled" if self.compiled else "")


PEERS = {
    "x-transformers": peers.x_transformers,
    "Llama": peers.Llama,
    "labml-nn RoPE": functools.partial(peers.Labml, "rope"),
    "labml-nn RoPER": functools.partial(peers.Labml, "roper"),
}
SUBJECTS = [
    *(Subject(scheme, "bfloat16") for scheme in SCHEMES),
    *(Subject(scheme, "float32") for scheme in ("rope", "roper")),
    *(Subject(scheme, p, compiled=True) for scheme in ("rope", "roper") for p in ("bfloat16", "float32")),
    *(Subject(peer, precision) for peer in PEERS for precision in ("bfloat16", "float32")),
    *(Subject(peer, p, compiled=True) for peer in ("x-transformers", "Llama") for p in ("bfloat16", "float32")),
]


def compare(subjects: dict, repetitions: int, warm: int = 2) -> dict:
    """Seconds per call of each subject, timed alternately after `warm` calls of each."""
    seconds = {name: [] for name in subjects}
    for action in subjects.values():
        for _ in range(warm):
            action()
    for _ in range(repetitions):
        for name, action in subjects.items():
            begun = time.perf_counter()
            action()
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def spread(seconds: list[float], unit: float = 1e-3) -> str:
    return f"{median(seconds) / unit:.4g} ({min(seconds) / unit:.4g} to {max(seconds) / unit:.4g})"


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def step_of(subject: Subject, shape: Shape) -> Callable[[], None]:
    """A training step: ours as training runs it, with its batch and checks; a peer's on a batch made before."""
    cfg = dataclasses.replace(shape.cfg, threads=None)
    if subject.model in SCHEMES:
        settings = (f"position={subject.model}", f"train.precision={subject.precision}")
        overrides = (*shape.overrides, *settings, f"train.compile={str(subject.compiled).lower()}")
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
    """A training step's matrix products of linear layers alone; their FLOP; and the FLOP of the whole step.

    A whole step adds attention's products, counted up to the diagonal. Both are three times the forward pass.
    """
    cfg = shape.cfg
    d, layers = cfg.model.d_model, cfg.model.n_layers
    tokens, vocabulary = cfg.train.batch_size * cfg.train.seq_len, len(config.build_task(cfg).alphabet)
    dtype = getattr(torch, precision)
    made = {
        (i, o): (
            torch.randn(tokens, i, dtype=dtype),
            torch.randn(o, i, dtype=dtype),
            torch.randn(tokens, o, dtype=dtype),
        )
        for i, o in ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d), (d, vocabulary))
    }

    def products() -> None:
        for (_, o), (x, w, g) in made.items():
            for _ in range(1 if o == vocabulary else layers):
                _ = x @ w.T, g @ w, g.T @ x

    linear = 3 * 2 * tokens * (12 * d * d * layers + d * vocabulary)
    attention = 3 * 2 * 2 * tokens * (cfg.train.seq_len + 1) / 2 * d * layers
    return products, linear, linear + attention


def steps(names: list[str]) -> str:
    """Training steps, ours against peers, and the share of matrix-product throughput that they reach."""
    torch._dynamo.config.recompile_limit = 64  # every model here compiles the same functions again
    parts = []
    for shape in SHAPES:
        if names and shape.name not in names:
            continue
        subjects: dict = {subject: step_of(subject, shape) for subject in SUBJECTS}
        products = {precision: products_of(shape, precision) for precision in ("bfloat16", "float32")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = compare(
                subjects | {p: action for p, (action, _, _) in products.items()}, 9 if shape.name != "20M" else 5
            )
        t = {name: median(values) for name, values in seconds.items()}
        lines = []
        for subject in SUBJECTS:
            _, linear, whole = products[subject.precision]
            share = (whole / t[subject]) / (linear / t[subject.precision])
            lines.append([str(subject), spread(seconds[subject]), f"{share:.0%}"])
        cfg = shape.cfg
        rates = ", ".join(f"{products[p][1] / t[p] / 1e9:.0f} GFLOP/s in {p}" for p in products)
        parts.append(
            f"### {shape.name}: {cfg.train.batch_size} × {cfg.train.seq_len} tokens, width {cfg.model.d_model}, "
            f"{cfg.model.n_layers} layers, {cfg.model.n_heads} heads\n\n"
            f"Matrix products of its linear layers alone: {rates}.\n\n"
            + table(["model", "ms a step", "share of matrix products"], lines)
            + "\n\n"
            + ratios(shape, t)
        )
    return "\n\n".join(parts)


def ratios(shape: Shape, t: dict) -> str:
    """The shape's times as ratios: above 1, ours is faster."""
    best = {
        (p, c): min(t[Subject(peer, p, c)] for peer in ("x-transformers", "Llama"))
        for p in ("float32", "bfloat16")
        for c in (False, True)
    }
    ours = resolve(shape.cfg).train.precision
    lines = [
        [
            "labml-nn's RoPER as shipped (float32) / ours as shipped",
            t[Subject("labml-nn RoPER", "float32")] / t[Subject("roper", ours)],
        ],
        [
            "best of x-transformers and Llama as shipped (float32) / our RoPE as shipped",
            best["float32", False] / t[Subject("rope", ours)],
        ],
        *(
            [f"best of the two / our RoPE, {p}, {'compiled' if c else 'eager'}", best[p, c] / t[Subject("rope", p, c)]]
            for p, c in best
        ),
        *(
            [
                f"our RoPER / our RoPE, {p}, {'compiled' if c else 'eager'}",
                t[Subject("roper", p, c)] / t[Subject("rope", p, c)],
            ]
            for p, c in best
        ),
        *([f"our {name} / our RoPE, {ours}", t[Subject(name, ours)] / t[Subject("rope", ours)]] for name in BIASED),
    ]
    return table(["ratio", shape.name], [[name, f"{value:.2f}"] for name, value in lines])


def memory(_: list[str]) -> str:
    """Peak memory of two training steps, without the imported libraries, each subject in its own process."""
    subjects = [
        *(Subject(scheme, precision) for scheme in ("rope", "roper") for precision in ("bfloat16", "float32")),
        *(Subject(peer, precision) for peer in PEERS for precision in ("bfloat16", "float32")),
    ]
    lines = [[str(subject), *(peak(subject, shape) for shape in SHAPES)] for subject in subjects]
    return table(["peak memory, MiB", *(shape.name for shape in SHAPES)], lines)


def peak(subject: Subject, shape: Shape) -> str:
    asked = json.dumps([dataclasses.asdict(subject), dataclasses.asdict(shape)])
    done = subprocess.run([sys.executable, __file__, "--peak", asked], capture_output=True, text=True)
    return done.stdout.split()[-1] if done.returncode == 0 else "failed"


def measure_peak(asked: str) -> None:
    subject, shape = json.loads(asked)
    before = most_memory()
    step = step_of(Subject(**subject), Shape(**shape))
    step(), step()
    print((most_memory() - before) // 1024)


def most_memory() -> int:
    """Peak memory of this process in KiB; on Linux without its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def text(_: list[str]) -> str:
    """Generating training text on one core, in batches of the recipes' sizes."""
    subjects, tokens = {}, {}
    for task, scale in sorted((p.parent.name, p.stem) for p in (config.CONF / "recipe").glob("*/*.yaml")):
        cfg = config.load(f"task={task}", f"scale={scale}")
        made, t, k = config.build_task(cfg), cfg.train, iter(range(10**9))
        subjects[task, scale] = lambda made=made, t=t, k=k: data.training_batch(
            made, 0, next(k), t.batch_size, t.seq_len
        )
        tokens[task, scale] = t.batch_size * t.seq_len
    seconds = compare(subjects, 50)
    lines = [
        [task, scale, f"{tokens[task, scale] / median(s) / 1e6:.1f}", spread(s)] for (task, scale), s in seconds.items()
    ]
    return table(["task", "recipe", "million tokens/s", "ms a batch"], lines)


def evaluation(_: list[str]) -> str:
    """2,048 problems graded by one forward pass each, and completed with a KV cache; 64 also without one."""
    lines = []
    for task in ("arithmetic_addition", "substring_by_index", "substring_by_prefix"):
        with tempfile.TemporaryDirectory() as out:
            overrides = (f"task={task}", "wandb.mode=disabled", f"out={out}")
            with contextlib.redirect_stdout(io.StringIO()):
                train.train(config.load(*overrides, "eval.every=10000", "eval.problems=1"))
            trainer = build(resolve(config.load(*overrides, "eval.problems=2048")))
            (folder,) = Path(out).glob("*/")
            saved = checkpoint.load(folder)
        trainer.model.load_state_dict(saved["model"])
        model, made, problems, length = trainer.model, trainer.task, trainer.problems, trainer.cfg.train.seq_len
        longest = evaluate.longest_completion(problems)
        few = problems[:64]

        def write(problems: list, made=made, model=model, longest=longest, length=length) -> None:
            generate(model, made, [p.tokens[: p.prompt_length] for p in problems], longest, length)

        with as_evaluated(model, trainer.cfg):
            seconds = compare(
                {
                    "forward": lambda m=model, p=problems: evaluate.exact_matches(m, p),
                    "cache": lambda p=problems, w=write: w(p),
                    "few": lambda p=few, w=write: w(p),
                    "without": lambda m=model, t=made, p=few, n=longest: write_without_cache(m, t, p, n),
                },
                repetitions=3,
                warm=1,
            )
        t = {name: median(values) for name, values in seconds.items()}
        lines.append(
            [
                task,
                f"{len(problems) / t['forward']:,.0f}",
                f"{len(problems) / t['cache']:,.0f}",
                f"{t['cache'] / t['forward']:.2f}",
                f"{t['without'] / t['few']:.1f}",
            ]
        )
    head = ["trained quick run", "problems/s, one pass", "problems/s, KV cache", "KV cache / one pass, time"]
    return table([*head, "without / with a KV cache, time (64 problems)"], lines)


def write_without_cache(model: nn.Module, task, problems: list, longest: int) -> None:
    """Greedy decoding that reads the whole text again for every token."""
    tokens_BT = data.pad([task.encode(p.prompt) for p in problems])
    end_B = torch.tensor([len(p.prompt) for p in problems])
    tokens_BT = F.pad(tokens_BT, (0, longest))
    every = torch.arange(len(problems))
    for _ in range(longest):
        next_B = model(tokens_BT[:, : int(end_B.max())])[every, end_B - 1].argmax(-1)
        tokens_BT[every, end_B] = next_B
        end_B += 1


def harness(_: list[str]) -> str:
    """The default run against its bare steps: forward, loss, backward, clipping, optimizer, with prepared batches."""
    cfg = resolve(config.load("wandb.mode=disabled"))
    trainer = build(cfg)
    batches = [data.training_batch(trainer.task, 0, k, cfg.train.batch_size, cfg.train.seq_len) for k in range(20)]

    def bare(steps: int = cfg.train.steps) -> None:
        for k in range(steps):
            batch = batches[k % len(batches)]
            with autocast(cfg, trainer.device):
                logits_BTV = trainer.model(batch.inputs_BT)
            targets = batch.targets_BT.flatten()
            loss = F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets, ignore_index=data.IGNORED)
            trainer.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trainer.model.parameters(), cfg.train.clip)
            trainer.optimizer.step()

    def run(*overrides: str) -> None:
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            train.train(config.load("wandb.mode=disabled", f"out={out}", *overrides))

    nothing = ("eval.every=100000", "eval.problems=1", "eval.sequences=1")
    bare(50)  # warm-up
    seconds = compare({"bare": bare, "no evaluation": lambda: run(*nothing), "as it is": run}, repetitions=3, warm=0)
    t = {name: median(values) for name, values in seconds.items()}
    lines = [[name, spread(s, unit=1.0), f"{t[name] / t['bare']:.3f}"] for name, s in seconds.items()]
    return table([f"{cfg.train.steps} steps of the default run", "s", "of the bare steps"], lines)


def length(_: list[str]) -> str:
    """A RoPER step of the 0.6M model by sequence length and by batch size, with softmax and with linear attention."""
    lines = []
    for kinds, batch, t in [
        *((("softmax", "linear"), 2, t) for t in (128, 512, 2048, 4096, 8192)),
        *((("softmax",), b, 512) for b in (1, 4, 16, 64)),
    ]:
        size = (f"train.batch_size={batch}", f"train.seq_len={t}")
        shapes = {kind: Shape("", (*SHAPES[1].overrides, f"model.attention={kind}", *size)) for kind in kinds}
        subject = Subject("roper", resolve(SHAPES[1].cfg).train.precision)
        seconds = compare({kind: step_of(subject, shape) for kind, shape in shapes.items()}, 5)
        for kind, s in seconds.items():
            token = f"{median(s) / (batch * t) * 1e6:.1f}"
            lines.append([kind, str(batch), str(t), spread(s), token, peak(subject, shapes[kind])])
    return table(["attention", "batch", "tokens a sequence", "ms a step", "µs a token", "peak memory, MiB"], lines)


def tables(_: list[str]) -> str:
    """The table of 1,000 runs, from run folders and from their kept rows."""
    with tempfile.TemporaryDirectory() as place:
        folders, kept = Path(place) / "runs", Path(place) / "kept"
        make_runs(folders)
        kept.mkdir()
        keep(read(folders)[0], kept)
        seconds = compare(
            {"run folders": lambda: show_table(folders), "kept rows": lambda: show_table(kept)}, 5, warm=1
        )
    return table(["table of 1,000 runs from", "s"], [[name, spread(s, unit=1.0)] for name, s in seconds.items()])


def make_runs(folder: Path) -> None:
    """1,000 run folders as large as those of quick runs: 10 schemes, 10 recipes, 10 seeds, 85 metric records each."""
    rng = np.random.default_rng(0)
    for number in range(1000):
        recipe, scheme, seed = number // 100, number // 10 % 10, number % 10
        accuracy = float(rng.uniform())
        losses = {"train/loss": 1.0, "train/lr": 1e-3, "train/grad_norm": 1.0}
        evaluation = {"eval/loss": 1.0, "eval/accuracy": accuracy, "eval/token_accuracy": 0.5}
        lines = [
            {"step": step, "sequences": step, "tokens": step, "seconds": step}
            | losses
            | (evaluation if step % 50 == 0 else {})
            for step in range(0, 850, 10)
        ]
        content = {
            "status": "finished",
            "task": f"task{recipe}",
            "position": f"scheme{scheme}",
            "scale": "quick",
            "seed": seed,
            "run_id": str(number),
            "recipe_id": str(recipe),
            "parameters": 1,
            "config": {
                "task": {},
                "model": {},
                "position": {"q": scheme},
                "train": {"steps": 850, "batch_size": 32, "seq_len": 128},
                "eval": {"problems": 512},
            },
            "progress": {"steps": 850, "sequences": 1, "tokens": 1, "seconds": 1.0},
            "metrics": losses | evaluation,
            "slices": {name: {str(v): [40, 0.5] for v in range(13)} for name in ("index", "suffix_length", "place")},
            "provenance": {
                "code": "c0de",
                "git": {"commit": "0", "dirty": False},
                "versions": {"torch": "2.13.0"},
                "hardware": {"device": "cpu", "name": "CPU", "threads": 1},
            },
        }
        path = folder / str(number)
        path.mkdir(parents=True)
        (path / "run.json").write_text(json.dumps(content, indent=2))
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def show_table(folder: Path) -> None:
    """`python -m rope_lab.results FOLDER --print`, without starting Python."""
    with contextlib.redirect_stdout(io.StringIO()):
        results.main([str(folder), "--print"])


LIBRARIES = ("torch", "numpy", "x-transformers", "transformers", "labml-nn")
SECTIONS = {f.__name__: f for f in (steps, memory, text, evaluation, harness, length, tables)}


def write_section(name: str, content: str, took: float) -> None:
    """Writes a section into results/benchmark.md, replacing its previous version."""
    machine = hardware(torch.device("cpu"))
    libraries = ", ".join(f"{p} {version(p)}" for p in LIBRARIES if name == "steps" or p in LIBRARIES[:2])
    about = (
        f"`python scripts/benchmark.py {name}` on {datetime.now(UTC):%Y-%m-%d}: {machine['name']}, "
        f"{torch.get_num_threads()} threads of {machine['cores']} cores, {platform.system()}; {libraries}; "
        f"code {code_digest(config.load())}; {took / 60:.1f} minutes."
    )
    docstring = " ".join(SECTIONS[name].__doc__.split())
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n\n## {name}\n\n{docstring}\n\n{content}\n\n{about}\n\n{end}"
    page = PAGE.read_text() if PAGE.exists() else "# Benchmarks\n\nWritten by `scripts/benchmark.py`.\n"
    if begin in page:
        page = re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: section, page, flags=re.DOTALL)
    else:
        page = page.rstrip("\n") + f"\n\n{section}\n"
    PAGE.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; default: all")
    parser.add_argument(
        "--shape", action="append", default=[], choices=[s.name for s in SHAPES], help="for steps: only this shape"
    )
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        return measure_peak(given.peak)
    for name in given.sections:
        if name not in SECTIONS:
            parser.error(f"{name}: no such section; choose from {', '.join(SECTIONS)}")
    for name in given.sections or SECTIONS:
        begun = time.perf_counter()
        try:
            content = SECTIONS[name](given.shape)
        except ModuleNotFoundError as error:
            sys.exit(f"{name}: {error.name} is not installed; README.md says how to install what we compare with")
        print(f"## {name}\n\n{content}\n", flush=True)
        write_section(name, content, time.perf_counter() - begun)
    return None


if __name__ == "__main__":
    main()
