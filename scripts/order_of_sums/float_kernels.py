"""dot32 for BF16 weights: 32 lanes, adjacent-pair tree, segments of 512 ascending.

Weights are tiled as [N/BN][K/32][BN][32]. `dot32_rows` keeps the lanes in the last dimension,
`dot32_tile` in the first; both follow the same order. FMA is an experiment: it changes the bits.
"""

import triton
import triton.language as tl


@triton.jit
def tree32(a, shape: tl.constexpr, DEPTH: tl.constexpr = 5):
    """Adds adjacent pairs of the last dimension (32 lanes) down to one; [M, 32] -> [M]."""
    M: tl.constexpr = shape
    for i in tl.static_range(DEPTH):
        a = tl.reshape(a, [M, (1 << DEPTH) >> (i + 1), 2])
        left, right = tl.split(a)
        a = left + right
    return tl.reshape(a, [M])


@triton.jit
def first32(a, M: tl.constexpr):
    """Adds adjacent pairs of the first dimension (32 lanes) down to one; [32, M] -> [M]."""
    for i in tl.static_range(5):
        a = tl.reshape(a, [16 >> i, 2, M])
        left, right = tl.split(tl.permute(a, (0, 2, 1)))
        a = left + right
    return tl.reshape(a, [M])


@triton.jit
def _step(w, x, acc, FMA: tl.constexpr):
    product = w * x
    total = acc + product
    if FMA:
        total = tl.fma(w, x, acc)
    return total


@triton.jit
def _finish(
    total, P, CNT, OUT, tile, part, parts, block, r, N, rows, R: tl.constexpr, BN: tl.constexpr
):
    tiles = N // BN
    cell = (block * R + r)[:, None] * N + tile * BN + tl.arange(0, BN)[None, :]
    live = (block * R + r < rows)[:, None]
    if parts == 1:
        tl.store(OUT + cell, total, mask=live)
    else:
        stride = (tl.num_programs(2) * R).to(tl.int64) * N
        tl.store(P + part * stride + cell, total)
        tl.debug_barrier()
        seen = tl.atomic_add(CNT + block * tiles + tile, 1, sem="acq_rel")
        if seen == parts - 1:
            tl.debug_barrier()
            out = tl.load(P + cell, cache_modifier=".cg")
            for p in range(1, parts):
                out = out + tl.load(P + p * stride + cell, cache_modifier=".cg")
            tl.store(OUT + cell, out, mask=live)
            tl.store(CNT + block * tiles + tile, 0)


@triton.jit
def dot32_rows(X, W, P, CNT, OUT, rows, N, K, segs_part, R: tl.constexpr, BN: tl.constexpr,
               U: tl.constexpr, FMA: tl.constexpr):  # fmt: skip
    """OUT[rows, N] for few rows. Grid (N / BN, parts, row blocks); X float32 [padded rows, K]."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    block = tl.program_id(2)
    G = K // 32
    r = tl.arange(0, R)
    lane = tl.arange(0, 32)
    w_at = W + tile.to(tl.int64) * G * BN * 32 + tl.arange(0, BN)[:, None] * 32 + lane[None, :]
    x_at = X + (block * R + r)[:, None] * K + lane[None, :]
    total = tl.zeros([R, BN], tl.float32)
    for s in range(part * segs_part, min((part + 1) * segs_part, (G + 15) // 16)):
        acc = tl.zeros([R, BN, 32], tl.float32)
        for g0 in range(s * 16, min(s * 16 + 16, G), U):
            for i in tl.static_range(U):
                w = tl.load(w_at + (g0 + i) * BN * 32).to(tl.float32)[None, :, :]
                x = tl.load(x_at + (g0 + i) * 32)[:, None, :]
                w, x = tl.broadcast(w, x)
                acc = _step(w, x, acc, FMA)
        total = total + tl.reshape(tree32(tl.reshape(acc, [R * BN, 32]), R * BN), [R, BN])
    _finish(total, P, CNT, OUT, tile, part, tl.num_programs(1), block, r, N, rows, R, BN)


@triton.jit
def dot32_tile(XT, W, P, CNT, OUT, rows, padded, N, K, segs_part, R: tl.constexpr, BN: tl.constexpr,
               TILE: tl.constexpr, FMA: tl.constexpr):  # fmt: skip
    """The same for tiles of rows; XT float32 [K, padded rows]; W tiled by TILE >= BN."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    block = tl.program_id(2)
    G = K // 32
    r = tl.arange(0, R)
    lane = tl.arange(0, 32)
    n = tile * BN + tl.arange(0, BN)
    w_at = (
        W
        + (n // TILE).to(tl.int64)[None, :] * G * TILE * 32
        + (n % TILE)[None, :] * 32
        + lane[:, None]
    )
    x_at = XT + lane[:, None] * padded + (block * R + r)[None, :]
    total = tl.zeros([R, BN], tl.float32)
    for s in range(part * segs_part, min((part + 1) * segs_part, (G + 15) // 16)):
        acc = tl.zeros([32, R, BN], tl.float32)
        for g in range(s * 16, min(s * 16 + 16, G)):
            w = tl.load(w_at + g * TILE * 32).to(tl.float32)[:, None, :]
            x = tl.load(x_at + g * 32 * padded)[:, :, None]
            w, x = tl.broadcast(w, x)
            acc = _step(w, x, acc, FMA)
        total = total + tl.reshape(first32(tl.reshape(acc, [32, R * BN]), R * BN), [R, BN])
    _finish(total, P, CNT, OUT, tile, part, tl.num_programs(1), block, r, N, rows, R, BN)
