"""Checks the matrix and expert kernels on a GPU against the CPU's bits, and times them.

`--write FILE.npz` computes the expected values by `engine/reference`; `--expected FILE.npz`
compares the kernels with them on a CUDA machine, then times them in replays of CUDA graphs over
rotating weights. Inputs come from a hash, so both machines have the same ones. Large matrices
repeat a base of few outputs, which the reference computes once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.card_timing import median_us
from engine.gguf.types import quant_type
from engine.models.weights import Experts
from scripts.gpu_matrix_cases import (
    BASE,
    COPY_TB_S,
    EXPERTS,
    LEFT_IN_CACHE,
    LINEAR,
    MIXTURES,
    USED,
    WORKERS,
    Case,
    activations,
    expected,
    mixture_matrices,
    stored,
)


def device_matrix(i: int, case: Case) -> Any:
    """The matrix of a case on the device, its base repeated."""
    from engine.kernels import matrix
    from engine.kernels.form import FLOAT_TILE, TILE, FloatForm

    raw = stored(i, case.kind, (min(BASE, case.outputs),), case.columns)
    kind = quant_type(case.kind)
    m = matrix.matrix(raw, kind, case.columns, float_activations=False, device="cuda")
    if case.outputs <= BASE:
        return m
    tile = FLOAT_TILE if isinstance(m.form, FloatForm) else TILE
    tiles = m.record.view(BASE // tile, -1)
    where = torch.arange(-(-case.outputs // tile), device="cuda") % len(tiles)
    shape = (1, len(where), *m.record.shape[2:]) if tile == FLOAT_TILE else (1, -1)
    record = tiles[where].view(shape)
    return replace(m, rows=case.outputs, record=record, addresses=matrix._addresses(record))


def differing(got: torch.Tensor, want: np.ndarray, columns: int) -> int:
    """How many outputs have other bits; columns of `want` repeat."""
    a = got.cpu().numpy().view(np.int32)
    b = want.view(np.int32)[:, np.arange(columns) % want.shape[1]]
    return int((a != b).sum()) if a.shape == b.shape else -1


def check(work: tuple[int, str]) -> tuple[str, bool]:
    """One case on the device: a line of the table, and whether it is right."""
    index, path = work
    want = np.load(path)
    begin = time.perf_counter()
    if index < len(LINEAR):
        name, outcomes = LINEAR[index].name, check_linear(index, want)
    else:
        types, all_rows = MIXTURES[index - len(LINEAR)]
        name, outcomes = f"mixture {types[0]} {types[2]}", check_mixture(types, all_rows, want)
    bad = {rows: count for rows, count in outcomes.items() if count}
    text = f"differ (rows: outputs) {bad}" if bad else "same bits"
    took = time.perf_counter() - begin
    return f"{name:24s} rows {sorted(outcomes)}: {text}  ({took:.0f} s)", not bad


def check_linear(index: int, want: Any) -> dict[int, int]:
    from engine.kernels.linear import linear

    case = LINEAR[index]
    m = device_matrix(index, case)
    x = activations(max(case.rows), case.columns).cuda()
    return {r: differing(linear(x[:r], m), want[case.name][:r], case.outputs) for r in case.rows}


def device_mixture(types: tuple[str, ...], count: int = EXPERTS) -> Experts:
    """The matrices of a mixture; with a `count`, its experts again and again."""
    from engine.kernels import matrix

    packed = {}
    for name, raw, kind, k in mixture_matrices(types):
        m = matrix.matrix(raw, quant_type(kind), k, float_activations=False, device="cuda")
        if name.endswith("_exps") and count != EXPERTS:
            record = m.record[torch.arange(count, device="cuda") % EXPERTS]
            m = replace(m, record=record, addresses=matrix._addresses(record))
        if name == "ffn_gate_inp" and count != EXPERTS:
            raw = stored(920, "F32", (count,), k)
            m = matrix.matrix(raw, quant_type("F32"), k, float_activations=False, device="cuda")
        packed[name] = m
    return Experts(**packed)


def check_mixture(types: tuple[str, ...], all_rows: tuple[int, ...], want: Any) -> dict[int, int]:
    from engine.kernels.experts import mixture_into
    from engine.kernels.inputs import as_input

    mixture = device_mixture(types)
    result = {}
    for r in all_rows:
        out = torch.zeros(r, 2560, device="cuda")
        mixture_into(out, None, as_input(activations(r, 2560).cuda()), mixture, USED)
        result[r] = differing(out, want[f"mixture {' '.join(types)}"][:r], 2560)
    return result


def time_linear(index: int) -> Iterator[str]:
    """Times of a case: the operator, and its product without the quantisation."""
    from engine.kernels import linear as kernels
    from engine.kernels.form import Form
    from engine.kernels.inputs import as_input

    case = LINEAR[index]
    m = device_matrix(index, case)
    size = m.record.numel() * m.record.element_size()
    count = min(32, max(4, -(-LEFT_IN_CACHE // size)))
    copies = [m, *(replace(m, record=m.record.clone()) for _ in range(count - 1))]
    floor = size / COPY_TB_S / 1e6
    for r in case.timed:
        x = activations(min(r, 16), case.columns).cuda().repeat(-(-r // 16), 1)[:r].contiguous()
        whole = median_us([lambda c=c, x=x: kernels.linear(x, c) for c in copies])
        line = f"{case.name:24s} rows {r:4d}: {whole:8.1f} us"
        if isinstance(m.form, Form):
            q = as_input(x)
            alone = median_us([lambda c=c, q=q: kernels.linear(q, c) for c in copies])
            line += f", product {alone:8.1f} us"
            whole = alone
        yield f"{line}, floor {floor:6.1f} us, {100 * floor / whole:3.0f}%"


def time_mixture(types: tuple[str, ...]) -> Iterator[str]:
    """Times of a whole mixture of 384 experts: router, products, adding."""
    from engine.kernels.experts import mixture_into
    from engine.kernels.inputs import as_input

    mixture = device_mixture(types, 384)
    size = sum(
        m.record[0].numel()
        for m in (mixture.ffn_gate_exps, mixture.ffn_up_exps, mixture.ffn_down_exps)
    )
    for r in (1, 2, 8, 64, 512):
        inputs = [as_input(torch.randn(r, 2560, device="cuda")) for _ in range(8)]
        out = torch.zeros(r, 2560, device="cuda")
        us = median_us([lambda x=x, o=out: mixture_into(o, None, x, mixture, USED) for x in inputs])
        distinct = 384 * (1 - (1 - USED / 384) ** r)
        floor = distinct * size / COPY_TB_S / 1e6
        yield (
            f"mixture {types[0]} {types[2]:8s} rows {r:4d}: {us:8.1f} us, "
            f"floor {floor:6.1f} us ({distinct:.0f} experts), {100 * floor / us:3.0f}%"
        )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="compute and store the expected values")
    parser.add_argument("--expected", type=Path, help="compare with these values, and time")
    parser.add_argument("--no-times", action="store_true", help="only compare")
    arguments = parser.parse_args()
    if arguments.write:
        np.savez_compressed(arguments.write, **dict(expected()))
        return
    if not arguments.expected:
        parser.error("--write or --expected is needed")
    total = len(LINEAR) + len(MIXTURES)
    works = [(i, str(arguments.expected)) for i in range(total)]
    with multiprocessing.get_context("spawn").Pool(min(WORKERS, total)) as pool:
        right = True
        for line, ok in pool.imap_unordered(check, works):
            print(line, flush=True)
            right &= ok
    print("ALL THE SAME BITS" if right else "SOMETHING DIFFERS", flush=True)
    if not arguments.no_times:
        for index in range(len(LINEAR)):
            for line in time_linear(index):
                print(line, flush=True)
        for types, _ in MIXTURES:
            for line in time_mixture(types):
                print(line, flush=True)
    raise SystemExit(not right)


if __name__ == "__main__":
    main()
