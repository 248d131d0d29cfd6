"""N-gram embeddings against the reference, bit for bit: hashes, rings, gates."""

import pytest
import torch

from engine.kernels.ngram_embedding import ngram_gated_value, ngram_rows
from engine.models.config import NgramConfig
from engine.reference import ngram_embedding as reference
from engine.rows import rows_of
from tests.engine.kernels.packing import tame_pair
from tests.engine.reference.checks import same_bits

EOS, DRAFTS = 9, 3
WIDTH, EMBEDDING, STREAMS = 40, 64, 3


def _config(size: int) -> NgramConfig:
    """Multipliers and sizes up to 64 bits, so that products wrap and division is unsigned."""
    heads = 3 * (size - 1)
    return NgramConfig(
        layers=frozenset({0}),
        size=size,
        heads_per_ngram=3,
        conv_kernel=4,
        eos_token=EOS,
        multipliers=tuple((2**63 + 7919) * (i + 3) % 2**64 for i in range(size)),
        offsets=tuple(1000 * h for h in range(heads)),
        sizes=tuple(211 + 12 * h for h in range(heads)),
    )


@pytest.mark.parametrize("size", [2, 4])
def test_rows(size: int) -> None:
    """Few different tokens, so that ends of text are everywhere; a chunk longer than the ring;
    drafts that are overwritten; large tokens; several slots in one window."""
    config = _config(size)
    ours = torch.full((3, config.history + DRAFTS), -1, dtype=torch.int64)
    theirs = ours.clone()
    random = torch.Generator().manual_seed(size)
    for spans in (
        [(1, 0, 12, 12), (0, 0, 1, 1)],
        [(0, 1, 3, 1), (1, 12, 1, 1), (2, 0, 2, 2)],
        [(0, 2, 4, 4), (1, 13, 4, 1)],
        [(1, 14, 1, 1), (2, 2, 1, 1)],
    ):
        rows = rows_of(spans)
        tokens = torch.randint(6, 11, (rows.count,), generator=random)
        tokens[0] = 2**31 - 1
        wanted = reference.ngram_rows(tokens, theirs, config, rows)
        assert same_bits(ngram_rows(tokens, ours, config, rows), wanted)
        assert same_bits(ours, theirs)


def test_no_rows() -> None:
    ring = torch.zeros(1, 8, dtype=torch.int64)
    out = ngram_rows(torch.empty(0, dtype=torch.int64), ring, _config(3), rows_of([]))
    assert out.shape == (0, 6)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gated_value(kind: str) -> None:
    random = torch.Generator().manual_seed(1)
    embedding = torch.randn(3, EMBEDDING, generator=random)
    streams = torch.randn(3, STREAMS, WIDTH, generator=random)
    streams[0, 0] = 0  # a product of exactly 0 has the gate 1/2
    norms = [torch.linspace(a, b, STREAMS * WIDTH) for a, b in ((0.5, 1.5), (1.5, 0.6), (2, 1))]
    pairs = (
        tame_pair(kind, (STREAMS * WIDTH,), EMBEDDING, 1),
        tame_pair(kind, (WIDTH,), EMBEDDING, 2),
    )
    theirs, ours = zip(*pairs, strict=True)
    wanted = reference.ngram_gated_value(embedding, streams, *theirs, *norms, 1e-6)
    actual = ngram_gated_value(embedding, streams, *ours, *norms, 1e-6)
    alone = ngram_gated_value(embedding[1:2], streams[1:2], *ours, *norms, 1e-6)
    for i in range(2):
        assert same_bits(actual[i], wanted[i])
        assert same_bits(alone[i], wanted[i][1:2])
