"""Checks of a scheme or a task of your own: `rope-lab check position=./mine.py`, or
`task=./mine.py`.

The tests ask the same of ours. Each check prints a line: `ok`, `note` (allowed, but good to know)
or `WRONG`. Other settings are as in training: `model.n_heads=8`, `task.digits=3`. Exit status 1 if
something is wrong.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from rope_lab import command
from rope_lab.model.attention import unpacked
from rope_lab.model.hooks import HOOKS, Dims, PositionScheme, overridden
from rope_lab.model.transformer import Transformer
from rope_lab.tasks.base import PackedTask, Task
from rope_lab.text import ConfigError, argument_parser, plain, say
from rope_lab.train import config, data, instantiate, trainer
from rope_lab.train.config import Config

VOCABULARY, LENGTH = 11, 16
TOKENS = torch.randint(VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(3))
PROBLEMS, DRAWN, BATCHES = 128, 2000, 400


def checks(cfg: Config, group: str) -> dict[str, Callable[[], str | None]]:
    """The checks of a scheme or a task, by name; each raises Wrong, or returns a note or None."""
    T = cfg.train.seq_len
    if group == "task":
        task = functools.cache(lambda: config.build_task(cfg))
        return {
            "format": lambda: written(task(), T + 1),
            "reproducibility": lambda: reproducible(task(), config.build_task(cfg), T),
            "problems": lambda: problems(task(), T),
            "split": lambda: split(task(), T),
        }
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, T, n_layers=2)
    return {
        "shapes": lambda: shapes(config.build_position(cfg, dims), dims),
        "hooks": lambda: hooks(config.build_position(cfg, dims)),
        "causality": lambda: causality(model_of(cfg)),
        "KV cache": lambda: cached(model_of(cfg), tolerance=1e-6),
        "positions": lambda: positions(model_of(cfg)),
        "gradients": lambda: gradients(model_of(cfg)),
        "length": lambda: length(model_of(cfg), 2 * T),
    }


def check(cfg: Config, group: str) -> Iterator[tuple[str, str, str]]:
    """`ok`, `note` or `WRONG`, the name of each check, and its message; cfg: resolved.

    The first failure ends them: later checks rely on earlier ones.
    """
    for name, run in checks(cfg, group).items():
        try:
            note = run()
        except ConfigError:
            raise
        except Wrong as error:
            yield "WRONG", name, str(error)
            return
        except (Exception, SystemExit) as error:
            file = inspect.getsourcefile(next(instantiate.classes(getattr(cfg, group))))
            yield "WRONG", name, instantiate.error_line(error, file)
            return
        yield "note" if note else "ok", name, note or ""


class Wrong(Exception):
    """A check failed; the message says how."""


def demand(right: object, message: str) -> None:
    if not right:
        raise Wrong(message)


def model_of(cfg: Config) -> Transformer:
    """A model of `cfg` with two layers, in float64, all parameters off their initial values: a zero
    hides an effect.
    """
    longest = max(cfg.train.seq_len, LENGTH)
    small = replace(
        cfg,
        model=replace(cfg.model, n_layers=2, dropout=0.0),
        train=replace(cfg.train, seq_len=longest),
    )
    model = trainer.build_model(small, VOCABULARY).double()
    model.position.draw(0, longest)
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    return model


def shapes(scheme: PositionScheme, dims: Dims) -> str:
    """Each hook returns the shape that the model reads; a slow float64 is noted."""
    T, H, K = 5, dims.n_heads, dims.d_head
    x_BTD = torch.randn(2, T, dims.d_model)
    qkv_BT3HK = torch.randn(2, T, 3 if scheme.projects_values else 2, H, K)
    layer = scheme.in_layer(0)
    prepared = scheme.prepare(torch.arange(T), x_BTD.dtype)
    bias = scheme.bias(prepared, prepared)
    at_queries = scheme.with_keys(prepared, torch.arange(1, T + 1))
    embedded = scheme.embed(x_BTD, at_queries)
    read = layer.read(x_BTD, at_queries, 0, None)
    demand(
        embedded.shape == x_BTD.shape,
        f"embed returns {[*embedded.shape]}, must be {[*x_BTD.shape]}",
    )
    demand(
        isinstance(read, tuple) and len(read) == 2, "read must return two: `at`, and scores or None"
    )
    at, scores = read
    for hook, added, most in (("bias", bias, [H, T, T]), ("read", scores, [2, H, T, T])):
        shape = most if added is None else [*added.shape]
        fits = len(shape) == len(most) and all(
            n in (1, m) for n, m in zip(shape, most, strict=True)
        )
        demand(fits, f"{hook} returns {shape}, must be {most}, any of them 1")
    heads = layer.heads(qkv_BT3HK, at)
    if isinstance(heads, Tensor) and scheme.projects_values:
        right = heads.shape == qkv_BT3HK.shape
        demand(
            right,
            f"heads returns {[*heads.shape]}, must be {[*qkv_BT3HK.shape]} (or three: q, k and v)",
        )
    else:
        parts = [[*part.shape] for part in heads]
        right = (
            len(parts) == 3
            and parts[0] == parts[1]
            and parts[0][:3] == [2, T, H]
            and parts[2] == [2, T, H, K]
        )
        demand(
            right,
            f"heads returns {parts}, must be three: q and k [2, {T}, {H}, width], v [2, {T}, {H}, {K}]",
        )
    output = layer.output(qkv_BT3HK[:, :, 0], at)
    demand(
        output.shape == (2, T, H, K), f"output returns {[*output.shape]}, must be {[2, T, H, K]}"
    )
    q, k, v = unpacked(heads)
    demand(
        q.dtype == k.dtype == v.dtype,
        f"heads returns {q.dtype}, {k.dtype}, {v.dtype}: must have one dtype",
    )
    returned = {"embed": embedded, "heads": q, "output": output}
    doubled = [hook for hook, result in returned.items() if result.dtype == torch.float64]
    return (
        f"{', '.join(doubled)}: float64 of float32, which is slow; angles are float64, cast them"
        if doubled
        else ""
    )


def hooks(scheme: PositionScheme) -> str | None:
    """The class overrides a hook; a method with nearly the name of a hook that its class does not
    override is noted.
    """
    cls, near = type(scheme), {}
    for body in map(vars, cls.__mro__[: cls.__mro__.index(PositionScheme)]):
        left, own = (
            set(HOOKS) - body.keys(),
            [name for name in body if not hasattr(PositionScheme, name)],
        )
        near |= {
            name: hook for name in own for hook in difflib.get_close_matches(name, left, 1, 0.75)
        }
    message = "; ".join(
        f"{name} is not a hook: did you mean {hook}?" for name, hook in near.items()
    )
    does = overridden(cls) or scheme.window or cls is PositionScheme
    demand(does, f"overrides none of {', '.join(HOOKS)}: it is position=none. {message}")
    return message or None


def causality(model: Transformer) -> str | None:
    """By gradients: no logit depends on a later token or on another row. Tokens without effect are
    noted.
    """
    seen, T = [], TOKENS.shape[1]
    handle = model.embedding.register_forward_hook(
        lambda module, given, output: seen.append(output)
    )
    logits = model(TOKENS)
    handle.remove()
    demand(logits.isfinite().all(), "the logits are not finite")
    for t in (0, T // 2, T - 1):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), seen[0], retain_graph=True)
        reach_BT = gradient.abs().sum(-1)
        demand(
            not reach_BT[0, t + 1 :].any(), f"the logits at position {t} depend on a later token"
        )
        demand(not reach_BT[1].any(), "the rows of a batch depend on one another")
    unseen = int((reach_BT[0] <= 1e-9).sum())
    return f"the last of {T} tokens does not see {unseen} of those before it" if unseen else None


@torch.no_grad()
def cached(model: Transformer, tolerance: float = 1e-12) -> None:
    """Reading tokens in parts gives the logits of a full pass, also after a row of the batch is
    dropped.
    """
    tokens, full, chosen = TOKENS, model(TOKENS), torch.tensor([True, False, True])
    cache = model.new_cache(*TOKENS.shape)
    for begin, end in [(0, 5), *((t, t + 1) for t in range(5, LENGTH))]:
        if begin == 9:
            cache, tokens, full = (
                [layer.rows(chosen) for layer in cache],
                tokens[chosen],
                full[chosen],
            )
        off = (model(tokens[:, begin:end], cache=cache) - full[:, begin:end]).abs().max().item()
        said = f"with a KV cache the logits at position {begin} differ by {off:.1e} from those of a full pass"
        demand(
            off <= tolerance,
            f"{said}: must treat each token by its `at` alone, or keep in the cache what it needs",
        )


@torch.no_grad()
def positions(model: Transformer) -> str | None:
    """Other positions give other logits; a scheme that uses content alone is noted."""
    pos = torch.arange(LENGTH)
    same = torch.equal(model(TOKENS, pos), model(TOKENS, pos // 2))
    return "the positions given to the hooks change nothing, as in position=none" if same else None


def gradients(model: Transformer) -> None:
    """Every parameter gets a finite gradient."""
    scheme, registered = model.position, vars(nn.Module())
    for name, value in vars(scheme).items():
        inside = (
            [*value.values()]
            if isinstance(value, dict)
            else value
            if isinstance(value, list | tuple)
            else [value]
        )
        loose = any(
            isinstance(x, nn.Module) or (isinstance(x, Tensor) and x.requires_grad) for x in inside
        )
        remedy = "make it an nn.Parameter, nn.ParameterList or nn.ModuleList"
        demand(
            name in registered or not loose,
            f"self.{name} would be neither trained nor saved: {remedy}",
        )
    model(TOKENS).square().sum().backward()
    for name, parameter in scheme.named_parameters():
        demand(parameter.grad is not None, f"the parameter {name} gets no gradient")
        demand(parameter.grad.isfinite().all(), f"the gradient of {name} is not finite")


@torch.no_grad()
def length(model: Transformer, T: int) -> str | None:
    """Twice the training length is served, also in two parts with a KV cache, or refused with a
    ValueError.
    """
    tokens_1T, cache = torch.arange(T)[None] % VOCABULARY, model.new_cache(1, T)
    try:
        model.position.draw(0, T)
        full = model(tokens_1T)
        demand(full.isfinite().all(), f"the logits of {T} tokens are not finite")
        parts = torch.cat(
            [model(part, cache=cache) for part in tokens_1T.split(T // 2, dim=1)], dim=1
        )
        off = (parts - full).abs().max().item()
        demand(
            off <= 1e-6,
            f"the logits of {T} tokens differ by {off:.1e} if the second half is read with a KV cache",
        )
    except ValueError as error:
        return f"does not serve {T} tokens: {error}"
    return None


def written(task: Task, length: int) -> None:
    """Problems are written in the alphabet, each prompt with one right completion; a stop stands at
    its end alone.
    """
    demand(len({*task.alphabet}) == len(task.alphabet), "alphabet has a character twice")
    demand(task.stop is None or task.stop in task.alphabet, f"alphabet lacks stop, {task.stop!r}")
    demand(
        task.text(np.random.default_rng(0), 4, length).tokens.max() < len(task.alphabet),
        "text has unknown tokens",
    )
    if not isinstance(task, PackedTask):
        return
    drawn = task.draw(np.random.default_rng(0), DRAWN)
    right = drawn.ndim == 2 and len(drawn) == DRAWN and np.issubdtype(drawn.dtype, np.integer)
    demand(
        right,
        f"draw(rng, {DRAWN}) returns {drawn.dtype} {drawn.shape}, must be integers [{DRAWN}, columns]",
    )
    parts, answers = (
        [["".join(map(chr, row[row != 0])) for row in part] for part in task.write(drawn)],
        {},
    )
    for prompt, completion in zip(*parts, strict=True):
        lacks = "".join(sorted({*prompt, *completion} - {*task.alphabet}))
        demand(not lacks, f"write uses {lacks!r}, which alphabet lacks")
        demand(
            answers.setdefault(prompt, completion) == completion,
            f"{prompt!r} has more than one right completion",
        )
        stops = [i for i, character in enumerate(completion, start=1) if character == task.stop]
        whole = stops == [len(completion)] if task.stop else completion
        demand(whole, f"a completion must hold stop, {task.stop!r}, once, at its end")


def reproducible(first: Task, second: Task, T: int) -> None:
    """Batch k depends on (seed, k) alone: not on earlier batches or global random numbers."""
    texts = [data.training_batch(first, 0, k, 4, T).inputs_BT for k in range(4)]
    for k in (3, 0, 2):
        np.random.seed(k)  # noqa: NPY002  no task may use these
        again = data.training_batch(second, 0, k, 4, T).inputs_BT
        demand(
            again.equal(texts[k]),
            f"batch {k} differs when drawn again: all random numbers must come from rng",
        )


def problems(task: Task, seq_len: int) -> str | None:
    """Held-out problems differ and fit; a longer list begins as a shorter one; the right completion
    is graded right.
    """
    held_out = data.evaluation_problems(task, PROBLEMS)
    demand(
        max(p.length for p in held_out) <= task.max_length <= seq_len,
        f"a problem exceeds {task.max_length=}",
    )
    if not task.grades:
        return "grades nothing: its problems are only continued"
    prompts, first = (
        [problem.prompt for problem in some]
        for some in (held_out, data.evaluation_problems(task, 8))
    )
    demand(len({*prompts}) == len(prompts), "two problems have one prompt")
    demand(prompts[:8] == first, "a longer list of problems must begin as a shorter one")
    for problem in held_out:
        demand(
            all(task.grade(problem, problem.completion).values()),
            f"{problem.completion!r} is graded wrong",
        )
        right = problem.completion
        for i in {0, len(right.removesuffix(task.stop or "")) - 1}:
            other = (
                right[:i]
                + next(c for c in task.alphabet if c not in (right[i], task.stop))
                + right[i + 1 :]
            )
            demand(
                not task.grade(problem, other)["accuracy"],
                f"{other!r} is graded right, as is {right!r}",
            )
    return None


def split(task: Task, seq_len: int) -> str | None:
    """No prompt of an evaluation problem stands in training text."""
    if not task.grades:
        return "grades nothing: equal passages may stand on both sides"
    prompts = {problem.prompt for problem in data.evaluation_problems(task, PROBLEMS)}
    for k in range(BATCHES):
        for tokens in task.text(data.generator(0, data.TRAINING_TEXT, k), 2, seq_len + 1).tokens:
            text = task.decode(tokens)
            held_out = [prompt for prompt in prompts if prompt in text]
            demand(
                not held_out, f"training text has held-out problems, {held_out[:1]} in batch {k}"
            )
    return None


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("check", __doc__)
    parser.add_argument(
        "settings", nargs="+", metavar="NAME=VALUE", help="position=… or task=…, and others"
    )
    given = parser.parse_args(arguments)
    groups, kinds = (
        [g for g in ("position", "task") if any(w.startswith(f"{g}=") for w in given.settings)],
        [],
    )
    if not groups:
        parser.error("name a scheme or a task: position=./mine.py or task=./mine.py")
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
    command.begin()
    main()
