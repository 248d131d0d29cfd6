"""Matrix products in the fixed order of sums, for any number of rows.

Integer matrices meet activations that are quantised to int8 in groups of 32: s = amax / 127,
q = x / s rounded half to even, within -127..127. The term of a group is (float(I) * s) * d, minus
(float(M) * s) * d_min where the type has minima; I and M are exact integers below 2**24. 16 groups
in turn make a segment, segments are added in ascending order.

Float matrices are integers of two limbs, and so are the activations that they meet: to q comes what
it leaves of x / s, in units of 1/256. Their I takes three exact sums: of products of both first
limbs, of a first and a second limb, of both second ones, each over 256 times what comes before.
Only where activations stay float32, or groups are not whole, they follow the order of `lanes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.lanes import LANES, SEGMENT, tree_columns
from engine.reference.matrix import GROUP, TILE, Matrix

GROUPS_A_SEGMENT = SEGMENT // GROUP


def linear(x: torch.Tensor, weight: Matrix) -> torch.Tensor:
    """Rows times the transposed matrix: float32 [R, K] -> [R, N]."""
    out = np.empty((x.shape[0], weight.rows), np.float32)
    product(x.numpy(), weight, 0, out)
    return torch.from_numpy(out)


def project(x: torch.Tensor, weights: Sequence[Matrix]) -> tuple[torch.Tensor, ...]:
    """Rows times each transposed matrix: float32 [R, K] -> [R, N] of every matrix."""
    return tuple(linear(x, weight) for weight in weights)


@compiled
def product(x: Any, weight: Any, expert: int, out: Any) -> None:
    """out = rows of x, float32 [R, K], times matrix `expert` of a stack, [R, N]."""
    if weight.values.shape[1]:
        float_product(x, weight.values[expert], out)
    else:
        groups = x.shape[1] // GROUP
        values = np.empty(x.shape, np.int32)
        scale = np.empty((x.shape[0], groups), np.float32)
        sums = np.empty((x.shape[0], groups, 2), np.int32)
        quantise(x, values, scale, sums)
        if weight.low.shape[1]:
            low = np.empty(x.shape, np.int32)
            remainders(x, values, scale, low)
            limb_product(values, low, scale, weight, expert, out)
        else:
            integer_product(values, scale, sums, weight, expert, out)


@compiled
def quantise(x: Any, values: Any, scale: Any, sums: Any) -> None:
    """int8 activations of float32 [R, K]: values int32 [R, K] in -127..127, scale float32 [R, G],
    sums int32 [R, G, 2] of each half of a group. A NaN or infinity goes into its group's scale, and
    from there into every product of its row."""
    magic = np.float32(12582912.0)  # adding and taking it off rounds half to even
    lowest, highest = np.float32(-127), np.float32(127)
    for r in range(x.shape[0]):
        for g in range(scale.shape[1]):
            group = x[r, g * GROUP : (g + 1) * GROUP]
            amax = np.float32(0)
            for i in range(GROUP):
                size = abs(group[i])
                if size > amax or size != size:  # once NaN, it stays
                    amax = size
            s = amax / np.float32(127)
            scale[r, g] = s
            for half in range(2):
                total = np.int32(0)
                for i in range(half * 16, half * 16 + 16):
                    q = np.int32(0)
                    if np.float32(0) < s < np.float32(np.inf):
                        # Only a scale of a few units of 2**-149 leaves the range.
                        q = np.int32(min(max((group[i] / s + magic) - magic, lowest), highest))
                    values[r, g * GROUP + i] = q
                    total += q
                sums[r, g, half] = total


@compiled
def remainders(x: Any, values: Any, scale: Any, low: Any) -> None:
    """What `quantise` leaves of x / s in units of 1/256: low int32 [R, K] in -128..127."""
    magic = np.float32(12582912.0)  # as in `quantise`
    lowest, highest, units = np.float32(-128), np.float32(127), np.float32(256)
    for r in range(x.shape[0]):
        for g in range(scale.shape[1]):
            s = scale[r, g]
            for i in range(g * GROUP, (g + 1) * GROUP):
                p = np.int32(0)
                if np.float32(0) < s < np.float32(np.inf):
                    left = (x[r, i] / s - np.float32(values[r, i])) * units
                    p = np.int32(min(max((left + magic) - magic, lowest), highest))
                low[r, i] = p


@compiled
def add_codes(codes: Any, values: Any, first: int, last: int, dots: Any) -> None:
    """dots[n] += sum over elements first..last-1 of codes[element, n] * values[element]: exact."""
    for i in range(first, last, 4):
        c0, c1, c2, c3 = codes[i], codes[i + 1], codes[i + 2], codes[i + 3]
        q0, q1, q2, q3 = values[i], values[i + 1], values[i + 2], values[i + 3]
        for n in range(TILE):
            dots[n] += (
                np.int32(c0[n]) * q0
                + np.int32(c1[n]) * q1
                + np.int32(c2[n]) * q2
                + np.int32(c3[n]) * q3
            )


@compiled
def end_segment(segment: Any, first: bool, result: Any) -> None:
    """Adds a segment to the result, of which the first one is the beginning, and empties it."""
    for n in range(TILE):
        result[n] = segment[n] if first else result[n] + segment[n]
    segment[:] = np.float32(0)


@compiled
def integer_product(values: Any, scale: Any, sums: Any, weight: Any, expert: int, out: Any) -> None:
    """The integer order. values, scale, sums: see `quantise`."""
    codes, weight_scale = weight.codes[expert], weight.scale[expert]
    multiplier = weight.multiplier[expert]
    minimum_scale = weight.minimum_scale[expert]
    minimum_multiplier = weight.minimum_multiplier[expert]
    groups = codes.shape[1]
    dots = np.empty(TILE, np.int32)
    half = np.empty(TILE, np.int32)
    segment = np.empty(TILE, np.float32)
    result = np.empty(TILE, np.float32)
    for tile in range(codes.shape[0]):
        width = min(TILE, out.shape[1] - tile * TILE)
        for r in range(values.shape[0]):
            segment[:] = np.float32(0)
            for g in range(groups):
                c = codes[tile, g]
                q = values[r, g * GROUP : (g + 1) * GROUP]
                s = scale[r, g]
                d = weight_scale[tile, g]
                dots[:] = 0
                if multiplier.shape[0]:
                    for h in range(2):
                        half[:] = 0
                        add_codes(c, q, 16 * h, 16 * h + 16, half)
                        factors = multiplier[tile, g, h]
                        for n in range(TILE):
                            dots[n] += half[n] * np.int32(factors[n])
                else:
                    add_codes(c, q, 0, GROUP, dots)
                if minimum_scale.shape[0]:
                    dm = minimum_scale[tile, g]
                    m0, m1 = minimum_multiplier[tile, g, 0], minimum_multiplier[tile, g, 1]
                    low, high = sums[r, g, 0], sums[r, g, 1]
                    for n in range(TILE):
                        offset = np.int32(m0[n]) * low + np.int32(m1[n]) * high
                        lower = (np.float32(offset) * s) * dm[n]
                        segment[n] += (np.float32(dots[n]) * s) * d[n] - lower
                else:
                    for n in range(TILE):
                        segment[n] += (np.float32(dots[n]) * s) * d[n]
                if (g + 1) % GROUPS_A_SEGMENT == 0 or g + 1 == groups:
                    end_segment(segment, g < GROUPS_A_SEGMENT, result)
            out[r, tile * TILE : tile * TILE + width] = result[:width]


@compiled
def limb_product(values: Any, low: Any, scale: Any, weight: Any, expert: int, out: Any) -> None:
    """The integer order with two limbs on both sides. values, scale: see `quantise`, low: see
    `remainders`."""
    codes, codes_low = weight.codes[expert], weight.low[expert]
    weight_scale = weight.scale[expert]
    groups = codes.shape[1]
    units = np.float32(256)
    upper = np.empty(TILE, np.int32)
    lower = np.empty(TILE, np.int32)
    segment = np.empty(TILE, np.float32)
    result = np.empty(TILE, np.float32)
    for tile in range(codes.shape[0]):
        width = min(TILE, out.shape[1] - tile * TILE)
        for r in range(values.shape[0]):
            segment[:] = np.float32(0)
            for g in range(groups):
                upper[:] = 0
                lower[:] = 0
                for i in range(0, GROUP, 2):
                    h0, h1 = codes[tile, g, i], codes[tile, g, i + 1]
                    l0, l1 = codes_low[tile, g, i], codes_low[tile, g, i + 1]
                    q0, q1 = values[r, g * GROUP + i], values[r, g * GROUP + i + 1]
                    p0, p1 = low[r, g * GROUP + i], low[r, g * GROUP + i + 1]
                    for n in range(TILE):
                        a, b = np.int32(h0[n]), np.int32(l0[n])
                        c, d = np.int32(h1[n]), np.int32(l1[n])
                        upper[n] += (a * 256 + b) * q0 + a * p0 + (c * 256 + d) * q1 + c * p1
                        lower[n] += b * p0 + d * p1
                s = scale[r, g]
                by = weight_scale[tile, g]
                for n in range(TILE):
                    # Below 2**28, it is rounded here, as the sum of both floats would be.
                    whole = np.float32(upper[n]) * units + np.float32(lower[n])
                    segment[n] += (whole * s) * by[n]
                if (g + 1) % GROUPS_A_SEGMENT == 0 or g + 1 == groups:
                    end_segment(segment, g < GROUPS_A_SEGMENT, result)
            out[r, tile * TILE : tile * TILE + width] = result[:width]


@compiled
def float_tile(x: Any, values: Any, lanes: Any, part: Any, result: Any) -> None:
    """result[n] = the lane-ordered dot of x, float32 [K], with column n of values, [K, N]."""
    columns = x.size
    for start in range(0, columns, SEGMENT):
        lanes[:] = np.float32(0)
        for k in range(start, min(start + SEGMENT, columns)):
            lane = lanes[(k - start) % LANES]
            w = values[k]
            a = x[k]
            for n in range(w.size):
                lane[n] += w[n] * a
        tree_columns(lanes, part)
        for n in range(part.size):
            result[n] = part[n] if start == 0 else result[n] + part[n]


@compiled
def float_product(x: Any, values: Any, out: Any) -> None:
    """The float order for every row and output. values: float32 [T, K, outputs of a tile]."""
    size = values.shape[2]
    lanes = np.empty((LANES, size), np.float32)
    part = np.empty(size, np.float32)
    result = np.empty(size, np.float32)
    for tile in range(values.shape[0]):
        width = min(size, out.shape[1] - tile * size)
        for r in range(x.shape[0]):
            float_tile(x[r], values[tile], lanes, part, result)
            target = out[r, tile * size : tile * size + width]
            for n in range(width):
                target[n] = result[n]
