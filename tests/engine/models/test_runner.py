"""The input of a window's graph says what `rows_of` says."""

from __future__ import annotations

import pytest
import torch

from engine.models.runner import SpanRows, _inputs, _write_words
from engine.rows import rows_of


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 5, 1, 1)],
        [(3, 0, 7, 7)],
        [(2, 40, 3, 1), (0, 7, 2, 2), (1, 100_000, 4, 1)],
    ],
)
def test_a_graphs_input_is_the_windows_rows(spans: list[SpanRows]) -> None:
    count = sum(rows for _, _, rows, _ in spans)
    tokens = [248_319 - i for i in range(count)]
    host = torch.full((9 * count,), 77, dtype=torch.int32)
    _write_words(host, tokens, spans)
    ids, rows = _inputs(host, count)
    wanted = rows_of(spans)
    assert ids.tolist() == tokens
    assert torch.equal(rows.spans[: len(spans)], wanted.spans)
    assert not rows.spans[len(spans) :].any()
    assert torch.equal(rows.slots, wanted.slots)
    assert torch.equal(rows.positions, wanted.positions)
