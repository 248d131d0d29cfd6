"""Attention: literal order, torch's own in float64, independence of rows, slots and windows."""

from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pytest
import torch

from engine.models.config import AttentionConfig
from engine.reference.attention import attention
from engine.reference.kv_cache import KvCache, KvKind
from engine.reference.rotary import normed_heads, rotary_table
from engine.rows import Rows, rows_of
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.spans import CHUNKINGS, chunks_of, one_slot

KINDS = get_args(KvKind)
CONFIG = AttentionConfig(
    heads=4, kv_heads=2, key_length=32, value_length=32, rotary=8, freq_base=1e4
)
EPS = 1e-6
CONTEXT = 256
TABLE = rotary_table(CONTEXT, CONFIG.rotary, CONFIG.freq_base)


@dataclass
class Text:
    """Projected rows of one conversation from position 0 on, and norms."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    q_norm: torch.Tensor = field(default_factory=lambda: torch.linspace(0.5, 1.5, 32))
    k_norm: torch.Tensor = field(default_factory=lambda: torch.linspace(3, 1, 32))


def _text(length: int, seed: int = 0) -> Text:
    random = torch.Generator().manual_seed(seed)
    return Text(
        torch.randn(length, 4 * 2 * 32, generator=random),
        torch.randn(length, 2 * 32, generator=random),
        torch.randn(length, 2 * 32, generator=random),
    )


def _cache(kind: KvKind = "f32", slots: int = 3) -> KvCache:
    return KvCache.empty(kind, slots, CONTEXT, 2, 32, 32)


def _run(
    text: Text,
    first: int,
    last: int,
    cache: KvCache,
    rows: Rows,
    selected: torch.Tensor | None = None,
    ratio: int = 0,
) -> torch.Tensor:
    part = slice(first, last)
    return attention(
        text.q[part],
        text.k[part],
        text.v[part],
        text.q_norm,
        text.k_norm,
        TABLE,
        cache,
        selected,
        ratio,
        CONFIG,
        EPS,
        rows,
    )


def _choices(length: int, ratio: int, budget: int, seed: int = 0) -> torch.Tensor:
    """Random ascending complete blocks of each row, padded with -1."""
    random = np.random.default_rng(seed)
    chosen = np.full((length, budget), -1, np.int32)
    for position in range(length):
        complete = (position + 1) // ratio
        count = min(complete, budget)
        chosen[position, :count] = np.sort(random.permutation(complete)[:count])
    return torch.from_numpy(chosen)


def _cells(position: int, blocks: list[int] | None, ratio: int) -> list[int]:
    if blocks is None:
        return list(range(position + 1))
    inside = [b * ratio + i for b in blocks if b >= 0 for i in range(ratio)]
    return inside + list(range((position + 1) // ratio * ratio, position + 1))


def _literal(text: Text, position: int, cells: list[int]) -> np.ndarray:
    """One row's gated output from float32 cells."""
    cos, sin = TABLE.numpy()[:, 0], TABLE.numpy()[:, 1]
    q = text.q[position].view(4, 2, 32).numpy()
    k = text.k.view(-1, 2, 32).numpy()
    v = text.v.view(-1, 2, 32).numpy()
    out = np.empty((4, 32), np.float32)
    for kv in range(2):
        keys = np.array(
            [
                literal.rotate(literal.rms_norm(k[c, kv], text.k_norm.numpy(), EPS), cos[c], sin[c])
                for c in cells
            ]
        )
        for h in (2 * kv, 2 * kv + 1):
            query = literal.rms_norm(q[h, 0], text.q_norm.numpy(), EPS)
            query = literal.rotate(query, cos[position], sin[position])
            plain = literal.attend(query, keys, v[cells, kv], np.float32(32**-0.5))
            out[h] = [a * literal.sigmoid(g) for a, g in zip(plain, q[h, 1], strict=True)]
    return out.reshape(-1)


@pytest.mark.parametrize("length", [1, 2, 64, 65, 140])
def test_order(length: int) -> None:
    text = _text(length)
    actual = _run(text, 0, length, _cache(), one_slot(1, 0, length))
    for position in {0, length // 2, length - 1}:
        wanted = _literal(text, position, _cells(position, None, 0))
        assert same_bits(actual[position], wanted)


@pytest.mark.parametrize("ratio", [2, 4])
def test_order_of_selected_cells(ratio: int) -> None:
    text, chosen = _text(150), _choices(150, ratio, 20)
    actual = _run(text, 0, 150, _cache(), one_slot(0, 0, 150), chosen, ratio)
    for position in (0, 3, 77, 148, 149):
        cells = _cells(position, chosen[position].tolist(), ratio)
        assert cells == sorted(set(cells))
        assert same_bits(actual[position], _literal(text, position, cells))


@pytest.mark.parametrize("selects", [False, True])
def test_against_torch(selects: bool) -> None:
    length, ratio = 150, 4
    text, chosen = _text(length), _choices(length, ratio, 12)
    selected = chosen if selects else None
    actual = _run(text, 0, length, _cache(), one_slot(0, 0, length), selected, ratio)
    positions = torch.arange(length, dtype=torch.int32)
    q = normed_heads(
        text.q.view(length, 4, 2, 32)[:, :, 0].numpy(), text.q_norm, EPS, positions, TABLE
    )
    k = normed_heads(text.k.view(length, 2, 32).numpy(), text.k_norm, EPS, positions, TABLE)
    mask = torch.zeros(length, length, dtype=torch.bool)
    for p in range(length):
        mask[p, _cells(p, chosen[p].tolist() if selects else None, ratio)] = True
    plain = torch.nn.functional.scaled_dot_product_attention(
        torch.from_numpy(q).double().transpose(0, 1),
        torch.from_numpy(k).double().transpose(0, 1).repeat_interleave(2, 0),
        text.v.view(length, 2, 32).double().transpose(0, 1).repeat_interleave(2, 0),
        attn_mask=mask,
    ).transpose(0, 1)
    wanted = plain * text.q.view(length, 4, 2, 32)[:, :, 1].double().sigmoid()
    error = (actual.double() - wanted.reshape(length, -1)).abs().max() / wanted.abs().max()
    assert error <= tolerances.ATTENTION


@pytest.mark.parametrize("kind", KINDS)
def test_any_chunking_gives_the_same_bits(kind: KvKind) -> None:
    text, chosen = _text(100), _choices(100, 4, 8)
    outputs = []
    for sizes in CHUNKINGS:
        cache = _cache(kind)
        parts = [
            _run(text, a, a + n, cache, one_slot(2, a, n), chosen[a : a + n], 4)
            for a, n in chunks_of(100, sizes)
        ]
        outputs.append(torch.cat(parts))
    assert all(same_bits(outputs[0], other) for other in outputs[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_independent(kind: KvKind) -> None:
    """Every row has its own slot and past; alone and in windows of up to 16."""
    texts = [_text(20 + i, i) for i in range(16)]
    caches = _cache(kind, slots=16)
    for slot, text in enumerate(texts):
        _run(text, 0, 19 + slot, caches, one_slot(slot, 0, 19 + slot))
    last = Text(*(torch.cat([getattr(t, n)[-1:] for t in texts]) for n in ("q", "k", "v")))

    def on_rows(first: int, end: int) -> Outputs:
        rows = rows_of([(slot, 19 + slot, 1, 1) for slot in range(first, end)])
        return (_run(last, first, end, caches, rows),)

    assert_rows_independent(on_rows)


def test_spans_of_several_slots() -> None:
    """A chunk, draft rows and a lone row in one window against one span at a time."""
    texts = [_text(60, seed) for seed in (1, 2, 3)]
    spans = [(0, 0, 30, 30), (2, 10, 5, 1), (1, 59, 1, 1)]
    both = []
    for joined in (True, False):
        cache = _cache("int8")
        for (slot, start, _, _), text in zip(spans, texts, strict=True):
            if start:
                _run(text, 0, start, cache, one_slot(slot, 0, start))
        if joined:
            parts = [
                [getattr(t, n)[a : a + c] for (_, a, c, _), t in zip(spans, texts, strict=True)]
                for n in ("q", "k", "v")
            ]
            window = Text(*(torch.cat(part) for part in parts))
            both.append(_run(window, 0, 36, cache, rows_of(spans)))
        else:
            alone = [
                _run(t, a, a + c, cache, rows_of([(s, a, c, certain)]))
                for (s, a, c, certain), t in zip(spans, texts, strict=True)
            ]
            both.append(torch.cat(alone))
    assert same_bits(*both)


def test_large_scores_do_not_overflow() -> None:
    text = _text(70)
    text.q_norm, text.k_norm = text.q_norm * 1e3, text.k_norm * 1e3
    assert torch.isfinite(_run(text, 0, 70, _cache(), one_slot(0, 0, 70))).all()


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _text(70)
    cache = _cache()
    assert_all_written(lambda: (_run(text, 0, 70, cache, one_slot(0, 0, 70)),), monkeypatch)
