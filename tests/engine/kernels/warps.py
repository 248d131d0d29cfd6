"""Runs PTX of a whole program on a CPU: loops, shared memory, barriers, exchanges in a warp.

Warps run in turn from barrier to barrier; a register is a numpy array of 32 numbers. Branches must
be taken by a whole warp. What each instruction does follows the PTX manual.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LANE = np.arange(32)


@dataclass
class Program:
    """A text with its memory. Registers are named as in the text; `given`: those it starts with.

    memory: int32 words by name of a pointer; a pointer is 2**32 * its number, so that a wrong
    address is found.
    """

    text: str
    warps: int
    given: dict[str, int]
    memory: dict[str, Array]
    shared: Array = field(default_factory=lambda: np.zeros(0, np.uint32))

    def run(self) -> None:
        """Until every warp ends."""
        lines = [line.strip().rstrip(";") for line in self.text.strip()[1:-1].splitlines()]
        places, self._names = 0, {}
        for line in lines:
            if found := re.fullmatch(r"\.shared .* (\w+)\[(\d+)\]", line):
                self._names[found[1]] = 4 * places
                places += int(found[2])
        # What nobody cleared is anything.
        self.shared = np.full(places, 0xDEADBEEF, np.uint32)
        self._lines = [line for line in lines if line and not line.startswith(".")]
        self._labels = {line[:-1]: i for i, line in enumerate(self._lines) if line.endswith(":")}
        self._spaces = list(self.memory)
        running = [self._warp(warp) for warp in range(self.warps)]
        while running:
            ended = [next(warp, None) is None for warp in running]
            assert all(ended) or not any(ended), "a barrier that some warps do not reach"
            running = [] if all(ended) else running

    def _warp(self, warp: int) -> Iterator[bool]:
        registers: dict[str, Array] = {
            "%ntid.x": np.full(32, 32 * self.warps), "%tid.x": 32 * warp + LANE, "%laneid": LANE,
            "%lanemask_lt": (1 << LANE) - 1,
        }  # fmt: skip
        registers |= {name: np.full(32, place) for name, place in self._names.items()}
        registers |= {name: np.full(32, value) for name, value in self.given.items()}
        for i, name in enumerate(self._spaces):
            registers[name] = np.full(32, (i + 1) << 32)
        at = 0
        while at < len(self._lines):
            line = self._lines[at]
            at += 1
            if line.endswith(":"):
                continue
            condition, name, rest = re.fullmatch(r"(@!?\w+ )?(\S+) (.*)", line).groups()  # type: ignore[union-attr]
            live = np.ones(32, bool)
            if condition:
                live = registers[condition.strip("@! ")].astype(bool)
                live = ~live if "!" in condition else live
            if name == "bar.sync":
                yield True
            elif name == "bra":
                assert live.all() or not live.any(), f"a warp parts: {line}"
                at = self._labels[rest] if live.any() else at
            else:
                self._step(name, re.findall(r"[^\s,{}\[\]+]+", rest), live, registers)

    def _step(self, name: str, names: list[str], live: Array, registers: dict[str, Array]) -> None:
        def value(operand: str) -> Array:
            if re.match(r"\d", operand):
                return np.full(32, int(operand, 0))
            return registers[operand]

        parts = name.split(".")
        if parts[0] in ("ld", "st", "red"):
            assert parts[-1] == "u32"
            words = names[:-2] if parts[0] == "ld" else names[2:]
            address, offset = names[-2:] if parts[0] == "ld" else names[:2]
            for thread in np.flatnonzero(live):
                start = int(value(address)[thread]) + int(offset)
                assert start % (4 * len(words)) == 0, "not aligned"
                memory = self.shared
                if parts[1] == "global":
                    memory = self.memory[self._spaces[(start >> 32) - 1]]
                    start &= 0xFFFFFFFF
                for i, word in enumerate(words):
                    cell = start // 4 + i
                    assert 0 <= cell < len(memory)
                    if parts[0] == "ld":
                        held = registers.get(word, np.zeros(32, np.int64)).copy()
                        held[thread] = int(memory[cell]) & 0xFFFFFFFF
                        registers[word] = held
                    else:
                        new = int(value(word)[thread]) + int(memory[cell]) * (parts[0] == "red")
                        memory[cell] = np.array(new & 0xFFFFFFFF, np.uint32).view(memory.dtype)
            return
        operands = [value(n).astype(np.int64) for n in names[1:]]
        result = _computed(parts, operands)
        wide = parts[-1] in ("pred", "u64") or parts[0] == "setp" or "wide" in parts
        result = result if wide else result & 0xFFFFFFFF
        before = registers.get(names[0], np.zeros(32, np.int64))
        registers[names[0]] = np.where(live, result, before)


def _computed(parts: list[str], x: list[Array]) -> Array:
    """The result of all 32 threads; numbers come in as their unsigned bits."""
    if parts[-1] == "s32":
        x = [(a & 0xFFFFFFFF) - ((a & 0x80000000) << 1) for a in x]
    match parts[0]:
        case "mov":
            return x[0]
        case "add":
            return x[0] + x[1]
        case "sub":
            return x[0] - x[1]
        case "mul":
            return x[0] * x[1]
        case "div":
            return x[0] // x[1]
        case "mad":
            return x[0] * x[1] + x[2]
        case "min":
            return np.minimum(x[0], x[1])
        case "max":
            return np.maximum(x[0], x[1])
        case "shl":
            return x[0] << x[1]
        case "shr":
            return x[0] >> x[1]
        case "and":
            return x[0] & x[1]
        case "or":
            return x[0] | x[1]
        case "popc":
            return np.array([int(a).bit_count() for a in x[0]])
        case "clz":
            return np.array([32 - int(a).bit_length() for a in x[0]])
        case "vote":
            if parts[2] == "any":
                return np.full(32, x[0].any())
            return np.full(32, int(((x[0] != 0) << LANE).sum()))
        case "redux":
            return np.full(32, x[0].sum())
        case "shfl":
            source = LANE + x[1] if parts[2] == "down" else x[1]
            return x[0][np.where(source < 32, source, LANE)]
        case "setp":
            found: Array = {
                "lt": x[0] < x[1], "ge": x[0] >= x[1], "gt": x[0] > x[1], "eq": x[0] == x[1],
            }[parts[1]]  # fmt: skip
            return (found & (x[2] != 0) if parts[2] == "and" else found).astype(np.int64)
    raise NotImplementedError(".".join(parts))
