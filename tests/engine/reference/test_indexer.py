"""The block selector: literal scores, a float64 oracle, ties, rings."""

import numpy as np
import pytest
import torch

from engine.models.config import IndexerConfig
from engine.reference.indexer import select_blocks
from engine.reference.rotary import rotary_table
from engine.rows import Rows, rows_of
from tests.engine.reference import literal
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.spans import CHUNKINGS, chunks_of, one_slot

CONFIG = IndexerConfig(heads=3, key_length=32, top_k=16)
EPS = 1e-6
CONTEXT = 160
TABLE = rotary_table(CONTEXT, 8, 1e4)
NORMS = torch.linspace(0.5, 1.5, 32), torch.linspace(1.5, 0.7, 32)
DRAFTS = 3

Text = tuple[torch.Tensor, torch.Tensor]
State = tuple[torch.Tensor, torch.Tensor]


def _text(length: int, seed: int = 0) -> Text:
    random = torch.Generator().manual_seed(seed)
    return (
        torch.randn(length, 3 * 32, generator=random),
        torch.randn(length, 32, generator=random),
    )


def _state(ratio: int, slots: int = 3) -> State:
    """A ring of just the reach and the most draft rows; garbage where nothing was written."""
    return (
        torch.full((slots, ratio + DRAFTS, 32), torch.nan),
        torch.full((slots, CONTEXT // ratio + 1, 32), torch.nan),
    )


def _run(text: Text, first: int, last: int, state: State, ratio: int, rows: Rows) -> torch.Tensor:
    q, k = text[0][first:last], text[1][first:last]
    return select_blocks(q, k, *NORMS, TABLE, *state, ratio, CONFIG, EPS, rows)


def _block_key(k: np.ndarray, block: int, ratio: int) -> np.ndarray:
    mean = np.empty(32, np.float32)
    for d in range(32):
        acc = np.float32(0)
        for i in range(ratio):
            acc = acc + k[block * ratio + i, d]
        mean[d] = acc / np.float32(ratio)
    normed = literal.rms_norm(mean, NORMS[1].numpy(), EPS)
    return literal.rotate(normed, *TABLE[block * ratio].numpy())


def _scores(text: Text, position: int, ratio: int) -> list[np.float32]:
    cos, sin = TABLE[position].numpy()
    queries = [
        literal.rotate(literal.rms_norm(q, NORMS[0].numpy(), EPS), cos, sin)
        for q in text[0][position].view(3, 32).numpy()
    ]
    scores = []
    for block in range((position + 1) // ratio):
        key = _block_key(text[1].numpy(), block, ratio)
        score = np.float32(0)
        for query in queries:
            score = score + max(literal.dot(query, key), np.float32(0))
        scores.append(np.float32(score / np.float32(32**0.5)))
    return scores


def _best(scores: list[np.float32], budget: int) -> list[int]:
    """Python's sort is stable: equal scores keep the lowest block first."""
    ranked = sorted(range(len(scores)), key=lambda b: -scores[b])[:budget]
    return sorted(ranked) + [-1] * (budget - len(ranked))


@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_order(ratio: int) -> None:
    text, state = _text(90), _state(ratio)
    actual = _run(text, 0, 90, state, ratio, one_slot(1, 0, 90))
    assert actual.dtype == torch.int32
    assert actual.shape == (90, 16 // ratio)
    for position in (0, ratio - 1, 16, 50, 89):
        wanted = _best(_scores(text, position, ratio), 16 // ratio)
        assert actual[position].tolist() == wanted
    for block in range(90 // ratio):
        assert same_bits(state[1][1, block], _block_key(text[1].numpy(), block, ratio))


def test_against_float64() -> None:
    """The same choice wherever the last block chosen is clearly better than the next."""
    text, ratio, budget = _text(150), 4, 4
    actual = _run(text, 0, 150, _state(ratio), ratio, one_slot(0, 0, 150))
    angles = torch.atan2(TABLE[:, 1].double(), TABLE[:, 0].double())

    def turned(x: torch.Tensor, weight: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.rms_norm(x, (32,), weight.double(), EPS)
        first, second = x[..., :4], x[..., 4:8]
        c, s = angles[at].cos(), angles[at].sin()
        return torch.cat([first * c - second * s, second * c + first * s, x[..., 8:]], -1)

    keys = text[1].double()[:148].view(-1, ratio, 32).mean(1)
    keys = turned(keys, NORMS[1], torch.arange(0, 148, ratio))
    queries = turned(text[0].double().view(150, 3, 32).transpose(0, 1), NORMS[0], torch.arange(150))
    scores = (queries @ keys.T).relu().sum(0) / 32**0.5
    compared = 0
    for position in range(ratio * (budget + 1), 150):
        row = scores[position, : (position + 1) // ratio]
        best = row.topk(budget + 1)
        if best.values[-2] - best.values[-1] > 1e-5:
            assert actual[position].tolist() == best.indices[:-1].sort().values.tolist()
            compared += 1
    assert compared > 100


def test_ties_take_the_lowest_blocks() -> None:
    """Keys that are all the same, without rotation, and scores that are all zero."""
    q, k = _text(80)
    k[:] = k[0]
    flat = torch.stack([torch.ones(CONTEXT, 4), torch.zeros(CONTEXT, 4)], dim=1)
    for queries in (q, torch.zeros_like(q)):
        chosen = select_blocks(
            queries, k, *NORMS, flat, *_state(4), 4, CONFIG, EPS, one_slot(0, 0, 80)
        )
        assert chosen[-1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ratio", [2, 4])
def test_any_chunking_gives_the_same_bits(ratio: int) -> None:
    text = _text(100)
    outputs = []
    for sizes in CHUNKINGS:
        state = _state(ratio)
        parts = [
            _run(text, a, a + n, state, ratio, one_slot(2, a, n)) for a, n in chunks_of(100, sizes)
        ]
        outputs.append((torch.cat(parts), state[0][2], state[1][2]))
    for other in outputs[1:]:
        assert all(same_bits(a, b) for a, b in zip(outputs[0], other, strict=True))


@pytest.mark.parametrize("start", range(40, 48))
def test_dropped_drafts_leave_no_trace(start: int) -> None:
    """Other rows at the same positions overwrite them before anything reads them."""
    text, wrong = _text(70), _text(70, seed=9)
    with_drafts, without = _state(4), _state(4)
    for state in (with_drafts, without):
        _run(text, 0, start, state, 4, one_slot(0, 0, start))
    mixed = tuple(
        torch.cat([a[start : start + 1], b[:DRAFTS]]) for a, b in zip(text, wrong, strict=True)
    )
    first = _run((mixed[0], mixed[1]), 0, 1 + DRAFTS, with_drafts, 4, one_slot(0, start, 4, 1))[:1]
    alone = _run(text, start, start + 1, without, 4, one_slot(0, start, 1))
    assert same_bits(first, alone)
    for position in range(start + 1, 70):
        a = _run(text, position, position + 1, with_drafts, 4, one_slot(0, position, 1))
        b = _run(text, position, position + 1, without, 4, one_slot(0, position, 1))
        assert same_bits(a, b)


def test_rows_are_independent() -> None:
    texts = [_text(40 + i, i) for i in range(16)]
    state = _state(4, slots=16)
    for slot, text in enumerate(texts):
        _run(text, 0, 39 + slot, state, 4, one_slot(slot, 0, 39 + slot))
    last = (torch.cat([t[0][-1:] for t in texts]), torch.cat([t[1][-1:] for t in texts]))

    def on_rows(first: int, end: int) -> Outputs:
        rows = rows_of([(slot, 39 + slot, 1, 1) for slot in range(first, end)])
        return (_run(last, first, end, state, 4, rows),)

    assert_rows_independent(on_rows)


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text, state = _text(60), _state(4)
    assert_all_written(lambda: (_run(text, 0, 60, state, 4, one_slot(0, 0, 60)),), monkeypatch)
