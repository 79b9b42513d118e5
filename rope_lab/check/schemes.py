"""What every position scheme has to hold, on small models in float64.

Shape letters: B batch, T time, D model width, H heads, K head width.
"""

import copy
import dataclasses
import difflib
import inspect
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rope_lab.check.blame import alone, dims_of, inputs, mixing, parts
from rope_lab.check.findings import Wrong, demand
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.transformer import Transformer
from rope_lab.train import config, trainer
from rope_lab.train.config import Config

VOCABULARY = 11
HOOKS = ("embed", "heads", "output")  # which take a tensor and return one; `bias` is the fourth
LIKE = 0.75  # of 1: how like a hook's name another is that was meant for it
FAR = 1000  # positions
STEPS = 11  # that are timed


def checks(cfg: Config) -> dict[str, Callable[[], str | None]]:
    """The checks of the scheme of a resolved `cfg`, by name, in the order of what breaks first."""
    make, longest = partial(model_of, cfg), cfg.train.seq_len
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, longest)
    return {
        "shapes and dtypes": lambda: shapes(config.build_position(cfg, dims), dims),
        "hooks": lambda: hooks(config.build_position(cfg, dims)),
        "causality": lambda: causality(make()),
        "KV cache": lambda: cached(make(), tolerance=1e-6),
        "gradients": lambda: gradients(make()),
        "state": lambda: state(make(), longest),
        "device": lambda: device(make().float().position, dims),
        "bfloat16": lambda: autocast(make().float()),
        "shift": lambda: shift_told(make()),
        "length": lambda: length(make(), 2 * longest),
        "odd widths": lambda: widths(cfg),
        "linear attention": lambda: linear(cfg),
    }


def model_of(cfg: Config, attention: str = "softmax") -> Transformer:
    """A model of two layers in float64, otherwise as `cfg` describes it."""
    small = dataclasses.replace(cfg.model, n_layers=2, dropout=0.0, attention=attention)
    model = trainer.build_model(dataclasses.replace(cfg, model=small), VOCABULARY).double()
    model.position.draw(0, cfg.train.seq_len)
    return model


def tokens_of(model: Transformer, rows: int, length: int, seed: int = 0) -> Tensor:
    """Random tokens, int64 [rows, length], the same ones for a seed."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(model.embedding.num_embeddings, (rows, length), generator=random)


def hooks(scheme: PositionScheme) -> str | None:
    """A scheme overrides a hook. Raises Wrong; notes a method with nearly the name of one that it does not."""
    cls, names = type(scheme), (*HOOKS, "bias", "in_layer")
    if cls is PositionScheme:  # `none`
        return None
    left = [n for n in names if n not in vars(scheme) and getattr(cls, n) is getattr(PositionScheme, n)]
    own = [
        n for n in dir(cls) if inspect.isfunction(getattr(cls, n)) and not (n[0] == "_" or hasattr(PositionScheme, n))
    ]
    near = {name: close[0] for name in own if (close := difflib.get_close_matches(name, left, n=1, cutoff=LIKE))}
    told = [f"{name} is no hook: did you mean {hook}?" for name, hook in near.items()]
    none = f"overrides none of {', '.join(names)}: it is position=none"
    demand(len(left) < len(names), "; ".join([none, *told]), getattr(cls, next(iter(near))) if near else None)
    return "; ".join(told) or None


def shapes(scheme: PositionScheme, dims: Dims) -> None:
    """Each hook returns the shape that the model reads, in no narrower a number than it is given. Raises Wrong."""
    for dtype in (torch.float32, torch.float64):
        made = copy.deepcopy(scheme).to(dtype)
        for T in (1, 5):
            at, given = made.prepare(torch.arange(T), dtype), inputs(dims, T, dtype)
            for hook, x in given.items():
                _check_shape(made, hook, getattr(made, hook)(x, at), x)
            at_T, at_S = (made.prepare(torch.arange(begin, T + 3), dtype) for begin in (3, 0))
            _check_bias(made, made.bias(at_T, at_S), (dims.n_heads, T, T + 3))


def _check_shape(scheme: PositionScheme, hook: str, y: Any, x: Tensor) -> None:
    method = getattr(scheme, hook)
    if hook != "heads" or isinstance(y, Tensor):
        found = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        demand(found == list(x.shape), f"{hook} returns {found}, must be {list(x.shape)} as it is given", method)
    else:
        demand(isinstance(y, tuple) and len(y) == 3, "heads must return one tensor, or three: q, k and v", method)
        q, k, v = y
        B, T, _, H, K = x.shape
        told = f"heads returns {[list(part.shape) for part in y]}: q and k must be [{B}, {T}, {H}, width]"
        demand(q.shape == k.shape and q.shape[:3] == (B, T, H), told, method)
        demand(v.shape == (B, T, H, K), f"{told}, and v [{B}, {T}, {H}, {K}]", method)
    for part in parts(y):
        told = f"{hook} returns {part.dtype} for {x.dtype}"
        demand(part.is_floating_point() and torch.promote_types(part.dtype, x.dtype) == part.dtype, told, method)
        demand(hook != "embed" or part.dtype == x.dtype, f"{told}: what follows expects the same", method)
        demand(part.isfinite().all(), f"{hook} returns numbers that are not finite", method)


def _check_bias(scheme: PositionScheme, bias: Any, size: tuple[int, int, int]) -> None:
    if bias is None:
        return
    demand(isinstance(bias, Tensor), f"bias returns {type(bias).__name__}, must be a tensor or None", scheme.bias)
    H, T, S = size
    told = f"bias returns {list(bias.shape)}, must be [{H}, {T}, {S}], or 1 in the place of a number"
    demand(bias.dim() == 3 and all(n in (1, m) for n, m in zip(bias.shape, size, strict=True)), told, scheme.bias)
    demand(bias.is_floating_point(), f"bias returns {bias.dtype}, must be of floating point", scheme.bias)
    past = bias.expand(H, T, S).tril(S - T)
    demand(not past.isnan().any(), "bias has numbers that are none, of the past", scheme.bias)


def causality(model: Transformer) -> str | None:
    """By gradients: no logit depends on a later token, nor on another row. Raises Wrong; notes what is not seen."""
    seen, T = [], 10
    handle = model.embedding.register_forward_hook(lambda module, given, output: seen.append(output))
    logits = model(tokens_of(model, 2, T))
    handle.remove()
    demand(logits.isfinite().all(), "the logits are not finite")
    unseen = 0
    for t in (0, T // 2, T - 1):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), seen[0], retain_graph=True)
        reach_BT = gradient.abs().sum(-1)
        later = [s for s in range(t + 1, T) if reach_BT[0, s] != 0]
        if later:
            raise Wrong(f"the logits at position {t} depend on the token at position {later[0]}", mixing(model))
        if reach_BT[1].any():
            raise Wrong("the rows of a batch depend on one another", mixing(model))
        unseen = int((reach_BT[0, : t + 1] <= 1e-9).sum())
    return f"the last of {T} tokens does not see {unseen} of those before it" if unseen else None


def cached(model: Transformer, tolerance: float = 1e-12) -> None:
    """Logits are those of a full pass when some tokens are read at once, then one at a time. Raises Wrong.

    On the way a row of the batch is dropped, as where its completion has ended.
    """
    tokens = tokens_of(model, 3, 16, seed=3)
    with torch.no_grad():
        full, cache, chosen = model(tokens), model.new_cache(rows=3, slots=16), torch.tensor([True, False, True])
        for begin, end in [(0, 5), *((t, t + 1) for t in range(5, 16))]:
            if begin == 9:
                cache, tokens, full = [layer.rows(chosen) for layer in cache], tokens[chosen], full[chosen]
            off = (model(tokens[:, begin:end], cache=cache) - full[:, begin:end]).abs().max().item()
            if not off <= tolerance:
                told = f"with a KV cache the logits at position {begin} differ by {off:.1e} from those of a full pass"
                raise Wrong(told, mixing(model) or alone(model))


def shift(model: Transformer, by: int) -> float:
    """By how much the logits change, at most, when all positions are `by` further on."""
    tokens = tokens_of(model, 2, 10)
    with torch.no_grad():
        return (model(tokens, torch.arange(10) + by) - model(tokens, torch.arange(10))).abs().max().item()


def shift_told(model: Transformer) -> str:
    limit = model.position.max_len
    by = FAR if limit is None else min(FAR, limit - 10)
    off = shift(model, by)
    changes = "changes nothing" if off < 1e-6 else f"changes the logits by up to {off:.1e}"
    return f"{'relative' if off < 1e-6 else 'absolute'}: to shift all positions by {by:,} {changes}"


def gradients(model: Transformer) -> str | None:
    """Every parameter gets a finite one, and those of the hooks are as finite differences have them. Raises Wrong."""
    scheme = model.position
    for name, value in [pair for module in scheme.modules() for pair in vars(module).items()]:
        told = f"self.{name} is a tensor and no nn.Parameter: it is neither trained nor saved"
        demand(not (isinstance(value, Tensor) and value.requires_grad), told, scheme.__init__)
    model(tokens_of(model, 2, 10)).square().sum().backward()
    idle = []
    for name, parameter in scheme.named_parameters():
        demand(parameter.grad is not None, f"the parameter {name} gets no gradient", scheme.__init__)
        demand(parameter.grad.isfinite().all(), f"the gradient of {name} is not finite", scheme.__init__)
        idle += [] if parameter.grad.any() else [name]
    at = scheme.prepare(torch.arange(4), torch.float64)
    for hook, x in inputs(dims_of(model), 4, torch.float64).items():
        method = getattr(scheme, hook)
        if getattr(method, "__func__", None) is getattr(PositionScheme, hook):
            continue
        try:
            torch.autograd.gradcheck(lambda x, method=method: method(x, at), x.requires_grad_(), fast_mode=True)
        except (RuntimeError, ValueError) as error:
            first = str(error).splitlines()[0]
            raise Wrong(f"the gradient through {hook} is not that of finite differences: {first}", method) from None
    return f"at first the gradient of {', '.join(idle)} is 0" if idle else None


def state(model: Transformer, longest: int) -> None:
    """Nothing of one call is left for the next, of whatever length, nor in what is given. Raises Wrong."""
    scheme, dims = model.position, dims_of(model)
    first, other = inputs(dims, 6, torch.float64), inputs(dims, 9, torch.float64, seed=1)

    def called(given: dict[str, Tensor], hook: str, T: int) -> list[Tensor]:
        at = scheme.prepare(torch.arange(T), torch.float64)
        if hook == "bias":
            return [bias] if (bias := scheme.bias(at, at)) is not None else []
        return parts(getattr(scheme, hook)(given[hook].clone(), at))

    before = {name: value.clone() for name, value in scheme.state_dict().items()}
    with torch.no_grad():
        for hook in (*HOOKS, "bias"):
            once = [x.clone() for x in called(first, hook, 6)]
            called(other, hook, 9)
            same = all(torch.equal(a, b) for a, b in zip(once, called(first, hook, 6), strict=True))
            random = "; random numbers belong into draw" if not same else ""
            demand(same, f"{hook} returns other numbers when it is called again{random}", getattr(scheme, hook))
        for hook in HOOKS:
            given = first[hook].clone()
            getattr(scheme, hook)(given, scheme.prepare(torch.arange(6), torch.float64))
            demand(torch.equal(given, first[hook]), f"{hook} changes what it is given in place", getattr(scheme, hook))
        tokens, outcomes = tokens_of(model, 2, 10), []
        for seed in (1, 2, 1):
            scheme.draw(seed, longest)
            outcomes.append(model(tokens))
        demand(torch.equal(outcomes[0], outcomes[2]), "after draw(1, …) it is not what it was after it", scheme.draw)
    kept = all(torch.equal(value, before[name]) for name, value in scheme.state_dict().items())
    demand(kept, "a call changes its parameters or buffers")


def device(scheme: PositionScheme, dims: Dims) -> str | None:
    """No table stays on the CPU when the scheme is moved; tried on `meta`, a device without numbers. Raises Wrong."""
    moved, hook = copy.deepcopy(scheme).to("meta"), "prepare"
    try:
        at, given = moved.prepare(torch.arange(5, device="meta"), torch.float32), inputs(dims, 5, torch.float32)
        for hook, x in given.items():
            for part in parts(getattr(moved, hook)(x.to("meta"), at)):
                demand(part.device.type == "meta", f"{hook} returns a tensor of the CPU", getattr(moved, hook))
        hook, bias = "bias", moved.bias(at, at)
        demand(bias is None or bias.device.type == "meta", "bias returns a tensor of the CPU", moved.bias)
    except (RuntimeError, NotImplementedError) as error:
        if "device" not in str(error):
            return f"{hook} looks at numbers, so it could not be tried: {str(error).splitlines()[0]}"
        told = f"{hook} needs a tensor that stays on the CPU: make it a buffer or an attribute of its own"
        raise Wrong(told, getattr(moved, hook)) from error
    return None


def autocast(model: Transformer) -> None:
    """A step in bfloat16, as GPUs train, has a finite loss and gradient. Raises Wrong."""
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens_of(model, 2, 10)).float().square().mean()
    loss.backward()
    finite = all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    demand(loss.isfinite() and finite, "in bfloat16 the loss, or a gradient, is not finite")


def length(model: Transformer, T: int) -> str | None:
    """Twice the length of training, as `eval.lengths` may ask, is served or refused with a ValueError."""
    try:
        model.position.draw(0, T)
        with torch.no_grad():
            logits = model(tokens_of(model, 1, T))
    except ValueError as error:
        return f"serves no {T} tokens: {error}"
    except IndexError as error:
        told = f"{T} tokens, twice the length of training, raise {error}; set self.max_len to the positions that it has"
        raise Wrong(told) from error
    demand(logits.isfinite().all(), f"the logits of {T} tokens are not finite")
    return None


def widths(cfg: Config) -> str | None:
    """Heads of an odd width are served or refused with a ValueError."""
    dims = Dims(7 * cfg.model.n_heads, cfg.model.n_heads, cfg.train.seq_len)
    try:
        shapes(config.build_position(cfg, dims).double(), dims)
    except Wrong:
        raise
    except ValueError as error:
        return f"refuses heads of 7 features: {error}"
    return None


def linear(cfg: Config) -> str | None:
    """With linear attention it is refused with a ValueError, or all of the above holds."""
    try:
        model = model_of(cfg, "linear")
    except ValueError as error:
        return f"not with it: {error}"
    causality(model)
    cached(model, tolerance=1e-6)
    return None


def speed(cfg: Config, baseline: Config) -> str:
    """How long a training step takes beside one of the baseline: medians of steps taken in turn."""
    labs, took = [trainer.build(each) for each in (cfg, baseline)], ([], [])
    for step in range(STEPS + 2):
        for lab, seconds in zip(labs, took, strict=True):
            begin = time.perf_counter()
            trainer.update(lab, step)
            seconds.append(time.perf_counter() - begin)
    mine, theirs = (statistics.median(seconds[2:]) for seconds in took)
    name = baseline.names.position
    return f"a training step takes {mine / theirs:.2f} times one of {name} ({mine * 1e3:.0f} and {theirs * 1e3:.0f} ms)"
