"""Benchmarks, each comparison within one process: `python scripts/benchmark.py [SECTION…]` (default: all sections).

Subjects are timed alternately; each figure is the median, with minimum and maximum. Each section prints its tables and
replaces those it wrote to results/benchmark.md before. Run nothing else meanwhile: it is seen, and said there.
"""

import argparse
import contextlib
import io
import json
import platform
import re
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from corpora import corpus
from launchers import launchers
from timing import SHAPES, TEXT, Shape, Watch, spread, table
from torch import nn
from training_steps import Subject, memory, peak, step_of, steps

from rope_lab.results import __main__ as results
from rope_lab.results.folders import read
from rope_lab.results.kept import keep
from rope_lab.train import checkpoint, config, data, evaluate
from rope_lab.train import loop as train
from rope_lab.train.generate import generate
from rope_lab.train.provenance import code_digest, hardware
from rope_lab.train.trainer import as_evaluated, autocast, build, resolve

PAGE = config.ROOT / "results" / "benchmark.md"


def text(watch: Watch, _: argparse.Namespace) -> str:
    """Generating training text on one core, in batches of the recipes' sizes."""
    subjects, tokens = {}, {}
    for task, scale in sorted((p.parent.name, p.stem) for p in (config.CONF / "recipe").glob("*/*.yaml")):
        cfg = config.load(f"task={task}", f"scale={scale}")
        made, t, k = config.build_task(cfg), cfg.train, iter(range(10**9))
        subjects[task, scale] = lambda made=made, t=t, k=k: data.training_batch(
            made, 0, next(k), t.batch_size, t.seq_len
        )
        tokens[task, scale] = t.batch_size * t.seq_len
    seconds = watch.compare(subjects, 50)
    lines = [
        [task, scale, f"{tokens[task, scale] / median(s) / 1e6:.1f}", spread(s)] for (task, scale), s in seconds.items()
    ]
    return table(["task", "recipe", "million tokens/s", "ms a batch"], lines)


def evaluation(watch: Watch, _: argparse.Namespace) -> str:
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
            seconds = watch.compare(
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


def harness(watch: Watch, _: argparse.Namespace) -> str:
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
    seconds = watch.compare(
        {"bare": bare, "no evaluation": lambda: run(*nothing), "as it is": run}, repetitions=3, warm=0
    )
    t = {name: median(values) for name, values in seconds.items()}
    lines = [[name, spread(s, unit=1.0), f"{t[name] / t['bare']:.3f}"] for name, s in seconds.items()]
    return table([f"{cfg.train.steps} steps of the default run", "s", "of the bare steps"], lines)


def length(watch: Watch, _: argparse.Namespace) -> str:
    """A RoPER step of the 0.6M model by sequence length and by batch size, with softmax and with linear attention."""
    lines = []
    for kinds, batch, t in [
        *((("softmax", "linear"), 2, t) for t in (128, 512, 2048, 4096, 8192)),
        *((("softmax",), b, 512) for b in (1, 4, 16, 64)),
    ]:
        size = (f"train.batch_size={batch}", f"train.seq_len={t}")
        shapes = {kind: Shape("", (*SHAPES[1].overrides, f"model.attention={kind}", *size)) for kind in kinds}
        subject = Subject("roper", resolve(SHAPES[1].cfg).train.precision)
        seconds = watch.compare({kind: step_of(subject, shape) for kind, shape in shapes.items()}, 5)
        for kind, s in seconds.items():
            token = f"{median(s) / (batch * t) * 1e6:.1f}"
            lines.append([kind, str(batch), str(t), spread(s), token, peak(subject, shapes[kind])])
    return table(["attention", "batch", "tokens a sequence", "ms a step", "µs a token", "peak memory, MiB"], lines)


def tables(watch: Watch, _: argparse.Namespace) -> str:
    """The table of 1,000 runs, from run folders and from their kept rows."""
    with tempfile.TemporaryDirectory() as place:
        folders, kept = Path(place) / "runs", Path(place) / "kept"
        make_runs(folders)
        kept.mkdir()
        keep(read(folders)[0], kept)
        seconds = watch.compare(
            {"run folders": lambda: show_table(folders), "kept rows": lambda: show_table(kept)}, 5, warm=1
        )
    return table(["table of 1,000 runs from", "s"], [[name, spread(s, unit=1.0)] for name, s in seconds.items()])


def make_runs(folder: Path) -> None:
    """1,000 run folders as large as those of quick runs: 10 schemes, 10 recipes, 10 seeds, 85 metric records each."""
    rng = np.random.default_rng(0)
    for number in range(1000):
        recipe, scheme, seed = number // 100, number // 10 % 10, number % 10
        losses = {"train/loss": 1.0, "train/lr": 1e-3, "train/grad_norm": 1.0}
        evaluation = {"eval/loss": 1.0, "eval/accuracy": float(rng.uniform()), "eval/token_accuracy": 0.5}
        records = [
            dict.fromkeys(("step", "sequences", "tokens", "seconds"), step)
            | losses
            | (evaluation if step % 50 == 0 else {})
            for step in range(0, 850, 10)
        ]
        names = {"task": f"task{recipe}", "position": f"scheme{scheme}", "scale": "quick", "seed": seed}
        train_settings = {"steps": 850, "batch_size": 32, "seq_len": 128}
        settings = {
            "task": {},
            "model": {},
            "position": {"q": scheme},
            "train": train_settings,
            "eval": {"problems": 512},
        }
        progress = {"steps": 850, "sequences": 1, "tokens": 1, "seconds": 1.0}
        attributes = ("index", "suffix_length", "place")
        content = {"status": "finished", "run_id": str(number), "recipe_id": str(recipe), "parameters": 1} | names
        content |= {"config": settings, "progress": progress, "metrics": losses | evaluation}
        content |= {"slices": {name: {str(v): [40, 0.5] for v in range(13)} for name in attributes}}
        made_on = {"device": "cpu", "name": "CPU", "threads": 1}
        code = {"code": "c0de", "git": {"commit": "0", "dirty": False}, "versions": {"torch": "2.13.0"}}
        content |= {"provenance": code | {"hardware": made_on}}
        path = folder / str(number)
        path.mkdir(parents=True)
        (path / "run.json").write_text(json.dumps(content, indent=2))
        (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def show_table(folder: Path) -> None:
    """`python -m rope_lab.results FOLDER --print`, without starting Python."""
    with contextlib.redirect_stdout(io.StringIO()):
        results.main([str(folder), "--print"])


LIBRARIES = {  # beside torch and numpy
    "steps": ("x-transformers", "transformers", "labml-nn"),
    "launchers": ("hydra-core", "joblib", "ray", "submitit"),
}
SECTIONS = {f.__name__: f for f in (steps, memory, text, corpus, evaluation, harness, length, tables, launchers)}


def write_section(name: str, content: str, watch: Watch) -> None:
    """Writes a section into results/benchmark.md, replacing its previous version."""
    disturbed = watch.disturbance()
    machine = hardware(torch.device("cpu"))
    installed = {each.name.replace("_", "-"): each.version for each in distributions()}
    of_note = ("torch", "numpy", *LIBRARIES.get(name, ()))
    libraries = ", ".join(f"{each} {installed[each]}" for each in of_note if each in installed)
    about = (
        f"`python scripts/benchmark.py {name}` on {datetime.now(UTC):%Y-%m-%d}: {machine['name']}, "
        f"{torch.get_num_threads()} threads of {machine['cores']} cores, {platform.system()}; {libraries}; "
        f"code {code_digest(config.load())}; {watch.took() / 60:.1f} minutes."
        + (f"\n\n**{disturbed}.**" if disturbed else "")
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
        "--shape",
        action="append",
        default=[],
        choices=[s.name for s in (*SHAPES, *TEXT)],
        help="for steps: only this shape",
    )
    parser.add_argument("--ray", metavar="HOST:PORT", help="for launchers: a Ray cluster")
    given = parser.parse_args()
    for name in given.sections:
        if name not in SECTIONS:
            parser.error(f"{name}: no such section; choose from {', '.join(SECTIONS)}")
    for name in given.sections or SECTIONS:
        watch = Watch()
        try:
            content = SECTIONS[name](watch, given)
        except ModuleNotFoundError as error:
            sys.exit(f"{name}: {error.name} is not installed; README.md says how to install what we compare with")
        print(f"## {name}\n\n{content}\n", flush=True)
        if disturbed := watch.disturbance():
            print(f"{disturbed}: do not quote these\n", file=sys.stderr)
        write_section(name, content, watch)


if __name__ == "__main__":
    main()
