"""Times of the kernels: graph replays over rotating buffers larger than the L2, medians."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from scripts.order_of_sums import checks
from scripts.order_of_sums.launch import ExpertRun, expert_run, float_run, integer_run
from scripts.order_of_sums.records import KINDS, Kind, quantise_rows, random_matrix

ROTATE_BYTES = 200e6


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured launch: median microseconds beside the bytes that it must move."""

    metric: str
    shape: str
    rows: int
    value: float  # us
    bytes: int


def microseconds(launch: Callable[[int], None], copies: int, dry: bool) -> float:
    """Median time of one launch in a graph that runs over all copies; dry: compile only."""
    launch(0)
    if dry:
        return 0.0
    loops = max(copies, 8)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(loops):
            launch(i % copies)
    graph.replay()
    times = []
    for _ in range(9):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / loops)
    return statistics.median(times)


def copies_of(size: int) -> int:
    """Buffers to rotate, so that none is still in the L2 when its turn comes again."""
    return max(1, min(400, int(ROTATE_BYTES // size) + 1))


def integer(kind: Kind, n: int, k: int, dry: bool, wide: bool) -> Iterator[Timing]:
    """dp4a at 1, 2, 4, 8 rows and tensor cores at 16 (and other splits and warps when wide)."""
    matrix = random_matrix(kind, n, k, "cuda")
    size = matrix.record.numel()
    copies = 1 if dry else copies_of(size)
    run = integer_run(matrix, True, copies)
    shape = f"{n}x{k}"
    for rows in (1, 2, 4, 8) if wide else (1, 8):
        for warps in (1, 2, 4) if wide else (0,):
            us = microseconds(lambda i, r=rows, w=warps: run.launch(r, False, i, w), copies, dry)
            yield Timing(f"dp4a w{warps} {kind.name}", shape, rows, us, size)
    for warps in (1, 2, 4) if wide else (0,):
        us = microseconds(lambda i, w=warps: run.launch(16, True, i, w), copies, dry)
        yield Timing(f"mma w{warps} {kind.name}", shape, 16, us, size)
    if wide and run.parts > 1:
        run.parts = 1
        for rows, cores in ((1, False), (16, True)):
            us = microseconds(lambda i, r=rows, c=cores: run.launch(r, c, i), copies, dry)
            yield Timing(f"{'mma' if cores else 'dp4a'} unsplit {kind.name}", shape, rows, us, size)


def prompt(kind: Kind, n: int, k: int, dry: bool) -> Iterator[Timing]:
    """Tensor cores over 2048 rows with larger tiles."""
    rows = 2048
    matrix = random_matrix(kind, n, k, "cuda")
    run = integer_run(matrix, True, 1, rows, parts=1)
    for tile, warps in ((16, 2), (64, 4), (128, 8)):
        us = microseconds(lambda i, t=tile, w=warps: run.launch(rows, True, 0, w, t), 1, dry)
        yield Timing(
            f"mma tile {tile} w{warps} {kind.name}", f"{n}x{k}", rows, us, matrix.record.numel()
        )


def experts(kind: Kind, n: int, k: int, dry: bool) -> Iterator[Timing]:
    """Ten experts of one row, and 8 rows x 10, through addresses (512 experts in memory)."""
    matrix = random_matrix(kind, n, k, "cuda")
    size = matrix.record.numel()
    pool = matrix.record.repeat(512)
    addresses = pool.data_ptr() + torch.arange(512, device="cuda") * size
    x = quantise_rows(torch.randn(8, k, device="cuda"))
    for rows in (1, 8):
        loops = 1 if dry else 512 // (10 * rows)
        order = torch.cat([torch.randperm(512, device="cuda").int() for _ in range(2)])
        row_of = torch.arange(rows, dtype=torch.int32, device="cuda").repeat_interleave(10)[:, None]
        run: ExpertRun = expert_run([matrix], addresses, order, row_of.contiguous(), x)
        run.experts = order
        us = microseconds(lambda i, r=run: r.launch(False, i), loops, dry)
        yield Timing(f"experts dp4a {kind.name}", f"{rows}x10x{n}x{k}", rows, us, size * rows * 10)
        wide = row_of.repeat(1, 16).contiguous()
        run = expert_run([matrix], addresses, order, wide, x)
        us = microseconds(lambda i, r=run: r.launch(True, i), loops, dry)
        yield Timing(f"experts mma {kind.name}", f"{rows}x10x{n}x{k}", rows, us, size * rows * 10)


def bf16(n: int, k: int, dry: bool) -> Iterator[Timing]:
    """dot32 for 1..16 rows, with and without fma, both kernels."""
    size = n * k * 2
    copies = 1 if dry else copies_of(size)
    run, _ = float_run(n, k, "cuda", copies)
    shape = f"{n}x{k}"
    for fma in (False, True):
        for rows in (1, 2, 4, 8, 16) if n > 4 else (1, 16):
            us = microseconds(lambda i, r=rows, f=fma: run.rows_kernel(r, i, f), copies, dry)
            yield Timing(f"dot32 rows{' fma' if fma else ''}", shape, rows, us, size)
        us = microseconds(lambda i, f=fma: run.tile_kernel(16, i, f), copies, dry)
        yield Timing(f"dot32 tile{' fma' if fma else ''}", shape, 16, us, size)


def bf16_prompt(n: int, k: int, dry: bool) -> Iterator[Timing]:
    """dot32 over 1024 rows."""
    run, _ = float_run(n, k, "cuda", 1, 1024)
    for fma in (False, True):
        for name, launch in (
            ("rows r4", lambda i, f=fma: run.rows_kernel(1024, 0, f, 4)),
            ("rows r8", lambda i, f=fma: run.rows_kernel(1024, 0, f, 8)),
            ("tile 16x8 w4", lambda i, f=fma: run.tile_kernel(1024, 0, f, 16, 8, 4)),
            ("tile 16x16 w4", lambda i, f=fma: run.tile_kernel(1024, 0, f, 16, 16, 4)),
            ("tile 16x16 w8", lambda i, f=fma: run.tile_kernel(1024, 0, f, 16, 16, 8)),
        ):
            us = microseconds(launch, 1, dry)
            yield Timing(
                f"dot32 prompt {name}{' fma' if fma else ''}", f"{n}x{k}", 1024, us, n * k * 2
            )


def attention(cells: int, dry: bool) -> Iterator[Timing]:
    """Both launches over rotating histories."""
    copies = 1 if dry else 24
    runs = [
        checks.attention_run(checks.attention_inputs(cells, "cuda"), "cuda")[0]
        for _ in range(copies)
    ]
    us = microseconds(lambda i: runs[i](), copies, dry)
    yield Timing("attention", f"{cells} cells x 24 x 2 x 256", 1, us, cells * 2 * 256 * 2 * 2)


def recurrence(tokens: int, dry: bool) -> Iterator[Timing]:
    """Both kernels; state read and written."""
    copies = 1 if dry else (40 if tokens == 1 else 1)
    x = checks.recurrence_inputs(tokens, "cuda")
    states = [x["state"].clone() for _ in range(copies)]
    news = [torch.empty_like(x["state"]) for _ in range(copies)]
    out = torch.empty_like(x["v"])
    for name, in_thread, bv, warps in (
        ("spread", False, 32, 4), ("spread", False, 16, 1), ("spread", False, 16, 2),
        ("in thread", True, 32, 1), ("in thread", True, 64, 2), ("in thread", True, 16, 1),
    ):  # fmt: skip

        def launch(i: int, a: bool = in_thread, b: int = bv, w: int = warps) -> None:
            checks.recurrence_launch(x, states[i], news[i], out, a, b, w)

        us = microseconds(launch, copies, dry)
        yield Timing(
            f"recurrence {name} bv{bv} w{warps}",
            f"48x128x128 {tokens} tokens",
            tokens,
            us,
            48 * 128 * 128 * 8,
        )


def copy(dry: bool) -> Iterator[Timing]:
    """The ceiling: a device-to-device copy of 2 GB."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)

    def launch(which: int) -> None:
        b.copy_(a)

    us = microseconds(launch, 1, dry)
    yield Timing("copy", "1 GiB", 0, us, 2 << 30)


def cases() -> list[tuple[Callable[..., Iterator[Timing]], tuple[object, ...]]]:
    """Every timing, the important ones first."""
    multiplier, half_scale = KINDS[0], KINDS[1]
    todo: list[tuple[Callable[..., Iterator[Timing]], tuple[object, ...]]] = [
        (copy, ()),
        *((bf16, shape) for shape in ((320, 10240), (10240, 320), (4, 10240))),
        *((recurrence, (tokens,)) for tokens in (1, 256)),
        (attention, (2051,)),
        *((integer, (kind, 10240, 2560)) for kind in (multiplier, half_scale)),
        (integer, (multiplier, 2560, 6144)),
        *((bf16_prompt, shape) for shape in ((320, 10240), (10240, 320))),
        *((experts, (kind, 1280, 2560)) for kind in (multiplier, KINDS[7])),
        *((experts, (kind, 2560, 640)) for kind in (KINDS[2], KINDS[7])),
        (prompt, (multiplier, 10240, 2560)),
    ]
    for kind in KINDS[2:]:
        todo += [(integer, (kind, n, k)) for n, k in ((10240, 2560), (512, 2560))]
    todo += [
        (integer, (multiplier, n, k)) for n, k in checks.QWEN38 + checks.QWEN36 if k % 256 == 0
    ]
    return todo
