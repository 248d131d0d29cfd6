"""Numbers of rows that lie in a warp as coalesced loads have them, quantised without leaving it.

What `inputs.py` stores, a warp that multiplies has in registers here. Only with PTX.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack
from engine.kernels.inputs import _ROUNDS


@triton.constexpr_function
def _across_text(distance):
    return f"shfl.sync.bfly.b32 $0, $1, {distance}, 0x1f, 0xffffffff;"


@triton.jit
def across(word, DISTANCE: tl.constexpr):
    """The number of the thread whose lane differs by one bit."""
    return tl.inline_asm_elementwise(
        _across_text(DISTANCE), "=r,r", [word], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def floats(p, lane, OFFSET: tl.constexpr):
    """Four floats at p + OFFSET."""
    found = unpack.words(p.to(tl.pointer_type(tl.int32)), lane, OFFSET, 4, False, True)
    out = ()
    for i in tl.static_range(4):
        out = out + (found[i].to(tl.float32, bitcast=True),)
    return out


@triton.jit
def _word(a):
    """The lowest bytes of four words."""
    return (a[0] & 255) | ((a[1] & 255) << 8) | ((a[2] & 255) << 16) | (a[3] << 24)


@triton.jit
def _largest(size, DISTANCES: tl.constexpr):
    """The largest of a group's numbers, which lie in as many threads as DISTANCES, a power of 2."""
    for i in tl.static_range(5):
        if 1 << i < DISTANCES:
            size = tl.maximum(size, across(size, 1 << i))
    return size


@triton.jit
def _scale(size):
    """The scale of a group from the bits of its largest size, whether it is one, and a divisor."""
    s = tl.div_rn(size.to(tl.float32, bitcast=True), tl.full(size.shape, 127.0, tl.float32))
    fine = (s > 0.0) & (s < float("inf"))
    return s, fine, tl.where(fine, s, 1.0)


@triton.jit
def _limbs(y, by, fine):
    """Both limbs, as `inputs.integers` makes them: the lowest bytes of words."""
    exact = tl.div_rn(y, by)
    v = (exact + _ROUNDS) - _ROUNDS
    v = tl.minimum(tl.maximum(v, -127.0), 127.0)
    left = ((exact - v) * 256.0 + _ROUNDS) - _ROUNDS
    left = tl.minimum(tl.maximum(left, -128.0), 127.0)
    # A number stands in the lowest bits of its sum with _ROUNDS.
    high = (tl.where(fine, v, 0.0) + _ROUNDS).to(tl.int32, bitcast=True)
    low = (tl.where(fine, left, 0.0) + _ROUNDS).to(tl.int32, bitcast=True)
    return high, low


@triton.jit
def groups_of_warp(y, lane):
    """Four groups of a warp, four numbers a thread, quantised: what the thread gives to tensor
    cores (the halves of a group in one limb), and the bits of its own group's scale."""
    size = y[0].to(tl.int32, bitcast=True) & 0x7FFFFFFF
    for e in tl.static_range(1, 4):
        size = tl.maximum(size, y[e].to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    s, fine, by = _scale(_largest(size, 8))
    upper = ()
    lower = ()
    for e in tl.static_range(4):
        both = _limbs(y[e], by, fine)
        upper = upper + (both[0],)
        lower = lower + (both[1],)
    high = _word(upper)
    low = _word(lower)
    # Of two threads the first has both halves' upper limbs then, the other their lower ones.
    second = lane // 4 % 2 == 1
    other = across(tl.where(second, high, low), 4)
    b0 = tl.where(second, other, high)
    b1 = tl.where(second, low, other)
    return b0, b1, s.to(tl.int32, bitcast=True)


@triton.jit
def pairs_of_warp(y0, y1, lane):
    """Two groups of a warp, two numbers a thread, quantised: of two threads the first has the upper
    limbs of their four numbers, the other the lower ones; and the bits of the group's scale."""
    size = tl.maximum(y0.to(tl.int32, bitcast=True) & 0x7FFFFFFF,
                      y1.to(tl.int32, bitcast=True) & 0x7FFFFFFF)  # fmt: skip
    s, fine, by = _scale(_largest(size, 16))
    high0, low0 = _limbs(y0, by, fine)
    high1, low1 = _limbs(y1, by, fine)
    own = _word((high0, high1, low0, low1))
    other = across(own, 1)
    high = (own & 0xFFFF) | (other << 16)
    low = ((other >> 16) & 0xFFFF) | (own & -0x10000)
    return tl.where(lane % 2 == 1, low, high), s.to(tl.int32, bitcast=True)
