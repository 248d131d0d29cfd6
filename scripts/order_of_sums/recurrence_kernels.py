"""GatedDeltaNet in token order: both reductions over 128 keys are dot32, state in registers."""

import triton
import triton.language as tl

from scripts.order_of_sums.float_kernels import first32, tree32


@triton.jit
def lanes_spread(
    Q, KEYS, V, DECAY, BETA, IN, STATE, OUT, tokens, H: tl.constexpr, BV: tl.constexpr
):
    """State [H, 128 values, 128 keys]; lanes lie over threads. Grid (H, 128 / BV)."""
    h = tl.program_id(0)
    v_at = tl.program_id(1) * BV + tl.arange(0, BV)
    lane = tl.arange(0, 32)
    at = h * 128 * 128 + v_at[:, None] * 128 + lane[None, :]
    s0 = tl.load(IN + at)
    s1 = tl.load(IN + at + 32)
    s2 = tl.load(IN + at + 64)
    s3 = tl.load(IN + at + 96)
    for t in range(tokens):
        row = (t * H + h) * 128
        g = tl.load(DECAY + t * H + h)
        k0 = tl.load(KEYS + row + lane)[None, :]
        k1 = tl.load(KEYS + row + 32 + lane)[None, :]
        k2 = tl.load(KEYS + row + 64 + lane)[None, :]
        k3 = tl.load(KEYS + row + 96 + lane)[None, :]
        s0 = s0 * g
        s1 = s1 * g
        s2 = s2 * g
        s3 = s3 * g
        a = (((0.0 + s0 * k0) + s1 * k1) + s2 * k2) + s3 * k3
        kv = tree32(a, BV)
        delta = ((tl.load(V + row + v_at) - kv) * tl.load(BETA + t * H + h))[:, None]
        s0 = s0 + k0 * delta
        s1 = s1 + k1 * delta
        s2 = s2 + k2 * delta
        s3 = s3 + k3 * delta
        a = (0.0 + s0 * tl.load(Q + row + lane)[None, :]) + s1 * tl.load(Q + row + 32 + lane)[
            None, :
        ]
        a = a + s2 * tl.load(Q + row + 64 + lane)[None, :]
        a = a + s3 * tl.load(Q + row + 96 + lane)[None, :]
        tl.store(OUT + row + v_at, tree32(a, BV))
    tl.store(STATE + at, s0)
    tl.store(STATE + at + 32, s1)
    tl.store(STATE + at + 64, s2)
    tl.store(STATE + at + 96, s3)


@triton.jit(do_not_specialize=["one"])
def lanes_in_thread(
    Q, KEYS, V, DECAY, BETA, IN, STATE, OUT, tokens, one, H: tl.constexpr, BV: tl.constexpr
):
    """State [H, 128 keys, 128 values]; a thread holds all lanes of a value (stride `one` hides the
    contiguity, so that the compiler gives each thread one column). Grid (H, 128 / BV)."""
    h = tl.program_id(0)
    v_at = tl.program_id(1) * BV + tl.arange(0, BV)
    lane = tl.arange(0, 32)
    at = h * 128 * 128 + lane[:, None] * 128 + v_at[None, :] * one
    s0 = tl.load(IN + at)
    s1 = tl.load(IN + at + 32 * 128)
    s2 = tl.load(IN + at + 64 * 128)
    s3 = tl.load(IN + at + 96 * 128)
    for t in range(tokens):
        row = (t * H + h) * 128
        g = tl.load(DECAY + t * H + h)
        k0 = tl.load(KEYS + row + lane)[:, None]
        k1 = tl.load(KEYS + row + 32 + lane)[:, None]
        k2 = tl.load(KEYS + row + 64 + lane)[:, None]
        k3 = tl.load(KEYS + row + 96 + lane)[:, None]
        s0 = s0 * g
        s1 = s1 * g
        s2 = s2 * g
        s3 = s3 * g
        a = (((0.0 + s0 * k0) + s1 * k1) + s2 * k2) + s3 * k3
        kv = first32(a, BV)
        delta = ((tl.load(V + row + v_at) - kv) * tl.load(BETA + t * H + h))[None, :]
        s0 = s0 + k0 * delta
        s1 = s1 + k1 * delta
        s2 = s2 + k2 * delta
        s3 = s3 + k3 * delta
        a = (0.0 + s0 * tl.load(Q + row + lane)[:, None]) + s1 * tl.load(Q + row + 32 + lane)[
            :, None
        ]
        a = a + s2 * tl.load(Q + row + 64 + lane)[:, None]
        a = a + s3 * tl.load(Q + row + 96 + lane)[:, None]
        tl.store(OUT + row + v_at, first32(a, BV))
    tl.store(STATE + at, s0)
    tl.store(STATE + at + 32 * 128, s1)
    tl.store(STATE + at + 64 * 128, s2)
    tl.store(STATE + at + 96 * 128, s3)
