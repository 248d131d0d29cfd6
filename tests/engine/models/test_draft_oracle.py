"""Draft (MTP) blocks with random weights: the engine against plain torch modules.

The trunk's residuals come from transformers, the block itself from `tests.oracles.draft`, both in
float64.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import engine
from tests.oracles.convert import Tensors, write_draft, write_model
from tests.oracles.draft import DRAFTS, draft_logits, residuals
from tests.oracles.draft_weights import draft_tensors
from tests.oracles.margins import choose_lowest_first
from tests.oracles.precision import in_double
from tests.oracles.shape import Shape, build
from tests.oracles.weights import Weights

TOLERANCE = 1e-5
"""Largest difference allowed, as a share of the largest absolute logit."""

QWEN4EXP = Shape("draft-4", seed=20, layers="gag", ple_block=2, tokens=40, eos_at=(9,))
TWO_STREAMS = Shape(
    "draft-2", seed=21, layers="ggga", streams=2, heads=6, kv_heads=3, tied=True, tokens=40
)
SELECTING = Shape("draft-selecting", seed=24, layers="gag", draft_ratio=4, budget=8, tokens=48)
QWEN35MOE = Shape("draft-35", family="qwen35moe", seed=22, layers="gga", tokens=40)
TIED = Shape(
    "draft-tied", family="qwen35moe", seed=23, layers="ag", tied=True, tokens=40, storage="f16"
)


def _check(paths: tuple[Path, ...], shape: Shape, model: torch.nn.Module, hnorm: str) -> None:
    ids = shape.text()
    with in_double(model) as precise, choose_lowest_first():
        rows = residuals(precise, ids)
        expected = draft_logits(Weights(*paths), rows, ids, hnorm=hnorm)
    loaded = engine.load(
        paths[0],
        mtp=paths[1] if len(paths) > 1 else None,
        activations="float",
        kv="f32",
        slots=1,
        max_context=256,
        pooled_norm=hnorm == "pooled",
    )
    for actual, wanted in zip(loaded.draft_logits(ids, chain=DRAFTS), expected, strict=True):
        difference = np.abs(actual - wanted.numpy()).max(axis=1) / float(wanted.abs().max())
        assert difference.max() <= TOLERANCE, f"{difference.max():.2e} at {difference.argmax()}"


def _one_file(folder: Path, shape: Shape, draft: Tensors) -> tuple[torch.nn.Module, Path]:
    model = build(shape)
    return model, write_model(folder / "model.gguf", shape, model, draft)


@pytest.mark.parametrize("hnorm", ["pooled", "stream"])
@pytest.mark.parametrize("shape", [QWEN4EXP, TWO_STREAMS, SELECTING], ids=lambda shape: shape.name)
def test_qwen4exp_block(shape: Shape, hnorm: str, tmp_path: Path) -> None:
    model, path = _one_file(tmp_path, shape, draft_tensors(shape))
    _check((path,), shape, model, hnorm)


@pytest.mark.parametrize("own_norm", [True, False], ids=["own-norm", "trunk-norm"])
@pytest.mark.parametrize("shape", [QWEN35MOE, TIED], ids=lambda shape: shape.name)
def test_qwen35moe_block(shape: Shape, own_norm: bool, tmp_path: Path) -> None:
    model, path = _one_file(tmp_path, shape, draft_tensors(shape, own_norm=own_norm))
    _check((path,), shape, model, "stream")


@pytest.mark.parametrize("shape", [QWEN4EXP, QWEN35MOE], ids=lambda shape: shape.name)
def test_block_with_its_own_embedding_and_head(shape: Shape, tmp_path: Path) -> None:
    model, path = _one_file(tmp_path, shape, draft_tensors(shape, own_head=True))
    _check((path,), shape, model, "stream")


@pytest.mark.parametrize("own_head", [False, True], ids=["borrowed-head", "own-head"])
@pytest.mark.parametrize("shape", [QWEN4EXP, QWEN35MOE], ids=lambda shape: shape.name)
def test_block_in_a_second_file(shape: Shape, own_head: bool, tmp_path: Path) -> None:
    model = build(shape)
    draft = draft_tensors(shape, own_head=own_head)
    trunk = write_model(tmp_path / "trunk.gguf", shape, model)
    second = write_draft(tmp_path / "draft.gguf", shape, model, draft)
    _check((trunk, second), shape, model, "stream")


def test_hnorm_choices_differ(tmp_path: Path) -> None:
    """Pooling the streams in one RMS is visible above the tolerance."""
    model, path = _one_file(tmp_path, QWEN4EXP, draft_tensors(QWEN4EXP))
    ids = QWEN4EXP.text()
    with torch.no_grad(), choose_lowest_first():
        rows = residuals(model, ids)
        pooled, _ = draft_logits(Weights(path), rows, ids, hnorm="pooled")
        stream, _ = draft_logits(Weights(path), rows, ids, hnorm="stream")
    assert float((pooled - stream).abs().max()) > 100 * TOLERANCE * float(pooled.abs().max())
