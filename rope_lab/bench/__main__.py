"""Time training steps of schemes and of other libraries: `python -m rope_lab.bench [MODEL…] [SETTING=VALUE…]`.

MODEL is a position encoding or a peer (peers.py); default: rope, roper and every installed peer. The settings describe
the run whose steps are timed; default: five shapes. Models take steps in turn: a busy machine disturbs all alike.
"""

import importlib.util
import itertools
import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch

from rope_lab.bench import gpu, timing
from rope_lab.bench.peers import PEERS
from rope_lab.text import ConfigError, argument_parser
from rope_lab.train import config, data
from rope_lab.train.trainer import autocast, build

OURS = ["rope", "roper"]
PRECISIONS = ["float32", "bfloat16"]
Subject = tuple[str, str, bool]  # model, precision, whether it is compiled


def peer_step(name: str, settings: Sequence[str]) -> Callable[[], object]:
    """A training step of a peer, on a batch that was made before."""
    cfg = timing.load(*settings)
    device, m, t = torch.device(cfg.device), cfg.model, cfg.train
    task = config.build_task(cfg)
    batch = data.training_batch(task, 0, 0, t.batch_size, t.seq_len).to(device)
    torch.manual_seed(0)
    model = PEERS[name][0](len(task.alphabet), m.d_model, m.n_layers, m.n_heads, t.seq_len).to(device)
    forward = torch.compile(model) if t.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)

    def step() -> None:
        with autocast(cfg, device):
            logits_BTV = forward(batch.inputs_BT)
        targets_N = batch.targets_BT.flatten()
        loss = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_N, ignore_index=data.IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def steps_of(subject: Subject, settings: Sequence[str]) -> Callable[[], object]:
    model, precision, compiled = subject
    settings = [*settings, f"train.precision={precision}", f"train.compile={str(compiled).lower()}"]
    if model in PEERS:
        return peer_step(model, settings)
    return timing.training_step(build(timing.load(*settings, *timing.FEW_PROBLEMS, f"position={model}")))


def compare(name: str, settings: Sequence[str], subjects: list[Subject], repeats: int) -> str:
    """A Markdown table of the subjects' steps: milliseconds, and the ratio to the first model's, repeat by repeat."""
    cfg = timing.load(*settings)
    calls = {subject: steps_of(subject, settings) for subject in subjects}
    seconds = {subject: np.array(each) for subject, each in timing.alternate(calls, repeats, cfg.device).items()}
    rates = {precision: timing.matrix_rate(cfg.device, precision) for _, precision, _ in subjects}
    lines = []
    for model, precision, compiled in subjects:
        mine = seconds[model, precision, compiled]
        ratio = mine / seconds[subjects[0][0], precision, compiled]
        share = timing.flop(cfg) / np.median(mine) / rates[precision]
        way = f"{precision}{', compiled' * compiled}"
        lines.append([model, way, timing.spread(mine * 1e3), timing.spread(ratio), f"{share:.0%}"])
    m, t = cfg.model, cfg.train
    size = f"{t.batch_size} × {t.seq_len} tokens, width {m.d_model}, {m.n_layers} layers, {m.n_heads} heads"
    speeds = ", ".join(f"{rate / 1e9:,.0f} GFLOP/s in {precision}" for precision, rate in rates.items())
    head = ["model", "computed in", "ms a step", f"time / {subjects[0][0]}'s", "share of matrix products"]
    return f"## {name}: {size}\n\nProducts of square matrices: {speeds}.\n\n{timing.table(head, lines)}\n"


def installed(model: str) -> bool:
    return model not in PEERS or importlib.util.find_spec(PEERS[model][1]) is not None


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("bench", __doc__)
    parser.add_argument("words", nargs="*", metavar="MODEL|SETTING=VALUE", help=f"peers: {', '.join(PEERS)}")
    parser.add_argument("--precision", choices=PRECISIONS, action="append", help="default: both")
    parser.add_argument("--compile", action="store_true", help="compiled models too")
    parser.add_argument("--repeats", type=int, default=9, help="steps of each (default: 9)")
    parser.add_argument("--gpu", action="store_true", help="check what works on a GPU, how fast, how long a run takes")
    given = parser.parse_intermixed_args(arguments)
    if given.repeats < 1:
        parser.error("--repeats must be at least 1")
    models = [word for word in given.words if "=" not in word]
    settings = [word for word in given.words if "=" in word]
    if missing := [model for model in models if not installed(model)]:
        parser.error(f"{missing[0]}: {PEERS[missing[0]][1]} is not installed; results/benchmark.md says how")
    try:
        if given.gpu:
            sys.exit(not gpu.check(models, settings, given.compile, given.repeats))
        models = models or [model for model in (*OURS, *PEERS) if installed(model)]
        ways = itertools.product(given.precision or PRECISIONS, (False, True) if given.compile else (False,))
        subjects = [(model, precision, compiled) for precision, compiled in ways for model in models]
        torch._dynamo.config.recompile_limit = 64  # all models here share the functions that are compiled
        for name, shape in ({" ".join(settings): settings} if settings else timing.SHAPES).items():
            print(compare(name, shape, subjects, given.repeats), flush=True)
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
