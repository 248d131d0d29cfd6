"""Hashed n-gram embeddings (PLE) of block inputs.

For n = 2..size, mixed = tok[p] m0 xor tok[p-1] m1 xor ... (n terms, 64-bit); head h of that n reads
row mixed % sizes[h] + offsets[h]. Tokens at or before the last end-of-text token strictly before p,
and before the start, read as that token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.gguf.dequantize import dequantize
from engine.gguf.types import QuantType
from engine.models.config import NgramConfig
from engine.reference.compiled import compiled
from engine.reference.lanes import LANES, dot
from engine.reference.linear import linear
from engine.reference.matrix import Array, Matrix
from engine.reference.norms import rms_norm
from engine.reference.scalar import sigmoid
from engine.rows import Rows


class Table:
    """An embedding table as it lies in the file: rows are read and dequantised on demand."""

    def __init__(self, raw: Array, kind: QuantType) -> None:
        self._raw = raw
        self._kind = kind

    def rows(self, indices: torch.Tensor, copies: int = 0) -> torch.Tensor:
        """float32 [*indices, width]; [*indices, copies, width] with copies."""
        taken = self._raw[indices.numpy()]
        rows = torch.from_numpy(np.ascontiguousarray(dequantize(taken, self._kind), np.float32))
        return rows[..., None, :].repeat_interleave(copies, -2) if copies else rows


def ngram_rows(
    tokens: torch.Tensor, ring: torch.Tensor, config: NgramConfig, rows: Rows
) -> torch.Tensor:
    """Table rows of every row's n-grams, int64 [R, heads]. Writes the tokens into the ring.

    tokens: int64 [R]; ring: int64 [S, L], tokens by position modulo L.
    """
    heads = config.heads_per_ngram * (config.size - 1)
    out = np.empty((rows.count, heads), np.int64)
    hash_ngrams(
        tokens.numpy(),
        ring.numpy(),
        rows.spans.numpy(),
        np.array(config.multipliers, np.uint64),
        np.array(config.offsets, np.int64),
        np.array(config.sizes, np.uint64),
        config.heads_per_ngram,
        config.eos_token,
        out,
    )
    return torch.from_numpy(out)


def ngram_gated_value(
    embedding: torch.Tensor,
    streams: torch.Tensor,
    key: Matrix,
    value: Matrix,
    norm_key: torch.Tensor,
    norm_query: torch.Tensor,
    norm_conv: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """gate_c * value per stream, float32 [R, C * D], and what the convolution reads: its norm.

    gate_c = sigmoid(sign(s) sqrt(max(|s|, 1e-6))), s = <key_c, query_c> / sqrt(D), where key is the
    normed W_key.e and query the normed streams. embedding: float32 [R, E]; streams [R, C, D].
    """
    count, streams_count, width = streams.shape
    keys = rms_norm(linear(embedding, key), norm_key, width, eps)
    queries = rms_norm(streams.view(count, -1), norm_query, width, eps)
    out = torch.empty(count, streams_count * width)
    gate_values(
        keys.numpy(),
        queries.numpy(),
        linear(embedding, value).numpy(),
        np.float32(width**0.5),
        out.numpy(),
    )
    return out, rms_norm(out, norm_conv, width, eps)


@compiled
def hash_ngrams(
    tokens: Any,
    ring: Any,
    spans: Any,
    multipliers: Any,
    offsets: Any,
    sizes: Any,
    per_ngram: int,
    eos: int,
    out: Any,
) -> None:
    """As `ngram_rows`, on arrays."""
    length = ring.shape[1]
    for s in range(spans.shape[0]):
        slot, first, count, start = spans[s, 0], spans[s, 1], spans[s, 2], spans[s, 3]
        for i in range(count):
            position = start + i
            ring[slot, position % length] = tokens[first + i]
            mixed = np.uint64(tokens[first + i]) * multipliers[0]
            ended = False
            for back in range(1, multipliers.size):
                ended = ended or back > position
                token = np.int64(eos)
                if not ended:
                    token = ring[slot, (position - back) % length]
                    ended = token == eos
                mixed = mixed ^ (np.uint64(token) * multipliers[back])
                for head in range((back - 1) * per_ngram, back * per_ngram):
                    out[first + i, head] = np.int64(mixed % sizes[head]) + offsets[head]


@compiled
def gate_values(keys: Any, queries: Any, values: Any, root: Any, out: Any) -> None:
    """As `ngram_gated_value`, on arrays."""
    lanes = np.empty(LANES, np.float32)
    width = values.shape[1]
    for r in range(values.shape[0]):
        for start in range(0, out.shape[1], width):
            s = dot(keys[r, start : start + width], queries[r, start : start + width], lanes) / root
            size = np.sqrt(max(abs(s), np.float32(1e-6)))
            signed = size
            if s < np.float32(0):
                signed = -size
            elif s == np.float32(0):
                signed = np.float32(0)
            gate = sigmoid(signed)
            for d in range(width):
                out[r, start + d] = gate * values[r, d]
