"""The few instructions of PTX that kernels use, so that the interpreter runs their assembly, too.

Every register is one number a thread, a numpy array of whole warps. What each instruction does
follows the PTX manual, and layouts of `mma` its figures for m16n8k16 and m16n8k32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

Array = np.ndarray[Any, Any]


@dataclass
class _Results:
    values: list[Any]

    def get_result(self, index: int) -> Any:
        return self.values[index]


def run_assembly(patch: pytest.MonkeyPatch) -> None:
    """From now on the interpreter runs inline assembly."""

    def inline(text: str, operands: str, values: list[Any], *rest: Any) -> _Results:
        outputs = [o for o in operands.split(",") if o.startswith("=")]
        tied = [o for o in operands.split(",") if not o.startswith("=")]
        threads = np.broadcast_shapes(*(v.data.shape for v in values))
        registers: dict[str, Array] = {}
        for i, (operand, value) in enumerate(zip(tied, values, strict=True)):
            name = operand if operand.isdigit() else str(len(outputs) + i)
            registers[f"${name}"] = np.broadcast_to(value.data, threads).copy()
        _run(text, registers, threads[0])
        found = [registers[f"${i}"] for i in range(len(outputs))]
        return _Results([interpreter.TensorHandle(_int32(v), tl.int32) for v in found])

    def appended(self: Any, before: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*before, *self.values)

    patch.setattr(interpreter.interpreter_builder, "create_inline_asm", inline)
    patch.setattr(tl.tuple, "__radd__", appended, raising=False)


def _int32(value: Array) -> Array:
    return (value.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def _unsigned(value: Array) -> Array:
    return value.astype(np.int64) & 0xFFFFFFFF


def _run(text: str, registers: dict[str, Array], threads: int) -> None:
    lane = np.arange(threads) % 32

    def value(name: str) -> Array:
        if name == "%lanemask_eq":
            return np.int64(1) << lane
        if name in registers:
            return registers[name]
        return np.full(threads, int(name, 0), np.int64)

    for statement in text.strip().strip("{}").split(";"):
        line = statement.strip()
        if not line or line.startswith(".reg"):
            continue
        if found := re.fullmatch(r"\.shared .* (\w+)\[(\d+)\]", line):
            # What nobody stored is anything.
            _SHARED[:] = [0x7FEDCBA9] * int(found[2])
            registers[found[1]] = np.zeros(threads, np.int64)
            continue
        condition, name, rest = re.fullmatch(r"(@\w+ )?(\S+) (.*)", line).groups()  # type: ignore[union-attr]
        if name.startswith("prefetch"):
            continue
        if name.startswith(("ld.global", "ld.relaxed.gpu.global")):
            live = np.ones(threads, bool) if condition is None else registers[condition[1:-1]]
            _load(rest, registers, live, value)
            continue
        if "shared" in name:
            live = np.ones(threads, bool) if condition is None else registers[condition[1:-1]]
            _meet(name, re.findall(r"[^\s,\[\]]+", rest), live, registers, value)
            continue
        if name == "bar.warp.sync":  # threads are in step anyway
            continue
        operands = re.findall(r"[^\s,{}]+", rest)
        if name.startswith("mma"):
            _multiply(name, operands, registers, value)
        elif name == "setp.ne.s32":
            registers[operands[0]] = value(operands[1]) != value(operands[2])
        elif name == "setp.eq.s32":
            registers[operands[0]] = value(operands[1]) == value(operands[2])
        else:
            arguments = [value(o) for o in operands[1:]]
            registers[operands[0]] = _int32(_SIMPLE[name](lane, *arguments))


_SHARED: list[int] = []


def _meet(
    name: str, operands: list[str], live: Array, registers: dict[str, Array], value: Any
) -> None:
    """A load from shared memory, or a store to it."""
    if name == "ld.shared.b32":
        at = value(operands[1])
        assert not (at % 4).any()
        registers[operands[0]] = _int32(np.array(_SHARED)[at // 4])
    else:
        assert name == "st.shared.b32"
        addresses, words = value(operands[0])[live], value(operands[1])[live]
        assert len(set(addresses)) == len(addresses), "two threads store to one place"
        for at, word in zip(addresses, words, strict=True):
            assert at % 4 == 0
            _SHARED[int(at) // 4] = int(word)


def _load(rest: str, registers: dict[str, Array], live: Array, value: Any) -> None:
    targets, address, offset = re.fullmatch(r"(.*), \[(\S+) \+ (\d+)\]", rest).groups()  # type: ignore[union-attr]
    names = re.findall(r"[^\s,{}]+", targets)
    start = value(address) + int(offset)
    assert not (start[live] % (4 * len(names))).any(), "not aligned"
    for i, name in enumerate(names):
        at = (start + 4 * i).astype(np.uint64)
        before = registers.get(name, np.zeros(len(at), np.int32)).astype(np.int32)
        registers[name] = interpreter._interpreter.load(at, live, before, np.dtype(np.int32))


def _permuted(lane: Array, a: Array, b: Array, selector: Array) -> Array:
    both = _unsigned(a) | _unsigned(b) << 32
    out = np.zeros_like(both)
    for i in range(4):
        which = _unsigned(selector) >> (4 * i) & 15
        byte = both >> (8 * (which & 7)) & 255
        out |= np.where(which & 8, np.where(byte & 128, 255, 0), byte) << (8 * i)
    return out


def _funnel(lane: Array, low: Array, high: Array, by: Array) -> Array:
    by = _unsigned(by) & 31
    return (_unsigned(low) | _unsigned(high) << 32) >> by


def _halves(lane: Array, a: Array, b: Array, c: Array) -> Array:
    halves = _int32(a).view(np.int16).reshape(-1, 2).astype(np.int64)
    factors = _int32(b).view(np.int8).reshape(-1, 4)[:, :2]
    return c + (halves * factors).sum(1)


def _exchanged(lane: Array, a: Array, distance: Array, clamp: Array, mask: Array) -> Array:
    assert (_unsigned(clamp) == 31).all()
    assert (_unsigned(mask) == 0xFFFFFFFF).all()
    return a[np.arange(len(a)) ^ distance]


def _of_thread(lane: Array, a: Array, index: Array, clamp: Array, mask: Array) -> Array:
    """Of the warp, or of four threads that exchange among each other."""
    assert (clamp == clamp[0]).all()
    size = {0x1F: 32, 0x1C1F: 4}[int(clamp[0])]
    assert (_unsigned(mask) == 0xFFFFFFFF).all()
    return a[np.arange(len(a)) // size * size + index]


def _largest_of_warp(lane: Array, a: Array, mask: Array) -> Array:
    assert (_unsigned(mask) == 0xFFFFFFFF).all()
    return np.repeat(_int32(a).reshape(-1, 32).max(1), 32)


def _masked(lane: Array, a: Array, b: Array, c: Array, table: Array) -> Array:
    assert (table == 0xEA).all()
    return _unsigned(a) & _unsigned(b) | _unsigned(c)


_SIMPLE = {
    "mov.b32": lambda lane, a: a,
    "mov.u32": lambda lane, a: a,
    "shr.u32": lambda lane, a, b: _unsigned(a) >> b,
    "and.b32": lambda lane, a, b: _unsigned(a) & _unsigned(b),
    "or.b32": lambda lane, a, b: _unsigned(a) | _unsigned(b),
    "add.s32": lambda lane, a, b: a.astype(np.int64) + b,
    "sub.u32": lambda lane, a, b: a.astype(np.int64) - b,
    "prmt.b32": _permuted,
    "shf.r.wrap.b32": _funnel,
    "dp2a.lo.s32.s32": _halves,
    "shfl.sync.bfly.b32": _exchanged,
    "shfl.sync.idx.b32": _of_thread,
    "redux.sync.max.s32": _largest_of_warp,
    "lop3.b32": _masked,
}


def _multiply(name: str, operands: list[str], registers: dict[str, Array], value: Any) -> None:
    """mma.sync.aligned.m16n8k(16|32).row.col.s32.(s8|u8).s8.s32"""
    k, kind = re.search(r"m16n8k(\d+)\.row\.col\.s32\.([su]8)\.s8\.s32", name).groups()  # type: ignore[union-attr]
    halves = int(k) // 16
    d, rest = operands[:4], [value(o) for o in operands[4:]]
    a, b, c = rest[: 2 * halves], rest[2 * halves : 3 * halves], rest[3 * halves :]

    def as_bytes(word: Array, dtype: str) -> Array:
        """[warps, group of four threads, thread in it, byte]"""
        return _int32(word).view(dtype).reshape(-1, 8, 4, 4).astype(np.int64)

    sums = []
    for rows in range(2):
        total = np.zeros((len(rest[0]) // 32, 8, 8), np.int64)
        for half in range(halves):
            weights = as_bytes(a[2 * half + rows], "i1" if kind == "s8" else "u1")
            total += np.einsum("wntb,wrtb->wnr", weights, as_bytes(b[half], "i1"))
        sums += [total[:, :, 0::2].reshape(-1), total[:, :, 1::2].reshape(-1)]
    for name, total, start in zip(d, sums, c, strict=True):
        registers[name] = _int32(total + start)
