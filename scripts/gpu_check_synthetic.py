"""Compares random weights made on a GPU with those made on the CPU, and times both.

python -m scripts.gpu_check_synthetic
"""

from __future__ import annotations

import argparse
import time

import torch

from engine.synthetic import SyntheticGGUF, open_synthetic
from engine.synthetic_mixes import FAMILIES

LARGE = "blk.1.ffn_gate_exps.weight"


def differences(gguf: SyntheticGGUF, device: str) -> int:
    """How many tensors differ."""
    wrong = 0
    for name in gguf.tensors:
        if not torch.equal(gguf.raw_on(name, device).cpu(), torch.from_numpy(gguf.raw(name))):
            print(f"DIFFERS {gguf.spec.name} {name}")
            wrong += 1
    return wrong


def rates(gguf: SyntheticGGUF, device: str) -> tuple[float, float]:
    """GB/s of one layer's gate matrices on the device and on the CPU."""
    gigabytes = gguf.tensors[LARGE].nbytes / 1e9
    gguf.raw_on(LARGE, device).sum().item()
    began = time.perf_counter()
    made = gguf.raw_on(LARGE, device)
    made[..., -1].sum().item()
    on_device = gigabytes / (time.perf_counter() - began)
    began = time.perf_counter()
    expected = gguf.raw(LARGE)
    on_cpu = gigabytes / (time.perf_counter() - began)
    assert torch.equal(made.cpu(), torch.from_numpy(expected)), LARGE
    return on_device, on_cpu


def main() -> None:
    """Every mix, small; then one large tensor of each. Exits with 1 where bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-timings", action="store_true")
    asked = parser.parse_args()
    wrong = 0
    for family, entry in FAMILIES.items():
        for mix in entry.mixes:
            model = f"{family}:{mix}"
            wrong += differences(open_synthetic(f"{model},small,layers=2,zipf=1"), asked.device)
            if not asked.no_timings:
                on_device, on_cpu = rates(open_synthetic(model), asked.device)
                print(f"{model}: {on_device:.0f} GB/s on the device, {on_cpu:.1f} on the CPU")
    print(f"{wrong} tensors differ")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
