"""A Llama of transformers with another position scheme.

Import this file before AutoModelForCausalLM loads such a model. A saved folder holds a copy of it,
so that `AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)` works without it. It
needs transformers 5 or later.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

from rope_lab.exporting.parts.base import Position, attend

SUPPORTED = ("sdpa", "eager")  # both compute the same here


class LlamaPositionAttention(LlamaAttention):
    """Llama's attention with a position scheme in place of RoPE."""

    def __init__(self, config: LlamaConfig, layer_idx: int, position_class: type[Position]):
        super().__init__(config, layer_idx)
        rotations = config.rope_parameters
        if rotations["rope_type"] != "default":
            raise ValueError(f"rope_type={rotations['rope_type']!r}: must be 'default' here")
        self.position = position_class(
            config.hidden_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            self.head_dim,
            rotations["rope_theta"],
        )

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: Any = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        if self.config._attn_implementation not in SUPPORTED:
            given = f"attn_implementation={self.config._attn_implementation!r}"
            raise ValueError(f"{given}: must be one of {SUPPORTED}: others drop the scheme")

        def store(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            if past_key_values is None:
                return k, v
            stored = past_key_values.update(k.transpose(1, 2), v.transpose(1, 2), self.layer_idx)
            return stored[0].transpose(1, 2), stored[1].transpose(1, 2)

        projections = (self.q_proj, self.k_proj, self.v_proj)
        heads = [each(hidden_states).unflatten(-1, (-1, self.head_dim)) for each in projections]
        known = 0 if past_key_values is None else past_key_values.get_seq_length(self.layer_idx)
        seen_BTS = seen_keys(attention_mask, known, hidden_states)
        o_BTHK = attend(
            self.position,
            hidden_states,
            tuple(heads),
            position_ids,
            seen_BTS,
            store,
            self.attention_dropout if self.training else 0.0,
        )
        return self.o_proj(o_BTHK.flatten(2)), None


def seen_keys(mask: Tensor | None, known: int, x_BTD: Tensor) -> Tensor:
    """Whether each of T queries, after `known` tokens, may look at each key, [B or 1, T, S].

    mask: [B, 1, T, S], true or 0 where it may; None: at all keys up to itself
    """
    T = x_BTD.shape[1]
    device = x_BTD.device
    if mask is None:
        return torch.ones(1, T, known + T, dtype=torch.bool, device=device).tril(known)
    return mask[:, 0] if mask.dtype == torch.bool else mask[:, 0] >= 0


class PositionConfig(LlamaConfig):
    """A Llama's settings; other programs must not take it for a Llama."""


class PositionForCausalLM(LlamaForCausalLM):
    """A Llama whose attention has a position scheme in every layer."""

    config_class = PositionConfig
    position_class = Position
    _supports_flash_attn = False
    _supports_flex_attn = False

    def __init__(self, config: LlamaConfig):
        if not isinstance(config, self.config_class):
            given = f"config is a {type(config).__name__}"
            raise TypeError(f"{given}: must be a {self.config_class.__name__}")
        super().__init__(config)
        for number, layer in enumerate(self.model.layers):
            layer.self_attn = LlamaPositionAttention(config, number, self.position_class)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Position):
            module.reset()


def register(config_class: type[LlamaConfig], model_class: type[LlamaForCausalLM]) -> None:
    """Let AutoModelForCausalLM find the model, also by the copy of this file in a saved folder."""
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    AutoModelForCausalLM.register(config_class, model_class, exist_ok=True)
    config_class.register_for_auto_class()
    model_class.register_for_auto_class("AutoModelForCausalLM")
