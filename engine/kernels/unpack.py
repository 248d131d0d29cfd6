"""Quads of a tile of integers, as `form.py` describes them, to what tensor cores and sums take.

Every tensor here has one number a thread, [32 * warps]: nothing moves between threads. Loaded words
are tuples in the order of a quad's sections.
"""

# Tuples of tensors grow by addition: the compiler of kernels knows no unpacking.
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,var-annotated"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load(p, ok, ALL: tl.constexpr):
    return tl.load(p) if ALL else tl.load(p, mask=ok, other=0)


@triton.constexpr_function
def _load_text(count, offset, checked):
    """Assembly that loads 1, 2 or 4 words from $count + offset bytes; 0 where $(count + 1) is 0."""
    names = ", ".join(f"${i}" for i in range(count))
    vector = {1: "", 2: ".v2", 4: ".v4"}[count]
    what = f"ld.global{vector}.b32 " + (f"{{{names}}}" if count > 1 else names)
    load = f"{what}, [${count} + {offset}];"
    if not checked:
        return load
    zeros = " ".join(f"mov.b32 ${i}, 0;" for i in range(count))
    return f"{{ .reg .pred p; setp.ne.s32 p, ${count + 1}, 0; {zeros} @p {load} }}"


@triton.constexpr_function
def _load_operands(count, checked):
    return ",".join(["=&r" if checked else "=r"] * count) + (",l,r" if checked else ",l")


@triton.jit
def _at_once(p, ok, OFFSET: tl.constexpr, COUNT: tl.constexpr, CHECKED: tl.constexpr):
    """1, 2 or 4 words by one load."""
    text: tl.constexpr = _load_text(COUNT, 4 * OFFSET, CHECKED)
    operands: tl.constexpr = _load_operands(COUNT, CHECKED)
    at = p.to(tl.int64)
    given = [at, ok] if CHECKED else [at]
    if COUNT == 1:
        one = tl.inline_asm_elementwise(
            text, operands, given, dtype=tl.int32, is_pure=False, pack=1
        )
        found = (one,)
    elif COUNT == 2:
        found = tl.inline_asm_elementwise(
            text, operands, given, dtype=(tl.int32, tl.int32), is_pure=False, pack=1
        )
    else:
        found = tl.inline_asm_elementwise(
            text, operands, given, dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
            is_pure=False, pack=1,
        )  # fmt: skip
    return found


@triton.jit
def words(p, ok, OFFSET: tl.constexpr, COUNT: tl.constexpr, CHECKED: tl.constexpr,
          ASM: tl.constexpr):  # fmt: skip
    """COUNT words (0, 1, 2 or a multiple of 4) at p + OFFSET, a tuple; with CHECKED, 0 where ok is.

    p: pointers to int32, multiples of the size of one load (four words at most).
    """
    found = ()
    if ASM:
        if COUNT == 0:
            found = ()
        elif COUNT < 4:
            found = _at_once(p, ok, OFFSET, COUNT, CHECKED)
        else:
            for i in tl.static_range(COUNT // 4):
                found = found + _at_once(p, ok, OFFSET + 4 * i, 4, CHECKED)
    else:
        for j in tl.static_range(COUNT):
            q = p + (OFFSET + j)
            found = found + (tl.load(q, mask=ok != 0, other=0) if CHECKED else tl.load(q),)
    return found


@triton.jit
def quad(p, lane, ok, INDEX: tl.constexpr, FORM: tl.constexpr, CHECKED: tl.constexpr,
         ASM: tl.constexpr):  # fmt: skip
    """Loads a thread's words of quad INDEX from p on. lane: 0 to 31."""
    AT: tl.constexpr = INDEX * FORM.quad
    LOW: tl.constexpr = AT + 32 * FORM.codes
    NUMBERS: tl.constexpr = LOW + 32 * FORM.low
    SCALES: tl.constexpr = NUMBERS + 8 * FORM.numbers
    found = ()
    for i in tl.static_range(FORM.codes // 4):
        found = found + words(p + lane * 4, ok, AT + 128 * i, 4, CHECKED, ASM)
    found = found + words(p + lane * FORM.low, ok, LOW, FORM.low, CHECKED, ASM)
    n = lane // 4
    found = found + words(p + n * FORM.numbers, ok, NUMBERS, FORM.numbers, CHECKED, ASM)
    return found + words(p + n * FORM.scales, ok, SCALES, FORM.scales, CHECKED, ASM)


@triton.constexpr_function
def _look_up(table):
    """Assembly for eight look-ups: nibbles of $2 are indices into the 16 bytes of four words, of
    which $3 and $4 are the first and the third. $5: 0x32103210."""
    _, b, _, d = (f"0x{word & 0xFFFFFFFF:08X}" for word in table)
    return (
        "{ .reg .b32 t,s,l,h; and.b32 t,$2,0x77777777; shr.u32 s,$2,1;"
        " lop3.b32 s,s,0x44444444,$5,0xEA;"
        f" prmt.b32 l,$3,{b},t; prmt.b32 h,$4,{d},t; prmt.b32 $0,l,h,s;"
        " shr.u32 t,t,16; shr.u32 s,s,16;"
        f" prmt.b32 l,$3,{b},t; prmt.b32 h,$4,{d},t; prmt.b32 $1,l,h,s; }}"
    )


@triton.jit
def _with_bits(word, bits, MASK: tl.constexpr):
    """(word & MASK) | bits by one instruction."""
    text: tl.constexpr = _with_bits_text(MASK)
    return tl.inline_asm_elementwise(
        text, "=r,r,r", [word, bits], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.constexpr_function
def _with_bits_text(mask):
    return f"lop3.b32 $0, $1, 0x{mask & 0xFFFFFFFF:08X}, $2, 0xEA;"


@triton.jit
def _entries(nibbles, FORM: tl.constexpr):
    """Table entries of the four lowest nibbles, without inline assembly."""
    out = tl.zeros_like(nibbles)
    for j in tl.static_range(4):
        index = (nibbles >> (4 * j)) & 15
        value = tl.zeros_like(nibbles)
        for e in tl.static_range(16):
            entry: tl.constexpr = (FORM.table[e // 4] >> (8 * (e % 4))) & 255
            value = tl.where(index == e, entry, value)
        out = out | (value << (8 * j))
    return out


@triton.jit
def _moved(word, FROM: tl.constexpr, TO: tl.constexpr):
    """The word shifted so that bit FROM becomes bit TO; what comes in from the sides is to go."""
    if FROM < TO:
        word = word << (TO - FROM)
    if FROM > TO:
        word = word >> (FROM - TO)
    return word


@triton.jit
def halves(found, j: tl.constexpr, OUT: tl.constexpr, FORM: tl.constexpr, ASM: tl.constexpr):
    """Bytes of group j of output n (OUT 0) or n + 8 (1): two words, of inputs 4q to 4q + 3 and of
    16 + 4q to 16 + 4q + 3, as `Form` says. found: what `quad` loaded."""
    if FORM.bits == 8:
        lo = found[4 * j + OUT]
        hi = found[4 * j + 2 + OUT]
    elif FORM.bits == 2:
        word = found[2 * OUT + j // 2]
        lo = _moved(word, 4 * (j % 2), 6) & -0x3F3F3F40
        hi = _moved(word, 4 * (j % 2) + 2, 6) & -0x3F3F3F40
    else:
        word = found[4 * OUT + j]
        if len(FORM.table) > 0:
            if ASM:
                lo, hi = tl.inline_asm_elementwise(
                    _look_up(FORM.table), "=&r,=r,r,r,r,r",
                    [word, tl.full(word.shape, FORM.table[0], tl.int32),
                     tl.full(word.shape, FORM.table[2], tl.int32),
                     tl.full(word.shape, 0x32103210, tl.int32)],
                    dtype=(tl.int32, tl.int32), is_pure=True, pack=1,
                )  # fmt: skip
            else:
                lo = _entries(word, FORM)
                hi = _entries(word >> 16, FORM)
        else:
            if FORM.odd and ASM:
                odd = tl.full(word.shape, FORM.odd * 0x01010101, tl.int32)
                lo = _with_bits(word << 4, odd, -0x0F0F0F10)
                hi = _with_bits(word, odd, -0x0F0F0F10)
            else:
                lo = ((word << 4) & -0x0F0F0F10) | (FORM.odd * 0x01010101)
                hi = (word & -0x0F0F0F10) | (FORM.odd * 0x01010101)
            if FORM.bits == 5:
                low = found[FORM.codes + OUT]
                lo = lo | (_moved(low, 2 * j, 3) & 0x08080808)
                hi = hi | (_moved(low, 2 * j + 1, 3) & 0x08080808)
            if FORM.bits == 6:
                low = found[FORM.codes + 2 * OUT + j // 2]
                lo = lo | (_moved(low, 4 * (j % 2), 2) & 0x0C0C0C0C)
                hi = hi | (_moved(low, 4 * (j % 2) + 2, 2) & 0x0C0C0C0C)
    return lo, hi


@triton.jit
def limb_halves(found, j: tl.constexpr, OUT: tl.constexpr, LIMB: tl.constexpr):
    """As `halves`, of the upper limbs (LIMB 0) or the lower ones (1)."""
    return found[16 * LIMB + 4 * j + OUT], found[16 * LIMB + 4 * j + 2 + OUT]


@triton.jit
def number(found, j: tl.constexpr, WHICH: tl.constexpr, OUT: tl.constexpr, SHIFT: tl.constexpr,
           FORM: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """A multiplier of group j over 2**SHIFT, float32. WHICH: those of codes, then of minima."""
    word = found[FORM.codes + FORM.low + 2 * WHICH + OUT]
    SMALL: tl.constexpr = 1.0 / (1 << SHIFT)
    if ASM:
        # The byte becomes the end of the mantissa of 2**(23 - SHIFT).
        wide = tl.inline_asm_elementwise(
            _put_byte(j, SHIFT), "=r,r", [word], dtype=tl.int32, is_pure=True, pack=1
        )
        m = wide.to(tl.float32, bitcast=True) - (8388608 + 128) * SMALL
    else:
        m = (((word >> (8 * j)) & 255) - 128).to(tl.float32) * SMALL
    return m


@triton.constexpr_function
def _put_byte(j, shift):
    return f"prmt.b32 $0, $1, 0x{(150 - shift) << 23:08X}, 0x765{j};"


@triton.jit
def _of_word(word, INDEX: tl.constexpr, FORM: tl.constexpr):
    if FORM.wide:
        d = word.to(tl.float32, bitcast=True)
    else:
        pair = word >> 16 if INDEX % 2 == 1 else word
        d = pair.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        if FORM.factor != 1.0:
            d = d * FORM.factor
    return d


@triton.jit
def scale(found, tail, i: tl.constexpr, WHICH: tl.constexpr, OUT: tl.constexpr,
          FORM: tl.constexpr):  # fmt: skip
    """The scale of group i of a segment, float32; WHICH 1: of its minimum. tail: scales of the
    segment, where they serve 8 groups."""
    PER_WORD: tl.constexpr = 1 if FORM.wide else 2
    # Scales of an output: in a segment, or in a quad.
    COUNT: tl.constexpr = 16 // FORM.span if FORM.tail else 4 // FORM.span
    INDEX: tl.constexpr = i // FORM.span % COUNT
    AT: tl.constexpr = (2 * WHICH + OUT) * (COUNT // PER_WORD) + INDEX // PER_WORD
    word = tail[AT] if FORM.tail else found[FORM.codes + FORM.low + FORM.numbers + AT]
    return _of_word(word, INDEX, FORM)
