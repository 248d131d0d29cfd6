"""Matrix products in the fixed order of sums, for any number of rows.

Integer matrices meet activations that are quantised to int8 in groups of 32; float matrices meet
float32 activations. docs/decisions.md names the order and why.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from engine.reference.compiled import compiled
from engine.reference.lanes import LANES, SEGMENT, tree_columns
from engine.reference.matrix import GROUP, TILE, Array, IntegerMatrix, Matrix

GROUPS_A_SEGMENT = SEGMENT // GROUP


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedRows:
    """Activations in integers: values int32 [R, K] in -127..127, scale float32 [R, G],
    sums int32 [R, G, 2] of each half of a group."""

    values: Array
    scale: Array
    sums: Array


class Activations:
    """Rows that several matrices read, float32 [R, K]; quantised at most once."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        self.array: Array = x.numpy()

    def take(self, rows: Array) -> Activations:
        """The given rows, as they would be alone."""
        return Activations(torch.from_numpy(self.array[rows]))

    @cached_property
    def quantised(self) -> QuantisedRows:
        """The rows in int8 groups of 32: s = amax / 127, q = x / s rounded half to even."""
        rows, columns = self.array.shape
        groups = columns // GROUP
        quantised = QuantisedRows(
            np.empty((rows, columns), np.int32),
            np.empty((rows, groups), np.float32),
            np.empty((rows, groups, 2), np.int32),
        )
        quantise(self.array, quantised.values, quantised.scale, quantised.sums)
        return quantised


def linear(activations: Activations, weight: Matrix) -> torch.Tensor:
    """Rows times the transposed matrix: float32 [R, N]."""
    out = np.empty((activations.array.shape[0], weight.rows), np.float32)
    multiply(activations, weight, 0, out)
    return torch.from_numpy(out)


def multiply(activations: Activations, weight: Matrix, expert: int, out: Array) -> None:
    """As `linear`, with matrix `expert` of a stack, into `out`."""
    if isinstance(weight, IntegerMatrix):
        rows = activations.quantised
        integer_product(
            rows.values,
            rows.scale,
            rows.sums,
            weight.codes[expert],
            weight.scale[expert],
            weight.multiplier[expert],
            weight.minimum_scale[expert],
            weight.minimum_multiplier[expert],
            out,
        )
    else:
        float_product(activations.array, weight.values[expert], out)


@compiled
def quantise(x: Any, values: Any, scale: Any, sums: Any) -> None:
    """Fills QuantisedRows from float32 [R, K]."""
    magic = np.float32(12582912.0)  # adding and taking it off rounds half to even
    for r in range(x.shape[0]):
        for g in range(scale.shape[1]):
            group = x[r, g * GROUP : (g + 1) * GROUP]
            amax = np.float32(0)
            for i in range(GROUP):
                amax = max(amax, abs(group[i]))
            s = amax / np.float32(127)
            scale[r, g] = s
            for half in range(2):
                total = np.int32(0)
                for i in range(half * 16, half * 16 + 16):
                    q = np.int32(0)
                    if s > np.float32(0):
                        q = np.int32((group[i] / s + magic) - magic)
                    values[r, g * GROUP + i] = q
                    total += q
                sums[r, g, half] = total


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
def group_integers(codes: Any, multiplier: Any, values: Any, dots: Any, half: Any) -> None:
    """dots[n] = I_g: codes times values of one group, halves weighted by their multipliers."""
    dots[:] = 0
    if multiplier.size == 0:
        add_codes(codes, values, 0, 32, dots)
        return
    for h in range(2):
        half[:] = 0
        add_codes(codes, values, 16 * h, 16 * h + 16, half)
        factors = multiplier[h]
        for n in range(TILE):
            dots[n] += half[n] * np.int32(factors[n])


@compiled
def integer_product(
    values: Any,
    scale: Any,
    sums: Any,
    codes: Any,
    weight_scale: Any,
    multiplier: Any,
    minimum_scale: Any,
    minimum_multiplier: Any,
    out: Any,
) -> None:
    """The integer order: terms of groups in turn inside a segment of 16, segments in turn."""
    tiles, groups = codes.shape[0], codes.shape[1]
    dots = np.empty(TILE, np.int32)
    half = np.empty(TILE, np.int32)
    segment = np.empty(TILE, np.float32)
    result = np.empty(TILE, np.float32)
    no_multiplier = np.empty((0, 0), np.int8)
    for tile in range(tiles):
        width = min(TILE, out.shape[1] - tile * TILE)
        for r in range(values.shape[0]):
            segment[:] = np.float32(0)
            for g in range(groups):
                s = scale[r, g]
                factors = multiplier[tile, g] if multiplier.size else no_multiplier
                group_integers(
                    codes[tile, g], factors, values[r, g * GROUP : (g + 1) * GROUP], dots, half
                )
                d = weight_scale[tile, g]
                if minimum_scale.size:
                    dm = minimum_scale[tile, g]
                    m = minimum_multiplier[tile, g]
                    low, high = sums[r, g, 0], sums[r, g, 1]
                    for n in range(TILE):
                        offset = np.int32(m[0, n]) * low + np.int32(m[1, n]) * high
                        segment[n] += (np.float32(dots[n]) * s) * d[n] - (
                            np.float32(offset) * s
                        ) * dm[n]
                else:
                    for n in range(TILE):
                        segment[n] += (np.float32(dots[n]) * s) * d[n]
                if (g + 1) % GROUPS_A_SEGMENT == 0 or g + 1 == groups:
                    first = g < GROUPS_A_SEGMENT
                    for n in range(TILE):
                        result[n] = segment[n] if first else result[n] + segment[n]
                    segment[:] = np.float32(0)
            for n in range(width):
                out[r, tile * TILE + n] = result[n]


@compiled
def float_tile(x: Any, values: Any, lanes: Any, part: Any, result: Any) -> None:
    """result[n] = the lane-ordered dot of x, float32 [K], with column n of values, [K, 32]."""
    columns = x.size
    for start in range(0, columns, SEGMENT):
        lanes[:] = np.float32(0)
        for k in range(start, min(start + SEGMENT, columns)):
            lane = lanes[(k - start) % LANES]
            w = values[k]
            a = x[k]
            for n in range(TILE):
                lane[n] += w[n] * a
        tree_columns(lanes, part)
        for n in range(TILE):
            result[n] = part[n] if start == 0 else result[n] + part[n]


@compiled
def float_product(x: Any, values: Any, out: Any) -> None:
    """The float order of `lanes.py` for every row and output."""
    lanes = np.empty((LANES, TILE), np.float32)
    part = np.empty(TILE, np.float32)
    result = np.empty(TILE, np.float32)
    for tile in range(values.shape[0]):
        width = min(TILE, out.shape[1] - tile * TILE)
        for r in range(x.shape[0]):
            float_tile(x[r], values[tile], lanes, part, result)
            for n in range(width):
                out[r, tile * TILE + n] = result[n]
