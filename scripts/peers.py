"""Transformers of other libraries, whose training steps `rope-lab bench` times beside ours."""

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from rope_lab.train import optimizer
from rope_lab.train.trainer import Trainer


def x_transformers(
    vocabulary: int, d_model: int, n_layers: int, n_heads: int, seq_len: int
) -> nn.Module:
    """x-transformers' decoder with rotary embeddings and its fused attention."""
    from x_transformers import Decoder, TransformerWrapper

    decoder = Decoder(
        dim=d_model,
        depth=n_layers,
        heads=n_heads,
        attn_dim_head=d_model // n_heads,
        rotary_pos_emb=True,
        attn_flash=True,
    )
    return TransformerWrapper(
        num_tokens=vocabulary, max_seq_len=seq_len, attn_layers=decoder, use_abs_pos_emb=False
    )


class Llama(nn.Module):
    """Hugging Face's Llama on scaled_dot_product_attention; its three feed-forward matrices have
    the size of our 2.
    """

    def __init__(self, vocabulary: int, d_model: int, n_layers: int, n_heads: int, seq_len: int):
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__()
        sizes = LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=d_model,
            intermediate_size=round(8 / 3 * d_model),
            num_hidden_layers=n_layers,
            num_attention_heads=n_heads,
            num_key_value_heads=n_heads,
            max_position_embeddings=seq_len,
            attn_implementation="sdpa",
            use_cache=False,
        )
        self.llama = LlamaForCausalLM(sizes)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.llama(tokens_BT).logits


class Labml(nn.Module):
    """labml-nn's transformer layers around its RoPE or RoPER attention, rotary on all features."""

    def __init__(
        self,
        attention: str,
        vocabulary: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        seq_len: int,
    ):
        from labml import tracker

        # Its RoPE attention calls a function that today's labml lacks.
        if not hasattr(tracker, "debug"):
            tracker.debug = lambda *_: None
        from labml_nn.transformers.feed_forward import FeedForward
        from labml_nn.transformers.models import Encoder, TransformerLayer
        from labml_nn.transformers.rope import RotaryPEMultiHeadAttention
        from labml_nn.transformers.rope.value_pe import RotaryValuePEMultiHeadAttention

        super().__init__()
        attend = RotaryPEMultiHeadAttention(n_heads, d_model, 1.0)
        if attention == "roper":
            attend = RotaryValuePEMultiHeadAttention(n_heads, d_model, 1.0, 1.0)
        parts = {
            "self_attn": attend,
            "src_attn": None,
            "feed_forward": FeedForward(d_model, 4 * d_model, dropout=0.0),
        }
        layer = TransformerLayer(d_model=d_model, dropout_prob=0.0, **parts)
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.encoder = Encoder(layer, n_layers)
        self.unembedding = nn.Linear(d_model, vocabulary)
        self.register_buffer(
            "mask_TT1", torch.ones(seq_len, seq_len, dtype=torch.bool).tril().unsqueeze(-1)
        )

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_TBD = self.embedding(tokens_BT.T)
        return self.unembedding(self.encoder(x_TBD, self.mask_TT1)).transpose(0, 1)


class NanoGPT(nn.Module):
    """nanoGPT's model (Karpathy, 2022) of torch's layers: learned positions, GELU, tied embeddings,
    no biases.
    """

    def __init__(self, vocabulary: int, d_model: int, n_layers: int, n_heads: int, seq_len: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model)
        self.positions = nn.Embedding(seq_len, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model,
            n_heads,
            4 * d_model,
            0.0,
            "gelu",
            batch_first=True,
            norm_first=True,
            bias=False,
        )
        self.layers = nn.TransformerEncoder(
            layer, n_layers, nn.LayerNorm(d_model, bias=False), False
        )
        self.unembedding = nn.Linear(d_model, vocabulary, bias=False)
        self.unembedding.weight = self.tokens.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        T = tokens_BT.shape[1]
        device = tokens_BT.device
        x_BTD = self.tokens(tokens_BT) + self.positions(torch.arange(T, device=device))
        mask_TT = nn.Transformer.generate_square_subsequent_mask(T, device=device)
        return self.unembedding(self.layers(x_BTD, mask_TT, is_causal=True))


PEERS: dict[str, tuple[Callable[..., nn.Module], str]] = {  # with the package that each needs
    "x-transformers": (x_transformers, "x_transformers"),
    "llama": (Llama, "transformers"),
    "labml-rope": (functools.partial(Labml, "rope"), "labml_nn"),
    "labml-roper": (functools.partial(Labml, "roper"), "labml_nn"),
    "nanogpt": (NanoGPT, "torch"),
}


def in_its_place(trainer: Trainer, name: str) -> Trainer:
    """The trainer with a peer of the same size in the place of its model."""
    make, _ = PEERS[name]
    sizes, train = trainer.cfg.model, trainer.cfg.train
    vocabulary = len(trainer.task.alphabet)
    model = make(vocabulary, sizes.d_model, sizes.n_layers, sizes.n_heads, train.seq_len)
    model.position = trainer.model.position  # a step asks it for random positions
    model.to(trainer.device)
    forward = torch.compile(model) if train.compile else model
    made = optimizer.make(model, train)
    return replace(trainer, model=model, forward=forward, optimizers=made)
