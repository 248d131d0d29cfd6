"""Compares convolution, delta rule and its norm on a GPU with the CPU's bits, and times them.

    python -m scripts.gpu_check_recurrence --write expected.npz      (CPU: the reference computes)
    python -m scripts.gpu_check_recurrence --expected expected.npz   (GPU: the kernels compute)

The file holds a hash and every 997th value of each result. Both sides make the same inputs from
random integers, which numpy draws alike in every version.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from engine.models.config import GatedDeltaNetConfig
from engine.rows import Rows, rows_of
from scripts.gpu_timing import microseconds

SAMPLE = 997
FAMILIES = {
    "qwen3.8": GatedDeltaNetConfig(16, 48, 128, 128, 4, "sigmoid"),
    "qwen3.6": GatedDeltaNetConfig(16, 32, 128, 128, 4, "silu"),
}
# Spans of a window: slot, start, rows, certain rows.
WINDOWS = {
    "1 row": [(1, 40, 1, 1)],
    "drafts": [(2, 40, 4, 1), (0, 7, 4, 2), (3, 0, 1, 1)],
    "16 slots": [(slot, 3 * slot, 1, 1) for slot in range(16)],
    "chunk": [(1, 0, 70, 70), (0, 9, 3, 1)],
}
# What is timed: chunks of one slot, then one row of every slot.
TIMED = {f"{rows} rows of 1 slot": [(0, 0, rows, rows)] for rows in (1, 4, 64, 256, 2048)} | {
    f"1 row of {slots} slots": [(slot, 5, 1, 1) for slot in range(slots)] for slots in (4, 16, 64)
}
SWEEP = [(4, 1), (8, 1), (8, 2), (16, 2), (16, 4), (32, 4), (32, 8)]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a window's rows bring to the mixer, and what a layer holds."""

    qkv: torch.Tensor
    alpha: torch.Tensor
    beta: torch.Tensor
    gate: torch.Tensor
    decay: torch.Tensor
    bias: torch.Tensor
    conv: torch.Tensor
    norm: torch.Tensor


def numbers(shape: tuple[int, ...], seed: int, low: float, high: float) -> torch.Tensor:
    """float32 on a grid of 2**20 steps between low and high."""
    steps = np.random.Philox(seed).random_raw(int(np.prod(shape))) >> np.uint64(44)
    unit = steps.astype(np.float32) * np.float32(2**-20)
    return torch.from_numpy((unit * np.float32(high - low) + np.float32(low)).reshape(shape))


def inputs(config: GatedDeltaNetConfig, rows: int, seed: int, device: str) -> Inputs:
    """Random inputs of the sizes of a family."""
    heads, inner = config.value_heads, config.value_heads * config.value_length
    made = (
        numbers((rows, config.channels), seed, -3, 3),
        numbers((rows, heads), seed + 1, -6, 6),
        numbers((rows, heads), seed + 2, -4, 4),
        numbers((rows, inner), seed + 3, -4, 4),
        numbers((heads,), seed + 4, -4, -0.01),
        numbers((heads,), seed + 5, -3, 3),
        numbers((config.channels, config.conv_kernel), seed + 6, -1, 1),
        numbers((config.value_length,), seed + 7, 0.5, 1.5),
    )
    return Inputs(*(tensor.to(device) for tensor in made))


def on_device(rows: Rows, device: str) -> Rows:
    """The rows with their tensors on a device."""
    return Rows(rows.spans.to(device), rows.slots.to(device), rows.positions.to(device))


def state_of(config: GatedDeltaNetConfig, slots: int, keys_together: bool) -> torch.Tensor:
    """A random state, [S, H, K, V] with the keys or the values next to each other in memory."""
    shape = slots, config.value_heads, config.key_length, config.value_length
    state = numbers(shape, 77, -1, 1)
    return state.transpose(2, 3).contiguous().transpose(2, 3) if keys_together else state


def results(ops: Any, device: str, keys_together: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Every output and every state, by name."""
    for seed, ((family, config), (name, spans)) in enumerate(
        (f, w) for f in FAMILIES.items() for w in WINDOWS.items()
    ):
        case = f"{family}, {name}"
        rows = on_device(rows_of(spans), device)
        x = inputs(config, rows.count, 100 * seed, device)
        slots = 1 + max(slot for slot, *_ in spans)
        ring = numbers((slots, 8, config.channels), seed, -3, 3).to(device)
        qkv = ops.causal_convolution(x.qkv, ring, x.conv, 1, rows)
        yield f"{case}: convolution", qkv
        yield f"{case}: ring", ring
        state = state_of(config, slots, keys_together).to(device)
        rule = (x.alpha, x.beta, x.decay, x.bias, state, config)
        out = ops.gated_delta_rule(qkv, *rule, rows)
        yield f"{case}: delta rule", out
        yield f"{case}: state", state.contiguous()
        if name == "drafts":  # as `commit` does
            kept = torch.tensor([[2, 1, 2, 41, 2], [0, 6, 1, 9, 1]], dtype=torch.int32)
            ops.gated_delta_rule(qkv, *rule, on_device(Rows(kept, rows.slots, rows.slots), device))
            yield f"{case}: state after kept drafts", state.contiguous()
        yield f"{case}: norm", ops.gated_norm(out, x.gate, x.norm, config, 1e-6)
    # The n-gram convolution: every third of 10 rows, four streams of 2,560.
    ring = numbers((2, 13, 10240), 5, -3, 3).to(device)
    weight = numbers((10240, 4), 6, -1, 1).to(device)
    rows = on_device(rows_of([(1, 4, 40, 40), (0, 20, 4, 1)]), device)
    x44 = numbers((44, 10240), 7, -3, 3).to(device)
    yield "n-grams: convolution", ops.causal_convolution(x44, ring, weight, 3, rows)
    yield "n-grams: ring", ring


def digest(tensor: torch.Tensor) -> np.ndarray:
    """SHA-256 of the bytes, uint8 [32]."""
    data = tensor.cpu().contiguous().numpy().tobytes()
    return np.frombuffer(hashlib.sha256(data).digest(), np.uint8)


def write(path: Path) -> None:
    """What the reference computes."""
    arrays: dict[str, Any] = {}
    for name, tensor in results(operators("reference"), "cpu", False):
        arrays[f"{name}/hash"] = digest(tensor)
        arrays[f"{name}/sample"] = tensor.flatten()[::SAMPLE].clone().numpy()
    np.savez_compressed(path, **arrays)
    print(f"{path}: {len(arrays) // 2} results, {path.stat().st_size} bytes")


def operators(package: str) -> Any:
    """The three operators of `engine.kernels` or `engine.reference`."""
    convolution = importlib.import_module(f"engine.{package}.convolution")
    rule = importlib.import_module(f"engine.{package}.gated_delta_net")
    return SimpleNamespace(
        causal_convolution=convolution.causal_convolution,
        gated_delta_rule=rule.gated_delta_rule,
        gated_norm=rule.gated_norm,
    )


def compare(path: Path, device: str) -> int:
    """Checks every result, with both layouts of the state; the number of differences."""
    expected = np.load(path)
    wrong = checked = 0
    for keys_together in (True, False):
        for name, tensor in results(operators("kernels"), device, keys_together):
            checked += 1
            if np.array_equal(digest(tensor), expected[f"{name}/hash"]):
                continue
            wrong += 1
            got, want = tensor.flatten()[::SAMPLE].cpu().numpy(), expected[f"{name}/sample"]
            unequal = np.flatnonzero(got.view(np.int32) != want.view(np.int32))
            print(
                f"DIFFERS {name}, keys together {keys_together}: {unequal.size} of {want.size} "
                f"sampled, largest difference {np.abs(got - want).max()}"
            )
    print(f"{checked - wrong} of {checked} results have the CPU's bits")
    return wrong


def per_launch(launch: Callable[[int], object], copies: int) -> float:
    """Median time of one launch in a graph over all copies of its buffers, in microseconds."""
    return microseconds([partial(launch, i % copies) for i in range(max(copies, 8))])


@dataclass(frozen=True, slots=True)
class Case:
    """One window on the GPU, with copies of the state that take turns."""

    config: GatedDeltaNetConfig
    x: Inputs
    rows: Rows
    ring: torch.Tensor
    states: list[torch.Tensor]
    ops: Any

    def rule(self) -> float:
        """Time of the delta rule."""
        x = self.x
        return per_launch(
            lambda i: self.ops.gated_delta_rule(
                x.qkv, x.alpha, x.beta, x.decay, x.bias, self.states[i], self.config, self.rows
            ),
            len(self.states),
        )

    def convolution(self) -> float:
        """Time of the convolution."""
        return per_launch(
            lambda _: self.ops.causal_convolution(self.x.qkv, self.ring, self.x.conv, 1, self.rows),
            1,
        )

    def norm(self) -> float:
        """Time of the gated norm."""
        gate = self.x.gate
        return per_launch(
            lambda _: self.ops.gated_norm(gate, gate, self.x.norm, self.config, 1e-6), 1
        )

    def floors(self) -> tuple[float, float, float]:
        """Microseconds that the bytes of rule, convolution and norm take at 4.28 TB/s."""
        state, qkv, inner = self.states[0], self.x.qkv.numel(), self.x.gate.numel()
        convolution = 2 * qkv + self.x.conv.numel() + 6 * self.ring[:, 0].numel()
        return (
            4 * (2 * state.numel() + qkv + inner) / 4.28e6,
            4 * convolution / 4.28e6,
            4 * 3 * inner / 4.28e6,
        )


def case(spans: list[tuple[int, int, int, int]], keys_together: bool, device: str) -> Case:
    """A window of Qwen3.8, with 200 MB of states at most."""
    config = FAMILIES["qwen3.8"]
    rows = on_device(rows_of(spans), device)
    state = state_of(config, len(spans), keys_together)
    copies = max(1, min(24, int(50e6 // state.numel())))
    ring = torch.zeros(len(spans), 8, config.channels, device=device)
    states = [state.to(device) for _ in range(copies)]
    return Case(
        config, inputs(config, rows.count, 1, device), rows, ring, states, operators("kernels")
    )


def timings(device: str) -> None:
    """A table: each operator of Qwen3.8 beside its floor. The rule also with values together."""
    heads = ("rule", "(V last)", "floor", "conv", "floor", "norm", "floor")
    print(f"{'qwen3.8, us':22}" + "".join(f"{head:>10}" for head in heads))
    for name, spans in TIMED.items():
        best, other = case(spans, True, device), case(spans, False, device)
        rule, conv, norm = best.floors()
        times = (best.rule(), other.rule(), rule, best.convolution(), conv, best.norm(), norm)
        print(f"{name:22}" + "".join(f"{t:10.1f}" for t in times), flush=True)


def sweep(device: str) -> None:
    """The delta rule with other tiles: values of a program, warps."""
    from engine.kernels import gated_delta_net

    windows = [[(0, 0, 1, 1)], [(s, 5, 1, 1) for s in range(16)], [(0, 0, 256, 256)]]
    cases = [case(spans, True, device) for spans in windows]
    print("values, warps: us for 1 row, 1 row of 16 slots, 256 rows")
    for gated_delta_net.VALUES, gated_delta_net.WARPS in SWEEP:
        shown = "".join(f"{c.rule():9.1f}" for c in cases)
        print(f"{gated_delta_net.VALUES:4}{gated_delta_net.WARPS:4}{shown}", flush=True)


def main() -> None:
    """Writes or compares, as asked; exits with 1 where bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="compute with the reference and write this file")
    parser.add_argument("--expected", type=Path, help="compare the kernels with this file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-timings", action="store_true")
    parser.add_argument("--sweep", action="store_true", help="also time other tiles (a minute)")
    asked = parser.parse_args()
    began = time.monotonic()
    if asked.write:
        write(asked.write)
        return
    wrong = compare(asked.expected, asked.device)
    if not asked.no_timings:
        timings(asked.device)
    if asked.sweep:
        sweep(asked.device)
    print(f"{time.monotonic() - began:.0f} s")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
