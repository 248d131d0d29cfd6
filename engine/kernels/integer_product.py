"""Products of integer rows and integer matrices, in the order of `engine/reference/linear.py`.

The term of a group is (float(I) * s) * d, minus (float(M) * s) * d_min where the type has minima;
16 terms in turn, from 0, make a segment, and segments are added in ascending order. I and M are
exact integers, so how they are computed does not matter. With two limbs on both sides a group takes
three such sums; they are put together in floats.

A warp takes 16 outputs and blocks of 8 rows with tensor cores: thread 4 * n + q holds the bytes of
outputs n and n + 8 and of row n that one instruction wants, and gets the products of these outputs
with rows 2q and 2q + 1. Weights and activations lie that way in memory, so nothing moves between
threads: every tensor has one number a thread, [32 * warps], and what a CPU would call an array is a
tuple of tensors. Sums start at 3 * 2**22 as an integer whose bits are also that float, so a sum is
a float without conversion.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,attr-defined,var-annotated,union-attr,misc"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels import unpack

_MAGIC = tl.constexpr(0x4B400000)
_MAGIC_FLOAT = tl.constexpr(12582912.0)


@triton.constexpr_function
def _more_text():
    return (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9},"
        " {$10,$11,$12,$13};"
    )


@triton.constexpr_function
def _mma_text(k, unsigned):
    kind = "u8" if unsigned else "s8"
    a, b = ("{$4,$5,$6,$7}", "{$8,$9}") if k == 32 else ("{$4,$5}", "{$6}")
    c = 10 if k == 32 else 7
    return (
        f"mma.sync.aligned.m16n8k{k}.row.col.s32.{kind}.s8.s32 {{$0,$1,$2,$3}}, {a}, {b},"
        f" {{${c},${c + 1},${c},${c + 1}}};"
    )


@triton.jit
def _bytes(word, UNSIGNED: tl.constexpr):
    each = word[:, None] >> (tl.arange(0, 4) * 8)[None, :]
    return each & 255 if UNSIGNED else (each << 24) >> 24


@triton.jit
def _products(a, b, W: tl.constexpr, UNSIGNED: tl.constexpr):
    """Sums over the four threads of an output and their four bytes, without tensor cores: those of
    the even and the odd row of a thread."""
    x = tl.reshape(_bytes(a, UNSIGNED), [W, 8, 1, 16])
    y = tl.reshape(_bytes(b, False), [W, 1, 8, 16])
    total = tl.sum(x * y, axis=3)
    even, odd = tl.split(tl.reshape(total, [W, 8, 4, 2]))
    return tl.reshape(even, [W * 32]), tl.reshape(odd, [W * 32])


@triton.jit
def products(a0, a1, a2, a3, b0, b1, even, odd, W: tl.constexpr, UNSIGNED: tl.constexpr,
             ASM: tl.constexpr):  # fmt: skip
    """Sums over a group's 32 products: output n and both rows of a thread, then output n + 8.

    a0, a2: bytes of output n in the group's halves; a1, a3: of output n + 8; b0, b1: of row n.
    even, odd: what the sums of a row begin with.
    """
    if ASM:
        c0, c1, c2, c3 = tl.inline_asm_elementwise(
            _mma_text(32, UNSIGNED), "=&r,=&r,=&r,=&r,r,r,r,r,r,r,r,r",
            [a0, a1, a2, a3, b0, b1, even, odd],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        c0, c1 = _products(a0, b0, W, UNSIGNED)
        c2, c3 = _products(a1, b0, W, UNSIGNED)
        h0, h1 = _products(a2, b1, W, UNSIGNED)
        h2, h3 = _products(a3, b1, W, UNSIGNED)
        c0 = c0 + h0 + even
        c1 = c1 + h1 + odd
        c2 = c2 + h2 + even
        c3 = c3 + h3 + odd
    return c0, c1, c2, c3


@triton.jit
def more_products(a0, a1, a2, a3, b0, b1, before, W: tl.constexpr, ASM: tl.constexpr):
    """As `products` of signed bytes, added to the four sums `before`."""
    if ASM:
        c0, c1, c2, c3 = tl.inline_asm_elementwise(
            _more_text(), "=&r,=&r,=&r,=&r,r,r,r,r,r,r,r,r,r,r",
            [a0, a1, a2, a3, b0, b1, before[0], before[1], before[2], before[3]],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        c0, c1, c2, c3 = products(a0, a1, a2, a3, b0, b1, before[0], before[1], W, False, False)
        c2 = c2 - before[0] + before[2]
        c3 = c3 - before[1] + before[3]
    return c0, c1, c2, c3


@triton.jit
def half_products(a0, a1, b0, even, odd, W: tl.constexpr, UNSIGNED: tl.constexpr,
                  ASM: tl.constexpr):  # fmt: skip
    """As `products`, over half a group."""
    if ASM:
        c0, c1, c2, c3 = tl.inline_asm_elementwise(
            _mma_text(16, UNSIGNED), "=&r,=&r,=&r,=&r,r,r,r,r,r", [a0, a1, b0, even, odd],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        c0, c1 = _products(a0, b0, W, UNSIGNED)
        c2, c3 = _products(a1, b0, W, UNSIGNED)
        c0 = c0 + even
        c1 = c1 + odd
        c2 = c2 + even
        c3 = c3 + odd
    return c0, c1, c2, c3


@triton.jit
def _weighed_sums(sums, LOW: tl.constexpr, HIGH: tl.constexpr, ASM: tl.constexpr):
    """LOW times the first of two 16-bit numbers plus HIGH times the other, as sums are: from MAGIC
    on with ASM, else plain."""
    if ASM:
        factors: tl.constexpr = (LOW & 255) | (HIGH & 255) << 8
        out = tl.inline_asm_elementwise(
            _DP2A, "=r,r,r,r",
            [sums, tl.full(sums.shape, factors, tl.int32), tl.full(sums.shape, _MAGIC, tl.int32)],
            dtype=tl.int32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        out = ((sums << 16) >> 16) * LOW + (sums >> 16) * HIGH
    return out


_DP2A = tl.constexpr("dp2a.lo.s32.s32 $0, $1, $2, $3;")


@triton.jit
def _float(total, ASM: tl.constexpr):
    """A sum as a float, exactly."""
    return total.to(tl.float32, bitcast=True) - _MAGIC_FLOAT if ASM else total.to(tl.float32)


@triton.jit
def _times(total, m, c, ASM: tl.constexpr):
    """A sum times m, exactly; c: -MAGIC_FLOAT * m."""
    return tl.fma(total.to(tl.float32, bitcast=True), m, c) if ASM else total.to(tl.float32) * m


@triton.jit
def _second(total, m, first, ASM: tl.constexpr):
    """first + a sum times m, exactly."""
    if ASM:
        f = tl.fma(total.to(tl.float32, bitcast=True) - _MAGIC_FLOAT, m, first)
    else:
        f = first + total.to(tl.float32) * m
    return f


@triton.jit
def _factors(found, j: tl.constexpr, OUT: tl.constexpr, FORM: tl.constexpr, like,
             ASM: tl.constexpr):  # fmt: skip
    """What sums of group j are multiplied with: for the first half, -MAGIC_FLOAT times it, and for
    the second half."""
    if FORM.multipliers == 0:
        m0 = tl.full(like.shape, 1.0 / (1 << FORM.shift), tl.float32)
    else:
        m0 = unpack.number(found, j, 0, OUT, FORM.shift, FORM, ASM)
    m1 = m0
    if FORM.multipliers == 2:
        m1 = unpack.number(found, j, 1, OUT, FORM.shift, FORM, ASM)
    return m0, m0 * -_MAGIC_FLOAT, m1


@triton.jit
def group_factors(found, tail, i: tl.constexpr, FORM: tl.constexpr, ASM: tl.constexpr):
    """What the terms of group i of a segment need of its weights, a tuple for `block_terms`; found:
    the group's quad."""
    j: tl.constexpr = i % 4
    a0, a2 = unpack.halves(found, j, 0, FORM, ASM)
    a1, a3 = unpack.halves(found, j, 1, FORM, ASM)
    m0, c0, h0 = _factors(found, j, 0, FORM, a0, ASM)
    m1, c1, h1 = _factors(found, j, 1, FORM, a0, ASM)
    d0 = unpack.scale(found, tail, i, 0, 0, FORM)
    d1 = unpack.scale(found, tail, i, 0, 1, FORM)
    factors = (a0, a1, a2, a3, m0, m1, c0, c1, h0, h1, d0, d1)
    if FORM.minimum:
        factors = factors + (unpack.scale(found, tail, i, 1, 0, FORM),)
        factors = factors + (unpack.scale(found, tail, i, 1, 1, FORM),)
        M: tl.constexpr = FORM.multipliers
        MORE: tl.constexpr = FORM.minimum_multipliers
        for k in tl.static_range(MORE):
            factors = factors + (unpack.number(found, j, M + k, 0, 0, FORM, ASM),)
            factors = factors + (unpack.number(found, j, M + k, 1, 0, FORM, ASM),)
    return factors


@triton.jit
def block_input(x, lane, i: tl.constexpr, t: tl.constexpr, COLUMNS: tl.constexpr,
                TOGETHER: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """Words of group i of a segment of block t: bytes, and info of COLUMNS rows."""
    found = unpack.words(x[3 * t], lane, 128 * i, 2, False, ASM)
    if TOGETHER or COLUMNS == 1:
        found = found + unpack.words(x[3 * t + 1], lane, 16 * i, 2 * COLUMNS, False, ASM)
    else:
        found = found + unpack.words(x[3 * t + 1], lane, 16 * i, 2, False, ASM)
        found = found + unpack.words(x[3 * t + 2], lane, 16 * i, 2, False, ASM)
    return found


@triton.jit
def block_terms(acc, factors, given, ok, ACC: tl.constexpr, AT: tl.constexpr, FORM: tl.constexpr,
                COLUMNS: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                ASM: tl.constexpr):  # fmt: skip
    """acc[ACC] and the 2 * COLUMNS - 1 behind it, plus the terms of a group with one block of rows.
    given: what `block_input` gave, from AT on."""
    a0 = factors[0]
    if FORM.bias != 0:
        even = _weighed_sums(given[AT + 3], -FORM.bias, -FORM.bias, ASM)
        odd = _weighed_sums(given[AT + 2 * COLUMNS + 1], -FORM.bias, -FORM.bias, ASM)
    else:
        even = tl.full(a0.shape, _MAGIC if ASM else 0, tl.int32)
        odd = even
    if FORM.multipliers == 2:
        p = half_products(a0, factors[1], given[AT], even, odd, W, FORM.unsigned, ASM)
        h = half_products(factors[2], factors[3], given[AT + 1], even, odd, W, FORM.unsigned, ASM)
    else:
        p = products(a0, factors[1], factors[2], factors[3], given[AT], given[AT + 1], even, odd, W,
                     FORM.unsigned, ASM)  # fmt: skip
        h = p
    out = ()
    for o in tl.static_range(2):
        for r in tl.static_range(COLUMNS):
            s = given[AT + 2 + 2 * r].to(tl.float32, bitcast=True)
            if not WHOLE:
                s = tl.where(ok, s, 0.0)
            value = _times(p[2 * o + r], factors[4 + o], factors[6 + o], ASM)
            if FORM.multipliers == 2:
                value = _second(h[2 * o + r], factors[8 + o], value, ASM)
            term = (value * s) * factors[10 + o]
            if FORM.minimum:
                sums = given[AT + 3 + 2 * r]
                if FORM.minimum_multipliers == 2:
                    low = _float(_weighed_sums(sums, 1, 0, ASM), ASM) * factors[14 + o]
                    high = _float(_weighed_sums(sums, 0, 1, ASM), ASM) * factors[16 + o]
                    low = low + high
                else:
                    low = _float(_weighed_sums(sums, 1, 1, ASM), ASM)
                    if FORM.minimum_multipliers == 1:
                        low = low * factors[14 + o]
                term = term - (low * s) * factors[12 + o]
            out = out + (acc[ACC + o * COLUMNS + r] + term,)
    return out


@triton.jit
def group_terms(acc, found, tail, x, ok, i: tl.constexpr, FORM: tl.constexpr, NT: tl.constexpr,
                COLUMNS: tl.constexpr, TOGETHER: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
                ASM: tl.constexpr):  # fmt: skip
    """Adds the terms of group i of a segment to acc. Arguments as in `segment_terms`; found: the
    group's quad; ok: whether the group exists."""
    factors = group_factors(found, tail, i, FORM, ASM)
    out = ()
    for t in tl.static_range(NT):
        given = block_input(x, factors[0], i, t, COLUMNS, TOGETHER, ASM)
        out = out + block_terms(acc, factors, given, ok, 2 * COLUMNS * t, 0, FORM, COLUMNS, WHOLE,
                                W, ASM)  # fmt: skip
    return out


@triton.jit
def _whole(upper, middle, lower, ASM: tl.constexpr):
    """The sum of 256**2, 256 and 1 times three sums, as floats: rounded when the second one is
    added, and the third. Products with 256 are exact, so fusing them changes nothing."""
    if ASM:
        # What is too little here is too much in the middle's bits: both are exact.
        a = tl.fma(upper.to(tl.float32, bitcast=True), 256.0, -257.0 * _MAGIC_FLOAT)
        sums = a + middle.to(tl.float32, bitcast=True)
        whole = tl.fma(sums, 256.0, _float(lower, ASM))
    else:
        whole = (_float(upper, ASM) * 256.0 + _float(middle, ASM)) * 256.0 + _float(lower, ASM)
    return whole


@triton.jit
def limb_input(x, lane, i: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr,
               TOGETHER: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """Words of group i of a segment for each of NT blocks: both limbs, and info of COLUMNS rows."""
    found = ()
    for t in tl.static_range(NT):
        found = found + unpack.words(x[3 * t], lane, 128 * i, 2, False, ASM)
        found = found + unpack.words(x[3 * t], lane, 128 * i + 64, 2, False, ASM)
        if TOGETHER or COLUMNS == 1:
            found = found + unpack.words(x[3 * t + 1], lane, 16 * i, 2 * COLUMNS, False, ASM)
        else:
            found = found + unpack.words(x[3 * t + 1], lane, 16 * i, 2, False, ASM)
            found = found + unpack.words(x[3 * t + 2], lane, 16 * i, 2, False, ASM)
    return found


@triton.jit
def limb_inputs(x, lane, q: tl.constexpr, COLUMNS: tl.constexpr, TOGETHER: tl.constexpr,
                ASM: tl.constexpr):  # fmt: skip
    """The same of quad q of one block, group after group."""
    found = ()
    for j in tl.static_range(4):
        found = found + limb_input(x, lane, 4 * q + j, 1, COLUMNS, TOGETHER, ASM)
    return found


@triton.jit
def limb_terms(acc, found, tail, given, ok, i: tl.constexpr, AT: tl.constexpr, FORM: tl.constexpr,
               NT: tl.constexpr, COLUMNS: tl.constexpr, WHOLE: tl.constexpr, W: tl.constexpr,
               ASM: tl.constexpr):  # fmt: skip
    """As `group_terms`, with two limbs on both sides. given: what `limb_input` gave, from AT on."""
    EACH: tl.constexpr = 4 + 2 * COLUMNS
    j: tl.constexpr = i % 4
    a0, a2 = unpack.limb_halves(found, j, 0, 0)
    a1, a3 = unpack.limb_halves(found, j, 1, 0)
    l0, l2 = unpack.limb_halves(found, j, 0, 1)
    l1, l3 = unpack.limb_halves(found, j, 1, 1)
    d0 = unpack.scale(found, tail, i, 0, 0, FORM)
    d1 = unpack.scale(found, tail, i, 0, 1, FORM)
    zero = tl.full(a0.shape, _MAGIC if ASM else 0, tl.int32)
    out = ()
    for t in tl.static_range(NT):
        b0 = given[AT + t * EACH]
        b1 = given[AT + t * EACH + 1]
        r0 = given[AT + t * EACH + 2]
        r1 = given[AT + t * EACH + 3]
        upper = products(a0, a1, a2, a3, b0, b1, zero, zero, W, False, ASM)
        middle = products(l0, l1, l2, l3, b0, b1, zero, zero, W, False, ASM)
        middle = more_products(a0, a1, a2, a3, r0, r1, middle, W, ASM)
        lower = products(l0, l1, l2, l3, r0, r1, zero, zero, W, False, ASM)
        for o in tl.static_range(2):
            for c in tl.static_range(COLUMNS):
                s = given[AT + t * EACH + 4 + 2 * c].to(tl.float32, bitcast=True)
                if not WHOLE:
                    s = tl.where(ok, s, 0.0)
                value = _whole(upper[2 * o + c], middle[2 * o + c], lower[2 * o + c], ASM)
                term = (value * s) * (d1 if o else d0)
                out = out + (acc[(2 * t + o) * COLUMNS + c] + term,)
    return out


@triton.jit
def load_segment(tile, segment, quads, lane, FORM: tl.constexpr, WHOLE: tl.constexpr,
                 ASM: tl.constexpr):  # fmt: skip
    """Loads a warp's weights: 16 outputs of a segment. Begins all loads, waits for none.

    tile: pointers to int32, where a tile begins; segment: its number; quads: of the matrix; lane: 0
    to 31; all [32 * warps] or scalars, lane always a tensor. WHOLE: quads is a multiple of 4. Gives
    four tuples and the segment's scales, for `segment_terms`.
    """
    p = tile + segment * (4 * FORM.quad)
    left = quads - segment * 4 + lane * 0
    q0 = unpack.quad(p, lane, lane >= 0, 0, FORM, False, ASM)
    q1 = unpack.quad(p, lane, (left > 1).to(tl.int32), 1, FORM, not WHOLE, ASM)
    q2 = unpack.quad(p, lane, (left > 2).to(tl.int32), 2, FORM, not WHOLE, ASM)
    q3 = unpack.quad(p, lane, (left > 3).to(tl.int32), 3, FORM, not WHOLE, ASM)
    scales = tile + quads * FORM.quad + segment * (8 * FORM.tail) + lane // 4 * FORM.tail
    return q0, q1, q2, q3, unpack.words(scales, lane, 0, FORM.tail, False, ASM)


@triton.jit
def no_terms(NT: tl.constexpr, COLUMNS: tl.constexpr, W: tl.constexpr):
    """What a sum of terms starts from: 0 for every product of a thread."""
    acc = ()
    for _ in tl.static_range(2 * NT * COLUMNS):
        acc = acc + (tl.zeros([32 * W], tl.float32),)
    return acc


@triton.jit
def block_quad_terms(acc, found, tail, x, left, q: tl.constexpr, FORM: tl.constexpr,
                     NT: tl.constexpr, COLUMNS: tl.constexpr, TOGETHER: tl.constexpr,
                     WHOLE: tl.constexpr, W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """Adds the terms of quad q of a segment. Arguments as in `segment_terms`."""
    for j in tl.static_range(4):
        if FORM.bits == 16:
            given = limb_input(x, found[0], 4 * q + j, NT, COLUMNS, TOGETHER, ASM)
            acc = limb_terms(acc, found, tail, given, left > 4 * q + j, 4 * q + j, 0, FORM, NT,
                             COLUMNS, WHOLE, W, ASM)  # fmt: skip
        else:
            acc = group_terms(acc, found, tail, x, left > 4 * q + j, 4 * q + j, FORM, NT, COLUMNS,
                              TOGETHER, WHOLE, W, ASM)  # fmt: skip
    return acc


@triton.jit
def limb_segment_terms(weights, x, left, groups, QUADS: tl.constexpr, FORM: tl.constexpr,
                       COLUMNS: tl.constexpr, TOGETHER: tl.constexpr, WHOLE: tl.constexpr,
                       W: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """As `segment_terms`, of one block of rows and QUADS quads: a quad's input is under way while
    one is used. groups: of the matrix, a scalar."""
    EACH: tl.constexpr = 4 + 2 * COLUMNS
    acc = no_terms(1, COLUMNS, W)
    lane = weights[0][0]
    given = limb_inputs(x, lane, 0, COLUMNS, TOGETHER, ASM)
    for q in tl.static_range(QUADS):
        ahead = given
        if q < QUADS - 1:
            ahead = limb_inputs(x, lane, q + 1, COLUMNS, TOGETHER, ASM)
            tl.debug_barrier()
        # A branch, even one always taken: without both the compiler moves every load down to its
        # use, and each one is waited for.
        if groups > 4 * q:
            for j in tl.static_range(4):
                acc = limb_terms(acc, weights[q], weights[4], given, left > 4 * q + j, 4 * q + j,
                                 j * EACH, FORM, 1, COLUMNS, WHOLE, W, ASM)  # fmt: skip
        given = ahead
    return acc


@triton.jit
def segment_terms(weights, x, left, FORM: tl.constexpr, NT: tl.constexpr, COLUMNS: tl.constexpr,
                  TOGETHER: tl.constexpr, WHOLE: tl.constexpr, SKIP: tl.constexpr, W: tl.constexpr,
                  ASM: tl.constexpr):  # fmt: skip
    """The sums of a segment's terms: 2 * NT * COLUMNS tensors, for each of NT blocks of rows output
    n with the thread's COLUMNS rows, then output n + 8.

    weights: what `load_segment` gave. x: for each block three pointers to int32, at the segment's
    first group: bytes of row n, for the thread's q, in Input.codes; info of rows 2q and 2q + 1.
    `input_of_blocks` and `input_of_rows` give them. left: groups from the segment's first to the
    matrix's last, a scalar where SKIP allows to leave quads out. COLUMNS: 2, or 1 where all rows of
    a block are the same one. TOGETHER: info of row 2q + 1 follows that of row 2q. WHOLE: all
    segments have 16 groups.
    """
    acc = no_terms(NT, COLUMNS, W)
    for q in tl.static_range(4):
        if SKIP:
            if left > 4 * q:
                acc = block_quad_terms(acc, weights[q], weights[4], x, left, q, FORM, NT, COLUMNS,
                                 TOGETHER, WHOLE, W, ASM)  # fmt: skip
        else:
            acc = block_quad_terms(acc, weights[q], weights[4], x, left, q, FORM, NT, COLUMNS,
                                   TOGETHER, WHOLE, W, ASM)  # fmt: skip
    return acc


@triton.jit
def add_each(total, acc, COUNT: tl.constexpr):
    """The sums of two tuples of tensors."""
    out = ()
    for c in tl.static_range(COUNT):
        out = out + (total[c] + acc[c],)
    return out


@triton.jit
def input_of_blocks(CODES, INFO, block, step, blocks, lane, NT: tl.constexpr):
    """NT blocks of eight neighbouring rows for `segment_terms`, TOGETHER. step: groups from one
    block to the next; blocks: how many there are (the last is computed again in place of others).
    """
    found = ()
    for t in tl.static_range(NT):
        first = (tl.minimum(block + t, blocks - 1) * step).to(tl.int64)
        xb = CODES.to(tl.pointer_type(tl.int32)) + first * 128 + lane * 2
        xi = INFO.to(tl.pointer_type(tl.int32)) + first * 16 + lane % 4 * 4
        found = found + (xb, xi, xi)
    return found


@triton.jit
def input_of_rows(CODES, INFO, n_row, even_row, odd_row, step, lane):
    """One block of any rows for `segment_terms`: row n of thread 4n + q, and its rows 2q and
    2q + 1. For one row in all columns, which needs COLUMNS 1, the three are the same."""
    xb = CODES.to(tl.pointer_type(tl.int32)) + (n_row // 8 * step).to(tl.int64) * 128
    xi = INFO.to(tl.pointer_type(tl.int32))
    even = (even_row // 8 * step).to(tl.int64) * 16 + even_row % 8 * 2
    odd = (odd_row // 8 * step).to(tl.int64) * 16 + odd_row % 8 * 2
    return xb + (n_row % 8 * 8 + lane % 4 * 2), xi + even + lane * 0, xi + odd + lane * 0


@triton.jit
def at_segment(x, segment, NT: tl.constexpr):
    """The same from the first group of a segment on."""
    found = ()
    for t in tl.static_range(NT):
        info = segment * (16 * 16)
        found = found + (x[3 * t] + segment * (16 * 128), x[3 * t + 1] + info, x[3 * t + 2] + info)
    return found
