"""Philox, the counter-based random generator of Salmon, Moraes, Dror and Shaw (SC'11).

A draw is a function of `(seed, position)` and of nothing else, so it does not matter in which
window, beside which drafts or how often a row is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

Words = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Philox:
    """Philox-4 with words of `bits` bits: the paper's multipliers and key increments."""

    bits: int
    multipliers: tuple[int, int]
    increments: tuple[int, int]
    rounds: int = 10

    def block(self, counter: Words, key: tuple[int, int]) -> Words:
        """The four random words of one counter."""
        mask = (1 << self.bits) - 1
        c0, c1, c2, c3 = counter
        k0, k1 = key
        for _ in range(self.rounds):
            first, second = self.multipliers[0] * c0, self.multipliers[1] * c2
            c0, c1, c2, c3 = (
                (second >> self.bits) ^ c1 ^ k0,
                second & mask,
                (first >> self.bits) ^ c3 ^ k1,
                first & mask,
            )
            k0, k1 = (k0 + self.increments[0]) & mask, (k1 + self.increments[1]) & mask
        return c0, c1, c2, c3


PHILOX_4X32 = Philox(32, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85))


def draw(seed: int, position: int) -> int:
    """32 random bits for the token at `position`.

    Key: the low and the high word of `seed`. Counter: the low and the high word of `position`, 0,
    0. The draw is the first word of Philox4x32-10.
    """
    low = (1 << 32) - 1
    counter = (position & low, position >> 32 & low, 0, 0)
    return PHILOX_4X32.block(counter, (seed & low, seed >> 32 & low))[0]
