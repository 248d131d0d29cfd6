"""Which span of a window a program works on, found on the device.

Spans differ in length and their lengths are known to the device alone, so every program gets a
number and looks its share up: tile 0, 1, ... of span 0, then those of span 1, ...
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.rows import Rows


@triton.jit
def share_of(SPANS, spans, number, TILE: tl.constexpr, CAPACITY: tl.constexpr):
    """(span, tile) of share `number`, a tile being TILE rows of one span.

    `span` is `spans` where the window has fewer shares. SPANS: int32 [spans, 5].
    """
    at = tl.arange(0, CAPACITY)
    rows = tl.load(SPANS + at * 5 + 2, mask=at < spans, other=0)
    tiles = (rows + TILE - 1) // TILE
    ends = tl.cumsum(tiles, 0)
    over = (ends <= number) & (at < spans)
    span = tl.sum(over.to(tl.int32), 0)
    return span, number - tl.sum(tl.where(over, tiles, 0), 0)


@triton.jit
def line_of(SPANS, span):
    """Slot and first row (int64), rows, first position and certain rows (at most all) of a span.

    One load: compilers put off four of five until they know that the span has rows. Past the
    cache of the first level, since a kernel may ask before it waits for the one before it.
    """
    at = tl.arange(0, 8)
    line = tl.load(SPANS + span * 5 + at, mask=at < 5, other=0, cache_modifier=".cg")
    slot = tl.sum(tl.where(at == 0, line, 0), 0).to(tl.int64)
    first = tl.sum(tl.where(at == 1, line, 0), 0).to(tl.int64)
    count = tl.sum(tl.where(at == 2, line, 0), 0)
    start = tl.sum(tl.where(at == 3, line, 0), 0)
    certain = tl.sum(tl.where(at == 4, line, 0), 0)
    return slot, first, count, start, tl.minimum(certain, count)


def shares(rows: Rows, count: int, tile: int) -> int:
    """At least as many shares as a window of `count` rows has."""
    return count // tile + rows.spans.shape[0]


def capacity(rows: Rows) -> int:
    """The power of two of spans that `share_of` looks at: few differ, since each is a kernel."""
    return max(32, 1 << (rows.spans.shape[0] - 1).bit_length())
