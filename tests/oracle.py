"""A transformer in loops over positions, in float64, from the formulas of the papers and of shipped
code. It shares no code with rope_lab: it only reads the weights.

One text at a time. T tokens, D width, H heads, K features of a head; n is a query, i ≤ n a key.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray

HEADS = 3


@dataclass
class Seen:
    """What a scheme sees of one layer."""

    x: ndarray  # the normalised input, [T, D]
    q: ndarray  # projections, [T, H, K] each
    k: ndarray
    v: ndarray | None  # None: the layer projects no values
    own: dict[str, ndarray]  # the scheme's parameters in this layer
    number: int  # of the layer
    length: int  # tokens of a text in training


# Score and value of key i for query n in head h; a list of two pairs if each head has two outputs.
Scheme = Callable[[Seen, int, int, int], Any]


@dataclass
class Attention:
    """One layer: its scheme, and where the scheme's parameters are."""

    scheme: Scheme
    window: int | None = None
    prefix: str = ""
    number: int = 0  # of the layer, within the scheme
    settings: dict[str, Any] = field(default_factory=dict)


def logits(model: Any, tokens: list[int], layers: list[Attention], length: int) -> ndarray:
    """Logits [T, V] of a model of pre-norm layers; `layers` says how each attends."""
    w = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    x = w["embedding.weight"][tokens]
    if "smear.gate" in w:
        x = smeared(x, w["smear.gate"], w["smear.scale"])
    for number, attention in enumerate(layers):
        x = layer(x, under(w, f"layers.{number}."), own_of(w, attention), attention, length)
    return linear(layer_norm(x, under(w, "norm.")), under(w, "unembedding."))


def layer(x: ndarray, w: dict, own: dict, attention: Attention, length: int) -> ndarray:
    seen = layer_norm(x, under(w, "norm1."))
    seen = convolved(seen, w.get("convs.before_attention.taps_N1X"))
    mixed = attended(seen, under(w, "attention."), own, attention, length)
    x = x + mixed
    hidden = layer_norm(x, under(w, "norm2."))
    hidden = convolved(hidden, w.get("convs.before_feed_forward.taps_N1X"))
    hidden = linear(hidden, under(w, "up."))
    hidden = convolved(hidden, w.get("convs.in_feed_forward.taps_N1X"))
    return x + linear(np.maximum(hidden, 0), under(w, "down."))


def attended(x: ndarray, w: dict, own: dict, attention: Attention, length: int) -> ndarray:
    """The layer's attention, heads mixed: [T, D]."""
    T, D = x.shape
    qkv = linear(x, under(w, "qkv."))
    if "conv.taps_N1X" in w:  # of k, of k and v, or of q, k and v
        taps = w["conv.taps_N1X"]
        convolves_q = taps.shape[-1] == qkv.shape[1]
        first = 0 if convolves_q else D
        last = first + taps.shape[-1]
        qkv[:, first:last] = convolved(qkv[:, first:last], taps)
    q, k, *v = qkv.reshape(T, -1, HEADS, D // HEADS).swapaxes(0, 1)
    seen = Seen(x, q, k, v[0] if v else None, own, attention.number, length)
    if "qk_norm.0.weight" in w:
        seen.q = w["qk_norm.0.weight"] * seen.q / rms(seen.q)
        seen.k = w["qk_norm.1.weight"] * seen.k / rms(seen.k)
    sinks = w.get("sink_H")
    o = np.stack([output(seen, n, attention, sinks) for n in range(T)])  # [T, heads, K]
    if "gate.weight" in w:
        gate = sigmoid(linear(x, under(w, "gate.")))
        o = o * gate.reshape(T, o.shape[1], -1)
    return linear(o.reshape(T, -1), under(w, "out."))


def output(seen: Seen, n: int, attention: Attention, sinks: ndarray | None) -> ndarray:
    """Of each head: Σ softmax(scores) values over the keys that query n sees."""
    first = 0 if attention.window is None else max(0, n - attention.window + 1)
    outputs = []
    for h in range(HEADS):
        pairs = [attention.scheme(seen, h, n, i, **attention.settings) for i in range(first, n + 1)]
        heads = list(zip(*pairs, strict=True)) if isinstance(pairs[0], list) else [pairs]
        for head in heads:
            weights = [math.exp(score) for score, _ in head]
            whole = sum(weights) + (0 if sinks is None else math.exp(sinks[h]))
            terms = [a * value for a, (_, value) in zip(weights, head, strict=True)]
            outputs.append(sum(terms) / whole)
    return np.stack(outputs)


def under(w: dict[str, ndarray], prefix: str) -> dict[str, ndarray]:
    return {name.removeprefix(prefix): x for name, x in w.items() if name.startswith(prefix)}


def own_of(w: dict[str, ndarray], attention: Attention) -> dict[str, ndarray]:
    """A scheme's parameters of one layer: `gates.1.weight` of layer 1 is `gates.weight`."""
    own = {}
    for name, x in under(w, f"position.{attention.prefix}").items():
        words = name.split(".")
        if len(words) > 1 and words[1] == str(attention.number):
            own[".".join([words[0], *words[2:]])] = x
    return own


def linear(x: ndarray, w: dict) -> ndarray:
    return x @ w["weight"].T + w.get("bias", 0)


def layer_norm(x: ndarray, w: dict) -> ndarray:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * w["weight"] + w["bias"]


def rms(x: ndarray, epsilon: float = 0.0) -> ndarray:
    return np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def convolved(x: ndarray, taps: ndarray | None) -> ndarray:
    """Inkling's and Canon's: x plus the causal convolution of each feature, zeros before the text.
    The last tap is the token's own.
    """
    if taps is None:
        return x
    y = x.copy()
    for t in range(len(x)):
        for back in range(min(4, t + 1)):
            y[t] += taps[3 - back].reshape(-1) * x[t - back]
    return y


def smeared(e: ndarray, gate: ndarray, scale: float) -> ndarray:
    """The speedrun's: e_t + λ σ(w · e_t[:12]) e_{t−1}."""
    x = e.copy()
    for t in range(1, len(e)):
        x[t] += scale * sigmoid(gate @ e[t, :12]) * e[t - 1]
    return x


# Rotations


def frequencies(base: float, width: int) -> list[float]:
    return [base ** (-2 * j / width) for j in range(width // 2)]


def rotated(x: ndarray, angles: list[float], first: int = 0) -> ndarray:
    """Pairs of neighbouring features from `first` on, each rotated by its angle."""
    y = x.copy()
    for j, angle in enumerate(angles):
        one, two = first + 2 * j, first + 2 * j + 1
        y[one] = x[one] * math.cos(angle) - x[two] * math.sin(angle)
        y[two] = x[one] * math.sin(angle) + x[two] * math.cos(angle)
    return y


def by(n: float, theta: list[float]) -> list[float]:
    return [n * frequency for frequency in theta]


def scaled_dot(q: ndarray, k: ndarray) -> float:
    return q @ k / math.sqrt(len(q))


# Schemes, by name


def none(s: Seen, h: int, n: int, i: int):
    return scaled_dot(s.q[n, h], s.k[i, h]), s.v[i, h]


def rope(s: Seen, h: int, n: int, i: int, theta: list[float]):
    """RoPE by the frequencies `theta`, from the first features on; the others are not rotated."""
    q = rotated(s.q[n, h], by(n, theta))
    k = rotated(s.k[i, h], by(i, theta))
    return scaled_dot(q, k), s.v[i, h]


def temperature_tuning(s: Seen, h: int, n: int, i: int):
    """Llama 4's layers without RoPE: q (1 + 0.1 ln(1 + ⌊(n+1)/floor⌋)), floor a quarter of the
    training length (8,192 there).
    """
    floor = s.length // 4
    scale = 1 + 0.1 * math.log(1 + (n + 1) // floor)
    return scale * scaled_dot(s.q[n, h], s.k[i, h]), s.v[i, h]


def partial_key_offset(
    s: Seen,
    h: int,
    n: int,
    i: int,
    theta: list[float],
    values: bool = False,
    first: int | None = None,
):
    """Features of keys that are not rotated, from `first` on, are those of the token before; the
    first token keeps its own. `values` are rotated by their position and the output back, as RoPER
    does.
    """
    k = s.k[i, h].copy()
    moved = slice(len(k) // 2 if first is None else first, None)
    k[moved] = s.k[max(i - 1, 0), h, moved]
    q, k = rotated(s.q[n, h], by(n, theta)), rotated(k, by(i, theta))
    v = rotated(s.v[i, h], by(i - n, theta)) if values else s.v[i, h]
    return scaled_dot(q, k), v


def kv_shift(s: Seen, h: int, n: int, i: int, theta: list[float]):
    """k′ = α k_{t−1} + (1−α) k_t before RoPE, α = σ(w_h · x_t), zero before the text; v likewise
    with its own α.
    """
    of_k, of_v = s.own["gates.weight"].reshape(2, -1, s.x.shape[1])
    shifted = []
    for x, w in ((s.k, of_k), (s.v, of_v)):
        alpha = sigmoid(w[h] @ s.x[i])
        before = x[i - 1, h] if i else 0 * x[i, h]
        shifted.append(alpha * before + (1 - alpha) * x[i, h])
    q, k = rotated(s.q[n, h], by(n, theta)), rotated(shifted[0], by(i, theta))
    return scaled_dot(q, k), shifted[1]


def inkling(s: Seen, h: int, n: int, i: int):
    """q·k/√K + Σ_c r_c P[c, n−i], r = W_r x; the bias is 0 from the table's length on."""
    table = s.own["tables"]
    modes, extent = table.shape
    r = s.own["mixes.weight"].reshape(-1, modes, s.x.shape[1])[h] @ s.x[n]
    bias = r @ table[:, n - i] if n - i < extent else 0.0
    return scaled_dot(s.q[n, h], s.k[i, h]) + bias, s.v[i, h]


def alibi_slope(h: int, heads: int) -> float:
    """Press et al.: 2^(−8(h+1)/H) if H is a power of two; else those of the power below, then every
    second one of twice that.
    """
    power = 2 ** int(math.log2(heads))
    if h < power:
        return 2 ** (-8 * (h + 1) / power)
    return 2 ** (-8 * (2 * (h - power) + 1) / (2 * power))


def alibi(s: Seen, h: int, n: int, i: int):
    bias = -alibi_slope(h, HEADS) * (n - i)
    return scaled_dot(s.q[n, h], s.k[i, h]) + bias, s.v[i, h]


def grape_ap(s: Seen, h: int, n: int, i: int):
    """Σ_{i<ℓ≤n} m_h ln σ(p_n · R_ℓ p̄_ℓ / 8), p̄ = p / RMS(p); R_ℓ rotates four pairs, feature j
    with j + 4, by ℓ radians.
    """
    w = s.own["paths.weight"].reshape(-1, 8, s.x.shape[1])[h]
    bias = 0.0
    for step in range(i + 1, n + 1):
        p, other = w @ s.x[n], w @ s.x[step]
        other = other / rms(other)
        one, two = other[:4], other[4:]
        cos, sin = math.cos(step), math.sin(step)
        along = np.concatenate([one * cos - two * sin, one * sin + two * cos])
        bias += math.log(sigmoid(p @ along / 8))
    bias *= alibi_slope(h, HEADS)
    return scaled_dot(s.q[n, h], s.k[i, h]) + bias, s.v[i, h]


def wall(s: Seen, h: int, n: int, i: int):
    """Σ_c q_c k_c exp(Σ_{i<ℓ≤n} ln σ(W x_ℓ + b)_c) / √K."""
    K = s.q.shape[-1]
    mine = slice(h * K, (h + 1) * K)
    decay = np.ones(K)
    for step in range(i + 1, n + 1):
        gate = s.own["gates.weight"][mine] @ s.x[step] + s.own["gates.bias"][mine]
        decay = decay * sigmoid(gate)
    return scaled_dot(s.q[n, h] * decay, s.k[i, h]), s.v[i, h]


def repo(s: Seen, h: int, n: int, i: int, theta: list[float]):
    """RoPE at z = W_z(SiLU(W_g x) ∘ W_c x), one number for each token and head."""
    at = []
    for t in (n, i):
        g, c = s.own["gates.weight"] @ s.x[t], s.own["contents.weight"] @ s.x[t]
        at.append(s.own["positions.weight"][h] @ (g * sigmoid(g) * c))
    q, k = rotated(s.q[n, h], by(at[0], theta)), rotated(s.k[i, h], by(at[1], theta))
    return scaled_dot(q, k), s.v[i, h]


def random_rotations(s: Seen, h: int, n: int, i: int, steps: ndarray, values: bool = False):
    """Keys, and values if so set, are rotated by the sum of random steps between key and query."""
    angles = list(-sum(steps[i + 1 : n + 1], np.zeros(steps.shape[1])))
    v = rotated(s.v[i, h], angles) if values else s.v[i, h]
    return scaled_dot(s.q[n, h], rotated(s.k[i, h], angles)), v


def rope_pp(s: Seen, h: int, n: int, i: int, theta: list[float]):
    """RoPE, and beside it a head whose query is rotated by −π/2 more."""
    k = rotated(s.k[i, h], by(i, theta))
    real = rotated(s.q[n, h], by(n, theta))
    imaginary = rotated(s.q[n, h], [angle - math.pi / 2 for angle in by(n, theta)])
    return [(scaled_dot(q, k), s.v[i, h]) for q in (real, imaginary)]


def rope_double_heads(s: Seen, h: int, n: int, i: int, theta: list[float]):
    """RoPE with two queries for each head of keys and values, the second of a projection of its
    own.
    """
    K = s.q.shape[-1]
    mine = slice(h * K, (h + 1) * K)
    second = s.own["queries.weight"][mine] @ s.x[n] + s.own["queries.bias"][mine]
    k = rotated(s.k[i, h], by(i, theta))
    queries = [rotated(q, by(n, theta)) for q in (s.q[n, h], second)]
    return [(scaled_dot(q, k), s.v[i, h]) for q in queries]


def kv_shared_deepseek(s: Seen, h: int, n: int, i: int, theta: list[float]):
    """DeepSeek-V4: the value is the rotated key, the output is rotated back. RMS norms (ε 1e-6): q
    without gain, keys with one. The last features are rotated.
    """
    first = s.q.shape[-1] - 2 * len(theta)
    q = rotated(s.q[n, h] / rms(s.q[n, h], 1e-6), by(n, theta), first)
    key = s.own["gains"] * s.k[i, h] / rms(s.k[i, h], 1e-6)
    score = scaled_dot(q, rotated(key, by(i, theta), first))
    return score, rotated(key, by(i - n, theta), first)


def kv_shared_gemma(s: Seen, h: int, n: int, i: int, theta: list[float]):
    """Gemma 4: the value is the key's projection over its RMS (ε 1e-6), without gain or rotation; q
    and k have RMS norms with gains, then RoPE. Scores are not divided by √K.
    """
    of_q, of_k = s.own["gains"]
    v = s.k[i, h] / rms(s.k[i, h], 1e-6)
    q = rotated(of_q * s.q[n, h] / rms(s.q[n, h], 1e-6), by(n, theta))
    return q @ rotated(of_k * v, by(i, theta)), v
