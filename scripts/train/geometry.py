"""The shapes of a model to train: what the GGUF metadata will say."""

from __future__ import annotations

import math
from dataclasses import dataclass

MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Geometry:
    """Shapes of one model. Names follow the GGUF keys; the draft block is extra."""

    architecture: str
    vocab: int
    hidden: int = 256
    blocks: int = 6
    interval: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rotary: int = 32
    rope_base: float = 1e7
    context: int = 4096
    eps: float = 1e-6
    experts: int = 10
    experts_used: int = 3
    expert_ff: int = 256
    shared_ff: int = 256
    ssm_state: int = 64
    ssm_key_heads: int = 2
    ssm_value_heads: int = 4
    conv: int = 4
    streams: int = 4
    hc_rank: int = 32
    index_heads: int = 4
    index_dim: int = 64
    index_budget: int = 256
    index_ratio: int = 4
    ple_block: int = 1
    ple_width: int = 32
    ple_heads: int = 4
    ple_base: int = 6144
    ngram: int = 3
    ple_eos: int = 0

    @property
    def wide(self) -> bool:
        """True for the family with hyper-connections, PLE and the indexer."""
        return self.architecture == "qwen4exp"

    @property
    def key_dim(self) -> int:
        """Width of all GatedDeltaNet keys of a token."""
        return self.ssm_key_heads * self.ssm_state

    @property
    def value_dim(self) -> int:
        """Width of all GatedDeltaNet values of a token."""
        return self.ssm_value_heads * self.ssm_state

    @property
    def rope_sections(self) -> list[int]:
        """Three mRoPE sections that add up to half the rotary dims, and a zero."""
        third = self.rotary // 6
        rest = self.rotary // 2 - 2 * third
        return [rest, third, third, 0]

    def attends(self, block: int) -> bool:
        """True when the block's mixer is attention; the draft block's always is."""
        return block >= self.blocks or block % self.interval == self.interval - 1

    def compress_ratios(self) -> list[int]:
        """One entry a block, draft block included: 4 where the indexer selects, else 0.

        The draft block's is 4 too: with 0 (dense) llama.cpp aborts when it starts to draft.
        """
        return [self.index_ratio if self.attends(b) else 0 for b in range(self.blocks + 1)]

    def ple_multipliers(self) -> list[int]:
        """Odd hash multipliers of the token and its predecessors (SplitMix64, seed 1234)."""
        half = max(1, ((1 << 63) - 1) // self.vocab // 2)
        gamma = 0x9E3779B97F4A7C15
        values = [_splitmix64((1234 + gamma * (i + 1)) & MASK64) for i in range(self.ngram)]
        return [2 * (value % half) + 1 for value in values]

    def ple_sizes(self) -> list[int]:
        """Rows of each n-gram head: consecutive primes from `ple_base` on."""
        sizes: list[int] = []
        candidate = self.ple_base
        while len(sizes) < (self.ngram - 1) * self.ple_heads:
            if _is_prime(candidate):
                sizes.append(candidate)
            candidate += 1
        return sizes

    def ple_offsets(self) -> list[int]:
        """First row of each n-gram head in the shared table."""
        sizes = self.ple_sizes()
        return [sum(sizes[:i]) for i in range(len(sizes))]

    def ple_rows(self) -> int:
        """Rows of the table, padded to a multiple of 128."""
        return -(-sum(self.ple_sizes()) // 128) * 128


def strata_tiny(vocab: int, ple_eos: int) -> Geometry:
    """The bundled model."""
    return Geometry("qwen4exp", vocab, ple_eos=ple_eos)


def tiny_qwen35moe(vocab: int) -> Geometry:
    """The small model of the second family."""
    return Geometry(
        "qwen35moe",
        vocab,
        blocks=4,
        interval=4,
        experts=8,
        experts_used=2,
        expert_ff=128,
        shared_ff=128,
    )


def _splitmix64(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return (value ^ (value >> 31)) & MASK64


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % d for d in range(2, math.isqrt(value) + 1))
