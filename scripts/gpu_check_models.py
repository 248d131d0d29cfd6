"""Compares whole models on a GPU with the CPU: every row's logits bit for bit, and drafted tokens.

`python -m scripts.gpu_check_models --write FILE` on a machine with the CPU operators, then
`python -m scripts.gpu_check_models --expected FILE` on one with a GPU. Exit code 1: a difference.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import engine

ROOT = Path(__file__).parents[1]
MODELS = (
    ROOT / "profiles" / "models" / "strata-tiny.gguf",
    ROOT / "tests" / "fixtures" / "tiny-qwen35moe.gguf",
)
TEXT = "The connection pool is a table of open sockets.\ndef read(path):\n    return path.read()\n"
ROWS, PROMPT, NEW = 96, 40, 48
CHUNKS = (1, 1, 7, 16, 33)


def played(path: Path, device: str) -> dict[str, Any]:
    """Hashes of all rows' logits, read whole; the same in chunks or not; greedy tokens."""
    start = time.perf_counter()
    model = engine.load(path, device, slots=4, max_context=512, spec=4)
    ids = model.tokenizer.encode(TEXT * 8)[:ROWS]
    whole = model.logits(ids)
    chunked = model.logits(ids, chunks=CHUNKS)
    tokens = model.generate(ids[:PROMPT], NEW, ignore_end=True)
    print(f"{path.name} on {device}: {time.perf_counter() - start:.1f} s", flush=True)
    rows = [hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest() for row in whole]
    return {"rows": rows, "chunked": bool((whole == chunked).all()), "tokens": tokens}


def compare(name: str, found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Prints what is equal; whether all is."""
    pairs = list(zip(found["rows"], wanted["rows"], strict=True))
    same = sum(one == other for one, other in pairs)
    tokens = found["tokens"] == wanted["tokens"]
    print(
        f"{name}: {same} of {len(pairs)} rows equal; chunks equal: {found['chunked']}; "
        f"tokens equal: {tokens}"
    )
    return same == len(pairs) and found["chunked"] and tokens


def main(mode: str, file: str) -> int:
    """Exit code 0: all equal, or written."""
    if mode == "--write":
        Path(file).write_text(json.dumps({path.name: played(path, "cpu") for path in MODELS}))
        return 0
    expected = json.loads(Path(file).read_text())
    equal = [compare(p.name, played(p, "cuda:0"), expected[p.name]) for p in MODELS]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("--write", "--expected"):
        raise SystemExit(__doc__)
    raise SystemExit(main(*sys.argv[1:]))
