"""What choosing a token needs of a row of logits: see `engine/sampler.py`, which this follows.

Logits are compared as integers that order like they do, so no result depends on an order of work.
A row is a tree: leaves of 16 logits, tops of 16 leaves. The K largest logits lie in the K tops
with the largest maxima (of equal ones the first), among those in the K largest leaves: an element
outside has K others before it. Weights are whole numbers from the float64 operations of the
sampler, one by one.
"""

# Tuples grow in loops that Triton unrolls.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from engine.kernels.dependent import launch_options, wait
from engine.logits import WIDE

LEAF = tl.constexpr(16)
TOP = tl.constexpr(256)
TOPS = tl.constexpr(8)  # of a program of `maxima`
NOT_FINITE = tl.constexpr(0x7FFFFFFF)
NOTHING = tl.constexpr(-0x80000000)
NO_LOGIT = tl.constexpr(-0x8000000000000000)
TILE = 1024
"""Logits that a program of `weigh` weighs."""
WORDS = 4
"""int64 of a row that is asked for: its number, the bits of its temperature (float64; 0: it draws
nothing), the least weight that counts, 32 random bits."""
LOWEST_64 = tl.constexpr(-32.0)
LOG2_E = tl.constexpr(1.4426950408889634)
LN2_HIGH_64 = tl.constexpr(0.6931471803691238)
LN2_LOW_64 = tl.constexpr(1.9082149292705877e-10)
FACTORS = tl.constexpr(tuple(1.0 / n for n in (
    6227020800, 479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2, 1, 1
)))  # fmt: skip
ROUND_64 = tl.constexpr(6755399441055744.0)  # 1.5 * 2**52: adding and taking it off rounds
ONE = tl.constexpr(1099511627776.0)


@triton.jit
def sortable(x):
    """int32 that order like float32 x; zeros are alike, what is not finite is above all."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where((bits & 0x7FFFFFFF) >= 0x7F800000, NOT_FINITE, order)


@triton.jit(do_not_specialize=["units", "tops"])
def maxima(
    LOGITS, LEAVES, TOP_MAXIMA, SO_FAR, BEST, HOST, units, tops, UNIT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The largest of each leaf and of each top; of the row, the lowest id of the largest logit, -1
    where one is not finite. Grid (tops / TOPS, rows).

    SO_FAR: int64 [rows, 2], the best logit of the programs that are done, above the complement of
    its id, and how many they are; NO_LOGIT and 0 before and after. A row is `units` of UNIT logits:
    fours are loaded together.
    """
    row = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * TOPS
    columns = units * UNIT
    # A thread has a leaf, in four loads.
    leaf = first * LEAF + tl.arange(0, TOPS * LEAF)
    at = leaf[:, None] * LEAF + tl.arange(0, 4)[None, :]
    wait(PDL)
    x = ()
    for i in tl.static_range(4):
        inside = at + 4 * i < columns
        x += (tl.load(LOGITS + row * columns + at + 4 * i, mask=inside, other=0.0),)
    largest = tl.full([TOPS * LEAF], NOTHING, tl.int32)
    token = tl.zeros([TOPS * LEAF], tl.int32)
    for i in tl.static_range(4):
        keys = tl.where(at + 4 * i < columns, sortable(x[i]), NOTHING)
        key = tl.max(keys, axis=1)
        one = tl.min(tl.where(keys == key[:, None], at + 4 * i, NOT_FINITE), axis=1)
        token = tl.where(key > largest, one, token)
        largest = tl.maximum(largest, key)
    tl.store(LEAVES + row * tops * LEAF + leaf, largest)
    top_maxima = tl.max(tl.reshape(largest, [TOPS, LEAF]), axis=1)
    tl.store(TOP_MAXIMA + row * tops + first + tl.arange(0, TOPS), top_maxima)
    both = (largest.to(tl.int64) << 32) | (token ^ NOT_FINITE).to(tl.int64)
    so_far = SO_FAR + row * 2
    tl.atomic_max(so_far, tl.max(both, axis=0), sem="relaxed")
    if tl.atomic_add(so_far + 1, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        found = tl.atomic_xchg(so_far, tl.full((), NO_LOGIT, tl.int64), sem="relaxed")
        tl.store(so_far + 1, 0)
        best = (found & 0x7FFFFFFF).to(tl.int32) ^ NOT_FINITE
        best = tl.where((found >> 32).to(tl.int32) == NOT_FINITE, -1, best)
        tl.store(BEST + row, best)
        tl.store(HOST + row, best)


@triton.jit
def among_largest(keys, K: tl.constexpr):
    """1 for the K largest of int32 keys, of equal ones the first, else 0. Bit by bit, the largest
    integer is found that at least K keys reach."""
    least = NOTHING
    reached = tl.sum((keys >= 0).to(tl.int32), axis=0)
    least = tl.where(reached >= K, 0, least)
    bit = 30
    while bit >= 0:
        tried = least + (1 << bit)
        reached = tl.sum((keys >= tried).to(tl.int32), axis=0)
        least = tl.where(reached >= K, tried, least)
        bit = tl.where(reached == K, -1, bit - 1)
    above = (keys > least).to(tl.int32)
    same = (keys == least).to(tl.int32)
    equal = K - tl.sum(above, axis=0)
    return above + tl.where(tl.cumsum(same, axis=0) <= equal, same, 0)


@triton.jit(do_not_specialize=["columns", "tops"])
def candidates(
    LOGITS, LEAVES, TOP_MAXIMA, ASKED, SCRATCH, IDS, VALUES, columns, tops, K: tl.constexpr,
    ROOM: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The K largest logits of asked rows, ascending ids; ids behind `columns` are none. Grid (asked
    rows,)."""
    number = tl.program_id(0)
    at = tl.arange(0, B)
    scratch = SCRATCH + number * ROOM
    chosen = tl.arange(0, K)[:, None]
    inner = tl.arange(0, LEAF)[None, :]
    wait(PDL)
    row = tl.load(ASKED + number * 4)
    keys = tl.load(TOP_MAXIMA + row * tops + at, mask=at < tops, other=NOTHING)
    taken = among_largest(keys, K)
    tl.store(scratch + tl.cumsum(taken, axis=0) - 1, at, mask=taken > 0)
    tl.debug_barrier()
    at = tl.reshape(tl.load(scratch + chosen) * LEAF + inner, [K * LEAF])
    tl.debug_barrier()
    keys = tl.load(LEAVES + row * tops * LEAF + at, mask=at < tops * LEAF, other=NOTHING)
    taken = among_largest(keys, K)
    tl.store(scratch + tl.cumsum(taken, axis=0) - 1, at, mask=taken > 0)
    tl.debug_barrier()
    at = tl.reshape(tl.load(scratch + chosen) * LEAF + inner, [K * LEAF])
    x = tl.load(LOGITS + row * columns + at, mask=at < columns, other=0.0)
    taken = among_largest(tl.where(at < columns, sortable(x), NOTHING), K)
    place = number * ROOM + tl.cumsum(taken, axis=0) - 1
    tl.store(IDS + place, at, mask=taken > 0)
    tl.store(VALUES + place, x, mask=taken > 0)


@triton.jit
def weights(x, largest, temperature, least):
    """Weights (int64) of float32 logits at a temperature (float64); those below `least` are 0."""
    x = (x.to(tl.float64) - largest.to(tl.float64)) / temperature
    counts = x >= LOWEST_64
    x = tl.where(counts, x, 0.0)
    k = (x * LOG2_E + ROUND_64) - ROUND_64
    r = (x - k * LN2_HIGH_64) - k * LN2_LOW_64
    e = tl.zeros_like(r) + FACTORS[0]
    for i in tl.static_range(1, 14):
        e = e * r + FACTORS[i]
    e = e * ((k.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    w = ((e * ONE + ROUND_64) - ROUND_64).to(tl.int64)
    return tl.where(counts & (w >= least), w, 0)


@triton.jit(do_not_specialize=["columns", "tiles"])
def weigh(
    LOGITS, BEST, ASKED, SUMS, columns, tiles, TILE: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """Sums of the weights of each tile of the rows that draw; 0 where a logit is not finite. Grid
    (tiles, asked rows)."""
    number = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    wait(PDL)
    bits = tl.load(ASKED + number * 4 + 1)
    if bits != 0:
        logits = LOGITS + tl.load(ASKED + number * 4) * columns
        token = tl.load(BEST + tl.load(ASKED + number * 4))
        x = tl.load(logits + at, mask=at < columns, other=0.0)
        largest = tl.load(logits + tl.maximum(token, 0))
        least = tl.load(ASKED + number * 4 + 2)
        w = weights(x, largest, bits.to(tl.float64, bitcast=True), least)
        total = tl.sum(tl.where((at < columns) & (token >= 0), w, 0), axis=0)
        tl.store(SUMS + number * tiles + tl.program_id(0), total)


@triton.jit(do_not_specialize=["columns", "tiles"])
def draw(
    LOGITS, BEST, ASKED, SUMS, DRAWN, columns, tiles, B: tl.constexpr, TILE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """DRAWN: int64 [asked rows, 2], the drawn token and the sum of all weights. Grid (asked rows,).

    The first token, in the order of ids, at which the running sum is above total * u / 2**32.
    """
    number = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, B)
    inner = tl.arange(0, TILE)
    wait(PDL)
    bits = tl.load(ASKED + number * 4 + 1)
    if bits != 0:
        logits = LOGITS + tl.load(ASKED + number * 4) * columns
        token = tl.load(BEST + tl.load(ASKED + number * 4))
        least = tl.load(ASKED + number * 4 + 2)
        u = tl.load(ASKED + number * 4 + 3).to(tl.uint64)
        sums = tl.load(SUMS + number * tiles + tile, mask=tile < tiles, other=0)
        total = tl.sum(sums, axis=0)
        # total < 2**59 and u < 2**32: their product is taken in two halves.
        high, low = (total >> 32).to(tl.uint64), (total & 0xFFFFFFFF).to(tl.uint64)
        target = (high * u + ((low * u) >> 32)).to(tl.int64)
        passed = (tl.cumsum(sums, axis=0) <= target).to(tl.int32)
        here = tl.minimum(tl.sum(passed, axis=0), tiles - 1)
        before = tl.sum(tl.where(tile < here, sums, 0), axis=0)
        at = here * TILE + inner
        x = tl.load(logits + at, mask=at < columns, other=0.0)
        largest = tl.load(logits + tl.maximum(token, 0))
        w = weights(x, largest, bits.to(tl.float64, bitcast=True), least)
        w = tl.where(at < columns, w, 0)
        passed = (before + tl.cumsum(w, axis=0) <= target).to(tl.int32)
        tl.store(DRAWN + number * 2, (here * TILE + tl.sum(passed, axis=0)).to(tl.int64))
        tl.store(DRAWN + number * 2 + 1, total)


@triton.jit(do_not_specialize=["tiles"])
def tell(BEST, SUMS, TOKENS, TOLD, tiles, B: tl.constexpr, PDL: tl.constexpr):
    """TOKENS: int64 [rows], the best tokens (0 where a logit is not finite). TOLD: int64 [rows, 2],
    the same and the sum of all weights. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, B)
    wait(PDL)
    token = tl.maximum(tl.load(BEST + row), 0).to(tl.int64)
    sums = tl.load(SUMS + row * tiles + tile, mask=tile < tiles, other=0)
    tl.store(TOKENS + row, token)
    tl.store(TOLD + row * 2, token)
    tl.store(TOLD + row * 2 + 1, tl.sum(sums, axis=0))


@triton.jit(do_not_specialize=["width"], do_not_specialize_on_alignment=["PLACES"])
def copy_rows(
    SOURCE, TARGET, PLACES, width, SPREAD: tl.constexpr, B: tl.constexpr, PDL: tl.constexpr
):
    """Row i of SOURCE to row PLACES[i] of TARGET (SPREAD, nowhere if that is negative), or row
    PLACES[i] of SOURCE to row i of TARGET. Grid (width / B, rows of PLACES)."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * B + tl.arange(0, B)
    wait(PDL)
    place = tl.load(PLACES + row).to(tl.int64)
    source = row if SPREAD else place
    target = place if SPREAD else row
    live = at < tl.where(place >= 0, width, 0)
    x = tl.load(SOURCE + source * width + at, mask=live, other=0.0)
    tl.store(TARGET + target * width + at, x, mask=live)


def spread_rows(source: torch.Tensor, target: torch.Tensor, places: torch.Tensor) -> None:
    """Row i of float32 [R, ...] to row places[i] of [S, ...]; places: int32 [R], negative: none."""
    _copy(source, target, places, spread=True)


def rows_at(source: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """source[places], for float32 [S, ...] and int32 [R]."""
    out = torch.empty((len(places), *source.shape[1:]), device=source.device)
    _copy(source, out, places, spread=False)
    return out


def ids_at(ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """ids[places], for int64 [V] and [R]."""
    return rows_at(ids.view(torch.float32).view(-1, 2), places).view(torch.int64).view(-1)


def _copy(
    source: torch.Tensor, target: torch.Tensor, places: torch.Tensor, *, spread: bool
) -> None:
    width = target[0].numel()
    copy_rows[(triton.cdiv(width, TILE), len(places))](
        source, target, places, width, SPREAD=spread, B=TILE, num_warps=4, **launch_options(source)
    )


class Chooser:
    """Room for the choices of up to `rows` rows of `columns` logits, and the launches.

    Results lie in host memory and are there when the stream has come that far. found: int32 [rows],
    the best token of each row. Of rows that were asked for, in that order: ids and values [rows,
    256], their candidates; drawn: int64 [rows, 2].
    """

    def __init__(self, rows: int, columns: int, device: str) -> None:
        self._columns = columns
        self._tops = -(-columns // (TOP.value * TOPS.value)) * TOPS.value
        self._tiles = -(-columns // TILE)

        def here(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def host(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, pin_memory=device != "cpu")

        self._leaves = here(rows, self._tops * LEAF.value)
        self._top_maxima = here(rows, self._tops)
        self._so_far = torch.tensor([[NO_LOGIT.value, 0]] * rows).to(device)
        self.best = here(rows)
        self._scratch = here(rows, WIDE)
        self._sums = here(rows, self._tiles, dtype=torch.int64)
        self._asked = here(rows, WORDS, dtype=torch.int64)
        self._asked_host = host(rows, WORDS, dtype=torch.int64)
        self.found = host(rows)
        (one,) = struct.unpack("<q", struct.pack("<d", 1.0))
        every = [[row, one, 0, 0] for row in range(rows)]
        self._every = torch.tensor(every, dtype=torch.int64).to(device)
        self.ids = host(rows, WIDE)
        self.values = host(rows, WIDE, dtype=torch.float32)
        self.drawn = host(rows, 2, dtype=torch.int64)

    def find_best(self, logits: torch.Tensor) -> None:
        """`best` and `found` of every row of float32 [R, columns]."""
        rows, tops = logits.shape[0], self._tops
        unit = 1 if self._columns % 4 else 4
        options = launch_options(logits)
        tree = (logits, self._leaves, self._top_maxima)
        maxima[(tops // TOPS.value, rows)](
            *tree, self._so_far, self.best, self.found, self._columns // unit, tops, UNIT=unit,
            num_warps=4, **options,
        )  # fmt: skip

    def likeliest(self, logits: torch.Tensor, tokens: torch.Tensor, told: torch.Tensor) -> None:
        """The best token of every row, to int64 [R] on the device; in host memory, int64 [R, 2],
        beside the sum of all weights at temperature 1."""
        self.find_best(logits)
        rows, options = logits.shape[0], launch_options(logits)
        weigh[(self._tiles, rows)](
            logits, self.best, self._every, self._sums, self._columns, self._tiles, TILE=TILE,
            num_warps=4, **options,
        )  # fmt: skip
        tell[(rows,)](
            self.best, self._sums, tokens, told, self._tiles, num_warps=4,
            B=triton.next_power_of_2(self._tiles), **options,
        )  # fmt: skip

    def ask(self, logits: torch.Tensor, words: Sequence[Sequence[int]], most: int) -> None:
        """After `find_best` of the same logits: more about some of its rows, `WORDS` of each, and
        `most` candidates."""
        count, options = len(words), launch_options(logits)
        self._asked_host[:count] = torch.tensor(words)
        self._asked[:count].copy_(self._asked_host[:count], non_blocking=True)
        candidates[(count,)](
            logits, self._leaves, self._top_maxima, self._asked, self._scratch, self.ids,
            self.values, self._columns, self._tops, K=most, ROOM=WIDE,
            B=max(most, triton.next_power_of_2(self._tops)), num_warps=4, **options,
        )  # fmt: skip
        if any(temperature for _, temperature, *_ in words):
            weighed = (logits, self.best, self._asked, self._sums)
            weigh[(self._tiles, count)](
                *weighed, self._columns, self._tiles, TILE=TILE, num_warps=4, **options
            )
            draw[(count,)](
                *weighed, self.drawn, self._columns, self._tiles, TILE=TILE,
                B=triton.next_power_of_2(self._tiles), num_warps=4, **options,
            )  # fmt: skip
