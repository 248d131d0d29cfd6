"""Products of a few float32 vectors with stored ones, as lanes: the dot of `lanes.py`.

A tile is M vectors, 32 values of each at a time: [M, 32] with M = 4 * warps, so that a thread has
four neighbouring lanes of one vector and eight threads have all of them (a test reads from the
compiled code that they do lie so). Every value is loaded once, and the tree's last three levels are
exchanges between those threads; elsewhere than on NVIDIA the compiler moves the lanes.

A product that starts a lane is not added to 0 first: that could only turn a -0 into a +0, which
changes no score that a maximum, an exp or a comparison with 0 reads.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine.kernels.lanes import tree

# A value of the thread whose number differs in one bit.
SHUFFLES = tl.constexpr(
    tuple(f"shfl.sync.bfly.b32 $0, $1, {bit}, 0x1f, 0xffffffff;" for bit in (1, 2, 4))
)


def shuffles(tensor: torch.Tensor) -> bool:
    """Whether kernels may exchange values between threads by PTX: NVIDIA, not the interpreter."""
    return tensor.is_cuda and torch.version.hip is None


@triton.jit
def zeros(P: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """P tensors of zeros, [M, N]."""
    made = ()
    for _ in tl.static_range(P):
        made = made + (tl.zeros([M, N], tl.float32),)
    return made


@triton.jit
def add(left, right, P: tl.constexpr):
    """Sums of two tuples of P tensors, one by one."""
    total = ()
    for head in tl.static_range(P):
        total = total + (left[head] + right[head],)
    return total


@triton.jit
def lanes_at(AT, live, K: tl.constexpr, M: tl.constexpr):
    """The K values behind each pointer AT, [M, 1]: a tuple of [M, 32], zeros from K on and where
    not `live`, [M, 1] (None: all are)."""
    lane = tl.arange(0, 32)[None, :] + tl.arange(0, M)[:, None] * 0
    parts = ()
    for step in tl.static_range((K + 31) // 32):
        if live is None and step * 32 + 32 <= K:
            parts = parts + (tl.load(AT + (step * 32 + lane)),)
        elif live is None:
            parts = parts + (tl.load(AT + (step * 32 + lane), mask=step * 32 + lane < K, other=0),)
        else:
            inside = (step * 32 + lane < K) & live
            parts = parts + (tl.load(AT + (step * 32 + lane), mask=inside, other=0),)
    return parts


@triton.jit
def scales_at(SCALES, vector, K: tl.constexpr, CODED: tl.constexpr):
    """The scales of stored vectors [M]: a tuple of [M, 1]."""
    scales = ()
    if CODED:
        GROUPS: tl.constexpr = (K + 63) // 64
        for group in tl.static_range(GROUPS):
            scales = scales + (tl.load(SCALES + vector[:, None] * GROUPS + group),)
    return scales


@triton.jit
def decoded(parts, scales, K: tl.constexpr, CODED: tl.constexpr):
    """Stored values as float32: what `lanes_at` and `scales_at` gave of them."""
    values = ()
    for step in tl.static_range((K + 31) // 32):
        value = parts[step].to(tl.float32)
        if CODED:
            value = value * scales[step // 2].to(tl.float32)
        values = values + (value,)
    return values


@triton.jit
def products(a, b, FIRST: tl.constexpr, K: tl.constexpr, M: tl.constexpr, SHUFFLE: tl.constexpr):
    """The products of vectors a, a tuple of [M, 32], with those that start at b[FIRST], as far as a
    thread adds them alone: for each segment of 512 a tensor, for `finished`."""
    parts = ()
    for segment in tl.static_range((K + 511) // 512):
        lanes = a[segment * 16] * b[FIRST + segment * 16]
        for step in tl.static_range(segment * 16 + 1, segment * 16 + 16):
            if step * 32 < K:
                lanes = lanes + a[step] * b[FIRST + step]
        if SHUFFLE:
            left, right = tl.split(tl.reshape(lanes, [M, 16, 2]))
            left, right = tl.split(tl.reshape(left + right, [M, 8, 2]))
            lanes = left + right
        parts = parts + (lanes,)
    return parts


@triton.jit
def exchanged(parts, LEVEL: tl.constexpr, P: tl.constexpr):
    """What the neighbours at a level of the tree have, for each of P tensors [M, 8]."""
    others = ()
    for i in tl.static_range(P):
        other = tl.inline_asm_elementwise(
            SHUFFLES[LEVEL], "=f,f", [parts[i]], dtype=tl.float32, is_pure=False, pack=1
        )
        others = others + (other,)
    return others


@triton.jit
def finished(
    parts, FIRST: tl.constexpr, K: tl.constexpr, M: tl.constexpr, SHUFFLE: tl.constexpr
):  # fmt: skip
    """The dots of the `products` that start at parts[FIRST]: float32 [M, 8] with equal columns.
    Threads may add in either order: the bits are the same."""
    total = tl.zeros([M, 8], tl.float32)
    for segment in tl.static_range((K + 511) // 512):
        part = parts[FIRST + segment]
        if SHUFFLE:
            for level in tl.static_range(3):
                part = part + exchanged((part,), level, 1)[0]
        else:
            part = tl.broadcast_to(tree(part, M)[:, None], [M, 8])
        total = part if segment == 0 else total + part
    return total


@triton.jit
def dot(a, b, K: tl.constexpr, M: tl.constexpr, SHUFFLE: tl.constexpr):
    """The dots of M vectors with as many others: float32 [M, 8] with equal columns."""
    return finished(products(a, b, 0, K, M, SHUFFLE), 0, K, M, SHUFFLE)


@triton.jit
def spread(x, M: tl.constexpr, N: tl.constexpr):
    """[M, N] with equal columns -> [M, 4 N] with the same ones; nothing moves between threads."""
    twice = tl.reshape(tl.join(x, x), [M, 2 * N])
    return tl.reshape(tl.join(twice, twice), [M, 4 * N])
