"""N-gram embeddings: hashes by Python integers, gates by the literal order, rings, tables."""

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.gguf.dequantize import dequantize
from engine.gguf.types import quant_type
from engine.models.config import NgramConfig
from engine.reference.ngram_embedding import Table, ngram_gated_value, ngram_rows
from engine.rows import rows_of
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.packing import q8_matrix, random_matrix, random_raw
from tests.engine.reference.spans import chunks_of, one_slot

EOS = 9
DRAFTS = 3
WIDTH, EMBEDDING, STREAMS = 48, 64, 3


def _config(size: int) -> NgramConfig:
    heads = 2 * (size - 1)
    return NgramConfig(
        layers=frozenset({0}),
        size=size,
        heads_per_ngram=2,
        conv_kernel=4,
        eos_token=EOS,
        multipliers=tuple((2**61 + 7919) * (i + 3) % 2**63 for i in range(size)),
        offsets=tuple(1000 * h for h in range(heads)),
        sizes=tuple(211 + 12 * h for h in range(heads)),
    )


def _rows_by_definition(tokens: list[int], position: int, config: NgramConfig) -> list[int]:
    """Straight from the definition, with Python's integers cut to 64 bits."""
    ends = [i for i in range(position) if tokens[i] == EOS]
    first = ends[-1] + 1 if ends else 0
    rows = []
    for n in range(2, config.size + 1):
        mixed = 0
        for back in range(n):
            at = position - back
            token = tokens[at] if at >= first else EOS
            mixed ^= token * config.multipliers[back] % 2**64
        for head in range(2 * (n - 2), 2 * (n - 1)):
            rows.append(mixed % config.sizes[head] + config.offsets[head])
    return rows


def _ring(config: NgramConfig, slots: int = 3) -> torch.Tensor:
    return torch.full((slots, config.history + DRAFTS), -1, dtype=torch.int64)


@given(st.lists(st.integers(0, 11), min_size=1, max_size=30), st.integers(2, 5), st.integers(1, 7))
@settings(max_examples=120, deadline=None)
def test_rows_by_definition(tokens: list[int], size: int, chunk: int) -> None:
    """Few different tokens, so that ends of text are everywhere; in chunks of any size."""
    config = _config(size)
    ring = _ring(config)
    parts = [
        ngram_rows(torch.tensor(tokens[a : a + n]), ring, config, one_slot(1, a, n))
        for a, n in chunks_of(len(tokens), (chunk,))
    ]
    actual = torch.cat(parts).tolist()
    assert actual == [_rows_by_definition(tokens, p, config) for p in range(len(tokens))]


def test_large_tokens_and_multipliers_wrap_at_64_bits() -> None:
    config = _config(3)
    tokens = [2**31 - 1, 248_319, 151_643]
    actual = ngram_rows(torch.tensor(tokens), _ring(config), config, one_slot(0, 0, 3))
    assert actual.tolist() == [_rows_by_definition(tokens, p, config) for p in range(3)]


def test_dropped_drafts_leave_no_trace() -> None:
    config, ring = _config(4), _ring(_config(4))
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    ngram_rows(torch.tensor(tokens[:5]), ring, config, one_slot(0, 0, 5))
    ngram_rows(torch.tensor([6, EOS, EOS, EOS]), ring, config, one_slot(0, 5, 4, 1))
    for position in range(6, 10):
        actual = ngram_rows(
            torch.tensor(tokens[position : position + 1]), ring, config, one_slot(0, position, 1)
        )
        assert actual[0].tolist() == _rows_by_definition(tokens, position, config)


def test_hashes_of_spans_are_independent() -> None:
    config, ring = _config(3), _ring(_config(3), 16)
    for slot in range(16):
        tokens = torch.arange(slot, slot + 6)
        ngram_rows(tokens, ring, config, one_slot(slot, 0, 6))
    last = torch.arange(100, 116)

    def on_rows(first: int, end: int) -> Outputs:
        rows = rows_of([(slot, 6, 1, 1) for slot in range(first, end)])
        return (ngram_rows(last[first:end], ring, config, rows),)

    assert_rows_independent(on_rows)


@pytest.mark.parametrize("type_name", ["F32", "F16", "Q8_0", "Q2_0", "IQ4_NL"])
def test_table(type_name: str) -> None:
    raw = random_raw(type_name, (50,), 64)
    whole = dequantize(raw, quant_type(type_name))
    indices = torch.tensor([[3, 49], [0, 3]])
    rows = Table(raw, quant_type(type_name)).rows(indices)
    assert rows.shape == (2, 2, 64)
    assert same_bits(rows, whole[indices.numpy()])


def _inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(rows)
    return (
        torch.randn(rows, EMBEDDING, generator=random),
        torch.randn(rows, STREAMS, WIDTH, generator=random),
    )


NORM_KEY = torch.linspace(0.5, 1.5, STREAMS * WIDTH)
NORM_QUERY = torch.linspace(1.5, 0.6, STREAMS * WIDTH)


def test_gated_value_order() -> None:
    embedding, streams = _inputs(3)
    streams[0, 0] = 0  # a product of exactly 0 has the gate 1/2
    (key, k), (value, v) = (
        random_matrix(STREAMS * WIDTH, EMBEDDING, 1),
        random_matrix(WIDTH, EMBEDDING, 2),
    )
    actual, _ = ngram_gated_value(embedding, streams, k, v, NORM_KEY, NORM_QUERY, NORM_KEY, 1e-6)
    for r in range(3):
        keys = literal.float_linear(embedding[r : r + 1].numpy(), key)[0]
        values = literal.float_linear(embedding[r : r + 1].numpy(), value)[0]
        for c in range(STREAMS):
            part = slice(c * WIDTH, (c + 1) * WIDTH)
            a = literal.rms_norm(keys[part], NORM_KEY[part].numpy(), 1e-6)
            b = literal.rms_norm(streams[r, c].numpy(), NORM_QUERY[part].numpy(), 1e-6)
            s = np.float32(literal.dot(a, b) / np.float32(sqrt(WIDTH)))
            size = np.sqrt(max(abs(s), np.float32(1e-6)))
            gate = literal.sigmoid(np.float32(np.sign(s) * size))
            assert same_bits(actual[r, part], gate * values)
    assert same_bits(actual[0, :WIDTH].numpy() * 2, values_of(embedding[0], value))


def values_of(embedding: torch.Tensor, value: np.ndarray) -> np.ndarray:
    """W_value . e by the literal order."""
    return literal.float_linear(embedding[None].numpy(), value)[0]


def test_gated_value_against_float64() -> None:
    embedding, streams = _inputs(9)
    (key, k), (value, v) = (
        random_matrix(STREAMS * WIDTH, EMBEDDING, 1),
        random_matrix(WIDTH, EMBEDDING, 2),
    )
    actual, _ = ngram_gated_value(embedding, streams, k, v, NORM_KEY, NORM_QUERY, NORM_KEY, 1e-6)
    norm = torch.nn.functional.rms_norm
    e = embedding.double()
    keys = (e @ torch.from_numpy(key).double().T).view(9, STREAMS, WIDTH)
    keys = norm(keys, (WIDTH,), eps=1e-6) * NORM_KEY.double().view(STREAMS, WIDTH)
    queries = norm(streams.double(), (WIDTH,), eps=1e-6) * NORM_QUERY.double().view(STREAMS, WIDTH)
    s = (keys * queries).sum(-1) / WIDTH**0.5
    gate = (s.sign() * s.abs().clamp(min=1e-6).sqrt()).sigmoid()
    wanted = gate[..., None] * (e @ torch.from_numpy(value).double().T)[:, None]
    error = (actual - wanted.reshape(9, -1)).abs().max() / wanted.abs().max()
    assert error <= tolerances.NGRAM


def test_gated_value_rows_are_independent() -> None:
    embedding, streams = _inputs(16)
    key, value = q8_matrix(STREAMS * WIDTH, EMBEDDING, 1), q8_matrix(WIDTH, EMBEDDING, 2)

    def on_rows(first: int, last: int) -> Outputs:
        part = slice(first, last)
        return ngram_gated_value(
            embedding[part], streams[part], key, value, NORM_KEY, NORM_QUERY, NORM_KEY, 1e-6
        )

    assert_rows_independent(on_rows)


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding, streams = _inputs(4)
    config = _config(3)
    key, value = q8_matrix(STREAMS * WIDTH, EMBEDDING, 1), q8_matrix(WIDTH, EMBEDDING, 2)

    def operators() -> Outputs:
        rows = ngram_rows(torch.tensor([1, 2, 3, 4]), _ring(config), config, one_slot(0, 0, 4))
        norms = NORM_KEY, NORM_QUERY, NORM_KEY
        return rows, *ngram_gated_value(embedding, streams, key, value, *norms, 1e-6)

    assert_all_written(operators, monkeypatch)
