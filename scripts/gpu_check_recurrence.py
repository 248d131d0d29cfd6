"""Compares gated delta mixers and convolutions on a GPU with the CPU's bits, and times them.

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

from bench.card_timing import median_us
from engine.kernels.inputs import Input, as_input
from engine.models.config import GatedDeltaNetConfig
from engine.rows import Rows, rows_of

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
    "short prompts": [(1, 5, 33, 33), (0, 9, 3, 1), (2, 0, 7, 7), (3, 1, 0, 0)],
}
# What is timed: chunks of one slot, then one row of every slot.
TIMED = (
    {f"{rows} rows of 1 slot": [(0, 5, rows, 1)] for rows in (1, 4, 8)}
    | {f"1 row of {n} slots": [(slot, 5, 1, 1) for slot in range(n)] for n in (8, 16, 64)}
    | {"4 rows of 8 slots": [(slot, 5, 4, 1) for slot in range(8)]}
    | {f"{rows} rows of 1 slot": [(0, 0, rows, rows)] for rows in (64, 512, 4096)}
)


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
        state = state_of(config, slots, keys_together).to(device)
        out, kept = mixed(ops, x, ring, state, config, rows)
        yield f"{case}: ring", ring
        yield f"{case}: state", state.contiguous()
        if name == "drafts":
            lines = torch.tensor([[2, 1, 2, 41, 2], [0, 6, 1, 9, 1]], dtype=torch.int32)
            some = on_device(Rows(lines, rows.slots, rows.slots), device)
            ops.delta_commit(kept, x.decay, x.bias, state, config, some)
            yield f"{case}: state after kept drafts", state.contiguous()
        yield f"{case}: output", out.values if isinstance(out, Input) else out
        if isinstance(out, Input):
            wanted = as_input(out.values)
            for part, right in ((out.codes, wanted.codes), (out.info, wanted.info)):
                shape = *part.shape[:2], 8, -1
                tiled = (t.view(shape).transpose(1, 2) for t in (part, right))
                got, want = (t.flatten(0, 1)[: rows.count] for t in tiled)
                if not torch.equal(got, want):
                    print(f"DIFFERS {case}: quantised")
    # The n-gram convolution: every third of 10 rows, four streams of 2,560.
    ring = numbers((2, 13, 10240), 5, -3, 3).to(device)
    weight = numbers((10240, 4), 6, -1, 1).to(device)
    rows = on_device(rows_of([(1, 4, 40, 40), (0, 20, 4, 1)]), device)
    residual = numbers((44, 10240), 8, -3, 3).to(device)
    x44 = numbers((44, 10240), 7, -3, 3).to(device)
    ops.convolve_into(residual, x44, x44, ring, weight, 3, rows)
    yield "n-grams: convolution", residual
    yield "n-grams: ring", ring


def mixed(
    ops: Any,
    x: Inputs,
    ring: torch.Tensor,
    state: torch.Tensor,
    config: GatedDeltaNetConfig,
    rows: Rows,
) -> Any:
    """What the mixer gives."""
    return ops.delta_mixer(
        x.qkv, x.gate, x.alpha, x.beta, x.conv, ring, x.decay, x.bias, state, x.norm, config, 1e-6,
        rows,
    )  # fmt: skip


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
    """The operators of `engine.kernels` or `engine.reference`."""
    convolution = importlib.import_module(f"engine.{package}.convolution")
    rule = importlib.import_module(f"engine.{package}.gated_delta_net")
    return SimpleNamespace(
        convolve_into=convolution.convolve_into,
        delta_mixer=rule.delta_mixer,
        delta_commit=rule.delta_commit,
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
    return median_us([partial(launch, i % copies) for i in range(max(copies, 8))])


@dataclass(frozen=True, slots=True)
class Case:
    """One window on the GPU, with copies of the state that take turns."""

    config: GatedDeltaNetConfig
    x: Inputs
    rows: Rows
    ring: torch.Tensor
    states: list[torch.Tensor]
    ops: Any

    def mixer(self) -> float:
        """Time of the whole mixer."""
        return per_launch(
            lambda i: mixed(self.ops, self.x, self.ring, self.states[i], self.config, self.rows),
            len(self.states),
        )

    def commit(self) -> float:
        """Time of the walk that applies kept rows."""
        kept = mixed(self.ops, self.x, self.ring, self.states[0], self.config, self.rows)[1]
        return per_launch(
            lambda i: self.ops.delta_commit(
                kept, self.x.decay, self.x.bias, self.states[i], self.config, self.rows
            ),
            len(self.states),
        )

    def floor(self) -> float:
        """Microseconds that the mixer's bytes take at 4.27 TB/s."""
        state, qkv, inner = self.states[0], self.x.qkv.numel(), self.x.gate.numel()
        ring = 4 * self.ring[:, 0].numel()
        moved = 2 * state.numel() + 2 * qkv + 3 * inner + ring + self.x.conv.numel()
        return 4 * moved / 4.27e6


def case(spans: list[tuple[int, int, int, int]], device: str) -> Case:
    """A window of Qwen3.8, with more than 200 MB of states."""
    config = FAMILIES["qwen3.8"]
    rows = on_device(rows_of(spans), device)
    shape = len(spans), config.value_heads, config.value_length, config.key_length
    state = torch.rand(shape, device=device).transpose(2, 3)
    copies = max(2, int(55e6 // state.numel()))
    ring = torch.zeros(len(spans), 8, config.channels, device=device)
    states = [state.clone() for _ in range(copies)]
    return Case(
        config, inputs(config, rows.count, 1, device), rows, ring, states, operators("kernels")
    )


def timings(device: str) -> None:
    """A table: the mixer of Qwen3.8 beside its floor, and the walk alone."""
    print(f"{'qwen3.8, us':22}" + "".join(f"{head:>10}" for head in ("mixer", "floor", "commit")))
    for name, spans in TIMED.items():
        one = case(spans, device)
        times = one.mixer(), one.floor(), one.commit()
        print(f"{name:22}" + "".join(f"{t:10.1f}" for t in times), flush=True)


def main() -> None:
    """Writes or compares, as asked; exits with 1 where bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="compute with the reference and write this file")
    parser.add_argument("--expected", type=Path, help="compare the kernels with this file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-timings", action="store_true")
    asked = parser.parse_args()
    began = time.monotonic()
    if asked.write:
        write(asked.write)
        return
    wrong = compare(asked.expected, asked.device)
    if not asked.no_timings:
        timings(asked.device)
    print(f"{time.monotonic() - began:.0f} s")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
