"""Rows of which more is asked than the id of the largest logit."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from engine.philox import draw
from engine.sampler import least_weight
from engine.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Ask:
    """A row of a window and how the token at `position` is chosen from it."""

    row: int
    position: int
    sampling: Sampling

    @property
    def weighed(self) -> bool:
        """True when all tokens of the row may be drawn, not only its candidates."""
        sampling = self.sampling
        return not (sampling.greedy or sampling.top_k or sampling.penalises)

    @property
    def wide(self) -> bool:
        """True when a few candidates more may save a look at the whole row."""
        return self.weighed and self.sampling.top_p < 1

    @property
    def words(self) -> tuple[int, int, int, int]:
        """See `engine.kernels.sampling.WORDS`. Where `top_p` cuts, the sum of all is asked for."""
        sampling = self.sampling
        if not self.weighed:
            return self.row, 0, 0, 0
        (bits,) = struct.unpack("<q", struct.pack("<d", sampling.temperature))
        least = least_weight(sampling) if sampling.top_p == 1 else 0
        return self.row, bits, least, draw(sampling.seed, self.position)
