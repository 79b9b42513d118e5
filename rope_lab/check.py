"""Checks of a scheme or a task of your own: `rope-lab check position=./mine.py`, or `task=./mine.py`.

The tests ask the same of ours. Each check is a line: `ok`, `note` (allowed, and to be known) or `WRONG`. Other settings
are as in training: `model.n_heads=8`, `task.digits=3`. Exit status 1 if something is wrong.
"""

import copy
import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from rope_lab.model.hooks import HOOKS, Dims, PositionScheme, overridden
from rope_lab.model.transformer import Transformer
from rope_lab.text import ConfigError, argument_parser, plain, say
from rope_lab.train import config, data, instantiate, trainer
from rope_lab.train.config import Config
from tasks.base import PackedTask, Task
from tasks.split import is_held_out

TOKENS = torch.randint(11, (3, 16), generator=torch.Generator().manual_seed(3))
PROBLEMS, DRAWN, BATCHES = 128, 2000, 400


def of_scheme(cfg: Config) -> dict[str, Callable[[], str | None]]:
    """The checks of a scheme, by name; each raises AssertionError, or returns a note or None."""
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, cfg.train.seq_len, n_layers=2)
    by = max(0, dims.max_len - TOKENS.shape[1])
    moved = f"moving all tokens by {by} positions changes logits"
    return {
        "shapes": lambda: shapes(config.build_position(cfg, dims), dims),
        "hooks": lambda: hooks(type(config.build_position(cfg, dims))),
        "causality": lambda: causality(model_of(cfg)),
        "KV cache": lambda: cached(model_of(cfg), tolerance=1e-6),
        "gradients": lambda: gradients(model_of(cfg), dims),
        "shift": lambda: f"{moved} by at most {shift(model_of(cfg), by):.0e} (below 1e-9: only distances count)",
        "length": lambda: length(model_of(cfg), 2 * dims.max_len),
    }


def of_task(cfg: Config) -> dict[str, Callable[[], str | None]]:
    task = config.build_task(cfg)
    return {
        "format": lambda: written(task, cfg.train.seq_len + 1),
        "reproducibility": lambda: reproducible(task, config.build_task(cfg), cfg.train.seq_len),
        "problems": lambda: problems(task, cfg.train.seq_len),
        "split": lambda: split(task, cfg.train.seq_len + 1),
    }


def check(cfg: Config, group: str) -> Iterator[tuple[str, str, str]]:
    """`ok`, `note` or `WRONG`, the name of a check, and what it says of the scheme or task of a resolved `cfg`.

    The first that is wrong is the last: what follows may rely on it.
    """
    for name, tried in (of_scheme if group == "position" else of_task)(cfg).items():
        try:
            note = tried()
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            file = inspect.getsourcefile(next(instantiate.classes(getattr(cfg, group))))
            yield "WRONG", name, str(error) if type(error) is AssertionError else instantiate.error_line(error, file)
            return
        yield "note" if note else "ok", name, note or ""


def demand(right: object, message: str) -> None:
    if not right:
        raise AssertionError(message)


def model_of(cfg: Config) -> Transformer:
    """A model of `cfg` with two layers, in float64, no parameter at its first value: zeros hide what they do."""
    small = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, n_layers=2, dropout=0.0))
    model = trainer.build_model(small, 11).double()
    model.position.draw(0, cfg.train.seq_len)
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    return model


def called(scheme: PositionScheme, dims: Dims, T: int, dtype: torch.dtype) -> dict[str, tuple]:
    """For each hook its random input [2, T, …] and the tensors that it returns for T tokens."""
    H, K, at = dims.n_heads, dims.d_head, scheme.prepare(torch.arange(T), dtype)
    layer, projections = scheme.in_layer(0), 3 if scheme.projects_values else 2
    bias, returned = scheme.bias(at, at), {}
    at = scheme.with_keys(at, torch.arange(1, T + 1))
    sizes = {"embed": (2, T, dims.d_model), "read": (2, T, dims.d_model)}
    for hook, size in (sizes | {"heads": (2, T, projections, H, K), "output": (2, T, H, K)}).items():
        x = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=dtype)
        given = x.clone()
        if hook == "read":
            pair = layer.read(given, at, 0, None)
            demand(isinstance(pair, tuple) and len(pair) == 2, "read returns other than two: `at`, and scores or None")
            at, own = pair
            returned[hook] = x, [] if own is None else [own]
        else:
            y = getattr(scheme if hook == "embed" else layer, hook)(given, at)
            returned[hook] = x, [y] if isinstance(y, Tensor) else list(y)
        demand(torch.equal(given, x), f"{hook} changes what it is given in place")
    return returned | {"bias": (None, [] if bias is None else [bias])}


def shapes(scheme: PositionScheme, dims: Dims) -> None:
    """Each hook returns the shape that the model reads, in no narrower a number than given, and the same again."""
    for dtype, T in ((torch.float32, 1), (torch.float64, 5)):
        made = copy.deepcopy(scheme).to(dtype)
        first, _, again = (called(made, dims, n, dtype) for n in (T, T + 1, T))
        for hook, (x, returned) in first.items():
            message, H = f"{hook} returns {[list(y.shape) for y in returned]}, must be", dims.n_heads
            if hook in ("bias", "read"):
                most = [H, T, T] if hook == "bias" else [2, H, T, T]
                fits = all(y.dim() == len(most) and all(map(lambda n, m: n in (1, m), y.shape, most)) for y in returned)
                demand(fits, f"{message} {most}, or 1 in the place of a number")
            elif hook == "heads" and len(returned) == 3:
                q, k, v = returned
                right = v.shape == x[:, :, 0].shape and q.shape == k.shape and q.shape[:3] == v.shape[:3]
                demand(right, f"{message} [2, {T}, {H}, width] of q and k, and {list(x[:, :, 0].shape)} of v")
            else:
                right = [y.shape for y in returned] == [x.shape] and (hook != "heads" or made.projects_values)
                demand(right, f"{message} {list(x.shape)} (or three: q, k and v)")
            for y in returned:
                wide = y.dtype in {dtype, torch.float64} or (hook == "bias" and y.dtype == torch.float32)
                demand(wide and (hook != "embed" or y.dtype == dtype), f"{hook} returns {y.dtype} for {dtype}")
                demand(not y.isnan().any(), f"{hook} returns numbers that are not finite")
            same = all(map(torch.equal, returned, again[hook][1]))
            demand(same, f"{hook} returns other numbers when it is called again; random numbers belong into draw")


def hooks(cls: type[PositionScheme]) -> str | None:
    """The class overrides a hook; a method with nearly the name of a hook that it does not override is noted."""
    left = [name for name in HOOKS if name not in overridden(cls)]
    own = [name for name in dir(cls) if not hasattr(PositionScheme, name)]
    near = {name: hook for name in own for hook in difflib.get_close_matches(name, left, 1, 0.75)}
    message = "; ".join(f"{name} is not a hook: did you mean {hook}?" for name, hook in near.items())
    does = overridden(cls) or cls.window or cls is PositionScheme
    demand(does, f"overrides none of {', '.join(HOOKS)}: it is position=none. {message}")
    return message or None


def causality(model: Transformer) -> str | None:
    """By gradients: no logit depends on a later token, nor on another row. What is not seen is noted."""
    seen, T = [], TOKENS.shape[1]
    handle = model.embedding.register_forward_hook(lambda module, given, output: seen.append(output))
    logits = model(TOKENS)
    handle.remove()
    for t in (0, T // 2, T - 1):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), seen[0], retain_graph=True)
        reach_BT = gradient.abs().sum(-1)
        demand(not reach_BT[0, t + 1 :].any(), f"the logits at position {t} depend on a later token")
        demand(not reach_BT[1].any(), "the rows of a batch depend on one another")
    unseen = int((reach_BT[0] <= 1e-9).sum())
    return f"the last of {T} tokens does not see {unseen} of those before it" if unseen else None


@torch.no_grad()
def cached(model: Transformer, tolerance: float = 1e-12) -> None:
    """Logits are those of a full pass when tokens are read in parts; on the way a row of the batch is dropped."""
    tokens, full, chosen = TOKENS, model(TOKENS), torch.tensor([True, False, True])
    cache = model.new_cache(*TOKENS.shape)
    for begin, end in [(0, 5), *((t, t + 1) for t in range(5, 16))]:
        if begin == 9:
            cache, tokens, full = [layer.rows(chosen) for layer in cache], tokens[chosen], full[chosen]
        off = (model(tokens[:, begin:end], cache=cache) - full[:, begin:end]).abs().max().item()
        said = f"with a KV cache the logits at position {begin} differ by {off:.1e} from those of a full pass"
        demand(off <= tolerance, f"{said}: must treat each token by its `at` alone, or keep in the cache what it needs")


def gradients(model: Transformer, dims: Dims) -> None:
    """Every parameter gets a finite gradient; through the hooks it is that of finite differences."""
    scheme = model.position
    for name, value in vars(scheme).items():
        loose = isinstance(value, Tensor) and value.requires_grad
        demand(not loose, f"self.{name} is a tensor and no nn.Parameter: it is neither trained nor saved")
    model(TOKENS).square().sum().backward()
    for name, parameter in scheme.named_parameters():
        demand(parameter.grad is not None, f"the parameter {name} gets no gradient")
        demand(parameter.grad.isfinite().all(), f"the gradient of {name} is not finite")
    x = called(scheme, dims, 4, torch.float64)["embed"][0].requires_grad_()
    layer, at = model.layers[0].attention, scheme.prepare(torch.arange(4), torch.float64)
    bias, at = scheme.bias(at, at), scheme.with_keys(at, torch.arange(1, 5))
    torch.autograd.gradcheck(lambda x: scheme.embed(x, at), x, fast_mode=True)
    torch.autograd.gradcheck(lambda x: layer(x, scheme.in_layer(0), at, bias, None), x, fast_mode=True)


@torch.no_grad()
def shift(model: Transformer, by: int) -> float:
    """By how much the logits change, at most, when all positions are `by` further on."""
    return (model(TOKENS, torch.arange(TOKENS.shape[1]) + by) - model(TOKENS)).abs().max().item()


@torch.no_grad()
def length(model: Transformer, T: int) -> str | None:
    """Twice the length of training, as `eval.lengths` may ask, is served or refused with a ValueError."""
    try:
        model.position.draw(0, T)
        demand(model(torch.arange(T)[None] % 11).isfinite().all(), f"the logits of {T} tokens are not finite")
    except ValueError as error:
        return f"serves no {T} tokens: {error}"
    return None


def written(task: Task, length: int) -> None:
    """Problems are written in the alphabet, each prompt with one right completion; a stop stands at its end alone."""
    demand(len({*task.alphabet}) == len(task.alphabet), "alphabet has a character twice")
    demand(task.stop is None or task.stop in task.alphabet, f"alphabet lacks stop, {task.stop!r}")
    demand(task.text(np.random.default_rng(0), 4, length).tokens.max() < len(task.alphabet), "text has unknown tokens")
    if not isinstance(task, PackedTask):
        return
    drawn = task.draw(np.random.default_rng(0), DRAWN)
    right = drawn.ndim == 2 and len(drawn) == DRAWN and np.issubdtype(drawn.dtype, np.integer)
    demand(right, f"draw(rng, {DRAWN}) returns {drawn.dtype} {drawn.shape}, must be integers [{DRAWN}, columns]")
    parts, answers = [["".join(map(chr, row[row != 0])) for row in part] for part in task.write(drawn)], {}
    for prompt, completion in zip(*parts, strict=True):
        lacks = "".join(sorted({*prompt, *completion} - {*task.alphabet}))
        demand(not lacks, f"write uses {lacks!r}, which alphabet lacks")
        demand(answers.setdefault(prompt, completion) == completion, f"{prompt!r} has more than one right completion")
        stops = [i for i, character in enumerate(completion, start=1) if character == task.stop]
        whole = stops == [len(completion)] if task.stop else completion
        demand(whole, f"a completion must hold stop, {task.stop!r}, once, at its end")


def reproducible(first: Task, second: Task, T: int) -> None:
    """Batch k depends on (seed, k) alone: not on the batches before, nor on another random number."""
    texts = [data.training_batch(first, 0, k, 4, T).inputs_BT for k in range(4)]
    for k in (3, 0, 2):
        np.random.seed(k)  # noqa: NPY002  whose numbers no task may use
        again = data.training_batch(second, 0, k, 4, T).inputs_BT
        demand(again.equal(texts[k]), f"batch {k} is another text another time: all random numbers must come from rng")


def problems(task: Task, seq_len: int) -> str | None:
    """Held-out problems differ and fit; a longer list begins as a shorter one; the right completion is graded right."""
    held_out = data.evaluation_problems(task, PROBLEMS)
    demand(max(p.length for p in held_out) <= task.max_length <= seq_len, f"a problem exceeds {task.max_length=}")
    if not task.grades:
        return "grades nothing: its problems are only written on"
    prompts, first = ([problem.prompt for problem in some] for some in (held_out, data.evaluation_problems(task, 8)))
    demand(len({*prompts}) == len(prompts), "two problems have one prompt")
    demand(prompts[:8] == first, "a longer list of problems must begin as a shorter one")
    for problem in held_out:
        demand(all(task.grade(problem, problem.completion).values()), f"{problem.completion!r} is graded wrong")
        other = next(c for c in task.alphabet if c not in (problem.completion[0], task.stop)) + problem.completion[1:]
        wrong = not task.grade(problem, other)[task.grades[0]]
        demand(wrong, f"{other!r} is graded right, as is {problem.completion!r}")
    return None


def split(task: Task, length: int) -> str | None:
    """Training text holds problems of the training side alone, held-out text and evaluation those held out."""
    if not isinstance(task, PackedTask):
        return "not packed: its own tests must see that training text holds nothing held out"
    task.text(np.random.default_rng(0), 1, length)  # which draws once what it keeps
    own, drawn, keys = copy.copy(task), [], {}
    own.write = lambda rows: drawn.append(rows) or task.write(rows)
    for held_out in (False, True):
        for k in range(BATCHES):
            own.text(data.generator(0, data.TRAINING_TEXT, k), 2, length, held_out)
        if held_out:
            own.problems(np.random.default_rng(0), PROBLEMS)
        rows, drawn[:] = np.concatenate(drawn), []
        wrong = rows[is_held_out(task.split_key(rows)) != held_out]
        side = "held-out text" if held_out else "training text"
        demand(not len(wrong), f"{side} has {len(wrong)} of {len(rows)} problems of the other side, as {wrong[:1]}")
        for prompt in {"".join(map(chr, row[row != 0])) for row in task.write(rows)[0]}:
            demand(keys.setdefault(prompt, held_out) == held_out, f"{prompt!r} is on both sides of the split")
    return None


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("check", __doc__)
    parser.add_argument("settings", nargs="+", metavar="NAME=VALUE", help="position=… or task=…, and others")
    given = parser.parse_args(arguments)
    groups, kinds = [g for g in ("position", "task") if any(w.startswith(f"{g}=") for w in given.settings)], []
    if not groups:
        parser.error("name what is to be checked: position=./mine.py or task=./mine.py")
    try:
        cfg = trainer.resolve(config.load(*given.settings))
        for group in groups:
            say(f"{group}={getattr(cfg.names, group)}")
            for kind, name, message in check(cfg, group):
                kinds.append(kind)
                say(f"  {kind:<6} {name:<18} {plain(message)}".rstrip())
    except ConfigError as error:
        parser.exit(2, f"{error}\n")
    say("not all checks passed" if "WRONG" in kinds else "all checks passed")
    parser.exit("WRONG" in kinds)


if __name__ == "__main__":
    main()
