"""Scores from content: biases and decays that depend on the layer's input, without rotations.

Each layer has parameters of its own. Shape letters: B batch, T time (queries), S time (keys and
values), D model width, H heads, K head width, M modes of a bias, E distances of a table, C features
of a path.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.attention import Heads, softmax_attention, unpacked
from rope_lab.model.axes import distances
from rope_lab.model.cache import KVCache, LayerCache, so_far
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.rotation import precise, rotate, unit, wide
from rope_lab.model.schemes.biases import Alibi
from rope_lab.model.schemes.content import ChangedKeys, from_key
from rope_lab.model.schemes.layers import tokens_of
from rope_lab.text import ConfigError


class RelativeBias(PositionScheme):
    """Adds a learned function of the distance to each score, mixed for each query by content
    (Inkling, 2026).

    rₙ = W xₙ has M numbers for each head; P is a table of M by E numbers, which a layer's heads
    share. bias(n, i) = Σ_m rₙₘ P(m, n−i), and exactly 0 from distance E on. Inkling also normalises
    queries and keys (model.qk_norm), divides scores by K instead of √K (Inkling 2: by √K), and has
    convolutions of four taps (model.conv). Five of six of its layers have a window as long as their
    table; here all layers are full.

    modes: M
    extent: E in tokens; below 1 a share of the training length; None: the training length.
        Distances are rounded down to whole tokens
    """

    def __init__(self, dims: Dims, modes: int = 16, extent: int | float | None = None):
        super().__init__(dims)
        if modes < 1:
            raise ConfigError(f"position.modes={modes}: must be at least 1")
        longest = dims.keys or dims.max_len
        self.extent = longest if extent is None else tokens_of(extent, dims, "position.extent")
        self.modes = modes
        layers = range(dims.n_layers)
        self.mixes = nn.ModuleList(
            nn.Linear(dims.d_model, dims.n_heads * modes, bias=False) for _ in layers
        )
        self.tables = nn.ParameterList(0.02 * torch.randn(modes, self.extent) for _ in layers)

    def bias(self, at_T: Tensor, at_S: Tensor) -> Tensor:
        """The distances, [1, T, S], which `attention` looks up."""
        return distances(at_T, at_S).unsqueeze(-3)

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[Tensor, None]:
        """Returns each query's bias by distance, [B, H, T, E]."""
        r_BTHM = self.mixes[layer](x_BTD).unflatten(-1, (-1, self.modes))
        return (r_BTHM.to(wide(x_BTD.dtype)) @ self.tables[layer]).transpose(1, 2), None

    def attention(
        self,
        heads: Heads,
        at: Tensor,
        bias: Tensor,
        cache: KVCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        apart_1TS = bias.isneginf()  # keys of other documents
        distance_1TS = bias.masked_fill(apart_1TS, 0).long()
        index_1TS = distance_1TS.clamp(0, self.extent - 1)
        bias_BHTS = at.gather(-1, index_1TS.expand(*at.shape[:3], -1))
        bias_BHTS = bias_BHTS.masked_fill(distance_1TS >= self.extent, 0)
        if bias.is_floating_point():
            bias_BHTS = bias_BHTS.masked_fill(apart_1TS, -torch.inf)
        return softmax_attention(heads, bias_BHTS, cache, self.window, sink)


class GrapeA(Alibi):
    """ALiBi whose slopes depend on the query (Zhang et al., 2025, Additive GRAPE, query-gated;
    arXiv 2512.07805). The variant that they report as best is `GrapeAP`.

    bias = −(n − i) mₕ softplus(ωₕ) softplus(v̂ₕᵀ qₙ / √K), mₕ the slopes of ALiBi, v̂ₕ of norm 1;
    softplus(ωₕ) is 1 at first.
    """

    def __init__(self, dims: Dims):
        super().__init__(dims)
        shape = (dims.n_heads, dims.d_head)
        layers = range(dims.n_layers)
        self.v = nn.ParameterList(torch.randn(shape) / dims.d_head**0.5 for _ in layers)
        self.omega = nn.ParameterList(
            torch.full((dims.n_heads,), math.log(math.e - 1)) for _ in layers
        )

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[tuple[Tensor, Tensor], None]:
        return (F.normalize(self.v[layer], dim=-1), F.softplus(self.omega[layer])), None

    def attention(
        self,
        heads: Heads,
        at: tuple[Tensor, Tensor],
        bias: Tensor,
        cache: KVCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        v_HK, omega_H = at
        q_BTHK = unpacked(heads)[0]
        gate_BTH = omega_H * F.softplus(
            (q_BTHK.to(wide(q_BTHK.dtype)) * v_HK).sum(-1) / q_BTHK.shape[-1] ** 0.5
        )
        if bias.dim() == 3:
            bias_BHTS = gate_BTH.mT.unsqueeze(-1) * bias
        else:  # −∞ at keys of other documents, where a product would have no gradient
            apart = bias.isneginf()
            bias_BHTS = gate_BTH.mT.unsqueeze(-1) * bias.masked_fill(apart, 0)
            bias_BHTS = bias_BHTS.masked_fill(apart, -torch.inf)
        return softmax_attention(heads, bias_BHTS, cache, self.window, sink)


class GrapeAP(PositionScheme):
    """Scores fall by gates along the path from key to query, which depend on both (Zhang et al.,
    2025, GRAPE-AP; arXiv 2512.07805).

    pₙ = W xₙ has C numbers for each head, p̄ is p at root mean square 1, R(l) rotates each pair of
    its features by l radians. ψ(n, l) = mₕ ln σ(pₙᵀ R(l) p̄ₗ / C), mₕ the slopes of ALiBi;
    bias(n, i) = Σ ψ(n, l) over i < l ≤ n. As in its authors' code R(l) contains the absolute
    position. They normalise queries and keys (model.qk_norm).

    width: C
    """

    def __init__(self, dims: Dims, width: int = 8):
        super().__init__(dims)
        if width < 2 or width % 2:
            raise ConfigError(f"position.width={width}: must be an even number of at least 2")
        self.width = width
        self.slopes_H11 = Alibi(dims).slopes_H11
        self.paths = nn.ModuleList(
            nn.Linear(dims.d_model, dims.n_heads * width, bias=False) for _ in range(dims.n_layers)
        )

    def read(
        self, x_BTD: Tensor, at: Tensor, layer: int, cache: LayerCache | None
    ) -> tuple[Tensor, Tensor]:
        p_BTHC = self.paths[layer](x_BTD).unflatten(-1, (-1, self.width)).to(wide(x_BTD.dtype))
        e_T112 = unit(precise(at)).to(p_BTHC)[..., None, None, :]
        unit_BTHC = F.rms_norm(p_BTHC, (self.width,))
        e_T1C2 = e_T112.expand(*e_T112.shape[:-2], self.width // 2, 2)
        turned_BTHC = rotate(unit_BTHC, e_T1C2, "halves")
        turned_BSHC = so_far("path", turned_BTHC, cache)
        with torch.autocast(x_BTD.device.type, enabled=False):
            products_BHTS = p_BTHC.transpose(1, 2) @ turned_BSHC.permute(0, 2, 3, 1)
        psi_BHTS = self.slopes_H11 * F.logsigmoid(products_BHTS / self.width)
        return at, from_key(psi_BHTS) - psi_BHTS


class Wall(ChangedKeys):
    """Each feature's part of a score falls by gates between key and query (wall attention, Tilde
    Research, 2026).

    gₜ = ln σ(W xₜ + b) for each feature; score(n, i) = Σ_c qₙ_c kᵢ_c exp(Σ gₗ_c) / √K, the inner
    sum over i < l ≤ n. An old key's score falls to 0, not to −∞. b is 8 at first: nearly no
    position. Its authors' options, such as a forget gate for each head, are missing here.

    The cache holds keys already multiplied by all gates so far, so that no exponent is above 0.
    """

    block = 16  # its queries meet each other's keys feature by feature

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.gates = nn.ModuleList(
            nn.Linear(dims.d_model, dims.d_model) for _ in range(dims.n_layers)
        )
        for gate in self.gates:
            nn.init.constant_(gate.bias, 8.0)
        self.n_heads = dims.n_heads

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[tuple[Tensor], None]:
        """Returns the logarithms of the gates, [B, H, T, K]."""
        log_BTD = F.logsigmoid(self.gates[layer](x_BTD).to(wide(x_BTD.dtype)))
        return (log_BTD.unflatten(-1, (self.n_heads, -1)).transpose(1, 2),), None

    def in_block(
        self, q: Tensor, own_keys: Tensor, keys: Tensor, at: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        sums = at[0].cumsum(2)
        between = (sums.unsqueeze(3) - sums.unsqueeze(2)).clamp(max=0).exp()
        within = torch.einsum("bhnk,bhik,bhnik->bhni", q, own_keys, between)
        scores = torch.cat([(q * sums.exp()) @ keys.mT, within], dim=-1)
        last = sums[:, :, -1:]
        return scores, torch.cat([keys * last.exp(), own_keys * (last - sums).exp()], dim=2)
