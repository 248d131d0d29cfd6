"""Random small models of many shapes: the engine's logits against transformers, every position.

transformers runs in float64 here; see `tests.oracles.precision`.
A shape is worth comparing only where no choice (experts, indexer blocks) hangs on the last bits,
so each test first asserts that the nearest choice is clear. Exact ties of block scores do occur
(sums of relu are zero); there transformers is made to take the lowest block first, which is the
engine's rule and not one of transformers'.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import engine
from tests.oracles.convert import write_model
from tests.oracles.margins import choose_lowest_first, smallest_margin
from tests.oracles.precision import in_double
from tests.oracles.shape import Shape, build, logits

TOLERANCE = 1e-5
"""Largest difference allowed, as a share of the largest absolute logit."""

CLEAR = 1e-5
"""Smallest gap of a choice that two sound float32 implementations must agree on."""

SHAPES = [
    Shape("plain", layers="ggga", ple_block=1, eos_at=(30,)),
    Shape(
        "wide-keys",
        seed=1,
        layers="gagag",
        heads=8,
        kv_heads=2,
        key_heads=4,
        value_heads=4,
        key_dim=32,
        value_dim=32,
        streams=2,
        lowrank=24,
        indexer_heads=8,
        budget=8,
        ratios=(2,),
    ),
    Shape(
        "three-values-a-key",
        seed=2,
        layers="gga",
        heads=6,
        kv_heads=1,
        key_heads=2,
        value_heads=6,
        streams=4,
        ple_block=0,
        ngram_size=2,
        heads_per_ngram=8,
        eos_at=(0, 1, 2, 40, 42, -1),
        budget=32,
        ratios=(8,),
        storage="f16",
    ),
    Shape(
        "one-stream",
        seed=3,
        layers="ga",
        streams=1,
        ple_block=0,
        hidden=96,
        ple_width=96,
        ngram_size=4,
        heads_per_ngram=2,
        eos_at=(5, 6, 7, 9, 12, 16, -2),
        eos=507,
        eps=1e-5,
    ),
    Shape(
        "dense-attention",
        seed=4,
        layers="gdgad",
        heads=4,
        kv_heads=4,
        ple_block=2,
        ngram_size=4,
        heads_per_ngram=4,
        ple_width=96,
        rotary=32,
        shared_ff=48,
        eos_at=(0,),
    ),
    Shape(
        "ratio-a-layer",
        seed=25,
        layers="agaga",
        ratios=(2, 4, 8),
        budget=16,
        indexer_heads=2,
        indexer_dim=48,
        gate_shape="D",
        experts=16,
        experts_used=4,
        expert_ff=16,
    ),
    Shape(
        "ratio-by-default",
        seed=6,
        layers="gggagg",
        write_ratios=False,
        tied=True,
        ple_block=5,
        storage="bf16",
        rotary=8,
        theta=1e4,
        eps=1e-3,
    ),
    Shape(
        "ties-of-blocks",
        seed=7,
        layers="gaga",
        indexer_heads=1,
        budget=12,
        ratios=(4,),
        experts=5,
        experts_used=5,
    ),
    Shape("one-expert", seed=8, layers="gda", experts_used=1, conv_kernel=2, hidden=160),
    Shape(
        "wide-values",
        seed=9,
        layers="gag",
        key_dim=16,
        value_dim=32,
        ple_block=2,
        ple_kernel=3,
        ple_width=48,
        heads_per_ngram=3,
        eos_at=(10, 11, -1),
    ),
    Shape("moe-plain", family="qwen35moe", seed=10, layers="ggga", value_heads=6),
    Shape(
        "moe-irregular",
        family="qwen35moe",
        seed=11,
        layers="aggaag",
        heads=8,
        kv_heads=1,
        value_heads=2,
        tied=True,
        gate_shape="D",
        storage="f16",
        experts_used=3,
        shared_ff=16,
    ),
    Shape(
        "moe-full-rotation",
        family="qwen35moe",
        seed=12,
        layers="ga",
        rotary=32,
        key_heads=3,
        value_heads=9,
        eps=1e-5,
        hidden=544,
        tokens=60,
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_logits_agree_with_transformers(shape: Shape, tmp_path: Path) -> None:
    model = build(shape)
    ids = shape.text()
    with torch.no_grad(), choose_lowest_first():
        assert smallest_margin(shape, model, ids) > CLEAR
    path = write_model(tmp_path / "model.gguf", shape, model)
    with in_double(model) as precise, choose_lowest_first():
        expected = logits(precise, ids).numpy()

    loaded = engine.load(path, activations="float", kv="f32", slots=1, max_context=256)
    actual = loaded.logits(ids)

    assert actual.shape == expected.shape
    worst = np.abs(actual - expected).max(axis=1) / np.abs(expected).max()
    assert worst.max() <= TOLERANCE, f"{worst.max():.2e} at position {worst.argmax()}"


def test_selection_happens() -> None:
    """The budgets above are smaller than the texts, so the indexer really leaves blocks out."""
    for shape in SHAPES:
        if shape.family == "qwen4exp" and "a" in shape.layers:
            assert shape.budget + max(shape.ratios) < shape.tokens


def test_end_of_text_resets_matter() -> None:
    """The oracle's logits depend on where n-grams are cut, so the comparison can see a mistake."""
    shape = SHAPES[2]
    model = build(shape)
    ids = shape.text()
    with torch.no_grad(), choose_lowest_first():
        cut = logits(model, ids)
        model.model.layers[0].ple.ple_embedding.eos_token_id = 511
        uncut = logits(model, ids)
    assert float((cut - uncut).abs().max()) > 1e-3 * float(cut.abs().max())
