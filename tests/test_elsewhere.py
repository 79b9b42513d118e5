"""docs/elsewhere.md: its examples run as they stand there, and compute what our own model computes.

Those that need transformers (of the extra `dev`) are skipped where it is not installed.
"""

import argparse
import ast
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT, SCHEMES, TINY, only_folder
from torch import Tensor
from trained import make_scheme, run

from rope_lab.model.attention import softmax_attention
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.positions import Rotary
from rope_lab.train.generate import generate
from rope_lab.train.run import load_run

H, K = 4, 16
DIMS = Dims(d_model=H * K, n_heads=H, max_len=64)
VOCABULARY = 256


@pytest.fixture(scope="module")
def example():
    """The functions of the page's first two examples."""
    return examples(slice(0, 2))


@pytest.fixture(scope="module")
def theirs():
    """The functions of all its examples. Skips the test where transformers is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[dev]'")
    return examples(slice(None))


def examples(which: slice) -> SimpleNamespace:
    page = (ROOT / "docs" / "elsewhere.md").read_text()
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)[which]:
        exec(compile(code, "docs/elsewhere.md", "exec"), names)
    return SimpleNamespace(**names)


def heads(T: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random queries, keys and values, [3, 2, T, H, K]."""
    return torch.randn(3, 2, T, H, K, generator=torch.Generator().manual_seed(0), dtype=dtype)


def by_hooks(scheme: PositionScheme, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as our model has it, [B, T, H, K]."""
    at = scheme.prepare(torch.arange(q.shape[1]), q.dtype)
    o_BTHK = softmax_attention(scheme.heads(torch.stack([q, k, v], dim=2), at), scheme.bias(at, at))
    return scheme.output(o_BTHK, at)


def rotary(base: float = 10_000.0) -> Rotary:
    return Rotary(DIMS, q=1, k=1, v=1, o=-1, base=base, pairs="halves")


def test_the_ten_lines_are_ten_lines_and_are_roper(example):
    page = (ROOT / "docs" / "elsewhere.md").read_text()
    functions = [n for n in ast.parse(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]).body if hasattr(n, "body")]
    statements = [s for f in functions for s in f.body if not isinstance(s, ast.Expr)]
    assert len(statements) <= 10
    q, k, v = heads(40)
    torch.testing.assert_close(example.roper(q, k, v), by_hooks(rotary(), q, k, v), rtol=0, atol=1e-12)
    q, k, v = heads(40, torch.bfloat16)
    assert example.roper(q, k, v).dtype == torch.bfloat16


def test_gradients_of_the_ten_lines(example):
    q, k, v = (x[:1, :3, :1].clone().requires_grad_() for x in heads(3))
    assert torch.autograd.gradcheck(example.roper, (q, k, v))


@pytest.mark.parametrize("name", SCHEMES)
def test_any_scheme_in_a_plain_attention(example, name):
    scheme = make_scheme(name, DIMS).double()
    q, k, v = heads(40)
    torch.testing.assert_close(
        example.attention(scheme, q, k, v), by_hooks(scheme, q, k, v), rtol=0, atol=1e-6 if name == "t5_bias" else 1e-12
    )


def llama(attention: str, **changes):
    """A small Llama of transformers with two queries to a key, always of the same weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": H * K, "num_attention_heads": H, "num_key_value_heads": H // 2, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 96, "vocab_size": VOCABULARY, "max_position_embeddings": 128}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**(sizes | ends | changes), initializer_range=0.1))
    model.set_attn_implementation(attention)
    return model.eval()


def reference(model, tokens_BT: Tensor) -> Tensor:
    """Llama's logits (Touvron et al., 2023) by its weights and our hooks, [B, T, V]."""
    eps, base = model.config.rms_norm_eps, model.config.rope_parameters["rope_theta"]

    def norm(x: Tensor, layer) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], layer.weight, eps)

    x_BTD = model.model.embed_tokens.weight[tokens_BT]
    for layer in model.model.layers:
        a, h = layer.self_attn, norm(x_BTD, layer.input_layernorm)
        q, k, v = ((h @ proj.weight.T).unflatten(-1, (-1, K)) for proj in (a.q_proj, a.k_proj, a.v_proj))
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
        x_BTD = x_BTD + by_hooks(rotary(base), q, k, v).flatten(2) @ a.o_proj.weight.T
        h, m = norm(x_BTD, layer.post_attention_layernorm), layer.mlp
        gate, up = F.silu(h @ m.gate_proj.weight.T), h @ m.up_proj.weight.T
        x_BTD = x_BTD + (gate * up) @ m.down_proj.weight.T
    return norm(x_BTD, model.model.norm) @ model.lm_head.weight.T


TOKENS = torch.randint(1, VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_llama_with_roper_is_ours_by_weights(theirs, base):
    model = llama("roper", rope_parameters={"rope_type": "default", "rope_theta": base})
    logits, ours = model(TOKENS).logits, reference(model, TOKENS)
    torch.testing.assert_close(logits, ours, rtol=0, atol=1e-5)
    assert (logits - llama("sdpa", rope_parameters=model.config.rope_parameters)(TOKENS).logits).abs().max() > 0.1
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = (
        torch.autograd.grad(F.cross_entropy(x[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten()), parameters)
        for x in (logits, ours)
    )
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cache", [None, "static"])
@torch.no_grad()
def test_llama_with_roper_generates_with_a_cache_as_without(theirs, cache):
    model = llama("roper")
    settings = {"max_new_tokens": 12, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    whole, cached = (
        model.generate(TOKENS[:, :9], use_cache=used, cache_implementation=(used and cache) or None, **settings)
        for used in (False, True)
    )
    assert whole.sequences.shape == (2, 21)
    assert torch.equal(cached.sequences, whole.sequences)
    torch.testing.assert_close(cached.logits, whole.logits, rtol=0, atol=1e-5)
    again = reference(model, whole.sequences)[:, 8:-1]
    torch.testing.assert_close(torch.stack(whole.logits, dim=1), again, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cache", [None, "static"])
@torch.no_grad()
def test_llama_with_roper_does_not_notice_padding_on_the_left(theirs, cache):
    model, settings = llama("roper"), {"max_new_tokens": 8, "do_sample": False, "cache_implementation": cache}
    rows = TOKENS[:, :9].clone()
    rows[1, :4] = 0
    mask = (rows != 0).long()
    padded = model.generate(rows, attention_mask=mask, **settings)
    alone = model.generate(rows[1:, 4:], **settings)
    assert torch.equal(padded[1, 9:], alone[0, 5:])


@torch.no_grad()
def test_a_prompt_may_be_read_in_parts(theirs):
    model = llama("roper")
    first = model(TOKENS[:, :15], use_cache=True)
    second = model(TOKENS[:, 15:], past_key_values=first.past_key_values)
    torch.testing.assert_close(
        torch.cat([first.logits, second.logits], dim=1), reference(model, TOKENS), rtol=0, atol=1e-5
    )


def test_fine_tuning_on_pythons_sources_lowers_the_loss(theirs):
    """Fifty steps; the loss is that of a source they do not see."""
    unseen = torch.tensor(list(Path(ast.__file__).read_bytes()[:4096])).view(32, 128)
    assert Path(ast.__file__) != Path(argparse.__file__)
    model = llama("roper").train()

    def loss() -> float:
        with torch.no_grad():
            return model(unseen, labels=unseen).loss.item()

    torch.manual_seed(0)
    before = loss()
    theirs.fine_tune(model)
    assert loss() < before - 1


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
@pytest.mark.parametrize(("position", "init"), [("rope", "pytorch"), ("roper", "pytorch"), ("roper", "xavier")])
def test_a_trained_run_in_transformers(theirs, tmp_path, position, init, pairs):
    """Its logits, and what it writes."""
    own = [f"position={position}", f"position.pairs={pairs}", f"model.init={init}", "model.n_layers=2"]
    run([*TINY, *own, "position.base=500", "train.lr=0.05", f"out={tmp_path}"])
    model = theirs.exported(only_folder(tmp_path))
    _, task, ours, _ = load_run(only_folder(tmp_path), [])
    tokens_BT = torch.randint(len(task.alphabet), (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens_BT).logits, ours(tokens_BT), rtol=0, atol=1e-5)
    (written,) = generate(ours, task, [tokens_BT[0, :9].numpy()], 12, 64)
    continued = model.generate(tokens_BT[:1, :9], max_new_tokens=12, do_sample=False)[0, 9:]
    assert continued[: len(written)].tolist() == list(written)


@pytest.mark.parametrize(
    "change", ["position=alibi", "position=rope_partial", "position=value_rope", "position.v=1", "model.norm=post"]
)
def test_other_runs_cannot_be_exported(theirs, tmp_path, change):
    run([*TINY, "position=rope", change, f"out={tmp_path}"])
    with pytest.raises(ValueError, match="must be"):
        theirs.exported(only_folder(tmp_path))
