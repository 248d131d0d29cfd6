"""The order of float sums on a device: see `engine/reference/lanes.py`.

Every addition is written. Pairs that lie in different threads are added by `tl.sum` over an axis of
two, which has one order: a shuffle, where `tl.split` would move both through shared memory.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tree(lanes, M: tl.constexpr):
    """Adds adjacent pairs of the last axis until one is left: float32 [..., 32], M * 32 numbers in
    all, -> [M]."""
    a = lanes
    for i in tl.static_range(5):
        a = tl.sum(tl.reshape(a, [M, 16 >> i, 2]), axis=2)
    return tl.reshape(a, [M])


@triton.jit
def trees(lanes, M: tl.constexpr, LEVELS: tl.constexpr):
    """`tree` of each of 2**LEVELS tensors float32 [M, 32]: [M, 2**LEVELS].

    When a pair of threads has added its numbers, each goes on with one of two tensors: the results
    end in different threads, and shuffles are fewer.
    """
    todo = ()
    for j in tl.static_range(1 << LEVELS):
        a = lanes[j]
        for i in tl.static_range(5 - LEVELS):
            a = tl.sum(tl.reshape(a, [M, 16 >> i, 2]), axis=2)
        todo = todo + (tl.reshape(a, [M, 1 << LEVELS, 1]),)
    second = (tl.arange(0, 2) == 1)[None, None, :, None]
    # Before level s there are 2**(LEVELS - s) tensors [M, 2**(LEVELS - s), 2**s]: numbers to add,
    # and the lower bits of the index of the tensor that they belong to.
    for s in tl.static_range(LEVELS):
        done = ()
        for j in tl.static_range((1 << LEVELS) >> (s + 1)):
            a = tl.reshape(todo[2 * j], [M, (1 << LEVELS) >> (s + 1), 2, 1 << s])
            b = tl.reshape(todo[2 * j + 1], [M, (1 << LEVELS) >> (s + 1), 2, 1 << s])
            a = tl.sum(a, axis=2)[:, :, None, :]
            b = tl.sum(b, axis=2)[:, :, None, :]
            c = tl.where(second, b, a)
            done = done + (tl.reshape(c, [M, (1 << LEVELS) >> (s + 1), 2 << s]),)
        todo = done
    return tl.reshape(todo[0], [M, 1 << LEVELS])


@triton.jit
def apart(a, M: tl.constexpr, LEVELS: tl.constexpr):
    """The 2**LEVELS columns of [M, 2**LEVELS], a tuple of [M]; column c stands at the number whose
    LEVELS bits are those of c, lowest first."""
    parts = (a,)
    for level in tl.static_range(LEVELS):
        halves = ()
        for j in tl.static_range(1 << level):
            even, odd = tl.split(tl.reshape(parts[j], [M, (1 << LEVELS) >> (level + 1), 2]))
            halves = halves + (even, odd)
        parts = halves
    return parts


@triton.jit
def add_in_order(total, a, M: tl.constexpr, LEVELS: tl.constexpr):
    """total + a[0] + a[1] + ..., one after the other. total: [M], a: [2**LEVELS, M]."""
    if LEVELS == 0:
        total = total + tl.reshape(a, [M])
    else:
        parts = apart(tl.trans(a), M, LEVELS)
        for c in tl.static_range(1 << LEVELS):
            # the bits of c in reverse
            total = total + tl.reshape(
                parts[
                    ((c & 1) << 4 | (c & 2) << 2 | (c & 4) | (c & 8) >> 2 | (c & 16) >> 4)
                    >> (5 - LEVELS)
                ],
                [M],
            )
    return total


@triton.jit
def everywhere(a, at, M: tl.constexpr, T: tl.constexpr):
    """The numbers of float32 or int32 [N] whose places stand in int32 [M, T], a tuple of M tensors
    [T].

    All move at once; of [M * T] numbers a thread has one of each T, so they are taken apart within
    threads: a sum of one number and zeros, as integers, is that number.
    """
    bits = tl.reshape(tl.gather(a.to(tl.int32, bitcast=True), tl.reshape(at, [M * T]), 0), [M, T])
    number = tl.arange(0, M)[:, None]
    found = ()
    for c in tl.static_range(M):
        own = tl.sum(tl.where(number == c, bits, 0), axis=0)
        found = found + (own.to(a.dtype, bitcast=True),)
    return found


@triton.jit
def stacked(parts, M: tl.constexpr, T: tl.constexpr):
    """M tensors [T], M a power of 2, as one [M * T]: nothing moves between threads."""
    number = tl.arange(0, M)[:, None]
    whole = tl.broadcast_to(parts[0][None, :], [M, T])
    for c in tl.static_range(1, M):
        whole = tl.where(number == c, parts[c][None, :], whole)
    return tl.reshape(whole, [M * T])
