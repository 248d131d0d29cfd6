"""The stored fixtures: logits and greedy tokens of transformers, and sameness of chunkings."""

import json
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine

FIXTURES = Path(__file__).parents[2] / "fixtures"

TOLERANCE = 1e-5
"""Largest difference allowed, as a share of the largest absolute logit."""

CLEAR = 0.005
"""Margin between the two best logits above which a greedy token must be the oracle's."""

NOISE = 0.05
"""Typical (median) error of int8 activations, as a share of the largest absolute logit."""

FAMILIES = ("q4exp-a", "q35moe-a")
PROMPTS = ("short", "chat", "long")
QUANTISED = tuple(
    path.stem for family in FAMILIES for path in sorted(FIXTURES.glob(f"{family}-[iq]*.gguf"))
)


@cache
def _oracle(family: str) -> dict[str, Any]:
    return json.loads((FIXTURES / f"{family}-oracle.json").read_text())


def _ids(name: str, prompt: str) -> list[int]:
    return _oracle(name.rsplit("-", 1)[0])[prompt]["ids"]


@cache
def _load(name: str, activations: str = "float", kv: str = "f32") -> "engine.Model":
    path = FIXTURES / f"{name}.gguf"
    return engine.load(path, activations=activations, kv=kv, slots=1, max_context=512)


def _stored(name: str, prompt: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions and their float32 logits."""
    stored = np.load(FIXTURES / f"{name.removesuffix('-f16')}-{prompt}-logits.npz")
    return stored["positions"], stored["logits"]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", [f"{family}-f16" for family in FAMILIES])
def test_half_precision_files_agree_with_transformers(name: str, prompt: str) -> None:
    positions, expected = _stored(name, prompt)
    actual = _load(name).logits(_ids(name, prompt))[positions]
    assert np.abs(actual - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_files_agree_with_dequantised_weights(name: str, prompt: str) -> None:
    positions, expected = _stored(name, prompt)
    actual = _load(name).logits(_ids(name, prompt))[positions]
    assert np.abs(actual - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_there_are_quantised_files() -> None:
    assert {name.rsplit("-", 1)[0] for name in QUANTISED} == set(FAMILIES)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens(family: str, prompt: str) -> None:
    """Each token with a clear margin is the best one after the oracle's own tokens so far.

    The continuation runs past end tokens, and one pass over it sees every step.
    """
    case = _oracle(family)[prompt]
    text = case["ids"] + case["greedy"]
    steps = _load(f"{family}-f16").logits(text)[len(case["ids"]) - 1 : -1].argmax(axis=1)
    clear = np.array(case["margins"]) > CLEAR
    assert clear.sum() > 20
    np.testing.assert_array_equal(steps[clear], np.array(case["greedy"])[clear])


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_generation(family: str) -> None:
    """The same through `generate`, which stops at an end token."""
    case = _oracle(family)["chat"]
    model = _load(f"{family}-f16")
    tokens = model.generate(case["ids"], len(case["greedy"]))
    assert tokens
    expected = case["greedy"][: len(tokens)]
    assert tokens == expected
    if len(tokens) < len(case["greedy"]):
        following = {tokens[-1], case["greedy"][len(tokens)]}
        assert following & model.tokenizer.eos_ids


@pytest.mark.parametrize("name", QUANTISED)
def test_integer_activations_stay_within_their_noise(name: str) -> None:
    """A router that flips makes single positions chaotic, so the median is bounded, and the
    best token must be the oracle's wherever its margin is many times the noise."""
    for prompt in PROMPTS:
        positions, expected = _stored(name, prompt)
        actual = _load(name, "int8", "int8").logits(_ids(name, prompt))[positions]
        largest = np.abs(expected).max()
        assert np.median(np.abs(actual - expected).max(axis=1)) <= NOISE * largest
        best = np.sort(expected, axis=1)[:, -2:]
        wide = best[:, 1] - best[:, 0] > 3 * NOISE * largest
        agreeing = actual.argmax(axis=1) == expected.argmax(axis=1)
        assert agreeing[wide].mean() >= 0.9 if wide.any() else True


@pytest.mark.parametrize(("activations", "kv"), [("float", "f32"), ("int8", "int8")])
@pytest.mark.parametrize("name", [f"{family}-f16" for family in FAMILIES] + list(QUANTISED))
def test_token_by_token_gives_the_same_bits(name: str, activations: str, kv: str) -> None:
    model = _load(name, activations, kv)
    ids = _ids(name, "long")[:90] if name.startswith("q4exp") else _ids(name, "chat")
    whole = model.logits(ids)
    assert np.array_equal(whole, model.logits(ids, chunks=[1] * len(ids)))


@pytest.mark.parametrize("name", ["q4exp-a-q4k", "q35moe-a-iq3s"])
@given(borders=st.sets(st.integers(1, 139), max_size=8))
@settings(max_examples=8, deadline=None)
def test_any_chunking_gives_the_same_bits(name: str, borders: set[int]) -> None:
    model = _load(name, "int8", "int8")
    ids = _ids(name, "long")[:140]
    edges = [0, *sorted(borders)]
    chunks = [end - start for start, end in pairwise(edges)]
    assert list(accumulate(chunks)) == sorted(borders)
    assert np.array_equal(_whole(name), model.logits(ids, chunks=chunks))


@cache
def _whole(name: str) -> np.ndarray:
    return _load(name, "int8", "int8").logits(_ids(name, "long")[:140])
