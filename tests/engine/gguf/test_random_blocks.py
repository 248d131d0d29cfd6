"""Random blocks: the generator's published numbers, the same bytes everywhere, sizes of weights."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf import random_blocks
from engine.gguf.dequantize import dequantize
from engine.gguf.random_blocks import (
    RANDOM_TYPES,
    Recipe,
    fill,
    fill_on_device,
    float_recipe,
    quantised_recipe,
    stream_key,
)
from engine.gguf.types import quant_type

FLOATS = ("F32", "F16", "BF16")
QUANTISED = sorted(RANDOM_TYPES - {*FLOATS})
TYPES = pytest.mark.parametrize("name", sorted(RANDOM_TYPES))


def _recipe(name: str, key: int = 7, rms: float = 0.02) -> Recipe:
    form = quant_type(name)
    return (float_recipe if name in FLOATS else quantised_recipe)(form, key, rms)


def _bytes(recipe: Recipe, blocks: int) -> np.ndarray:
    out = np.full((blocks, recipe.block_bytes), 0xA5, np.uint8)
    fill(recipe, out)
    return out


def test_the_words_are_splitmix64() -> None:
    """The first outputs for the seed 1234567, as the algorithm's descriptions give them."""
    words = _bytes(Recipe(1234567, 8, ()), 5).view(np.uint64).ravel().tolist()
    assert words == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@TYPES
def test_the_same_bytes_on_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = _recipe(name, key=2**64 - 3)
    monkeypatch.setattr(random_blocks, "_GPU_CHUNK", 3000)
    out = torch.zeros(131, recipe.block_bytes, dtype=torch.uint8)
    fill_on_device(recipe, out, "cpu")
    assert np.array_equal(out.numpy(), _bytes(recipe, 131))


@TYPES
def test_chunks_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = _recipe(name)
    whole = _bytes(recipe, 1001)
    monkeypatch.setattr(random_blocks, "_CPU_CHUNK", 2048)
    assert np.array_equal(_bytes(recipe, 1001), whole)
    assert np.array_equal(_bytes(recipe, 3), whole[:3])


@TYPES
def test_weights_have_the_size_that_was_asked_for(name: str) -> None:
    """Sizes go by powers of two: within a factor of sqrt(2); the mean is near 0."""
    form = quant_type(name)
    blocks = _bytes(_recipe(name), 200_000 // form.block_elements)
    weights = dequantize(blocks, form).astype(np.float64)
    assert np.isfinite(weights).all()
    assert 0.7 < np.sqrt(np.square(weights).mean()) / 0.02 < 1.43
    assert abs(weights.mean()) < 0.12 * weights.std()


@pytest.mark.parametrize("name", QUANTISED)
def test_scales_lie_within_a_factor_of_two(name: str) -> None:
    """Down to subnormal fp16 numbers; smaller ones are not asked of the format."""
    form, shape = quant_type(name), random_blocks._FORMS[name]
    place = shape.halves[0][0]
    for exponent in (-30, -17, -16, -15, -14, -3):
        recipe = quantised_recipe(form, 1, 1.53 * 2.0**exponent * shape.rms)
        scales = _bytes(recipe, 300)[:, place : place + 2].copy().view(np.float16)
        low = 2.0 ** max(exponent, -17)
        assert low <= scales.min() < 1.1 * low
        assert 1.9 * low < scales.max() < 2 * low


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("sign", "low", "high"), [("plus", 1, 2), ("minus", -2, -1)])
def test_numbers_of_one_sign(name: str, sign: str, low: int, high: int) -> None:
    recipe = float_recipe(quant_type(name), 3, 1.53, sign)  # type: ignore[arg-type]
    numbers = dequantize(_bytes(recipe, 500), quant_type(name))
    assert low <= numbers.min()
    assert numbers.max() <= high
    assert np.ptp(numbers) > 0.95


def test_every_code_occurs() -> None:
    blocks = _bytes(_recipe("Q8_0"), 2000)
    assert len(np.unique(blocks[:, 2:])) == 256
    codes = _bytes(_recipe("Q2_0"), 2000)[:, 2:]
    fields = np.stack([(codes >> shift) & 3 for shift in (0, 2, 4, 6)])
    share = np.bincount(fields.ravel(), minlength=4) / fields.size
    assert share == pytest.approx([0.25, 0.5, 0.25, 0], abs=0.01)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(1, 400), st.integers(0, 399))
def test_any_part_can_be_made_alone(key: int, words: int, first: int) -> None:
    """Stream bytes depend on their place alone: a start moved by n steps is a stream cut by n."""
    whole = _bytes(Recipe(key, 8, ()), words + first)
    moved = key + first * 0x9E3779B97F4A7C15
    assert np.array_equal(_bytes(Recipe(moved % 2**64, 8, ()), words), whole[first:])


def test_keys() -> None:
    keys = {stream_key(seed, name) for seed in (0, 1) for name in ("a", "b", "1/a")}
    assert len(keys) == 6
    assert all(0 <= key < 2**64 for key in keys)
