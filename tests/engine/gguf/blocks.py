"""Random blocks of a quantised type with finite scales."""

from __future__ import annotations

import numpy as np

from engine.gguf.types import QuantType

# Byte offsets of the fp16 scales and minima of each type's block.
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ1_S": (0,),
    "IQ1_M": (),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "MXFP4": (),
    "NVFP4": (),
}


def random_blocks(
    kind: QuantType, rows: tuple[int, ...], blocks: int, random: np.random.Generator
) -> np.ndarray:
    """uint8 [*rows, blocks * block_bytes]: every bit random, scales any finite fp16 number."""
    raw = random.integers(0, 256, (*rows, blocks, kind.block_bytes), np.uint8)
    for at in HALVES[kind.name]:
        # 0x7c00 is the exponent of infinities and NaNs.
        high = raw[..., at + 1]
        high[(high & 0x7C) == 0x7C] ^= 0x04
    if kind.name == "IQ1_M":
        # The scale's top four bits are those of the last word, three of the five exponent bits.
        high = raw[..., 55]
        high[(high & 0x70) == 0x70] ^= 0x10
    if kind.name == "MXFP4":
        # Exponents up to 250, so that the largest code stays finite.
        raw[..., 0] = np.minimum(raw[..., 0], 250)
    return raw.reshape(*rows, -1)
