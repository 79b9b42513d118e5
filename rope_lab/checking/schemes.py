"""Checks of a position scheme.

Shape letters: B batch, T time, S time (keys), D model width, H heads, K head width.
"""

import difflib
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from rope_lab.checking import demand
from rope_lab.checking.causality import causality, causality_in_training
from rope_lab.checking.derivatives import derivatives
from rope_lab.model.attention import unpacked
from rope_lab.model.hooks import HOOKS, Dims, PositionScheme, overridden
from rope_lab.model.transformer import Transformer
from rope_lab.train import config, trainer
from rope_lab.train.config import Config

VOCABULARY, LENGTH = 11, 16
ROWS = 8  # a training batch is checked with at least so many
FLOAT32 = 1e-3  # difference of logits, of size 1, that is allowed in float32
TOKENS = torch.randint(VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(3))


def scheme_checks(cfg: Config) -> dict[str, Callable[[], str | None]]:
    """The checks of a scheme by name, in their order; cfg: resolved."""
    T, rows = cfg.train.seq_len, max(cfg.train.batch_size, ROWS)
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, T, n_layers=2)
    return {
        "shapes": lambda: shapes(config.build_position(cfg, dims), dims),
        "hooks": lambda: hooks(config.build_position(cfg, dims)),
        "causality": lambda: causality(model_of(cfg), TOKENS),
        "training batch": lambda: causality_in_training(model_of(cfg).float(), rows, T),
        "KV cache": lambda: cached(model_of(cfg), tolerance=1e-6),
        "float32 cache": lambda: cached(model_of(cfg).float(), FLOAT32, tokens_of(T)),
        "positions": lambda: positions(model_of(cfg)),
        "gradients": lambda: gradients(model_of(cfg)),
        "derivatives": lambda: derivatives(model_of(cfg), TOKENS),
        "length": lambda: length(model_of(cfg), 2 * T),
    }


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
    layer = scheme.in_layer(0)
    qkv_BT3HK = torch.randn(2, T, 3 if layer.projects_values else 2, H, K)
    prepared = scheme.prepare(torch.arange(T), x_BTD.dtype)
    bias = scheme.bias(prepared, prepared)
    at_queries = scheme.with_keys(prepared, torch.arange(1, T + 1))
    embedded = scheme.embed(x_BTD, at_queries)
    number, own_at, bias = scheme.for_layer(0, at_queries, bias)
    read = layer.read(x_BTD, own_at, number, None)
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
            size in (1, whole) for size, whole in zip(shape, most, strict=True)
        )
        demand(fits, f"{hook} returns {shape}, must be broadcastable to {most}")
    heads = layer.heads(qkv_BT3HK, at)
    if isinstance(heads, Tensor) and layer.projects_values:
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
        three = f"q and k [2, {T}, {H}, width], v [2, {T}, {H}, {K}]"
        demand(right, f"heads returns {parts}, must be three: {three}")
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


def tokens_of(T: int) -> Tensor:
    """Three rows of at least LENGTH random tokens."""
    random = torch.Generator().manual_seed(3)
    return torch.randint(VOCABULARY, (3, max(T, LENGTH)), generator=random)


@torch.no_grad()
def cached(model: Transformer, tolerance: float = 1e-12, tokens_BT: Tensor = TOKENS) -> None:
    """Reading the last 11 tokens one by one gives the logits of a full pass.

    Also after a row of the batch is dropped.
    """
    model.eval()
    full, chosen, T = model(tokens_BT), torch.tensor([True, False, True]), tokens_BT.shape[1]
    cache, first = model.new_cache(*tokens_BT.shape), T - 11
    for begin, end in [(0, first), *((t, t + 1) for t in range(first, T))]:
        if begin == first + 4:
            cache = [layer.rows(chosen) for layer in cache]
            tokens_BT, full = tokens_BT[chosen], full[chosen]
        off = (model(tokens_BT[:, begin:end], cache=cache) - full[:, begin:end]).abs().max().item()
        dtype = str(full.dtype).removeprefix("torch.")
        said = f"with a KV cache the logits at position {begin} differ by {off:.1e} ({dtype})"
        remedy = "must treat each token by its `at` alone, or keep in the cache what it needs"
        demand(off <= tolerance, f"{said} from those of a full pass: {remedy}")


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
        said = f"the logits of {T} tokens differ by {off:.1e}"
        demand(off <= 1e-6, f"{said} if the second half is read with a KV cache")
    except ValueError as error:
        return f"does not serve {T} tokens: {error}"
    return None
