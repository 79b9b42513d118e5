"""The examples of docs/elsewhere.md run unchanged and agree with our own model.

Those that need transformers (extra `dev`) are skipped if it is not installed.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT
from sums import make_model
from torch import Tensor

from rope_lab.model.attention import fused, unpacked
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.schemes import Rotary

H, K = 4, 16
DIMS = Dims(d_model=H * K, n_heads=H, max_len=64)
VOCABULARY = 256
SIZES = {
    "hidden_size": H * K,
    "num_attention_heads": H,
    "num_key_value_heads": H // 2,
    "num_hidden_layers": 2,
}
SIZES |= {"intermediate_size": 96, "vocab_size": VOCABULARY, "max_position_embeddings": 128}
SIZES |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture(scope="module")
def example():
    """The functions of the page's first two examples."""
    return examples(slice(0, 2))


@pytest.fixture(scope="module")
def theirs():
    """The functions of all the page's examples; skips the test if transformers is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install -e '.[dev]'"
    )
    return examples(slice(None))


def codes() -> list[str]:
    """The blocks of code of the page."""
    page = (ROOT / "docs" / "elsewhere.md").read_text()
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def examples(which: slice) -> SimpleNamespace:
    """Run in a module without a source file, as in a notebook or an interpreter."""
    names = {"__name__": "interactive"}
    for code in codes()[which]:
        exec(compile(code, "<stdin>", "exec"), names)
    return SimpleNamespace(**names)


def heads(T: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random queries, keys and values, [3, 2, T, H, K]."""
    return torch.randn(3, 2, T, H, K, generator=torch.Generator().manual_seed(0), dtype=dtype)


def by_hooks(scheme: PositionScheme, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as in our model, [B, T, H, K]."""
    at = scheme.prepare(torch.arange(q.shape[1]), q.dtype)
    return scheme.output(fused(unpacked(scheme.heads(torch.stack([q, k, v], dim=2), at)), None), at)


def rotary(base: float = 10_000.0) -> Rotary:
    return Rotary(DIMS, q=1, k=1, v=1, o=-1, base=base, pairs="halves")


def test_the_ten_lines_are_ten_lines_and_are_roper(example):
    functions = [n for n in ast.parse(codes()[0]).body if hasattr(n, "body")]
    statements = [s for f in functions for s in f.body if not isinstance(s, ast.Expr)]
    assert len(statements) <= 10
    q, k, v = heads(40)
    torch.testing.assert_close(
        example.roper(q, k, v), by_hooks(rotary(), q, k, v), rtol=0, atol=1e-12
    )
    q, k, v = heads(40, torch.bfloat16)
    assert example.roper(q, k, v).dtype == torch.bfloat16


SOME = ["learned", "roper", "pope", "alibi", "kv_shared_back", "rnope_swa", "ssmax", "fox", "path"]
SOME += ["gemma4", "inkling", "grape_ap", "wall", "partial_key_offset", "kv_shift"]


@pytest.mark.parametrize("name", SOME)
def test_any_scheme_in_a_plain_attention(example, name):
    """Compared with a layer of our model with the identity as output matrix."""
    model = make_model(name, layers=1, dims=DIMS)
    layer, x = model.layers[0].attention, torch.randn(2, 40, H * K, dtype=torch.float64)
    layer.out.weight.data, layer.out.bias.data = (
        torch.eye(H * K).double(),
        torch.zeros(H * K).double(),
    )
    expected = []
    model.layers[0].norm1.register_forward_hook(lambda *_: x)
    layer.register_forward_hook(lambda module, given, output: expected.append(output))
    model(torch.zeros(2, 40, dtype=torch.long))
    heads_ = [*layer.qkv(x).unflatten(-1, (-1, H, K)).unbind(2), None][:3]
    torch.testing.assert_close(
        example.attention(model.position, x, *heads_).flatten(2), expected[0], rtol=0, atol=1e-12
    )


def test_the_example_of_any_scheme_runs_alone(capsys):
    examples(slice(1, 2))
    assert capsys.readouterr().out == "torch.Size([2, 100, 4, 16])\n"


def llama(attention: str, **changes):
    """A small Llama of transformers with two query heads per key head and fixed weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**(SIZES | changes), initializer_range=0.1))
    model.set_attn_implementation(attention)
    return model.eval()


def reference(model, tokens_BT: Tensor) -> Tensor:
    """Llama's logits (Touvron et al., 2023) from its weights and our hooks, [B, T, V]."""
    eps, base = model.config.rms_norm_eps, model.config.rope_parameters["rope_theta"]

    def norm(x: Tensor, layer) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], layer.weight, eps)

    x_BTD = model.model.embed_tokens.weight[tokens_BT]
    for layer in model.model.layers:
        a, h = layer.self_attn, norm(x_BTD, layer.input_layernorm)
        q, k, v = (
            (h @ proj.weight.T).unflatten(-1, (-1, K)) for proj in (a.q_proj, a.k_proj, a.v_proj)
        )
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
        x_BTD = x_BTD + by_hooks(rotary(base), q, k, v).flatten(2) @ a.o_proj.weight.T
        h, m = norm(x_BTD, layer.post_attention_layernorm), layer.mlp
        gate, up = F.silu(h @ m.gate_proj.weight.T), h @ m.up_proj.weight.T
        x_BTD = x_BTD + (gate * up) @ m.down_proj.weight.T
    return norm(x_BTD, model.model.norm) @ model.lm_head.weight.T


TOKENS = torch.randint(1, VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_llama_with_roper_is_ours_by_weights(theirs, base):
    model = llama("roper", rope_parameters={"rope_type": "default", "rope_theta": base})
    logits, ours = model(TOKENS).logits, reference(model, TOKENS)
    torch.testing.assert_close(logits, ours, rtol=0, atol=1e-5)
    assert (
        logits - llama("sdpa", rope_parameters=model.config.rope_parameters)(TOKENS).logits
    ).abs().max() > 0.1
    parameters = [p for p in model.parameters() if p.requires_grad]
    losses = (
        F.cross_entropy(x[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten()) for x in (logits, ours)
    )
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, parameters) for loss in losses), rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("cache", [None, "static"])
@torch.no_grad()
def test_llama_with_roper_generates_with_a_cache_as_without(theirs, cache):
    model = llama("roper")
    settings = {
        "max_new_tokens": 12,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    caches = ({"use_cache": False}, {"use_cache": True, "cache_implementation": cache})
    whole, cached = (model.generate(TOKENS[:, :9], **settings, **own) for own in caches)
    assert whole.sequences.shape == (2, 21)
    assert torch.equal(cached.sequences, whole.sequences)
    torch.testing.assert_close(cached.logits, whole.logits, rtol=0, atol=1e-5)
    again = reference(model, whole.sequences)[:, 8:-1]
    torch.testing.assert_close(torch.stack(whole.logits, dim=1), again, rtol=0, atol=1e-5)


def assert_roper(logits: Tensor, model) -> None:
    """Assert that logits of TOKENS are those of RoPER with the weights of a model."""
    torch.testing.assert_close(logits, reference(model, TOKENS), rtol=0, atol=1e-5)


def small_config(theirs, **more):
    return theirs.RoperConfig(**SIZES, initializer_range=0.1, **more)


@pytest.mark.slow
@torch.no_grad()
def test_no_attention_implementation_makes_it_plain_rope(theirs, tmp_path):
    """Neither an argument, nor a setting, nor the method; also after saving and loading."""
    model = theirs.RoperForCausalLM(small_config(theirs, attn_implementation="sdpa")).eval()
    assert_roper(model(TOKENS).logits, model)
    for change in (model.set_attn_implementation, model.model.set_attn_implementation):
        change("eager")
        assert_roper(model(TOKENS).logits, model)
    model.config._attn_implementation = "sdpa"
    assert_roper(model(TOKENS).logits, model)
    model.save_pretrained(tmp_path)
    for name in ("eager", "sdpa", None):
        loaded = theirs.RoperForCausalLM.from_pretrained(tmp_path, attn_implementation=name)
        assert_roper(loaded(TOKENS).logits, model)


@pytest.mark.slow
def test_what_would_be_plain_rope_is_refused(theirs):
    """A Llama's own configuration, and frequencies that values would not have."""
    with pytest.raises(TypeError, match="LlamaConfig: must be a RoperConfig"):
        theirs.RoperForCausalLM(llama("sdpa").config)
    scaled = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0}
    scaled |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    model = theirs.RoperForCausalLM(small_config(theirs, rope_parameters=scaled))
    with pytest.raises(ValueError, match="rope_type='llama3': RoPER needs 'default' here"):
        model(TOKENS)


ALONE = """
torch.manual_seed(0)
model = RoperForCausalLM(RoperConfig(**SIZES, initializer_range=0.1)).eval()
tokens = torch.arange(40)[None] % 7
with torch.no_grad():
    logits = model(tokens).logits
    cache = model(tokens[:, :30], use_cache=True).past_key_values
    last = model(tokens[:, 30:], past_key_values=cache).logits
torch.save([model.state_dict(), tokens, logits, last], PATH)
"""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("script", marks=pytest.mark.slow),
        pytest.param("standard input", marks=pytest.mark.torture),
    ],
)
def test_the_script_is_roper_in_a_process_of_its_own(theirs, tmp_path, how):
    source = "\n".join([codes()[0], codes()[2], f"SIZES = {SIZES}\nPATH = 'made.pt'", ALONE])
    (tmp_path / "script.py").write_text(source)
    words = {"script": ["script.py"], "standard input": ["-"]}[how]
    subprocess.run(
        [sys.executable, *words], cwd=tmp_path, input=source, text=True, check=True, timeout=300
    )
    state, tokens, logits, last = torch.load(tmp_path / "made.pt")
    model = llama("sdpa")
    model.load_state_dict(state)
    with torch.no_grad():
        expected = reference(model, tokens)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(last, expected[:, 30:], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_script_trains_saves_loads_and_generates(theirs, tmp_path):
    """The saved model loads as RoPER, also one made from a Llama with RoPE."""
    torch.manual_seed(0)
    written = theirs.main(tmp_path / "made")
    assert written.shape == (1, 64)
    saved = theirs.RoperForCausalLM.from_pretrained(tmp_path / "made")
    torch.testing.assert_close(saved(TOKENS).logits, reference(saved, TOKENS), rtol=0, atol=1e-5)
    text = torch.tensor(list(Path(ast.__file__).read_bytes()[:4096])).view(32, 128)
    new = theirs.RoperForCausalLM(saved.config)
    with torch.no_grad():
        assert saved(text, labels=text).loss < new(text, labels=text).loss - 1
    llama("sdpa").save_pretrained(tmp_path / "llama")
    theirs.main(tmp_path / "tuned", tmp_path / "llama", steps=0)
    tuned = theirs.RoperForCausalLM.from_pretrained(tmp_path / "tuned")
    torch.testing.assert_close(
        tuned(TOKENS).logits, llama("roper")(TOKENS).logits, rtol=0, atol=1e-5
    )
