"""Small files with a draft layer, written once a run."""

from pathlib import Path

import numpy as np
import pytest

from engine.gguf.quantize import quantize
from engine.gguf.reader import open_gguf
from engine.gguf.types import quant_type
from engine.gguf.writer import TensorData, write_gguf
from tests.oracles.convert import write_draft, write_model
from tests.oracles.draft_weights import draft_tensors
from tests.oracles.shape import Shape, build

QWEN4EXP = Shape(
    "with-draft", seed=41, layers="gag", ple_block=2, draft_ratio=4, budget=8, eos_at=(9,)
)
QWEN35MOE = Shape("with-draft-35", family="qwen35moe", seed=42, layers="gga")


@pytest.fixture(scope="session")
def draft_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By family: one file with trunk and draft layer (`qwen4exp`), the trunk alone
    (`qwen4exp-trunk`), the draft layer alone (`qwen4exp-draft`), and all of it in Q8_0
    (`qwen4exp-q8`)."""
    folder = tmp_path_factory.mktemp("models")
    files = {}
    for shape in (QWEN4EXP, QWEN35MOE):
        model, draft, name = build(shape), draft_tensors(shape), shape.family
        files[name] = write_model(folder / f"{name}.gguf", shape, model, draft)
        files[f"{name}-trunk"] = write_model(folder / f"{name}-trunk.gguf", shape, model)
        files[f"{name}-draft"] = write_draft(folder / f"{name}-draft.gguf", shape, model, draft)
        files[f"{name}-q8"] = _quantised(files[name], folder / f"{name}-q8.gguf")
    return files


def _quantised(source: Path, target: Path) -> Path:
    """The same model with Q8_0 matrices wherever a row has whole groups."""
    tensors: dict[str, TensorData] = {}
    with open_gguf(source) as gguf:
        for name, info in gguf.tensors.items():
            kind, raw = info.type, gguf.raw(name)
            small = len(info.shape) < 2 or "conv1d" in name or "ffn_gate_inp" in name
            if not small and info.shape[-1] % 32 == 0:
                kind = quant_type("Q8_0")
                raw = quantize(gguf.float32(name), kind)
            tensors[name] = kind, info.shape, np.asarray(raw)
        write_gguf(target, dict(gguf.metadata), tensors)
    return target
