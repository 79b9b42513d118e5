"""Content: gates, phases and transformations that depend on the layer's input.

Each layer has parameters of its own. Shape letters: B batch, T time (queries), S time (keys and
values), D model width, H heads, K head width, C pairs of a head's features, P positions of a table,
X features that are convolved, N taps.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lab.model.attention import BLOCK, Heads, unpacked, weighted_values
from rope_lab.model.cache import KVCache, LayerCache, convolved, running_sum, so_far
from rope_lab.model.device import has_float64
from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.rotation import frequencies, rotate, unit, wide
from rope_lab.text import ConfigError

FLOAT32_TOKENS = 1024  # longer running sums are taken in float64


class FoX(PositionScheme):
    """Scores fall by forget gates between key and query (Lin et al., 2025, Forgetting Transformer,
    equation 5).

    fₜ = σ(w xₜ + b) for each head; bias = Σ ln fₗ over i < l ≤ n. The bias is returned as
    −Σ_{l≤i} ln fₗ: the other part, Σ_{l≤n}, is the same for all keys of a query, so softmax ignores
    it. b is 0 at first, so that gates begin near ½ and a key's score falls by about ln 2 for each
    token.
    """

    def __init__(self, dims: Dims):
        super().__init__(dims)
        self.gates = nn.ModuleList(
            nn.Linear(dims.d_model, dims.n_heads) for _ in range(dims.n_layers)
        )
        for gate in self.gates:
            nn.init.zeros_(gate.bias)

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[Any, Tensor]:
        log_f_BTH = F.logsigmoid(self.gates[layer](x_BTD).to(wide(x_BTD.dtype)))
        log_f_BSH = so_far("log_f", log_f_BTH, cache)
        if log_f_BSH.shape[1] > FLOAT32_TOKENS and has_float64(x_BTD.device):
            log_f_BSH = log_f_BSH.double()  # attention subtracts two sums before it rounds
        bias_BH1S = -log_f_BSH.cumsum(1).mT.unsqueeze(-2)
        if x_BTD.shape[1] == 1:  # one query: with its own sum, which a sink does not ignore
            bias_BH1S = bias_BH1S - bias_BH1S[..., -1:]
        return at, bias_BH1S


class SelectiveRoPE(PositionScheme):
    """RoPE whose phases are running sums over the tokens' content (Movahedi et al., 2025, arXiv
    2511.17388).

    φₜ = Σ_τ c_τ ∘ (W₂ W₁ x̂ₜ₋τ), τ < taps, x̂ with each head's part of x at norm 1; Φₙ = θ ∘
    Σ_{t≤n} φₜ with θⱼ = base^(−2j/K). A score is qₙᵀ R(Φᵢ − Φₙ) kᵢ. Its authors' gate of φ, off by
    default, is missing here.

    values: also rotate values at i by R(Φᵢ) and the output at n by R(−Φₙ), as in RoPER. The output
        is then Σᵢ aₙᵢ R(Φᵢ − Φₙ) vᵢ. JoFormer (Godavarti, 2025, arXiv 2506.08652) rotates all four
        by angles of tokens.
    """

    def __init__(
        self,
        dims: Dims,
        values: bool = False,
        base: float = 500_000.0,
        rank: int = 16,
        taps: int = 4,
    ):
        super().__init__(dims)
        if dims.d_head % 2 or rank < 1 or taps < 1:
            given = f"{dims.d_head} features per head, position.rank={rank}, position.taps={taps}"
            raise ConfigError(f"{given}: must be an even number, and rank and taps at least 1")
        D, H, C = dims.d_model, dims.n_heads, dims.d_head // 2
        self.project = nn.ModuleList(
            nn.Sequential(nn.Linear(D, rank, bias=False), nn.Linear(rank, H * C, bias=False))
            for _ in range(dims.n_layers)
        )
        bound = taps**-0.5
        self.taps = nn.ParameterList(
            torch.empty(taps, H * C).uniform_(-bound, bound) for _ in range(dims.n_layers)
        )
        self.theta_C = frequencies(dims.d_head, base)
        self.n_heads = H
        self.values = values

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[tuple, None]:
        """Returns the phases of queries and keys, and of the output, [B, T, H, C, 2]."""
        x_BTHK = F.normalize(x_BTD.unflatten(-1, (self.n_heads, -1)), dim=-1)
        phi_BTX = convolved("phi", self.project[layer](x_BTHK.flatten(-2)), self.taps[layer], cache)
        sum_BTHC = running_sum("phase", phi_BTX.unflatten(-1, (self.n_heads, -1)), cache)
        phase_BTHC = sum_BTHC * self.theta_C.to(sum_BTHC)
        return (unit(phase_BTHC), unit(-phase_BTHC) if self.values else None), None

    def heads(self, qkv_BT3HK: Tensor, at: tuple) -> Tensor:
        parts = 3 if self.values else 2
        rotated = rotate(qkv_BT3HK[:, :, :parts], at[0].unsqueeze(2))
        return torch.cat([rotated, qkv_BT3HK[:, :, parts:].to(rotated.dtype)], dim=2)

    def output(self, o_BTHK: Tensor, at: tuple) -> Tensor:
        return rotate(o_BTHK, at[1])


class CoPE(PositionScheme):
    """Positions are counted by gates that depend on content (Golovneva et al., 2024, equations 3 to
    5).

    gₙᵢ = σ(qₙᵀ kᵢ / √K), pₙᵢ = Σ gₙⱼ over i ≤ j ≤ n, at most `positions` − 1; the score is qₙᵀ kᵢ /
    √K + qₙᵀ e(pₙᵢ), e between its values at whole numbers, which are learned for each layer and 0
    at first.
    """

    def __init__(self, dims: Dims, positions: int = 64):
        super().__init__(dims)
        if positions < 1:
            raise ConfigError(f"position.positions={positions}: must be at least 1")
        self.tables = nn.ParameterList(
            torch.zeros(dims.d_head, positions) for _ in range(dims.n_layers)
        )

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[Tensor, None]:
        return self.tables[layer], None

    def attention(
        self,
        heads: Heads,
        at: Tensor,
        bias: Tensor | None,
        cache: KVCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        q_BHTK, k_BHSK, v_BHSK = gathered(heads, cache)
        with torch.autocast(q_BHTK.device.type, enabled=False):
            scores_BHTS = q_BHTK @ k_BHSK.mT / q_BHTK.shape[-1] ** 0.5
            p_BHTS = from_key(scores_BHTS.sigmoid()).clamp(max=at.shape[-1] - 1)
            table_BHTP = q_BHTK @ at.to(q_BHTK.dtype)
            below = p_BHTS.detach().floor()
            e_BHTS = table_BHTP.gather(-1, below.long()).lerp(
                table_BHTP.gather(-1, p_BHTS.detach().ceil().long()), p_BHTS - below
            )
            return weighted_values(scores_BHTS + e_BHTS, v_BHSK, bias, self.window, sink)


class ChangedKeys(PositionScheme):
    """Base class: every token changes the keys before it, so that scores need the keys as they are
    for each query. A block of queries at a time meets them; the cache holds them after all tokens.
    """

    block = BLOCK  # queries

    def in_block(
        self, q: Tensor, own_keys: Tensor, keys: Tensor, at: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """The scores of a block's queries for all keys up to the block's last, times √K, and these
        keys after the block.

        q, own_keys: of the block, [B, H, block, K]; keys: of the tokens before it
        at: of `read`, for the block's tokens
        """
        raise NotImplementedError

    def attention(
        self,
        heads: Heads,
        at: tuple[Tensor, ...],
        bias: Tensor | None,
        cache: KVCache | None,
        sink: Tensor | None = None,
    ) -> Tensor:
        q_BHTK, k_BHSK, v_BHSK = gathered(heads, cache)
        T, S = q_BHTK.shape[2], k_BHSK.shape[2]
        bias = None if bias is None else bias.expand(*bias.shape[:-2], T, S)
        keys = k_BHSK[:, :, : S - T]
        outputs = []
        with torch.autocast(q_BHTK.device.type, enabled=False):
            for begin in range(0, T, self.block):
                here = slice(begin, min(begin + self.block, T))
                before = S - T + begin
                end = S - T + here.stop
                own_at = tuple(x[:, :, here] for x in at)
                own_keys = k_BHSK[:, :, before:end]
                scores, keys = self.in_block(q_BHTK[:, :, here], own_keys, keys, own_at)
                scores = scores / q_BHTK.shape[-1] ** 0.5
                own = None if bias is None else bias[..., here, :end]
                outputs.append(weighted_values(scores, v_BHSK[:, :, :end], own, self.window, sink))
        if cache is not None:
            cache.k_BHSK[:, :, :S] = keys
        return torch.cat(outputs, dim=1)


class PaTH(ChangedKeys):
    """Keys are multiplied by Householder-like matrices of the tokens up to the query (Yang et al.,
    2025, arXiv 2505.16381).

    The score is kᵢᵀ Hᵢ₊₁ ⋯ Hₙ qₙ / √K, Hₜ = I − βₜ wₜ wₜᵀ, βₜ = 2σ(u xₜ + b); wₜ, of norm 1, is a
    causal convolution of W₂ W₁ xₜ over `taps` tokens, through SiLU. With aₜᵢ = wₜᵀ Hₜ₋₁ ⋯ Hᵢ₊₁ kᵢ
    the score is qₙᵀ kᵢ − Σ qₙᵀ wₜ βₜ aₜᵢ over i < t ≤ n, and aₜᵢ = wₜᵀ kᵢ − Σ wₜᵀ wₛ βₛ aₛᵢ over i
    < s < t: a triangular system. It is solved for a block of tokens at a time; then kᵢ − Σ wₜ βₜ
    aₜᵢ, the keys transformed by the block, are those of the next, or of the cache.
    """

    def __init__(self, dims: Dims, rank: int = 32, taps: int = 3):
        super().__init__(dims)
        if rank < 1 or taps < 1:
            raise ConfigError(f"position.rank={rank}, position.taps={taps}: must be at least 1")
        D = dims.d_model
        layers = range(dims.n_layers)
        bound = taps**-0.5
        self.project = nn.ModuleList(
            nn.Sequential(nn.Linear(D, rank, bias=False), nn.Linear(rank, D, bias=False))
            for _ in layers
        )
        self.taps = nn.ParameterList(torch.empty(taps, D).uniform_(-bound, bound) for _ in layers)
        self.betas = nn.ModuleList(nn.Linear(D, dims.n_heads) for _ in layers)
        self.n_heads = dims.n_heads

    def read(
        self, x_BTD: Tensor, at: Any, layer: int, cache: LayerCache | None
    ) -> tuple[tuple[Tensor, Tensor], None]:
        """Returns w, [B, H, T, K], and βw."""
        w_BTD = F.silu(convolved("w", self.project[layer](x_BTD), self.taps[layer], cache))
        w_BHTK = F.normalize(w_BTD.unflatten(-1, (self.n_heads, -1)), dim=-1).transpose(1, 2)
        beta_BTH = 2 * self.betas[layer](x_BTD).to(w_BTD.dtype).sigmoid()
        return (w_BHTK, beta_BTH.mT.unsqueeze(-1) * w_BHTK), None

    def in_block(
        self, q: Tensor, own_keys: Tensor, keys: Tensor, at: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        w, beta_w = at
        before = keys.shape[2]
        keys = torch.cat([keys, own_keys], dim=2)
        a = torch.linalg.solve_triangular(
            (w @ beta_w.mT).tril(-1),
            (w @ keys.mT).tril(before - 1),
            upper=False,
            unitriangular=True,
        )
        scores = q @ keys.mT - (q @ beta_w.mT).tril() @ a
        return scores, keys - a.mT @ beta_w


def from_key(x_BHTS: Tensor) -> Tensor:
    """Σ of `x` over the keys from each key i up to the query n: i ≤ j ≤ n."""
    T, S = x_BHTS.shape[-2:]
    return x_BHTS.tril(S - T).flip(-1).cumsum(-1).flip(-1)


def gathered(heads: Heads, cache: KVCache | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, [B, H, T, K], and all keys and values so far, [B, H, S, K], in float32 or wider."""
    q_BTHK, k_BTHK, v_BTHK = unpacked(heads)
    if cache is None:
        k_BHSK, v_BHSK = k_BTHK.transpose(1, 2), v_BTHK.transpose(1, 2)
    else:
        k_BHSK, v_BHSK = cache.add(k_BTHK, v_BTHK)
    dtype = wide(q_BTHK.dtype)
    return q_BTHK.transpose(1, 2).to(dtype), k_BHSK.to(dtype), v_BHSK.to(dtype)
