"""Terms of one row with integer matrices, as `segment_terms` gives them, by a third of the work.

With a single row all eight columns of a tensor core would say the same. Instead each of the four
groups of a quad gets two columns of its own, zeros in the other ones, and four products add to one
result: thread 4 * n + q then holds the sums of group q for outputs n and n + 8, and makes their
terms, which four threads made alike before. Sums stay in order: each thread adds the terms of all
four, one after the other.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# mypy: disable-error-code="assignment,attr-defined,var-annotated,union-attr,misc"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack
from engine.kernels.integer_product import (
    _MAGIC,
    _MAGIC_FLOAT,
    _float,
    _second,
    _times,
    _weighed_sums,
    _whole,
    no_terms,
    segment_terms,
)


@triton.constexpr_function
def _mma_text(unsigned):
    kind = "u8" if unsigned else "s8"
    return (
        f"mma.sync.aligned.m16n8k32.row.col.s32.{kind}.s8.s32 {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}},"
        " {$8,$9}, {$10,$11,$12,$13};"
    )


@triton.jit
def _added(sums, a0, a1, a2, a3, b0, b1, UNSIGNED: tl.constexpr):
    """The four sums of a thread, plus products of a group's bytes."""
    return tl.inline_asm_elementwise(
        _mma_text(UNSIGNED), "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r",
        [a0, a1, a2, a3, b0, b1, sums[0], sums[1], sums[2], sums[3]],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip


@triton.constexpr_function
def _put_byte(shift):
    return f"prmt.b32 $0, $1, 0x{(150 - shift) << 23:08X}, $2;"


@triton.jit
def _own_number(found, q, WHICH: tl.constexpr, OUT: tl.constexpr, SHIFT: tl.constexpr,
                FORM: tl.constexpr):  # fmt: skip
    """As `unpack.number`, of group q."""
    word = found[FORM.codes + FORM.low + 2 * WHICH + OUT]
    wide = tl.inline_asm_elementwise(
        _put_byte(SHIFT), "=r,r,r", [word, q + 0x7650], dtype=tl.int32, is_pure=True, pack=1
    )
    SMALL: tl.constexpr = 1.0 / (1 << SHIFT)
    return wide.to(tl.float32, bitcast=True) - (8388608 + 128) * SMALL


@triton.jit
def _own_scale(found, tail, q, QUAD: tl.constexpr, WHICH: tl.constexpr, OUT: tl.constexpr,
               FORM: tl.constexpr):  # fmt: skip
    """As `unpack.scale`, of group q of a quad."""
    if FORM.tail:
        d = unpack.scale(found, tail, 4 * QUAD, WHICH, OUT, FORM)
    else:
        PER_WORD: tl.constexpr = 1 if FORM.wide else 2
        WORDS: tl.constexpr = 4 // FORM.span // PER_WORD
        AT: tl.constexpr = FORM.codes + FORM.low + FORM.numbers + (2 * WHICH + OUT) * WORDS
        number = q // FORM.span
        word = found[AT]
        for i in tl.static_range(1, WORDS):
            word = tl.where(number // PER_WORD == i, found[AT + i], word)
        if not FORM.wide:
            word = word >> (number % 2 * 16)
        d = unpack._of_word(word, 0, FORM)
    return d


@triton.constexpr_function
def _from_text(j):
    return f"shfl.sync.idx.b32 $0, $1, {j}, 0x1C1F, 0xFFFFFFFF;"


@triton.jit
def _of_group(term, j: tl.constexpr):
    """The term of group j, which one of four threads has."""
    bits = tl.inline_asm_elementwise(
        _from_text(j), "=r,r", [term.to(tl.int32, bitcast=True)], dtype=tl.int32, is_pure=False,
        pack=1,
    )  # fmt: skip
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _term(sums, found, tail, info, q, o: tl.constexpr, QUAD: tl.constexpr, FORM: tl.constexpr):
    """The term of group q of a quad, for output n (o 0) or n + 8, of a thread's sums."""
    if FORM.multipliers == 0:
        m = tl.full(q.shape, 1.0 / (1 << FORM.shift), tl.float32)
    else:
        m = _own_number(found, q, 0, o, FORM.shift, FORM)
    s = info[0].to(tl.float32, bitcast=True)
    value = _times(sums[2 * o], m, m * -_MAGIC_FLOAT, True)
    if FORM.multipliers == 2:
        value = _second(sums[2 * o + 1], _own_number(found, q, 1, o, FORM.shift, FORM), value, True)
    term = (value * s) * _own_scale(found, tail, q, QUAD, 0, o, FORM)
    if FORM.minimum:
        M: tl.constexpr = FORM.multipliers
        if FORM.minimum_multipliers == 2:
            low = _float(_weighed_sums(info[1], 1, 0, True), True)
            low = low * _own_number(found, q, M, o, 0, FORM)
            high = _float(_weighed_sums(info[1], 0, 1, True), True)
            low = low + high * _own_number(found, q, M + 1, o, 0, FORM)
        else:
            low = _float(_weighed_sums(info[1], 1, 1, True), True)
            if FORM.minimum_multipliers == 1:
                low = low * _own_number(found, q, M, o, 0, FORM)
        term = term - (low * s) * _own_scale(found, tail, q, QUAD, 1, o, FORM)
    return term


@triton.jit
def quad_terms(acc, found, tail, x, left, lane, QUAD: tl.constexpr, FORM: tl.constexpr,
               FULL: tl.constexpr):  # fmt: skip
    """Adds the terms of a segment's quad to acc. x, left: as in `segment_terms`; found, tail: the
    quad, and scales of the segment. FULL: the quad has four groups."""
    q = lane % 4
    column = lane // 4
    # Bytes of the group that the thread's column is for; info of the group whose terms it makes.
    b = unpack.words(x[0] + column // 2 * 128, lane, 512 * QUAD, 2, False, True)
    # Behind the last group scales mean nothing.
    ok = (left > 4 * QUAD + q).to(tl.int32)
    info = unpack.words(x[1] + q * 16, ok, 64 * QUAD, 2, not FULL, True)
    if FORM.bias != 0:
        start = _weighed_sums(info[1], -FORM.bias, -FORM.bias, True)
    else:
        start = tl.full(lane.shape, _MAGIC, tl.int32)
    sums = (start, start, start, start)
    for j in tl.static_range(4):
        a0, a2 = unpack.halves(found, j, 0, FORM, True)
        a1, a3 = unpack.halves(found, j, 1, FORM, True)
        # A column for each half, or two for both.
        if FORM.multipliers == 2:
            b0 = tl.where(column == 2 * j, b[0], 0)
            b1 = tl.where(column == 2 * j + 1, b[1], 0)
        else:
            b0 = tl.where(column // 2 == j, b[0], 0)
            b1 = tl.where(column // 2 == j, b[1], 0)
        sums = _added(sums, a0, a1, a2, a3, b0, b1, FORM.unsigned)
    t0 = _term(sums, found, tail, info, q, 0, QUAD, FORM)
    t1 = _term(sums, found, tail, info, q, 1, QUAD, FORM)
    first = acc[0]
    second = acc[1]
    for j in tl.static_range(4):
        first = first + _of_group(t0, j)
        second = second + _of_group(t1, j)
    return first, second


@triton.jit
def limb_products(acc, found, tail, b0, b1, s, lane, QUAD: tl.constexpr, GROUPS: tl.constexpr,
                  FORM: tl.constexpr):  # fmt: skip
    """As `quad_terms`, of the first GROUPS groups of a quad with two limbs on both sides: a group
    has a column for either limb of the row. b0, b1: halves of the column's group in its limb; s:
    bits of the scale of group q."""
    start = tl.full(lane.shape, _MAGIC, tl.int32)
    none = tl.zeros(lane.shape, tl.int32)
    # Products of the upper limbs of weights and of the lower ones, with both of the row.
    upper = (start, none, start, none)
    lower = (start, start, start, start)
    for j in tl.static_range(GROUPS):
        own0 = tl.where(lane // 8 == j, b0, 0)
        own1 = tl.where(lane // 8 == j, b1, 0)
        a0, a2 = unpack.limb_halves(found, j, 0, 0)
        a1, a3 = unpack.limb_halves(found, j, 1, 0)
        upper = _added(upper, a0, a1, a2, a3, own0, own1, False)
        a0, a2 = unpack.limb_halves(found, j, 0, 1)
        a1, a3 = unpack.limb_halves(found, j, 1, 1)
        lower = _added(lower, a0, a1, a2, a3, own0, own1, False)
    scale = s.to(tl.float32, bitcast=True)
    t0 = _whole(upper[0], lower[0] + upper[1], lower[1], True) * scale
    t1 = _whole(upper[2], lower[2] + upper[3], lower[3], True) * scale
    t0 = t0 * _own_scale(found, tail, lane % 4, QUAD, 0, 0, FORM)
    t1 = t1 * _own_scale(found, tail, lane % 4, QUAD, 0, 1, FORM)
    first = acc[0]
    second = acc[1]
    for j in tl.static_range(GROUPS):
        first = first + _of_group(t0, j)
        second = second + _of_group(t1, j)
    return first, second


@triton.jit
def limb_quad_terms(acc, found, tail, x, left, lane, QUAD: tl.constexpr, FORM: tl.constexpr,
                    FULL: tl.constexpr):  # fmt: skip
    """As `quad_terms`, with two limbs on both sides."""
    q = lane % 4
    column = lane // 4
    b = unpack.words(x[0] + (column // 2 * 128 + column % 2 * 64), lane, 512 * QUAD, 2, False, True)
    ok = (left > 4 * QUAD + q).to(tl.int32)
    info = unpack.words(x[1] + q * 16, ok, 64 * QUAD, 2, not FULL, True)
    return limb_products(acc, found, tail, b[0], b[1], info[0], lane, QUAD, 4, FORM)


@triton.jit
def row_quad_terms(acc, found, tail, x, left, lane, QUAD: tl.constexpr, FORM: tl.constexpr,
                   FULL: tl.constexpr):  # fmt: skip
    """The same of any form."""
    if FORM.bits == 16:
        acc = limb_quad_terms(acc, found, tail, x, left, lane, QUAD, FORM, FULL)
    else:
        acc = quad_terms(acc, found, tail, x, left, lane, QUAD, FORM, FULL)
    return acc


@triton.jit
def row_terms(weights, x, left, lane, FORM: tl.constexpr, WHOLE: tl.constexpr, SKIP: tl.constexpr,
              W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """What `segment_terms` gives for one row: sums of a segment's terms, outputs n and n + 8."""
    if ASM:
        acc = no_terms(1, 1, W)
        for quad in tl.static_range(4):
            if SKIP:
                if left > 4 * quad:
                    acc = row_quad_terms(acc, weights[quad], weights[4], x, left, lane, quad, FORM,
                                         WHOLE)  # fmt: skip
            else:
                acc = row_quad_terms(acc, weights[quad], weights[4], x, left, lane, quad, FORM,
                                     WHOLE)  # fmt: skip
    else:
        acc = segment_terms(weights, x, left, FORM, 1, 1, False, WHOLE, SKIP, W, ASM)
    return acc
