"""Attention over selected cells in one order of sums: q.k by dot32, sums in blocks of 64 cells."""

import triton
import triton.language as tl

from scripts.order_of_sums.float_kernels import tree32
from scripts.order_of_sums.scalar_functions import exp


@triton.jit
def scores(Q, KEYS, CELLS, S, TOP, count, scale, HQ: tl.constexpr, HK: tl.constexpr,
           HP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    """S[HQ, padded cells] = (q . k) * scale and each block's largest. Grid (cells / C, HK)."""
    block = tl.program_id(0)
    kv = tl.program_id(1)
    GROUP: tl.constexpr = HQ // HK
    h = tl.arange(0, HP)
    c = block * C + tl.arange(0, C)
    lane = tl.arange(0, 32)
    cell = tl.load(CELLS + c, mask=c < count, other=0)
    acc = tl.zeros([HP, C, 32], tl.float32)
    for j in tl.static_range(D // 32):
        q = tl.load(
            Q + (kv * GROUP + h)[:, None] * D + j * 32 + lane[None, :],
            mask=(h < GROUP)[:, None],
            other=0.0,
        )
        k = tl.load(KEYS + (cell * HK + kv)[:, None] * D + j * 32 + lane[None, :]).to(tl.float32)
        q, k = tl.broadcast(q[:, None, :], k[None, :, :])
        acc = acc + q * k
    s = tl.reshape(tree32(tl.reshape(acc, [HP * C, 32]), HP * C), [HP, C]) * scale
    s = tl.where((c < count)[None, :], s, float("-inf"))
    live = (h < GROUP)[:, None]
    padded = tl.num_programs(0) * C
    tl.store(S + (kv * GROUP + h)[:, None] * padded + c[None, :], s, mask=live)
    tl.store(TOP + (kv * GROUP + h) * tl.num_programs(0) + block, tl.max(s, axis=1), mask=h < GROUP)


@triton.jit
def mix(S, TOP, V, CELLS, P, L, CNT, OUT, count, padded, tops, HQ: tl.constexpr, HK: tl.constexpr,
        HP: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, TP: tl.constexpr):  # fmt: skip
    """Block sums of p and p * v; the last program adds them. Grid (blocks, HK, D / BD)."""
    block = tl.program_id(0)
    kv = tl.program_id(1)
    dim = tl.program_id(2) * BD + tl.arange(0, BD)
    blocks = tl.num_programs(0)
    GROUP: tl.constexpr = HQ // HK
    h = tl.arange(0, HP)
    head = kv * GROUP + h
    live = h < GROUP
    t = tl.arange(0, TP)
    tops_at = TOP + head[:, None] * tops + t[None, :]
    m = tl.max(
        tl.load(tops_at, mask=live[:, None] & (t < tops)[None, :], other=float("-inf")), axis=1
    )
    acc = tl.zeros([HP, BD], tl.float32)
    total = tl.zeros([HP], tl.float32)
    for i in range(min(64, count - block * 64)):
        c = block * 64 + i
        s = tl.load(S + head * padded + c, mask=live, other=0.0)
        p = exp(s - tl.where(live, m, 0.0))
        cell = tl.load(CELLS + c)
        v = tl.load(V + (cell * HK + kv) * D + dim).to(tl.float32)
        total = total + p
        acc = acc + p[:, None] * v[None, :]
    at = head[:, None] * D + dim[None, :]
    tl.store(P + block * HQ * D + at, acc, mask=live[:, None])
    l_at = L + (tl.program_id(2) * blocks + block) * HQ + head
    tl.store(l_at, total, mask=live)
    tl.debug_barrier()
    seen = tl.atomic_add(CNT + tl.program_id(2) * HK + kv, 1, sem="acq_rel")
    if seen == blocks - 1:
        tl.debug_barrier()
        l_at = L + tl.program_id(2) * blocks * HQ + head
        acc = tl.load(P + at, mask=live[:, None], other=0.0, cache_modifier=".cg")
        total = tl.load(l_at, mask=live, other=1.0, cache_modifier=".cg")
        for b in range(1, blocks):
            acc = acc + tl.load(
                P + b * HQ * D + at, mask=live[:, None], other=0.0, cache_modifier=".cg"
            )
            total = total + tl.load(l_at + b * HQ, mask=live, other=0.0, cache_modifier=".cg")
        below, _ = tl.broadcast(total[:, None], acc)
        tl.store(OUT + at, tl.div_rn(acc, below), mask=live[:, None])
        tl.store(CNT + tl.program_id(2) * HK + kv, 0)
