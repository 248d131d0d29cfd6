"""The routed experts of a layer: some in slots on the device, the others in host memory.

A record is an expert's gate, up and down, one behind the other. Every expert has one place, on
either side; a window's missing records come into staging slots, which all layers share. Kernels
find a matrix by its address, so where it lies cannot change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton

from engine.kernels.dependent import launch_options
from engine.kernels.experts_blocks import Blocks
from engine.kernels.fetch import assign, fetch
from engine.kernels.form import FloatForm
from engine.kernels.host_buffer import host_buffer
from engine.kernels.matrix import Matrix

Encode = Callable[[int, int], tuple[Matrix, Matrix, Matrix]]
"""Gate, up and down of experts first..last-1, as stacks on the device."""

# Records begin at multiples of it.
_ALIGNMENT = 128
# Experts that are encoded at a time.
_CHUNK = 32
# Programs that copy, and units of 16 bytes of a part.
_COPIERS = 132
_UNITS = 1024


@dataclass(frozen=True, slots=True)
class Policy:
    """When experts change places: in every `every`-th window (0: never) up to `swaps` of a layer,
    each used more than `min_gain` times as much as the one that goes. After such a window what was
    counted is multiplied by `decay`."""

    every: int = 4
    swaps: int = 2
    decay: float = 0.97
    min_gain: float = 1.5


class Staging:
    """Slots for records on their way to the kernels, shared by all layers of a device."""

    def __init__(self, room: int, device: torch.device) -> None:
        self.room = room
        self._device = device
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)

    def address(self, record_bytes: int) -> int:
        """Where `room` records of this size may lie. It moves when it must grow, so ask late."""
        if self._memory.numel() < self.room * record_bytes:
            self._memory = torch.empty(
                self.room * record_bytes, dtype=torch.uint8, device=self._device
            )
        return self._memory.data_ptr()

    @property
    def size_bytes(self) -> int:
        """What it takes on the device."""
        return self._memory.numel()


@dataclass(frozen=True, slots=True, eq=False)
class StoredMatrix(Matrix):
    """Gate, up or down of a store. `record` has no expert; `addresses` hold for the experts of the
    window that `ExpertStore.begin` was told of."""

    store: ExpertStore


class ExpertStore:
    """`resident` of `count` experts on the device, the rest in host memory.

    `encode` is called for runs of experts, each once. `order` names the experts that begin on the
    device, best first (None: the lowest indices). Give every store before the first window runs.
    """

    def __init__(
        self,
        count: int,
        encode: Encode,
        resident: int,
        staging: Staging,
        policy: Policy,
        order: Sequence[int] | None = None,
    ) -> None:
        first = encode(0, min(_CHUNK, count))
        self.device = device = first[0].record.device
        self.count, self.resident = count, min(resident, count)
        sizes = [m.record[0].numel() * m.record.element_size() for m in first]
        self._up, self._down = sizes[0], sizes[0] + sizes[1]
        self.record_bytes = -(-sum(sizes) // _ALIGNMENT) * _ALIGNMENT
        self._staging, self._policy = staging, policy
        places = torch.empty(count, dtype=torch.int32)
        ranked = torch.tensor(list(order or range(count)), dtype=torch.int64)
        rank = torch.arange(count, dtype=torch.int32)
        places[ranked] = torch.where(rank < self.resident, rank, self.resident - 1 - rank)
        outside = count - self.resident
        self._slots = torch.empty(
            (max(self.resident, 1), self.record_bytes), dtype=torch.uint8, device=device
        )
        self._host = host_buffer(outside * self.record_bytes, device)
        self._fill(encode, first, places.tolist())

        def made(kind: torch.dtype, *shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.places = places.to(device)
        self.uses = made(torch.float32, count)
        self.tally = made(torch.int64, 4)
        self.rounds = made(torch.int32, count)
        self._addresses = made(torch.int64, 3, count)
        self._exchanges = made(torch.int64, max(policy.swaps, 1), 2)
        self._copies = made(torch.int64, max(outside, 1), 2)
        self._lengths = made(torch.int32, 2)
        if any(isinstance(m.form, FloatForm) for m in first):
            staging.room = max(staging.room, outside)  # their kernels know of no rounds
        staging.address(self.record_bytes)
        self.gate, self.up, self.down = (
            StoredMatrix(m.rows, m.columns, m.form, m.record[:0].clone(), self._addresses[i], self)
            for i, m in enumerate(first)
        )

    def _fill(self, encode: Encode, first: tuple[Matrix, ...], places: list[int]) -> None:
        host = self._host.view(-1, self.record_bytes)
        for begin in range(0, self.count, _CHUNK):
            end = min(begin + _CHUNK, self.count)
            matrices = first if begin == 0 else encode(begin, end)
            parts = [m.record.view(len(m.record), -1).view(torch.uint8) for m in matrices]
            records = torch.cat(parts, 1)
            for record, place in zip(records, places[begin:end], strict=True):
                target = self._slots[place] if place >= 0 else host[-1 - place]
                target[: records.shape[1]].copy_(record)

    def rounds_for(self, pairs: int, direct: bool = False) -> int:
        """In how many rounds the experts of a window of so many pairs are there."""
        if direct:
            return 1
        return max(1, -(-min(pairs, self.count - self.resident) // self._staging.room))

    def begin(self, blocks: Blocks, direct: bool = False) -> None:
        """Finds the experts of a window; `fetch` of round 0, 1, ... then brings them, or with
        `direct` only those that change places: the others are read where they lie."""
        policy = self._policy
        assign[(1,)](
            blocks.counts, self.places, self.uses, self.tally, self._addresses, self.rounds,
            self._exchanges, self._copies, self._lengths, self.count,
            self._slots.data_ptr(), self._host.data_ptr(),
            self._staging.address(self.record_bytes), self._staging.room, self.record_bytes,
            self._up, self._down, policy.every, policy.swaps, policy.decay, policy.min_gain,
            int(direct), POWER=triton.next_power_of_2(self.count), num_warps=4,
            **launch_options(self.places),
        )  # fmt: skip

    def fetch(self, index: int) -> None:
        """Round `index`: afterwards the experts of that round lie at their addresses."""
        room = self._staging.room
        fetch[(_COPIERS,)](
            self._exchanges, self._copies, self._lengths, self.record_bytes // 16, index * room,
            room, U=_UNITS, num_warps=8, **launch_options(self.places),
        )  # fmt: skip
