"""Checks of a position scheme.

Shape letters: B batch, T time, S time (keys), D model width, H heads, K head width.
"""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rope_lab.checking import Checks, Wrong, demand
from rope_lab.checking.causality import causality, causality_in_training
from rope_lab.checking.derivatives import derivatives
from rope_lab.model.attention import unpacked
from rope_lab.model.hooks import HOOKS, Dims, PositionScheme, Wrapper, overridden
from rope_lab.model.transformer import Transformer
from rope_lab.text import ConfigError, first_line
from rope_lab.train import config, instantiate, pattern, trainer
from rope_lab.train.config import Config

VOCABULARY, LENGTH = 11, 16
ROWS = 8  # a training batch is checked with at least so many
OTHER_METHODS = ("prepare", "draw", "for_layer")  # beside HOOKS, which change something alone
FLOAT32 = 1e-3  # difference of logits, of size 1, that is allowed in float32


def tokens_of(T: int) -> Tensor:
    """Three rows of at least LENGTH random tokens."""
    random = torch.Generator().manual_seed(3)
    return torch.randint(VOCABULARY, (3, max(T, LENGTH)), generator=random)


TOKENS = tokens_of(LENGTH)


def scheme_checks(cfg: Config) -> Checks:
    """The checks of a scheme by name, in their order; cfg: resolved."""
    T = cfg.train.seq_len
    rows = max(cfg.train.batch_size, ROWS)
    dims = Dims(cfg.model.d_model, cfg.model.n_heads, T, n_layers=layers_of(cfg))
    return {
        "shapes": lambda: shapes(config.build_position(cfg, dims), dims),
        "hooks": lambda: hooks(config.build_position(cfg, dims), dims.n_layers),
        "causality": lambda: causality(model_of(cfg), TOKENS),
        "training batch": lambda: causality_in_training(model_of(cfg).float(), rows, T),
        "KV cache": lambda: cached(model_of(cfg), 1e-6),
        "float32 cache": lambda: cached(model_of(cfg).float(), FLOAT32, tokens_of(T)),
        "own positions": lambda: own_positions(model_of(cfg)),
        "gradients": lambda: gradients(model_of(cfg)),
        "derivatives": lambda: derivatives(model_of(cfg), TOKENS),
        "length": lambda: length(model_of(cfg), T),
        "effect": lambda: effect(model_of(cfg), dims, tokens_of(2 * T)),
    }


def model_of(cfg: Config) -> Transformer:
    """A model of `cfg` with few layers, in float64, all parameters off their initial values: a zero
    hides an effect.
    """
    longest = max(cfg.train.seq_len, LENGTH)
    model_settings = replace(cfg.model, n_layers=layers_of(cfg), dropout=0.0)
    train_settings = replace(cfg.train, seq_len=longest)
    small = replace(cfg, model=model_settings, train=train_settings)
    model = trainer.build_model(small, VOCABULARY).double()
    model.position.draw(0, longest)
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    return model


def layers_of(cfg: Config) -> int:
    """Two layers, or as many as a pattern needs for all its schemes."""
    longest = 2
    for written in instantiate.patterns(cfg.position):
        count = sum(part.count for part in pattern.read("position.pattern", written))
        longest = max(longest, count)
    return longest


def shapes(scheme: PositionScheme, dims: Dims) -> None:
    """Each hook returns the shape that the model reads."""
    T = 5
    x_BTD = torch.randn(2, T, dims.d_model)
    prepared = scheme.prepare(torch.arange(T), x_BTD.dtype)
    at = scheme.with_keys(prepared, torch.arange(1, T + 1))
    bias = scheme.bias(prepared, prepared)
    has_shape("embed", scheme.embed(x_BTD, at), x_BTD.shape)
    for number in range(dims.n_layers):
        own = scheme.for_layer(number, at, bias)
        shapes_in_layer(scheme.in_layer(number), dims, x_BTD, *own)


def shapes_in_layer(
    layer: PositionScheme, dims: Dims, x_BTD: Tensor, number: int, at: Any, bias: Tensor | None
) -> None:
    """The same for the hooks of one layer."""
    T, H, K = x_BTD.shape[1], dims.n_heads, dims.d_head
    at, scores = layer.read(x_BTD, at, number, None)
    broadcasts("bias", bias, (H, T, T))
    broadcasts("read", scores, (2, H, T, T))
    qkv_BT3HK = torch.randn(2, T, 3 if layer.projects_values else 2, H, K)
    heads = layer.heads(qkv_BT3HK, at)
    if isinstance(heads, Tensor):
        has_shape("heads", heads, (2, T, 3, H, K))
    q, k, v = unpacked(heads)
    has_shape("heads", k, q.shape)
    has_shape("heads", v, (2, T, H, K))
    has_shape("output", layer.output(v, at), v.shape)


def has_shape(hook: str, returned: Tensor, shape: Sequence[int]) -> None:
    same = returned.shape == shape
    demand(same, f"{hook} returns {list(returned.shape)}, must be {list(shape)}")


def broadcasts(hook: str, added: Tensor | None, shape: Sequence[int]) -> None:
    """Raise Wrong unless scores are None or broadcastable to a shape."""
    try:
        if added is not None:
            added.expand(shape)
    except RuntimeError:
        given = list(added.shape)
        demand(False, f"{hook} returns {given}, must be broadcastable to {list(shape)}")


def hooks(scheme: PositionScheme, n_layers: int) -> str | None:
    """The class overrides a hook; a method with nearly the name of another hook is noted."""
    cls = type(scheme)
    others = [hook for hook in (*HOOKS, *OTHER_METHODS) if hook not in vars(cls)]
    near = []
    for name in vars(cls):
        close = difflib.get_close_matches(name, others, 1, 0.75)
        if close and not hasattr(PositionScheme, name):
            near.append(f"{name} is not a hook: did you mean {close[0]}?")
    message = "; ".join(near)
    ignored = overridden(cls) & {"read", "heads", "attention", "output"}
    is_called = any(scheme.in_layer(number) is scheme for number in range(n_layers))
    if isinstance(scheme, Wrapper) and ignored and not is_called:
        unused = ", ".join(sorted(ignored))
        remedy = "override in_layer, or write them in the scheme that it returns"
        demand(False, f"in_layer returns another scheme, so {unused} would not be called: {remedy}")
    does = overridden(cls) or scheme.window or cls is PositionScheme
    demand(does, f"overrides none of {', '.join(HOOKS)}: it is position=none. {message}")
    return message


def cached(model: Transformer, tolerance: float = 1e-12, tokens_BT: Tensor = TOKENS) -> None:
    """Reading the last 11 tokens one by one gives the logits of a full pass."""
    first = tokens_BT.shape[1] - 11
    in_parts(model, tolerance, tokens_BT, [first] + 11 * [1])


@torch.no_grad()
def in_parts(
    model: Transformer,
    tolerance: float,
    tokens_BT: Tensor,
    sizes: list[int],
    pos: Tensor | None = None,
) -> None:
    """Reading parts of so many tokens with a cache gives the logits of a full pass.

    After the first part a row of the batch is dropped. pos: positions, [B, T] or [B, T, axes]
    """
    model.eval()
    full_BTV = model(tokens_BT, pos)
    cache = model.new_cache(*tokens_BT.shape)
    begin = 0
    for size in sizes:
        end = begin + size
        own = None if pos is None else pos[:, begin:end]
        part_BTV = model(tokens_BT[:, begin:end], own, cache)
        off = (part_BTV - full_BTV[:, begin:end]).abs().max().item()
        said = f"with a KV cache the logits at position {begin} differ by {off:.1e}"
        remedy = "must treat each token by its `at` alone, or keep in the cache what it needs"
        demand(off <= tolerance, f"{said} ({full_BTV.dtype}) from those of a full pass: {remedy}")
        if begin == 0:
            kept_B = torch.arange(len(tokens_BT)) != 1
            tokens_BT, full_BTV = tokens_BT[kept_B], full_BTV[kept_B]
            pos = None if pos is None else pos[kept_B]
            cache = [layer.rows(kept_B) for layer in cache]
        begin = end


@torch.no_grad()
def own_positions(model: Transformer) -> str | None:
    """A note unless positions of a task, [B, T] and [B, T, axes], give a row the same logits alone,
    in a batch, in parts with a cache, and after tokens of another document.
    """
    try:
        rows_and_axes(model.eval())
    except ConfigError as error:
        return f"refuses positions of a task: {error}"
    except (Wrong, RuntimeError, IndexError, ValueError) as error:
        remedy = "shapes of `at` begin with B then: see `distances`, or count axes from the last"
        return f"does not serve positions of a task, {first_line(error)}: {remedy}"
    return after_padding(model)


def rows_and_axes(model: Transformer) -> None:
    """Raise Wrong unless a row's positions matter to it alone, however it is read."""
    count_BT, pos_BTA = positions_of_a_task()
    off = (model(TOKENS, count_BT) - model(TOKENS)).abs().max()
    demand(off < 1e-6, "positions [B, T] of 0, 1, … are not those without")
    for pos in (pos_BTA[..., 0], pos_BTA):
        in_parts(model, 1e-6, TOKENS, [5, 1, TOKENS.shape[1] - 6], pos)
        full_BTV = model(TOKENS, pos)
        for row in range(len(TOKENS)):
            alone = slice(row, row + 1)
            off = (model(TOKENS[alone], pos[alone]) - full_BTV[alone]).abs().max()
            demand(off < 1e-6, f"with positions {list(pos.shape)} a row depends on the others")


def positions_of_a_task() -> tuple[Tensor, Tensor]:
    """The count of TOKENS, [B, T], and positions with three axes that differ between rows."""
    B, T = TOKENS.shape
    count_BT = torch.arange(T).expand(B, T)
    slower_BT = count_BT // torch.arange(1, B + 1).unsqueeze(1)
    random = torch.Generator().manual_seed(6)
    more_BTA = torch.randint(T, (B, T, 2), generator=random)
    return count_BT, torch.cat([slower_BT.unsqueeze(2), more_BTA], dim=2)


@torch.no_grad()
def after_padding(model: Transformer) -> str | None:
    """A note if tokens of another document before them change the logits of TOKENS."""
    if model.layers[0].attention.linear:
        return "linear attention has no documents"
    _, pos_BTA = positions_of_a_task()
    n = 3  # tokens of the other document
    documents_BT = (torch.arange(TOKENS.shape[1] + n) >= n).long().expand(len(TOKENS), -1)
    tokens_BT = torch.cat([TOKENS[:, :n], TOKENS], dim=1)
    padded_BTA = torch.cat([pos_BTA[:, :n], pos_BTA], dim=1)
    padded_BTV = model(tokens_BT, padded_BTA, documents_BT=documents_BT)
    off = (padded_BTV[:, n:] - model(TOKENS, pos_BTA)).abs().max()
    return None if off < 1e-6 else "a document's first tokens depend on the tokens before it"


def gradients(model: Transformer) -> None:
    """Every parameter of the scheme is registered and gets a finite gradient."""
    scheme = model.position
    registered = vars(nn.Module())
    remedy = "make it an nn.Parameter, nn.ParameterList or nn.ModuleList"
    for name in vars(scheme).keys() - registered.keys():
        for value in tree_leaves(vars(scheme)[name]):
            trained = isinstance(value, nn.Module) or getattr(value, "requires_grad", False)
            demand(not trained, f"self.{name} would be neither trained nor saved: {remedy}")
    model(TOKENS).square().sum().backward()
    for name, parameter in scheme.named_parameters():
        demand(parameter.grad is not None, f"the parameter {name} gets no gradient")
        demand(parameter.grad.isfinite().all(), f"the gradient of {name} is not finite")


def length(model: Transformer, T: int) -> str | None:
    """Twice the training length is served, also in two parts with a KV cache, or refused with a
    ValueError.
    """
    try:
        model.position.draw(0, 2 * T)
        in_parts(model, 1e-6, tokens_of(2 * T), [T, T])
    except ValueError as error:
        return f"does not serve {2 * T} tokens: {error}"
    return None


@torch.no_grad()
def effect(model: Transformer, dims: Dims, tokens_BT: Tensor) -> None:
    """The scheme changes the logits of position=none, at the training length or twice it, if it can
    be compared with that.
    """
    scheme = model.eval().position
    plain = PositionScheme(dims)
    layers = [scheme.in_layer(number) for number in range(dims.n_layers)]
    if type(scheme) is PositionScheme or scheme.several_axes:
        return
    if not all(layer.projects_values and layer.output_heads == 1 for layer in layers):
        return
    for some_BT in (tokens_BT[:, : dims.max_len], tokens_BT):
        try:
            scheme.draw(0, some_BT.shape[1])
            logits_BTV = model(some_BT)
        except ValueError:  # it does not serve so many
            break
        model.position = plain
        if not torch.equal(model(some_BT), logits_BTV):
            return
        model.position = scheme
    same = "has no effect: the logits are those of position=none"
    demand(False, f"{same}. RoPE is Rotary(dims, q=1, k=1)")
