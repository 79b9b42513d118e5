"""The transformer: causality, cached decoding, shared initial weights, weight decay and learning
rate.
"""

import hashlib

import pytest
import torch
from conftest import SCHEMES
from sums import DIMS, D, H, make_model
from torch import nn
from trained import load, make_scheme

from rope_lab import identity
from rope_lab.checking.causality import causality
from rope_lab.checking.schemes import TOKENS, cached
from rope_lab.model.cache import running_sum, so_far, with_before
from rope_lab.model.schemes import Dims, PositionScheme, Rotary
from rope_lab.text import ConfigError
from rope_lab.train import config
from rope_lab.train.optimizer import learning_rate, make
from rope_lab.train.trainer import build_model, resolve

V, HEADS = 11, H


NO_LINEAR = ["alibi", "fire", "kerple_log", "pope", "pope_roper", "t5_bias"]
NO_LINEAR += ["cope", "fox", "grape_a", "irope", "path", "rnope_swa"]


@pytest.mark.parametrize("name", ["none", "learned", "rope", "roper", "xpos", "ssmax"])
def test_linear_attention_is_causal_and_equal_with_a_cache(name):
    """Every past token has an effect; tokens are read as a block, one by one, and after dropping a
    batch row.
    """
    assert causality(make_model(name, attention="linear"), TOKENS) is None
    cached(make_model(name, attention="linear"))


@pytest.mark.parametrize("name", NO_LINEAR)
def test_linear_attention_refuses_scores_and_wider_queries(name):
    lacks = (
        "PoPE gives queries and keys another width than values"
        if "pope" in name
        else ".* needs attention scores"
    )
    with pytest.raises(ValueError, match=f"model.attention=linear: {lacks}"):
        make_model(name, attention="linear")


def attention_by_hand(layer, x, bias=0.0):
    """Reference causal attention of one layer: no rotation, optional bias on the scores."""
    B, T, _ = x.shape
    q, k, v = layer.attention.qkv(x).view(B, T, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) / (D // HEADS) ** 0.5 + bias
    weights = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    return layer.attention.out((weights @ v).transpose(1, 2).reshape(B, T, D))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", ["none", "alibi"])
def test_the_whole_model_written_out(name, norm):
    """Pre- or post-norm, residual connections, ReLU, and the bias added to the scores."""
    model, tokens, pos = make_model(name, norm=norm), torch.arange(6)[None] % V, torch.arange(6)
    slopes = torch.tensor([2**-4, 2**-8, 2**-2], dtype=torch.float64)[:, None, None]
    bias = -slopes * (pos[:, None] - pos) if name == "alibi" else 0.0
    x = model.embedding(tokens)
    for layer in model.layers:
        if norm == "pre":
            x = x + attention_by_hand(layer, layer.norm1(x), bias)
            x = x + layer.down(torch.relu(layer.up(layer.norm2(x))))
        else:
            x = layer.norm1(x + attention_by_hand(layer, x, bias))
            x = layer.norm2(x + layer.down(torch.relu(layer.up(x))))
    x = model.norm(x) if norm == "pre" else x
    torch.testing.assert_close(model(tokens), model.unembedding(x), rtol=0, atol=1e-12)
    assert isinstance(model.norm, torch.nn.LayerNorm) == (norm == "pre")


SMALL = ["model.d_model=16", "model.n_layers=2", "model.n_heads=2", "train.seq_len=64"]


def shared_weights(*overrides: str) -> str:
    """Digest of the weights common to all schemes, without position parameters and the value third
    of `qkv`.
    """
    digest, cfg = hashlib.sha256(), load(*SMALL, *overrides)
    for name, value in build_model(cfg, 30).state_dict().items():
        if not name.startswith("position."):
            value = value[: 2 * cfg.model.d_model] if ".qkv." in name else value
            if value.shape[-1] == 2 * cfg.model.d_model and ".out.weight" in name:
                # Each head has two outputs; the first have the weights of any scheme.
                heads = (cfg.model.n_heads, 2, -1)
                value = value.unflatten(1, heads)[:, :, 0].flatten(1).contiguous()
            digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def test_the_same_seed_gives_every_scheme_the_same_weights():
    hashes = {shared_weights(f"position={name}", "seed=3") for name in SCHEMES}
    assert len(hashes) == 1
    assert shared_weights("position=rope", "seed=4") not in hashes


def test_xavier_initialisation_scales_by_both_sides_of_a_matrix():
    model = build_model(load("model.d_model=256", "model.init=xavier"), 100)
    for matrix, sides in (
        (model.layers[0].up.weight, 256 + 1024),
        (model.embedding.weight, 256 + 100),
    ):
        assert matrix.abs().max() <= (6 / sides) ** 0.5
        assert abs(matrix.std().item() / (2 / sides) ** 0.5 - 1) < 0.01
    seen = []
    model.layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(torch.tensor([[3]]))
    torch.testing.assert_close(seen[0][0, 0], 16 * model.embedding.weight[3])


class ByLayer(PositionScheme):
    """Score bias from the content hook: differs by layer and batch row, with running sums across
    cached steps.
    """

    def __init__(self, dims):
        super().__init__(dims)
        self.weights = nn.ParameterList(torch.randn(dims.d_model) for _ in range(dims.n_layers))

    def read(self, x_BTD, at, layer, cache):
        read_BT = (x_BTD @ self.weights[layer]).tanh()
        sum_BT = running_sum("sum", read_BT, cache)
        before_BT = with_before("read", sum_BT[..., None], 3, cache)[:, :-3, 0]
        return at, so_far("keys", sum_BT + before_BT, cache)[:, None, None]


def test_the_content_hook_has_a_cache_per_layer():
    scheme = ByLayer(DIMS)
    model = make_model(scheme)
    cached(model)
    causality(model, TOKENS)
    tokens, x = torch.arange(12).view(2, 6) % V, model.embedding(torch.arange(12).view(2, 6) % V)
    for layer, weight in zip(model.layers, scheme.weights, strict=True):
        y = layer.norm1(x)
        sums = torch.stack([(y[:, : t + 1] @ weight).tanh().sum(1) for t in range(6)], 1)
        bias = sums + torch.cat([torch.zeros(2, 3), sums[:, :3]], dim=1)
        x = x + attention_by_hand(layer, y, bias[:, None, None])
        x = x + layer.down(torch.relu(layer.up(layer.norm2(x))))
    torch.testing.assert_close(model(tokens), model.unembedding(model.norm(x)), rtol=0, atol=1e-12)


def test_bytes_of_a_cached_token_count_what_a_scheme_keeps():
    """Per layer: 2 · D numbers a token for keys and values; ByLayer adds 1 a token and 4 in
    total.
    """
    model, own = (make_model(scheme) for scheme in (PositionScheme(DIMS), ByLayer(DIMS)))
    assert model.bytes_of_token(10) == 2 * 8 * 2 * D
    assert own.bytes_of_token(10) == pytest.approx(2 * 8 * (2 * D + 1 + 4 / 10))
    assert own.numbers_needed(10) == 2 * 10 * (2 * D + 1)


def test_a_cache_needs_a_windows_tokens_and_its_own_heads():
    scheme = PositionScheme(DIMS)
    scheme.window = 3
    assert make_model(scheme).numbers_needed(10) == 2 * 3 * 2 * D
    assert make_model(scheme).numbers_needed(2) == 2 * 2 * 2 * D
    linear = make_model("rope", attention="linear")
    assert linear.numbers_needed(10) == linear.numbers_needed(99)
    few, all_ = (make_model("rope", dims=Dims(D, 4, 64), kv_heads=heads) for heads in (2, None))
    assert 2 * few.numbers_needed(10) == all_.numbers_needed(10)


def decayed(*overrides: str) -> set[str]:
    """Names of the parameters with weight decay; asserts that the optimizer has every parameter
    once.
    """
    cfg = resolve(load(*SMALL, "train.weight_decay=0.1", *overrides))
    model = build_model(cfg, V)
    groups = [group for part in make(model, cfg.train).values() for group in part.param_groups]
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(names[id(p)] for group in groups for p in group["params"]) == sorted(
        names.values()
    )
    return {
        names[id(p)] for group in groups for p in group["params"] if group["weight_decay"] == 0.1
    }


@pytest.mark.parametrize("name", SCHEMES)
def test_matrices_decay_and_what_a_scheme_says(name):
    """Not on layer norms, biases or scheme parameters, except GPT's learned position table."""
    found = decayed(f"position={name}")
    assert all(each.endswith("weight") and "norm" not in each for each in found)
    assert len(found) == 2 + 2 * 4 + (name == "learned")
    assert {each for each in found if each.startswith("position.")} == {
        "position.table.weight"
    } & found


def test_earlier_runs_decayed_everything_and_keep_their_ids():
    everything, none = decayed("train.weight_decay_on=all"), decayed("train.weight_decay=0")
    assert {"norm.bias", "embedding.weight"} < everything
    assert not none
    own = ["train.weight_decay=0.1", "train.weight_decay_on=all"]
    old = identity.identify("t", "rope", 0, {"train": {"weight_decay": 0.1, "decay": "cosine"}})
    recorded = config.recorded(resolve(load(*own)))["train"]
    now = {key: recorded[key] for key in ("weight_decay", "weight_decay_on", "min_lr")} | {
        "decay": "cosine"
    }
    assert identity.identify("t", "rope", 0, {"train": now}).run_id == old.run_id
    ids = {
        config.identity(resolve(load(*words))).run_id
        for words in (own, own[:1], [], ["train.weight_decay_on=all"])
    }
    assert len(ids) == 3  # without decay, weight_decay_on makes no difference


@pytest.mark.parametrize(
    ("decay", "rates"),
    [
        ("none", [1.0, 1.0, 1.0]),
        ("linear", [0.775, 0.55, 0.109]),
        ("cosine", [0.8682, 0.55, 0.1002]),
    ],
)
def test_the_learning_rate_warms_up_and_ends_at_its_floor(decay, rates):
    """As in nanoGPT, min_lr + (lr − min_lr) (1 + cos πt) / 2; or linear."""
    words = [
        "train.lr=1.0",
        "train.min_lr=0.1",
        "train.steps=110",
        "train.warmup=10",
        f"train.decay={decay}",
    ]
    t = load(*words).train
    assert [learning_rate(t, step) for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert [learning_rate(t, step) for step in (35, 60, 109)] == pytest.approx(rates, abs=1e-4)
    with pytest.raises(ConfigError, match=r"train.min_lr=2.0: must be at most train.lr=1.0"):
        resolve(load("train.lr=1.0", "train.min_lr=2.0"))


@pytest.mark.parametrize("name", ["none", "kv_unrotated"])
def test_query_and_key_norms_are_their_formula(name):
    """Gains are learned and do not decay; all other initial weights match a model without QK
    norm.
    """
    scheme, x = make_scheme(name, DIMS), torch.randn(2, 5, D, dtype=torch.float64)
    model, again = (
        make_model(scheme, layers=1, qk_norm=True),
        make_model(scheme, layers=1).state_dict(),
    )
    plain = {key: value for key, value in model.state_dict().items() if "qk_norm" not in key}
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[key], again[key]) for key in plain)
    layer = model.layers[0].attention
    for part in layer.qk_norm:
        part.weight.data.uniform_(0.5, 2)
    q, k, *v = layer.qkv(x).unflatten(-1, (-1, HEADS, D // HEADS)).unbind(2)
    gains = zip((q, k), (part.weight for part in layer.qk_norm), strict=True)
    q, k = (y / y.square().mean(-1, keepdim=True).sqrt() * gain for y, gain in gains)
    scores = torch.einsum("bnhk,bihk->bhni", q, k) / (D // HEADS) ** 0.5
    weights = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    expected = layer.out(torch.einsum("bhni,bihk->bnhk", weights, v[0] if v else k).flatten(2))
    at = scheme.prepare(torch.arange(5) * 0, torch.float64)
    torch.testing.assert_close(layer(x, scheme, at, None, None), expected, rtol=0, atol=1e-12)
    cached(model)
    assert not [name for name in decayed("model.qk_norm=true") if "qk_norm" in name]


@pytest.mark.parametrize("name", ["roper", "kv_shared_back", "alibi"])
def test_grouped_queries_are_heads_of_equal_keys_and_values(name):
    """Three query heads for each of two key/value heads; initial weights match a model without
    groups.
    """
    n, few, K = 6, 2, D // 6
    grouped, whole = (
        make_model(name, dims=Dims(D, n, 64), kv_heads=heads) for heads in (few, None)
    )
    for part, full in zip(grouped.layers, whole.layers, strict=True):
        for mine, other in zip(
            part.attention.qkv.parameters(), full.attention.qkv.parameters(), strict=True
        ):
            assert torch.equal(mine[: D + few * K], other[: D + few * K])
            others = (
                mine[D:].unflatten(0, (-1, few, K)).repeat_interleave(n // few, dim=1).flatten(0, 2)
            )
            other.data = torch.cat([mine[:D], others])
    tokens = torch.arange(22).view(2, 11) % V
    torch.testing.assert_close(grouped(tokens), whole(tokens), rtol=0, atol=1e-12)
    assert causality(grouped, TOKENS) is None
    cached(grouped)


@pytest.mark.parametrize("name", ["attention", "norm", "init", "conv", "gate"])
def test_an_unknown_choice_of_the_model_is_refused(name):
    with pytest.raises(ConfigError, match=f"model.{name}=Other: must be one of "):
        make_model("rope", **{name: "Other"})


def test_a_class_of_ones_own_may_set_a_window():
    class Near(Rotary):
        window = 3

    assert Near(DIMS, q=1, k=1).window == 3
    assert Near(DIMS, q=1, k=1, window=5).window == 5
