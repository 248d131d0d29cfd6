"""Bit equality of every kernel with the CPU loops, on fresh random inputs."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from scripts.order_of_sums import attention_kernels, recurrence_kernels, reference, scalar_functions
from scripts.order_of_sums.launch import NAN, expert_run, float_run, integer_run
from scripts.order_of_sums.records import KINDS, Kind, quantise_rows, random_matrix

QWEN38 = ((12288, 2560), (10240, 2560), (6144, 2560), (2560, 6144), (512, 2560), (48, 2560),
          (640, 2560), (2560, 640), (248320, 2560))  # fmt: skip
QWEN36 = (
    (8192, 2048),
    (4096, 2048),
    (2048, 4096),
    (512, 2048),
    (32, 2048),
    (2048, 512),
    (256, 128),
)
HYPER = ((320, 10240), (10240, 320), (4, 10240), (32, 128))
Result = tuple[str, bool, str]


def same(got: torch.Tensor, want: np.ndarray) -> tuple[bool, str]:
    """Whether two float32 arrays have the same bits, and how many differ."""
    a = got.cpu().numpy().view(np.int32)
    bad = int((a != want.view(np.int32)).sum())
    return bad == 0, f"{want.size} values" if bad == 0 else f"{bad} of {want.size} differ"


def integer(kind: Kind, n: int, k: int, device: str, asm: bool) -> Iterator[Result]:
    """dp4a for 1..8 rows and tensor cores for 1..16 rows against the CPU."""
    run = integer_run(random_matrix(kind, n, k, device), asm)
    columns = np.unique(np.linspace(0, n - 1, min(n, 2048)).astype(np.int64))
    want = reference.integer_linear(run.x, run.matrix, columns)
    pick = torch.from_numpy(columns).to(device)
    for name, tensor_cores, most in (("dp4a", False, 8), ("mma", True, 16)):
        outcomes = []
        for rows in range(1, most + 1):
            run.out.fill_(NAN)
            run.partial.fill_(NAN)
            run.launch(rows, tensor_cores)
            outcomes.append((rows, *same(run.out[:rows, pick], want[:rows])))
        bad = [f"{rows} rows: {detail}" for rows, equal, detail in outcomes if not equal]
        yield f"{name} 1..{most} {kind.name} {n}x{k}", not bad, "; ".join(bad[:2])


def experts(kind: Kind, n: int, k: int, device: str) -> Iterator[Result]:
    """Ten experts by address at 1 row, and 8 rows x 10 grouped by expert, against the CPU."""
    matrices = [random_matrix(kind, n, k, device) for _ in range(24)]
    addresses = torch.tensor([m.record.data_ptr() for m in matrices], device=device)
    x = quantise_rows(torch.randn(8, k, device=device))
    columns = np.arange(n)
    want = [reference.integer_linear(x, m, columns) for m in matrices]
    picks = [torch.randperm(24)[:10].tolist() for _ in range(8)]
    for rows in (1, 8):
        pairs = [(e, row) for row in range(rows) for e in picks[row]]
        chosen = torch.tensor([e for e, _ in pairs], dtype=torch.int32, device=device)
        row_of = torch.tensor([[row] for _, row in pairs], dtype=torch.int32, device=device)
        run = expert_run(matrices, addresses, chosen, row_of, x)
        run.launch(False)
        expected = np.stack([want[e][row] for e, row in pairs])
        yield f"dp4a experts {rows}x10 {kind.name} {n}x{k}", *same(run.out[:, 0], expected)
    groups = sorted({e for e, _ in pairs})
    members = [[row for e, row in pairs if e == group] for group in groups]
    padded = torch.tensor(
        [m + [0] * (16 - len(m)) for m in members], dtype=torch.int32, device=device
    )
    chosen = torch.tensor(groups, dtype=torch.int32, device=device)
    run = expert_run(matrices, addresses, chosen, padded, x)
    run.launch(True)
    bad = [
        e for i, e in enumerate(groups)
        if not same(run.out[i, : len(members[i])], want[e][members[i]])[0]
    ]  # fmt: skip
    yield f"mma experts 8x10 grouped {kind.name} {n}x{k}", not bad, str(bad)


def bf16(n: int, k: int, device: str) -> Iterator[Result]:
    """dot32 for BF16 weights, two kernels, against the CPU."""
    run, w = float_run(n, k, device)
    columns = np.unique(np.linspace(0, n - 1, min(n, 512)).astype(np.int64))
    pick = torch.from_numpy(columns).to(device)
    chosen = w[pick].float().cpu().numpy()
    want = reference.dot32(run.x.cpu().numpy()[:, None, :], chosen[None, :, :])
    for name, launch, counts in (
        ("rows", run.rows_kernel, range(1, 17)),
        ("tile", run.tile_kernel, range(1, 17)),
    ):
        bad = []
        for rows in counts:
            run.out.fill_(NAN)
            run.partial.fill_(NAN)
            launch(rows)
            equal, detail = same(run.out[:rows, pick], want[:rows])
            if not equal:
                bad.append(f"{rows} rows: {detail}")
        yield f"dot32 {name} 1..16 bf16 {n}x{k}", not bad, "; ".join(bad[:2])


def attention_inputs(cells: int, device: str) -> dict[str, torch.Tensor]:
    """One query row of 24 heads and `cells` selected cells of a longer history."""
    history = cells * 3
    return {
        "q": torch.randn(24, 256, device=device) * 2,
        "k": torch.randn(history, 2, 256, device=device).half(),
        "v": torch.randn(history, 2, 256, device=device).half(),
        "cells": torch.sort(torch.randperm(history, device=device)[:cells])[0].int(),
    }


def attention_run(
    x: dict[str, torch.Tensor], device: str
) -> tuple[Callable[[], None], torch.Tensor]:
    """The two attention launches and their output [24, 256]."""
    count = x["cells"].numel()
    c, bd = 16, 64
    blocks, tops = -(-count // 64), -(-count // c)
    s = torch.full((24, tops * c), NAN, device=device)
    top = torch.full((24, tops), NAN, device=device)
    p = torch.full((blocks, 24, 256), NAN, device=device)
    total = torch.full((256 // bd, blocks, 24), NAN, device=device)
    counters = torch.zeros(64, dtype=torch.int32, device=device)
    out = torch.full((24, 256), NAN, device=device)
    tp = 1 << (tops - 1).bit_length()

    def launch() -> None:
        attention_kernels.scores[(tops, 2)](x["q"], x["k"], x["cells"], s, top, count, 0.0625,
            HQ=24, HK=2, HP=16, D=256, C=c, num_warps=4, enable_fp_fusion=False)  # fmt: skip
        attention_kernels.mix[(blocks, 2, 256 // bd)](s, top, x["v"], x["cells"], p, total,
            counters, out,
            count, tops * c, tops, HQ=24, HK=2, HP=16, D=256, BD=bd, TP=tp, num_warps=4,
            enable_fp_fusion=False)  # fmt: skip

    return launch, out


def attention(cells: int, device: str) -> Iterator[Result]:
    """The attention of one row against the CPU."""
    x = attention_inputs(cells, device)
    launch, out = attention_run(x, device)
    launch()
    pick = x["cells"].long().cpu().numpy()
    q = x["q"].cpu().numpy()
    keys = np.repeat(x["k"].cpu().numpy()[pick].astype(np.float32), 12, axis=1)
    values = np.repeat(x["v"].cpu().numpy()[pick].astype(np.float32), 12, axis=1)
    s = reference.dot32(q[None], keys) * np.float32(0.0625)  # [cells, 24]
    p = scalar_functions.exp_cpu(s - s.max(axis=0))
    want = reference.blocks64(p[..., None] * values) / reference.blocks64(p)[:, None]
    yield f"attention {cells} cells", *same(out, want)


def recurrence_inputs(tokens: int, device: str) -> dict[str, torch.Tensor]:
    """GatedDeltaNet inputs of 48 heads; keys and queries of unit length."""
    unit = torch.nn.functional.normalize
    return {
        "q": unit(torch.randn(tokens, 48, 128, device=device), dim=-1),
        "k": unit(torch.randn(tokens, 48, 128, device=device), dim=-1),
        "v": torch.randn(tokens, 48, 128, device=device),
        "decay": torch.rand(tokens, 48, device=device) * 0.1 + 0.9,
        "beta": torch.rand(tokens, 48, device=device),
        "state": torch.randn(48, 128, 128, device=device),  # [heads, keys, values]
    }


def recurrence_launch(x: dict[str, torch.Tensor], state: torch.Tensor, new: torch.Tensor,
                      out: torch.Tensor,
                      in_thread: bool, bv: int, warps: int) -> None:  # fmt: skip
    """One launch; `state` is [H, V, K] for spread lanes and [H, K, V] for lanes in a thread."""
    tensors = (x["q"], x["k"], x["v"], x["decay"], x["beta"], state, new, out)
    tokens = x["q"].shape[0]
    if in_thread:
        recurrence_kernels.lanes_in_thread[(48, 128 // bv)](
            *tensors, tokens, 1, H=48, BV=bv, num_warps=warps, enable_fp_fusion=False
        )
    else:
        recurrence_kernels.lanes_spread[(48, 128 // bv)](
            *tensors, tokens, H=48, BV=bv, num_warps=warps, enable_fp_fusion=False
        )


def recurrence(tokens: int, device: str) -> Iterator[Result]:
    """Both recurrence kernels against the CPU: outputs and states."""
    x = recurrence_inputs(tokens, device)
    c = {name: value.cpu().numpy() for name, value in x.items()}
    state = c["state"].transpose(0, 2, 1).copy()  # [heads, values, keys]
    outs = []
    for t in range(tokens):
        k = c["k"][t][:, None, :]
        state = state * c["decay"][t][:, None, None]
        delta = (c["v"][t] - reference.dot32(state, k)) * c["beta"][t][:, None]
        state = state + k * delta[:, :, None]
        outs.append(reference.dot32(state, c["q"][t][:, None, :]))
    for name, in_thread in (("spread", False), ("in thread", True)):
        start = x["state"] if in_thread else x["state"].transpose(1, 2).contiguous()
        new, out = torch.full_like(start, NAN), torch.full_like(x["v"], NAN)
        recurrence_launch(x, start, new, out, in_thread, 32, 1 if in_thread else 4)
        got = new.transpose(1, 2) if in_thread else new
        yield f"recurrence {name} {tokens} tokens, outputs", *same(out, np.stack(outs))
        yield f"recurrence {name} {tokens} tokens, state", *same(got.contiguous(), state)


def scalars(device: str, count: int = 1 << 23) -> Iterator[Result]:
    """Our exp and its users on a dense grid, every sign and exponent, and special values."""
    step = 2**32 // count
    bits = np.arange(count, dtype=np.uint64) * step + np.random.randint(0, step, count).astype(
        np.uint64
    )
    x = np.concatenate([
        bits.astype(np.uint32).view(np.float32),
        np.linspace(-110, 95, count // 4).astype(np.float32),
        np.array([0.0, -0.0, np.inf, -np.inf, 88.72283, 88.72284, -87.34, -103.97, -104.0],
                 np.float32),
    ])  # fmt: skip
    x = x[~np.isnan(x)]
    gpu = torch.from_numpy(x).to(device)
    out = torch.empty_like(gpu)
    for which, (name, function) in enumerate(scalar_functions.FUNCTIONS):
        out.fill_(NAN)
        grid = (-(-x.size // 1024),)
        scalar_functions.apply[grid](gpu, out, x.size, WHICH=which, B=1024, enable_fp_fusion=False)
        with np.errstate(all="ignore"):
            want = function(x)
        keep = ~np.isnan(want)  # silu of an infinity
        equal, detail = same(out.cpu()[torch.from_numpy(keep)], want[keep])
        yield f"{name} on {x.size} floats", equal, detail


def cases(device: str) -> list[tuple[Callable[..., Iterator[Result]], tuple[object, ...]]]:
    """Every check: the function and its arguments."""
    todo: list[tuple[Callable[..., Iterator[Result]], tuple[object, ...]]] = []
    for index, kind in enumerate(KINDS):
        for n, k in QWEN38 + QWEN36:
            fits = k % (32 * kind.scale_groups) == 0
            if fits and (n < 100000 or index in (0, 5)):
                todo.append((integer, (kind, n, k, device, True)))
    for kind in (KINDS[0], KINDS[2], KINDS[3], KINDS[7]):
        for n, k in ((640, 2560), (1280, 2560), (2560, 640), (512, 2048), (2048, 512)):
            if k % (32 * kind.scale_groups) == 0:
                todo.append((experts, (kind, n, k, device)))
    todo += [(bf16, (n, k, device)) for n, k in HYPER]
    todo += [(attention, (cells, device)) for cells in (1, 63, 200, 2051)]
    todo += [(recurrence, (tokens, device)) for tokens in (1, 3, 16)]
    todo.append((scalars, (device,)))
    return todo
