"""Quantisers against the `gguf` package, and what a good Q2_0 scale must reach."""

from __future__ import annotations

import gguf
import gguf.quants
import numpy as np
import pytest

from engine.errors import UnsupportedModelError
from engine.gguf.dequantize import dequantize
from engine.gguf.quantize import QUANTIZABLE, quantize
from engine.gguf.types import quant_type


def weights(rows: int = 30, columns: int = 512, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, columns)) * random.uniform(1e-3, 2, (rows, 1))
    return values.astype(np.float32)


@pytest.mark.parametrize("name", sorted(QUANTIZABLE - {"Q2_0"}))
def test_bytes_are_those_of_the_package(name: str) -> None:
    values = weights()
    values[3] = 0
    ours = quantize(values, quant_type(name))
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
    assert ours.dtype == np.uint8
    assert np.array_equal(ours, expected.view(np.uint8))


@pytest.mark.parametrize("scale", [1.0, -0.25, 6e-5, 20000.0])
def test_q2_0_gives_its_own_values_back(scale: float) -> None:
    codes = np.random.default_rng(1).integers(-1, 3, (7, 256))
    codes[:, ::64] = 2
    values = (codes * np.float32(np.float16(scale))).astype(np.float32)
    assert np.array_equal(
        dequantize(quantize(values, quant_type("Q2_0")), quant_type("Q2_0")), values
    )


def test_q2_0_of_zeros() -> None:
    raw = quantize(np.zeros((2, 128), np.float32), quant_type("Q2_0"))
    assert (dequantize(raw, quant_type("Q2_0")) == 0).all()


def test_q2_0_is_near_the_best_scale_of_a_fine_search() -> None:
    """The oracle tries 4000 scales a block; the error may exceed its by 2%."""
    blocks = weights(rows=20, columns=64, seed=2)
    ours = dequantize(quantize(blocks, quant_type("Q2_0")), quant_type("Q2_0"))
    error = np.square(blocks - ours).sum(axis=1)
    best = np.full(20, np.inf)
    for part in np.linspace(-1.1, 1.1, 4000):
        d = (np.abs(blocks).max(axis=1, keepdims=True) * part).astype(np.float32)
        fit = d * np.clip(np.rint(blocks / d), -1, 2)
        best = np.minimum(best, np.square(blocks - fit).sum(axis=1))
    assert (error <= best * 1.02).mean() > 0.9
    assert error.sum() <= best.sum() * 1.01


def test_q2_0_keeps_large_and_tiny_values_finite() -> None:
    values = np.array([[3e38, -3e38] * 32, [1e-30, -1e-30] * 32], np.float32)
    with np.errstate(over="ignore"):
        raw = quantize(values, quant_type("Q2_0"))
    assert np.isfinite(dequantize(raw, quant_type("Q2_0"))).all()


def test_rows_do_not_depend_on_each_other() -> None:
    values = weights(rows=600, columns=256)
    whole = quantize(values, quant_type("Q2_0"))
    for row in (0, 17, 599):
        assert np.array_equal(quantize(values[row], quant_type("Q2_0")), whole[row])


def test_a_type_without_a_quantiser_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match="IQ3_S") as error:
        quantize(weights(), quant_type("IQ3_S"))
    assert "Q8_0" in error.value.hint


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="96"):
        quantize(weights(columns=96), quant_type("Q2_0"))
