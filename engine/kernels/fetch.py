"""Brings what a window's experts need from host memory to the device, inside the window.

`assign` is one program: it finds which experts of a window lie in host memory and where they go,
and `fetch` copies. Where hardly an expert is read twice, its products read it over the wire: they
take no longer than a copy, which would come on top. An expert that comes anyway and was used more
than one on the device may change places with it: both directions of the wire carry a record then.
Where a record lies never changes what is computed with it.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.dependent import wait


@triton.jit
def first_of(hit, e, POWER: tl.constexpr):
    """The lowest index where `hit`, POWER if there is none."""
    return tl.min(tl.where(hit, e, POWER), axis=0)


@triton.jit(do_not_specialize=[
    "count", "slots", "host", "staging", "room", "step", "up", "down", "every", "swaps", "decay",
    "gain", "direct",
])  # fmt: skip
def assign(COUNTS, PLACES, USES, TALLY, ADDRESSES, ROUNDS, EXCHANGES, COPIES, LENGTHS,
           count, slots, host, staging, room, step, up, down, every, swaps, decay, gain,
           direct, POWER: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """Addresses of the window's experts, and the copies that make them true. One program.

    COUNTS int32 [E]: pairs of each expert in this window. PLACES int32 [E]: the slot on the device,
    or -1 - the place in host memory. USES float32 [E]: pairs seen, older ones count less. TALLY
    int64 [4]: windows, experts found on the device, fetched, and exchanged.

    Written: ADDRESSES int64 [3, E] of gate, up and down. ROUNDS int32 [E]: the round in which an
    expert is there. EXCHANGES and COPIES int64 [n, 2]: addresses of records that change places, and
    from and to, `room` copies a round; LENGTHS int32 [2]: how many of each.

    slots, host, staging: addresses of records, which lie `step` bytes apart; up, down: where in a
    record these matrices begin. In every `every`-th window up to `swaps` missing experts change
    places with resident ones that it does not use and that were used less than 1 / gain as much.
    direct: 1 if the other missing ones are read where they lie, else 0.
    """
    wait(PDL)
    e = tl.arange(0, POWER)
    live = e < count
    n = tl.load(COUNTS + e, mask=live, other=0)
    place = tl.load(PLACES + e, mask=live, other=0)
    uses = tl.load(USES + e, mask=live, other=0.0) + n.to(tl.float32)
    windows = tl.load(TALLY) + 1
    due = (every > 0) & (windows % tl.maximum(every, 1) == 0)
    needed = live & (n > 0)
    found = tl.sum((needed & (place >= 0)).to(tl.int32), axis=0)
    wanted = tl.sum((needed & (place < 0)).to(tl.int32), axis=0)
    exchanged = 0
    for i in range(tl.where(due, tl.minimum(swaps, wanted), 0)):
        high = tl.where(needed & (place < 0), uses, -1.0)
        most = tl.max(high, axis=0)
        low = tl.where(live & (n == 0) & (place >= 0), uses, float("inf"))
        least = tl.min(low, axis=0)
        worth = (most > gain * least) & (least < float("inf"))
        # Without a change nobody comes and nobody goes.
        comes = tl.where(worth, first_of(high == most, e, POWER), POWER)
        goes = tl.where(worth, first_of(low == least, e, POWER), POWER)
        there = tl.sum(tl.where(e == comes, place, 0), axis=0)
        here = tl.sum(tl.where(e == goes, place, 0), axis=0)
        if worth:
            tl.store(EXCHANGES + 2 * i, host + (-1 - there).to(tl.int64) * step)
            tl.store(EXCHANGES + 2 * i + 1, slots + here.to(tl.int64) * step)
            exchanged += 1
        place = tl.where(e == comes, here, tl.where(e == goes, there, place))
    missing = (needed & (place < 0)).to(tl.int32)
    rank = tl.cumsum(missing, 0) - missing
    missing = missing > 0
    stage = staging + (rank % room).to(tl.int64) * step
    lies = host + (-1 - place).to(tl.int64) * step
    comes_to = tl.where(direct > 0, lies, stage)
    address = tl.where(missing, comes_to, slots + tl.maximum(place, 0).to(tl.int64) * step)
    tl.store(ADDRESSES + e, address, mask=live)
    tl.store(ADDRESSES + count + e, address + up, mask=live)
    tl.store(ADDRESSES + 2 * count + e, address + down, mask=live)
    tl.store(ROUNDS + e, tl.where(missing & (direct == 0), rank // room, 0), mask=live)
    tl.store(COPIES + 2 * rank, lies, mask=missing)
    tl.store(COPIES + 2 * rank + 1, stage, mask=missing)
    tl.store(LENGTHS, exchanged)
    tl.store(LENGTHS + 1, tl.where(direct > 0, 0, wanted - exchanged))
    tl.store(PLACES + e, place, mask=live)
    tl.store(USES + e, tl.where(due, uses * decay, uses), mask=live)
    tl.store(TALLY, windows)
    tl.store(TALLY + 1, tl.load(TALLY + 1) + found)
    tl.store(TALLY + 2, tl.load(TALLY + 2) + wanted)
    tl.store(TALLY + 3, tl.load(TALLY + 3) + exchanged)


@triton.jit
def piece(JOBS, job, part, units, U: tl.constexpr):
    """Pointers to a part of both records of a job, 16 bytes a unit, and where there are units."""
    at = part * U + tl.arange(0, U)
    words = at[:, None] * 4 + tl.arange(0, 4)[None, :]
    first = tl.multiple_of(tl.load(JOBS + 2 * job).to(tl.pointer_type(tl.int32)), 16)
    second = tl.multiple_of(tl.load(JOBS + 2 * job + 1).to(tl.pointer_type(tl.int32)), 16)
    live = tl.broadcast_to((at < units)[:, None], [U, 4])
    return first + words, second + words, live


@triton.jit(do_not_specialize=["units", "first", "room"])
def fetch(EXCHANGES, COPIES, LENGTHS, units, first, room, U: tl.constexpr, PDL: tl.constexpr):
    """Copies number first..first + room - 1, and before the first ones all exchanges.

    Any number of programs share the work. units: of 16 bytes in a record. U: those of a part.
    """
    wait(PDL)
    programs = tl.num_programs(0)
    parts = tl.cdiv(units, U)
    exchanged = tl.where(first == 0, tl.load(LENGTHS), 0)
    for i in range(tl.program_id(0), exchanged * parts, programs):
        there, here, live = piece(EXCHANGES, i // parts, i % parts, units, U)
        comes = tl.load(there, mask=live)
        goes = tl.load(here, mask=live)
        tl.store(here, comes, mask=live)
        tl.store(there, goes, mask=live)
    copied = tl.minimum(tl.maximum(tl.load(LENGTHS + 1) - first, 0), room)
    for i in range(tl.program_id(0), copied * parts, programs):
        there, here, live = piece(COPIES, first + i // parts, i % parts, units, U)
        tl.store(here, tl.load(there, mask=live), mask=live)
