"""The position schemes, a module per kind; the names of their classes are stable here.

`rotary` has RoPE and RoPER: start there. `hooks.PositionScheme` explains the hooks; alone it is no
position at all. A file of your own imports `from rope_lab.model.schemes import Rotary`.
"""

from rope_lab.model.hooks import Dims, PositionScheme
from rope_lab.model.schemes.added import Learned, Sinusoidal, SinusoidalProduct
from rope_lab.model.schemes.biases import Alibi, Fire, KerpleLog, T5Bias
from rope_lab.model.schemes.content import CoPE, FoX, PaTH, SelectiveRoPE
from rope_lab.model.schemes.content_biases import GrapeA, GrapeAP, RelativeBias, Wall
from rope_lab.model.schemes.coordinates import (
    AxialRope,
    GoldenGateRope,
    LearnedAxis,
    MRope,
    OnAxis,
    RopeMixed,
)
from rope_lab.model.schemes.layers import Layers, RNoPE, TemperatureTuning
from rope_lab.model.schemes.longer import Remapped
from rope_lab.model.schemes.phases import RandomRotations, RePo, RoPEPlusPlus
from rope_lab.model.schemes.previous import KVShift, PartialKeyOffset
from rope_lab.model.schemes.random_positions import Randomized
from rope_lab.model.schemes.rotary import Rotary
from rope_lab.model.schemes.rotary_variants import (
    CayleyString,
    HeadBases,
    LeRoPE,
    PoPE,
    PRope,
    SSMax,
    XPos,
)
from rope_lab.model.schemes.shared_values import SharedKV, SharedKVDeepSeek, SharedKVGemma

__all__ = [
    "Alibi",
    "AxialRope",
    "CayleyString",
    "CoPE",
    "Dims",
    "Fire",
    "FoX",
    "GoldenGateRope",
    "GrapeA",
    "GrapeAP",
    "HeadBases",
    "KVShift",
    "KerpleLog",
    "Layers",
    "LeRoPE",
    "Learned",
    "LearnedAxis",
    "MRope",
    "OnAxis",
    "PRope",
    "PaTH",
    "PartialKeyOffset",
    "PoPE",
    "PositionScheme",
    "RNoPE",
    "RandomRotations",
    "Randomized",
    "RePo",
    "RelativeBias",
    "Remapped",
    "RoPEPlusPlus",
    "RopeMixed",
    "Rotary",
    "SSMax",
    "SelectiveRoPE",
    "SharedKV",
    "SharedKVDeepSeek",
    "SharedKVGemma",
    "Sinusoidal",
    "SinusoidalProduct",
    "T5Bias",
    "TemperatureTuning",
    "Wall",
    "XPos",
]
