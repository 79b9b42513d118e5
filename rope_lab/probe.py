"""Measure how a trained run uses its positions: `rope-lab probe FOLDER [PROBE…]`.

Evaluates the run as it is, and with one thing changed at a time. PROBE is one of
  shift=N         all positions are N further on
  window=N        attention sees the last N tokens only, itself among them
  ablate=PARTS    PARTS (of q, k, v and o, the output) are not rotated:
                  ablate=v, ablate=vo
  ablate=PARTS:P  the same for pair P of each head's features alone, or for
                  pairs P-P: ablate=qk:0, ablate=vo:4-7 (under PoPE features
                  of q and k instead, each with a frequency of its own)
Teacher-forced, on the run's own held-out text and problems. The table is printed. Without a PROBE,
all that apply to the scheme are run, and the table, a figure and attention weights are written
beside the run; `rope-lab report` shows them. Given such .json files instead of a folder, it remakes
their tables and figures; of several, one figure that compares them.
"""

import copy
import math
import re
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from rope_lab import command  # first: from here on Ctrl-C is quiet

# isort: split
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from rope_lab.model.attention import Heads, unpacked
from rope_lab.model.hooks import PositionScheme, TooLong, Wrapper
from rope_lab.model.schemes import Randomized
from rope_lab.model.transformer import Transformer
from rope_lab.results.records.folders import origin
from rope_lab.results.views.probes import AttentionWeights, Measurement, rebuild, table, write
from rope_lab.results.views.tables import markdown
from rope_lab.text import ConfigError, argument_parser, errors_as_exit, say
from rope_lab.train import config, data
from rope_lab.train.evaluate import exact_matches, text_losses
from rope_lab.train.instantiate import config_errors
from rope_lab.train.load import add_allow, load_run
from rope_lab.train.provenance import provenance
from rope_lab.train.trainer import Diverged, as_evaluated

NUMBER = "[0-9]{1,9}"
PROBE = re.compile(
    f"shift=(?P<shift>{NUMBER})|window=(?P<window>{NUMBER})"
    f"|ablate=(?P<parts>[qkvo]+)(?::(?P<first>{NUMBER})(?:-(?P<last>{NUMBER}))?)?"
)
TEXTS = 16  # held-out texts of which attention is recorded
CELLS = 32  # most cells along a side of its maps
BANDS = 8  # a head with more pairs is probed in so many bands of neighbouring pairs


class Shifted(Wrapper):
    """A scheme whose positions are `by` further on."""

    def __init__(self, scheme: PositionScheme, by: int):
        super().__init__(scheme)
        self.by = by

    def draw(self, seed: int, length: int) -> None:
        self.scheme.draw(seed, length + self.by)

    def prepare(self, pos: Tensor, dtype: torch.dtype) -> Any:
        return self.scheme.prepare(pos + self.by, dtype)


class Windowed(Wrapper):
    """A scheme under which every layer sees the last `window` tokens only."""

    def __init__(self, scheme: PositionScheme, window: int):
        super().__init__(scheme)
        self.window = window

    def in_layer(self, number: int) -> PositionScheme:
        layer = copy.copy(self.scheme.in_layer(number))
        layer.window = min(self.window, layer.window or self.window)
        return layer


class Watched(Wrapper):
    """A scheme that keeps the attention weights of each layer in `weights`, [B, H, T, S]."""

    def __init__(self, scheme: PositionScheme):
        super().__init__(scheme)
        self.weights: list[Tensor] = []

    def in_layer(self, number: int) -> PositionScheme:
        trained = self.scheme.in_layer(number)
        layer = copy.copy(trained)

        def attention(heads: Heads, at: Any, bias: Tensor | None, cache: None) -> Tensor:
            self.weights.append(attention_weights(trained, heads, at, bias))
            return trained.attention(heads, at, bias, cache)

        layer.attention = attention
        return layer


def attention_weights(scheme: PositionScheme, heads: Heads, at: Any, bias: Tensor | None) -> Tensor:
    """A layer's attention weights, [B, H, T, S]: its outputs for one-hot values, K tokens at a
    time.
    """
    q, k, v_BTHK = unpacked(heads)
    _, T, H, K = v_BTHK.shape
    one_hot = torch.eye(T, T + K, dtype=v_BTHK.dtype, device=v_BTHK.device)
    parts = []
    for begin in range(0, T, K):
        v_BTHK = one_hot[:, None, begin : begin + K].expand(*q.shape[:2], H, K)
        parts.append(scheme.attention((q, k, v_BTHK), at, bias, None).float())
    return torch.cat(parts, dim=-1)[..., :T].transpose(1, 2)


def changed(probe: str, model: Transformer) -> tuple[PositionScheme, tuple[float, float] | None]:
    """A copy of the model's scheme, changed as `probe` says, and the shortest and longest
    wavelength of named pairs.

    Raises ConfigError if the model has no such part.
    """
    scheme, match = copy.deepcopy(model.position), PROBE.fullmatch(probe)
    if not match or match["window"] == "0":
        form = "shift=N or window=N with N below 10⁹, ablate=PARTS or ablate=PARTS:PAIRS"
        raise ConfigError(f"{probe}: must be {form} (ablate=vo:4-7)")
    if match["shift"]:
        return shifted(scheme, int(match["shift"])), None
    if match["window"]:
        if model.layers[0].attention.linear:
            raise ConfigError(f"{probe}: linear attention has no scores that could be masked")
        return Windowed(scheme, int(match["window"])), None
    wavelengths = ablate(probe, scheme, match)
    return scheme, wavelengths if match["first"] else None


def shifted(scheme: PositionScheme, by: int) -> PositionScheme:
    """The scheme with positions `by` further on; random positions after they were drawn."""
    if not isinstance(scheme, Randomized):
        return Shifted(scheme, by)
    scheme.scheme = Shifted(scheme.scheme, by)
    return scheme


def ablate(probe: str, scheme: PositionScheme, match: re.Match) -> tuple[float, float]:
    """Stop the rotations of a scheme that a probe names; their shortest and longest wavelength.

    Raises ConfigError if the scheme does not have them.
    """
    rotating = scheme.scheme if isinstance(scheme, Randomized) else scheme
    parts, theta = match["parts"], rotated_frequencies(rotating)
    if not set(parts) <= theta.keys():
        has = f"rotates only {', '.join(theta)}" if theta else "rotates nothing"
        raise ConfigError(f"{probe}: {type(rotating).__name__} has no such part, it {has}")
    rotated, first = max(len(theta[part]) for part in parts), int(match["first"] or 0)
    pairs = slice(first, int(match["last"] or match["first"] or rotated - 1) + 1)
    if not pairs.start < pairs.stop <= rotated:
        raise ConfigError(
            f"{probe}: the pairs of a head that are rotated in {parts} are 0-{rotated - 1}"
        )
    for part in parts:
        rotating.theta[part][rotating.theta[part].nonzero().flatten()[pairs]] = 0
    ablated = torch.cat([theta[part][pairs] for part in parts])
    return 2 * math.pi / ablated.max().item(), 2 * math.pi / ablated.min().item()


def rotated_frequencies(scheme: PositionScheme) -> dict[str, Tensor]:
    """For each of q, k, v and o (the output) that a scheme rotates, |θ| of a head's rotated pairs,
    in order.
    """
    theta = getattr(scheme.scheme if isinstance(scheme, Randomized) else scheme, "theta", None)
    if not isinstance(theta, dict):  # a scheme of one's own may mean something else by it
        return {}
    return {part: theta_C[theta_C != 0].abs() for part, theta_C in theta.items() if theta_C.any()}


def all_probes(model: Transformer, seq_len: int) -> list[str]:
    """Every probe that the model has a part for, at a few sizes."""
    probes = [f"shift={n}" for n in (1, 10, 100, 1000)]
    if not model.layers[0].attention.linear:
        probes += [f"window={2**n}" for n in range(1, seq_len.bit_length()) if 2**n < seq_len]
    theta = rotated_frequencies(model.position)
    scores = "".join(part for part in "qk" if part in theta)
    values = "".join(part for part in "vo" if part in theta)
    probes += [f"ablate={parts}" for parts in dict.fromkeys([scores, *values, values]) if parts]
    for parts in filter(None, (scores, values)):
        rotated = max(len(theta[part]) for part in parts)
        bands = min(BANDS, rotated)
        edges = [round(band * rotated / bands) for band in range(bands + 1)]
        for begin, end in pairwise(edges):
            last = f"-{end - 1}" if end - begin > 1 else ""
            probes.append(f"ablate={parts}:{begin}{last}")
    return probes


def evaluated(probe: str, model: Transformer, cfg: config.Config, text, problems) -> Measurement:
    """The run's held-out loss and accuracy under a probe; unchanged if `probe` is empty."""
    trained, wavelengths = model.position, None
    try:
        if probe:
            model.position, wavelengths = changed(probe, model)
        with as_evaluated(model, cfg):
            nats_N, _, _ = text_losses(model, text)
            right = exact_matches(model, problems)
    except TooLong as error:
        return Measurement(probe, cannot=str(error))
    finally:
        model.position = trained
    accuracy = sum(right) / len(right) if right else None
    return Measurement(probe, nats_N.mean().item(), accuracy, wavelengths=wavelengths)


def attention(
    model: Transformer, cfg: config.Config, text: data.HeldOutText
) -> AttentionWeights | None:
    """The run's attention on a few held-out texts; None of linear attention, which has no
    weights.
    """
    model.position = watched = Watched(model.position)
    with as_evaluated(model, cfg):
        model(text.inputs_BT[:TEXTS])
    model.position = watched.scheme
    if not watched.weights:
        return None
    T = text.inputs_BT.shape[1]
    every = math.ceil(T / CELLS)  # an incomplete last cell is left out
    by_distance, maps = [], []
    for weights_BHTS in watched.weights:
        mean_DH = torch.stack([weights_BHTS.diagonal(-d, 2, 3).mean((0, 2)) for d in range(T)])
        by_distance.append(mean_DH.T.double().cpu().round(decimals=4).tolist())
        cells_HTS = F.avg_pool2d(weights_BHTS[0], every, divisor_override=every)
        maps.append(cells_HTS.double().cpu().round(decimals=4).tolist())
    return AttentionWeights(by_distance, maps, every)


def report(
    cfg: config.Config,
    content: dict[str, Any],
    outcomes: list[Measurement],
    seen: AttentionWeights | None,
) -> dict:
    """The outcomes and attention with the ids of the run (`content`: its run.json) and the origin
    of run and probe.
    """
    about = {
        key: content[key]
        for key in ("task", "position", "scale", "seed", "run_id", "recipe_id", "status")
    }
    about |= {"steps": content["progress"]["steps"], "run": origin(content["provenance"])}
    now = origin(provenance(cfg, torch.device("cpu"), None))
    about |= {"probe": now, "outcomes": [asdict(o) for o in outcomes]}
    return about | ({"attention": asdict(seen)} if seen else {})


def main(arguments: list[str] | None = None) -> None:
    parser = argument_parser("probe", __doc__)
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a run's folder, or .json files written before"
    )
    parser.add_argument("probes", nargs="*", metavar="PROBE")
    add_allow(parser)
    given = parser.parse_intermixed_args(arguments)
    with errors_as_exit(Diverged):
        if given.folder.suffix == ".json":
            rebuild([given.folder, *map(Path, given.probes)])
            return
        cfg, task, model, content = load_run(given.folder, given.allow)
        probes = given.probes or all_probes(model, cfg.train.seq_len)
        for probe in probes:
            changed(probe, model)
        with config_errors():
            text = data.evaluation_text(task, cfg.eval.sequences, cfg.train.seq_len)
            n = cfg.eval.problems_at_end or cfg.eval.problems
            problems = data.evaluation_problems(task, n) if task.grades else []
        each = tqdm(["", *probes], unit="probe", leave=False, disable=None)
        outcomes = [evaluated(probe, model, cfg, text, problems) for probe in each]
        say(markdown(table(outcomes)))
        if not given.probes:  # a few must not replace all
            found = report(cfg, content, outcomes, attention(model, cfg, text))
            say(f"written: {', '.join(map(str, write(found, given.folder / 'probes')))}")


if __name__ == "__main__":
    command.begin()
    main()
