"""Integer forms against dequantised weights, and the bound that keeps their sums exact."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from engine.errors import UnsupportedModelError
from engine.gguf.dequantize import dequantize
from engine.gguf.integer_form import INTEGER_TYPES, IntegerForm, integer_form
from engine.gguf.types import QUANT_TYPES, quant_type
from tests.engine.gguf.blocks import HALVES, random_blocks

NAMES = sorted(INTEGER_TYPES)
MINIMA = {"Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"}
ROWS = (3, 20)


def form_of(name: str, seed: int = 0, blocks: int = 7) -> tuple[np.ndarray, IntegerForm]:
    kind = quant_type(name)
    raw = random_blocks(kind, ROWS, blocks, np.random.default_rng(seed))
    return raw, integer_form(torch.from_numpy(raw), kind)


def test_every_quantised_type_has_an_integer_form() -> None:
    quantised = {kind.name for kind in QUANT_TYPES.values() if kind.block_elements > 1}
    assert quantised == INTEGER_TYPES == set(HALVES)


@pytest.mark.parametrize("name", NAMES)
def test_the_formula_gives_the_dequantised_weights(name: str) -> None:
    """Written out element by element as the contract has it, with exact products in float64."""
    kind = quant_type(name)
    raw, form = form_of(name)
    K = raw.shape[-1] // kind.block_bytes * kind.block_elements

    def each(part: torch.Tensor | None) -> np.ndarray:
        if part is None:
            return np.ones((*ROWS, K))
        return np.repeat(part.numpy(), K // part.shape[-1], axis=-1).astype(np.float64)

    product = each(form.scale) * (each(form.multiplier) * each(form.codes))
    assert np.array_equal(product, product.astype(np.float32))
    weights = product.astype(np.float32)
    if form.minimum_scale is not None:
        minimum = each(form.minimum_scale) * each(form.minimum_multiplier)
        assert np.array_equal(minimum, minimum.astype(np.float32))
        weights = weights - minimum.astype(np.float32)
    assert np.array_equal(weights, dequantize(raw, kind))


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_types(name: str) -> None:
    kind = quant_type(name)
    _, form = form_of(name)
    K = 7 * kind.block_elements
    assert form.codes.shape == (*ROWS, K)
    assert form.codes.dtype == torch.int8
    assert form.scale_elements == (16 if name == "NVFP4" else 32)
    assert form.scale.shape == (*ROWS, K // form.scale_elements)
    assert form.scale.dtype == torch.float32
    assert (form.minimum_scale is not None) == (name in MINIMA)
    for multiplier in (form.multiplier, form.minimum_multiplier):
        if multiplier is not None:
            assert multiplier.dtype == torch.int8
            assert multiplier.shape in ((*ROWS, K // 16), (*ROWS, K // 32))
    if form.minimum_scale is not None:
        assert form.minimum_scale.shape == form.scale.shape
        assert (form.multiplier is None) == (form.minimum_multiplier is None)


@pytest.mark.parametrize("name", NAMES)
def test_the_sum_of_a_group_is_exact_in_float32(name: str) -> None:
    """32 products with the largest multiplier, code and activation that random blocks show."""
    _, form = form_of(name, blocks=60)
    widest = int(form.codes.long().abs().max()) * 127 * 32
    if form.multiplier is not None:
        widest *= int(form.multiplier.long().abs().max())
    assert widest < 2**24
    if form.minimum_multiplier is not None:
        assert int(form.minimum_multiplier.max()) * 127 * 32 < 2**24


@pytest.mark.parametrize("name", NAMES)
def test_extreme_blocks_stay_in_bounds(name: str) -> None:
    """Blocks of one repeated byte reach the ends of every bit field."""
    kind = quant_type(name)
    raw = np.repeat(np.arange(256, dtype=np.uint8)[:, None], kind.block_bytes, axis=1)
    form = integer_form(torch.from_numpy(raw), kind)
    reach = form.codes.long().abs()
    if form.multiplier is not None:
        multiplier = form.multiplier.long().abs()
        reach *= multiplier.repeat_interleave(reach.shape[1] // multiplier.shape[1], 1)
    assert int(reach.view(256, -1, 32).sum(-1).max()) * 127 < 2**24


@pytest.mark.parametrize("name", ["IQ3_S", "Q5_K", "Q2_0"])
def test_rows_do_not_depend_on_their_neighbours_or_chunks(name: str) -> None:
    kind = quant_type(name)
    raw = torch.from_numpy(
        random_blocks(kind, (700,), 4 * 256 // kind.block_elements, np.random.default_rng(1))
    )
    whole = integer_form(raw, kind)
    for row in (0, 127, 128, 511, 699):
        alone = integer_form(raw[row], kind)
        assert torch.equal(alone.codes, whole.codes[row])
        assert torch.equal(alone.scale, whole.scale[row])


def test_no_rows_give_empty_arrays() -> None:
    for name in NAMES:
        kind = quant_type(name)
        form = integer_form(torch.empty(0, 2 * kind.block_bytes, dtype=torch.uint8), kind)
        assert form.codes.shape == (0, 2 * kind.block_elements)
        assert form.scale.shape == (0, 2 * kind.block_elements // form.scale_elements)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "I32"])
def test_floats_have_no_integer_form(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=name):
        integer_form(torch.zeros(2, 64, dtype=torch.uint8), quant_type(name))


def test_a_large_matrix_takes_seconds_at_most() -> None:
    """2 million weights; ten times slower than measured on one core still passes."""
    kind = quant_type("IQ2_S")
    raw = torch.from_numpy(random_blocks(kind, (400,), 20, np.random.default_rng(2)))
    start = time.perf_counter()
    integer_form(raw, kind)
    assert time.perf_counter() - start < 1
