"""Terms of one to four rows with integer matrices, of several units of weights at once.

A unit is 16 outputs of a segment. Tensor cores have eight columns where few rows need four or
fewer, so each unit gets columns of its own, zeros in the other ones, and the products of all add to
one result. Thread 4 * n + q then holds sums of one unit, `unit_of_thread`, and makes terms of it
alone: none is made twice or for a row that does not exist, and nothing moves between threads.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,attr-defined,var-annotated,union-attr,misc"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack
from engine.kernels.dependent import wait
from engine.kernels.form import Form
from engine.kernels.integer_product import (
    _MAGIC,
    _factors,
    _float,
    _second,
    _times,
    _weighed_sums,
    _whole,
)
from engine.kernels.one_row import _added


def units(form: Form, rows: int) -> int:
    """Units that share a result. Two limbs of a row are two columns."""
    return 4 // rows if form.bits == 16 else min(4, 8 // rows)


units_of = triton.constexpr_function(units)


@triton.constexpr_function
def rows_of_thread(form, rows):
    return 1 if form.bits == 16 or rows == 1 else 2


@triton.constexpr_function
def _half_text(unsigned):
    kind = "u8" if unsigned else "s8"
    return (
        f"mma.sync.aligned.m16n8k16.row.col.s32.{kind}.s8.s32 {{$0,$1,$2,$3}}, {{$4,$5}}, {{$6}},"
        " {$7,$8,$9,$10};"
    )


@triton.jit
def _half_added(sums, a0, a1, b0, UNSIGNED: tl.constexpr):
    """The four sums of a thread, plus products of half a group's bytes."""
    return tl.inline_asm_elementwise(
        _half_text(UNSIGNED), "=r,=r,=r,=r,r,r,r,r,r,r,r",
        [a0, a1, b0, sums[0], sums[1], sums[2], sums[3]],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def unit_of_thread(lane, FORM: tl.constexpr, ROWS: tl.constexpr):
    """Whose sums a thread holds."""
    return lane % 4 // (4 // units_of(FORM, ROWS))


@triton.jit
def row_of_thread(lane, FORM: tl.constexpr, ROWS: tl.constexpr):
    """The first row whose sums a thread holds."""
    return lane % 4 % (4 // units_of(FORM, ROWS)) * rows_of_thread(FORM, ROWS)


@triton.jit
def unit_of_column(lane, FORM: tl.constexpr, ROWS: tl.constexpr):
    """Whose input a thread gives to tensor cores."""
    return lane // 4 // (8 // units_of(FORM, ROWS))


@triton.jit
def input_of_units(CODES, INFO, lane, FORM: tl.constexpr, ROWS: tl.constexpr):
    """Pointers to int32, at the first segment: bytes that a thread gives to tensor cores, and info
    of the rows whose sums it holds."""
    at = lane // 4 % ROWS * 8
    if FORM.bits == 16:
        at = lane // 8 % ROWS * 8 + lane // 4 % 2 * 64
    codes = CODES.to(tl.pointer_type(tl.int32)) + (at + lane % 4 * 2)
    return codes, INFO.to(tl.pointer_type(tl.int32)) + row_of_thread(lane, FORM, ROWS) * 2


@triton.jit
def load_quads(places, own, tail, first, own_first, i, quads, lane, FORM: tl.constexpr,
               UNITS: tl.constexpr, WHOLE: tl.constexpr):  # fmt: skip
    """Quad i behind `first` of all units: the codes of each, multipliers and scales of a thread's
    own unit, and the scales of its segment, where the first quad finds its own.

    places, own, tail: pointers to int32, at the first quad of each unit, of the own unit, and at
    its scales. first: a tuple of numbers of quads, own_first: one; WHOLE: no quad lies behind
    `quads`.
    """
    LOW: tl.constexpr = 32 * FORM.codes
    NUMBERS: tl.constexpr = LOW + 32 * FORM.low
    SCALES: tl.constexpr = NUMBERS + 8 * FORM.numbers
    found = ()
    for k in tl.static_range(UNITS):
        p = places[k] + i * FORM.quad
        ok = (first[k] + i < quads).to(tl.int32)
        for c in tl.static_range(FORM.codes // 4):
            found = found + unpack.words(p + lane * 4, ok, 128 * c, 4, not WHOLE, True)
        found = found + unpack.words(p + lane * FORM.low, ok, LOW, FORM.low, not WHOLE, True)
    n = lane // 4
    ok = (own_first + i < quads).to(tl.int32)
    p = own + i * FORM.quad
    found = found + unpack.words(p + n * FORM.numbers, ok, NUMBERS, FORM.numbers, not WHOLE, True)
    found = found + unpack.words(p + n * FORM.scales, ok, SCALES, FORM.scales, not WHOLE, True)
    words = unpack.words(tail + n * FORM.tail, lane, 0, FORM.tail, False, True)
    COUNT: tl.constexpr = FORM.tail
    second = i // 2 % 2
    for c in tl.static_range(COUNT):
        if FORM.wide:
            found = found + (tl.where(second > 0, words[c // 2 * 2 + 1], words[c // 2 * 2]),)
        else:
            found = found + (words[c] >> (16 * second),)
    return found


@triton.jit
def _some(found, AT: tl.constexpr, COUNT: tl.constexpr):
    """COUNT of a tuple from AT on."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (found[AT + i],)
    return out


@triton.jit
def _group_input(x, ok, i, j: tl.constexpr, FORM: tl.constexpr, ROWS: tl.constexpr,
                 WHOLE: tl.constexpr):  # fmt: skip
    """Words of group j of quad i: bytes, and info of a thread's rows."""
    COUNT: tl.constexpr = 2 * rows_of_thread(FORM, ROWS)
    b = unpack.words(x[0] + i * 512, ok, 128 * j, 2, False, True)
    return b + unpack.words(x[1] + i * 64, ok, 16 * j, COUNT, not WHOLE, True)


@triton.jit
def _limb_terms(acc, found, own, tail, given, column, j: tl.constexpr, FORM: tl.constexpr,
                UNITS: tl.constexpr):  # fmt: skip
    """acc plus the terms of group j of a quad with two limbs on both sides."""
    start = tl.full(column.shape, _MAGIC, tl.int32)
    none = tl.zeros(column.shape, tl.int32)
    # Products of the upper limbs of weights and of the lower ones, with both of a row.
    upper = (start, none, start, none)
    lower = (start, start, start, start)
    for k in tl.static_range(UNITS):
        unit = _some(found, k * FORM.codes, FORM.codes)
        b0 = given[0]
        b1 = given[1]
        if UNITS > 1:
            b0 = tl.where(column == k, b0, 0)
            b1 = tl.where(column == k, b1, 0)
        a0, a2 = unpack.limb_halves(unit, j, 0, 0)
        a1, a3 = unpack.limb_halves(unit, j, 1, 0)
        upper = _added(upper, a0, a1, a2, a3, b0, b1, False)
        a0, a2 = unpack.limb_halves(unit, j, 0, 1)
        a1, a3 = unpack.limb_halves(unit, j, 1, 1)
        lower = _added(lower, a0, a1, a2, a3, b0, b1, False)
    s = given[2].to(tl.float32, bitcast=True)
    out = ()
    for o in tl.static_range(2):
        middle = lower[2 * o] + upper[2 * o + 1]
        value = _whole(upper[2 * o], middle, lower[2 * o + 1], True)
        out = out + (acc[o] + (value * s) * unpack.scale(own, tail, j, 0, o, FORM),)
    return out


@triton.jit
def _terms(acc, found, own, tail, given, column, j: tl.constexpr, FORM: tl.constexpr,
           UNITS: tl.constexpr, EACH: tl.constexpr):  # fmt: skip
    """acc plus the terms of group j of a quad: outputs n and n + 8, each with EACH rows."""
    if FORM.bias != 0:
        even = _weighed_sums(given[3], -FORM.bias, -FORM.bias, True)
        odd = _weighed_sums(given[2 * EACH + 1], -FORM.bias, -FORM.bias, True)
    else:
        even = tl.full(column.shape, _MAGIC, tl.int32)
        odd = even
    p = (even, odd, even, odd)
    h = p
    for k in tl.static_range(UNITS):
        unit = _some(found, k * (FORM.codes + FORM.low), FORM.codes + FORM.low)
        b0 = given[0]
        b1 = given[1]
        if UNITS > 1:
            b0 = tl.where(column == k, b0, 0)
            b1 = tl.where(column == k, b1, 0)
        a0, a2 = unpack.halves(unit, j, 0, FORM, True)
        a1, a3 = unpack.halves(unit, j, 1, FORM, True)
        if FORM.multipliers == 2:
            p = _half_added(p, a0, a1, b0, FORM.unsigned)
            h = _half_added(h, a2, a3, b1, FORM.unsigned)
        else:
            p = _added(p, a0, a1, a2, a3, b0, b1, FORM.unsigned)
    M: tl.constexpr = FORM.multipliers
    out = ()
    for o in tl.static_range(2):
        m, c, m1 = _factors(own, j, o, FORM, column, True)
        d = unpack.scale(own, tail, j, 0, o, FORM)
        for r in tl.static_range(EACH):
            s = given[2 + 2 * r].to(tl.float32, bitcast=True)
            value = _times(p[2 * o + r], m, c, True)
            if FORM.multipliers == 2:
                value = _second(h[2 * o + r], m1, value, True)
            term = (value * s) * d
            if FORM.minimum:
                sums = given[3 + 2 * r]
                if FORM.minimum_multipliers == 2:
                    low = _float(_weighed_sums(sums, 1, 0, True), True)
                    low = low * unpack.number(own, j, M, o, 0, FORM, True)
                    high = _float(_weighed_sums(sums, 0, 1, True), True)
                    low = low + high * unpack.number(own, j, M + 1, o, 0, FORM, True)
                else:
                    low = _float(_weighed_sums(sums, 1, 1, True), True)
                    if FORM.minimum_multipliers == 1:
                        low = low * unpack.number(own, j, M, o, 0, FORM, True)
                term = term - (low * s) * unpack.scale(own, tail, j, 1, o, FORM)
            out = out + (acc[o * EACH + r] + term,)
    return out


@triton.jit
def quad_terms(acc, found, x, left, i, lane, FORM: tl.constexpr, ROWS: tl.constexpr,
               WHOLE: tl.constexpr):  # fmt: skip
    """acc plus the terms of quad i behind the units' first ones. found: what `load_quads` gave;
    x: `input_of_units` at that first quad; left: groups from there on."""
    UNITS: tl.constexpr = units_of(FORM, ROWS)
    EACH: tl.constexpr = rows_of_thread(FORM, ROWS)
    EVERY: tl.constexpr = UNITS * (FORM.codes + FORM.low)
    COUNT: tl.constexpr = FORM.numbers + FORM.scales
    own = _some(found, 0, FORM.codes + FORM.low) + _some(found, EVERY, COUNT)
    tail = _some(found, EVERY + COUNT, FORM.tail)
    column = unit_of_column(lane, FORM, ROWS)
    given = ()
    for j in tl.static_range(4):
        ok = (left > 4 * i + j).to(tl.int32)
        given = given + (_group_input(x, ok, i, j, FORM, ROWS, WHOLE),)
    for j in tl.static_range(4):
        if FORM.bits == 16:
            acc = _limb_terms(acc, found, own, tail, given[j], column, j, FORM, UNITS)
        else:
            acc = _terms(acc, found, own, tail, given[j], column, j, FORM, UNITS, EACH)
    return acc


@triton.jit
def nothing(FORM: tl.constexpr, ROWS: tl.constexpr, W: tl.constexpr):
    """What a sum of terms starts from."""
    acc = ()
    for _ in tl.static_range(2 * rows_of_thread(FORM, ROWS)):
        acc = acc + (tl.zeros([32 * W], tl.float32),)
    return acc


@triton.jit
def units_segment(places, own, tail, first, own_first, x, quads, groups, lane, FORM: tl.constexpr,
                  ROWS: tl.constexpr, AHEAD: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                  PDL: tl.constexpr):  # fmt: skip
    """The sums of terms of a segment of each unit. Arguments as in `load_quads`; AHEAD: quads that
    are under way while one is used, 0 for one of them and a loop."""
    UNITS: tl.constexpr = units_of(FORM, ROWS)
    acc = nothing(FORM, ROWS, W)
    left = groups - own_first * 4
    if AHEAD == 0:
        ahead = load_quads(places, own, tail, first, own_first, 0, quads, lane, FORM, UNITS, WHOLE)
        wait(PDL)
        for i in range(4):
            now = ahead
            # At the end the last one again, which is near.
            ahead = load_quads(places, own, tail, first, own_first, tl.minimum(i + 1, 3), quads,
                               lane, FORM, UNITS, WHOLE)  # fmt: skip
            acc = quad_terms(acc, now, x, left, i, lane, FORM, ROWS, WHOLE)
    else:
        under_way = ()
        for i in tl.static_range(AHEAD):
            under_way = under_way + (load_quads(places, own, tail, first, own_first, i, quads,
                                                lane, FORM, UNITS, WHOLE),)  # fmt: skip
        wait(PDL)
        for i in tl.static_range(4):
            if i + AHEAD < 4:
                under_way = under_way + (load_quads(places, own, tail, first, own_first, i + AHEAD,
                                                    quads, lane, FORM, UNITS, WHOLE),)  # fmt: skip
            acc = quad_terms(acc, under_way[i], x, left, i, lane, FORM, ROWS, WHOLE)
    return acc
