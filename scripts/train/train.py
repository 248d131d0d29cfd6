"""Trains one of the two models on one GPU for a given time and writes it as GGUF.

    python -m scripts.train.train --model strata-tiny --data tokens.npz.xz \\
        --tokenizer tokenizer.json --out OUT --minutes 8

The time decides: the learning rate falls to zero when it is over. From `--switch` of it on, the
weights are rounded to their file formats in every step and attention selects its blocks.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as fn
from torch import Tensor

from scripts.train.batches import Batches, held_out_rows
from scripts.train.evaluate import score
from scripts.train.export import export, named_geometry
from scripts.train.formats import quantised, type_of
from scripts.train.geometry import Geometry
from scripts.train.layers import Weights
from scripts.train.model import Model, Output
from scripts.train.optimiser import Guard, Optimiser
from scripts.train.parameters import initial
from scripts.train.quantise import BLOCK, rounded
from scripts.train.tokens import load_tokens

PIECE_BYTES = 15 << 20
WARM_UP_STEPS, HOLD = 60, 0.55


def rounded_weights(weights: Weights, geometry: Geometry) -> dict[str, Tensor]:
    """`formats.quantised` with one call for all tensors of a type: fewer, larger kernels."""
    found = dict(weights)
    for type_name in BLOCK:
        names = [n for n, w in weights.items() if type_of(n, w.dim(), geometry) == type_name]
        if not names:
            continue
        with torch.no_grad():
            flat = torch.cat([weights[n].detach().flatten() for n in names])
            parts = rounded(flat, type_name).split([weights[n].numel() for n in names])
        for name, part in zip(names, parts, strict=True):
            found[name] = weights[name] + (part.view_as(weights[name]) - weights[name].detach())
    return found


def working_copy(weights: Weights, geometry: Geometry, dtype: torch.dtype) -> dict[str, Tensor]:
    """Matrices in the precision of the products, vectors and small matrices in float32."""
    return {
        name: value.to(dtype) if type_of(name, value.dim(), geometry) != "F32" else value
        for name, value in weights.items()
    }


def losses(out: Output, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Total loss, and the trunk's and the draft's cross entropies; targets [B, T + 1]."""
    trunk = fn.cross_entropy(out.logits.flatten(0, 1), targets[:, :-1].flatten())
    assert out.draft_logits is not None
    flat = out.draft_logits.flatten(0, 1)
    # the draft learns the next text and, more, what the trunk will say there
    draft = fn.cross_entropy(flat, targets[:, 1:].flatten())
    told = out.logits[:, 1:].detach().softmax(-1).flatten(0, 1)
    likeness = fn.cross_entropy(out.draft_logits[:, :-1].flatten(0, 1), told)
    total = trunk + 0.1 * draft + 0.3 * likeness + 0.01 * out.balance + out.index_loss
    return total, trunk.detach(), draft.detach()


def rate_factor(progress: float, step: int) -> float:
    """Warm-up over some steps, a plateau, then a straight line to zero when the time is over."""
    return min(1.0, (step + 1) / WARM_UP_STEPS, max(0.0, (1 - progress) / (1 - HOLD)))


def train(arguments: argparse.Namespace, geometry: Geometry) -> dict[str, Tensor]:
    """The trained float32 weights."""
    fast = arguments.device == "cuda"
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    compiler = functools.partial(torch.compile, dynamic=False) if arguments.compile else None
    arrays = load_tokens(arguments.data)
    batches = Batches(arrays, arguments.length, arguments.device, arguments.seed)
    weights = {
        name: value.requires_grad_()
        for name, value in initial(geometry, arguments.seed, arguments.device).items()
    }
    model, optimiser = Model(geometry, compiler, exact=False), Optimiser(weights, geometry)
    guard = Guard(weights)
    dtype = torch.bfloat16 if fast else torch.float32
    started, step, logged, late = time.monotonic(), 0, 0.0, False
    stride = torch.arange(15, arguments.length - 1, 16, device=arguments.device)
    while (progress := (time.monotonic() - started) / (60 * arguments.minutes)) < 1:
        if progress >= arguments.switch and not late:
            late, guard.best = True, float("inf")  # rounding raises the loss at first
        batch = batches.draw(arguments.batch, 0.45 if progress > HOLD else 0.25)
        used = working_copy(
            rounded_weights(weights, geometry) if late else weights, geometry, dtype
        )
        rows = (stride - step % 16).clamp(min=3) if geometry.wide else None
        out = model.forward(used, batch[:, :-2], batch[:, 1:-1], select=late, rows=rows)
        total, trunk, draft = losses(out, batch[:, 1:])
        total.backward()
        optimiser.step(guard.factor * rate_factor(progress, step))
        step += 1
        if step in (1, 2, 10) or step % arguments.log_every == 0:
            guard.check(trunk.item())
            values = [x.item() for x in (trunk, draft, out.balance, out.index_loss)]
            now = time.monotonic() - started
            pace = (
                arguments.batch * arguments.length * arguments.log_every / max(now - logged, 1e-9)
            )
            logged = now
            print(
                f"step {step} {now:.0f}s late={late} trunk {values[0]:.3f} draft {values[1]:.3f} "
                f"balance {values[2]:.2f} index {values[3]:.3f} {pace:.0f} tokens/s",
                flush=True,
            )
    print(
        f"{step} steps, {step * arguments.batch * arguments.length} tokens, "
        f"{time.monotonic() - started:.0f} s",
        flush=True,
    )
    return {name: value.detach() for name, value in weights.items()}


def save_pieces(weights: Weights, out: Path) -> None:
    """float16 weights as weights-0.npz, weights-1.npz, ... of at most 15 MiB."""
    piece: dict[str, Any] = {}
    number = size = 0
    for name, value in [*weights.items(), ("", torch.zeros(0))]:
        array = value.cpu().half().numpy()
        if piece and (not name or size + array.nbytes > PIECE_BYTES):
            np.savez(out / f"weights-{number}.npz", **piece)
            piece, number, size = {}, number + 1, 0
        piece[name] = array
        size += array.nbytes


def report(weights: Weights, geometry: Geometry, arguments: argparse.Namespace) -> None:
    """Prints the held-out figures of the float weights and of the file's."""
    arrays = load_tokens(arguments.data)
    model = Model(geometry)
    exact = {name: value.detach() for name, value in quantised(weights, geometry).items()}
    for kind in ("test", "test_chat"):
        rows = held_out_rows(arrays[kind], arguments.length + 1, arguments.device)
        for label, chosen in (("float", weights), ("quantised", exact)):
            found = score(model, chosen, rows)
            line = f"{kind} {label}: loss {found.loss:.4f} accuracy {found.accuracy:.4f} "
            line += f"first draft {found.first_draft:.4f}"
            if kind == "test":
                size = int(arrays["test_bytes"])
                line += f" bits per byte {found.bits_per_byte(len(arrays[kind]), size):.4f}"
            print(line, flush=True)


def main() -> None:
    """Trains, reports, saves and exports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=("strata-tiny", "tiny-qwen35moe"), required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--switch", type=float, default=0.4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--compile", action="store_true", help="fuse with torch.compile")
    parser.add_argument("--pieces", action="store_true", help="save float16 weights too")
    arguments = parser.parse_args()
    geometry = named_geometry(arguments.model, arguments.tokenizer)
    weights = train(arguments, geometry)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arguments.model}.gguf"
    export(weights, geometry, arguments.tokenizer, path, arguments.model)
    print(f"{path.name}: {path.stat().st_size} bytes", flush=True)
    if arguments.pieces:
        save_pieces(weights, arguments.out)
    report(weights, geometry, arguments)


if __name__ == "__main__":
    main()
