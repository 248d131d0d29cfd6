"""One weight of a stored block, by the block's type: what reading a row of a table is made of.

Every function takes pointers to the first byte of a weight's block, `i`, its number in the block,
and where there is one; and gives its scale, its integer, and what is to be subtracted, as float32:
scale * integer - subtracted are the bits of `engine/gguf/dequantize.py`. Bit layouts are those of
ggml. Bytes are read one by one: blocks lie at any address.
"""

# mypy: disable-error-code="assignment,no-any-return"

from __future__ import annotations

import triton
import triton.language as tl

# The 16 signed bytes of IQ4_NL, the lowest code in the lowest byte, as two words.
IQ4_LOW = tl.constexpr(-654466911485192063)
IQ4_HIGH = tl.constexpr(8167635493787864321)


@triton.jit
def byte(p, live):
    return tl.load(p, mask=live, other=0).to(tl.int32)


@triton.jit
def half(p, live):
    """The fp16 number at p."""
    bits = byte(p, live) | byte(p + 1, live) << 8
    return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def signed(bits):
    """A byte's signed value."""
    return bits - ((bits & 128) << 1)


@triton.jit
def iq4(code):
    """The value of a code of IQ4_NL and IQ4_XS."""
    low = tl.full(code.shape, IQ4_LOW, tl.int64)
    word = tl.where(code < 8, low, IQ4_HIGH)
    return (word >> (code % 8 * 8)).to(tl.int8).to(tl.int32)


@triton.jit
def short_block(p, i, live, KIND: tl.constexpr):
    """Types of 32 or 64 elements."""
    scale = half(p, live)
    less = tl.zeros(i.shape, tl.float32)
    if KIND == "Q8_0":
        code = signed(byte(p + 2 + i, live))
    elif KIND == "Q2_0":
        code = (byte(p + 2 + i // 4, live) >> (i % 4 * 2) & 3) - 1
    elif KIND == "Q5_1":
        code = byte(p + 8 + i % 16, live) >> (i // 16 * 4) & 15
        code = code | (byte(p + 4 + i // 8, live) >> (i % 8) & 1) << 4
        less = -half(p + 2, live)
    else:
        code = byte(p + 2 + i % 16, live) >> (i // 16 * 4) & 15
        code = code - 8 if KIND == "Q4_0" else iq4(code)
    return scale, code, less


@triton.jit
def six_bits(p, j, live):
    """Multipliers number j of scales and minima in the 12 bytes of Q4_K and Q5_K."""
    first, second = byte(p + j % 4, live), byte(p + 4 + j % 4, live)
    last = byte(p + 8 + j % 4, live)
    early = j < 4
    scale = tl.where(early, first & 63, (last & 15) | (first >> 6 << 4))
    minimum = tl.where(early, second & 63, (last >> 4) | (second >> 6 << 4))
    return scale, minimum


@triton.jit
def long_block(p, i, live, GRID, KIND: tl.constexpr):
    """Types of 256 elements. GRID: int32 [512], four codes of IQ3_S in each."""
    less = tl.zeros(i.shape, tl.float32)
    # Of 128 elements those of one shift lie together, 32 or 64.
    whole, part = i // 128, i % 128
    if KIND == "Q4_K" or KIND == "Q5_K":
        by, minimum = six_bits(p + 4, i // 32, live)
        at = 48 if KIND == "Q5_K" else 16
        code = byte(p + at + i // 64 * 32 + i % 32, live) >> (i // 32 % 2 * 4) & 15
        if KIND == "Q5_K":
            code = code | (byte(p + 16 + i % 32, live) >> (i // 32) & 1) << 4
        scale = half(p, live)
        less = half(p + 2, live) * minimum.to(tl.float32)
    elif KIND == "Q6_K":
        code = byte(p + whole * 64 + part % 64, live) >> (part // 64 * 4) & 15
        high = byte(p + 128 + whole * 32 + part % 32, live) >> (part // 32 * 2) & 3
        code = (code | high << 4) - 32
        by = signed(byte(p + 192 + i // 16, live))
        scale = half(p + 208, live)
    elif KIND == "Q3_K":
        code = byte(p + 32 + whole * 32 + part % 32, live) >> (part // 32 * 2) & 3
        code = (code | (byte(p + i % 32, live) >> (i // 32) & 1) << 2) - 4
        j = i // 16
        by = byte(p + 96 + j % 8, live) >> (j // 8 * 4) & 15
        by = (by | (byte(p + 104 + j % 4, live) >> (j // 4 * 2) & 3) << 4) - 32
        scale = half(p + 108, live)
    elif KIND == "IQ4_XS":
        j = i // 32
        code = iq4(byte(p + 8 + j * 16 + i % 16, live) >> (i // 16 % 2 * 4) & 15)
        by = byte(p + 4 + j // 2, live) >> (j % 2 * 4) & 15
        by = (by | (byte(p + 2 + j // 4, live) >> (j % 4 * 2) & 3) << 4) - 32
        scale = half(p, live)
    else:  # IQ3_S
        entry = byte(p + 2 + i // 4, live) | (byte(p + 66 + i // 32, live) >> (i // 4 % 8) & 1) << 8
        code = tl.load(GRID + entry, mask=live, other=0) >> (i % 4 * 8) & 255
        code = tl.where((byte(p + 74 + i // 8, live) >> (i % 8) & 1) > 0, -code, code)
        by = 2 * (byte(p + 106 + i // 64, live) >> (i // 32 % 2 * 4) & 15) + 1
        scale = half(p, live)
    return scale * by.to(tl.float32), code, less
