"""Rings by position, and windows whose rows read what earlier rows of the window bring.

Programs run in any order, so a kernel that reads takes an earlier row from the window itself where
it is there, and from the ring, as it was before the window, where not; another launch then writes
the ring, of rows that fall on one place only the last.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def is_in_window(SLOTS, POSITIONS, row, back: tl.constexpr):
    """1 if the row `back` rows before is that of the same slot `back` positions before, else 0."""
    at = tl.maximum(row - back, 0)
    same_slot = tl.load(SLOTS + at) == tl.load(SLOTS + row)
    same_text = tl.load(POSITIONS + at) + back == tl.load(POSITIONS + row)
    return (row >= back).to(tl.int32) * same_slot.to(tl.int32) * same_text.to(tl.int32)


@triton.jit
def is_overwritten(SLOTS, POSITIONS, row, rows, length):
    """1 if a later row of the window falls on this row's place in a ring of `length`, else 0."""
    at = tl.minimum(row + length, rows - 1)
    same_slot = tl.load(SLOTS + at) == tl.load(SLOTS + row)
    same_text = tl.load(POSITIONS + at) == tl.load(POSITIONS + row) + length
    return (row + length < rows).to(tl.int32) * same_slot.to(tl.int32) * same_text.to(tl.int32)
