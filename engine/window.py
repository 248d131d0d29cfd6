"""A window: the rows that one pass of the model computes, and the verdict on them.

Named tuples, here and in what is made of a window, since they are made faster than frozen
dataclasses, for every slot in every window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.sampling import Sampling


class Span(NamedTuple):
    """Consecutive rows of one slot in a window; row i holds `tokens[i]` at position `start + i`.

    The first `certain` rows (at least one) stay whatever comes out. The rows after them are draft
    rows: they await a verdict, and each yields logits, as does the last certain row. Rows from
    index `logits_from` on yield logits (`len(tokens)`: none; a prompt chunk that ends its prompt:
    `len(tokens) - 1`).
    """

    slot: int
    start: int
    tokens: tuple[int, ...]
    certain: int
    logits_from: int
    sampling: Sampling | None = None
    """How tokens are chosen from the rows that yield logits; None: what is needed is not known."""

    @property
    def wanted(self) -> int:
        """Rows that yield logits."""
        return len(self.tokens) - self.logits_from

    @property
    def drafts(self) -> int:
        """Rows that await a verdict."""
        return len(self.tokens) - self.certain


@dataclass(frozen=True, slots=True)
class Window:
    """The spans of one pass, at most one a slot."""

    spans: tuple[Span, ...]

    @property
    def rows(self) -> int:
        """Rows of all spans."""
        return sum(len(span.tokens) for span in self.spans)

    @property
    def wanted(self) -> int:
        """Rows of all spans that yield logits."""
        return sum(span.wanted for span in self.spans)


class Verdict(NamedTuple):
    """What stays of a span.

    `kept` rows stay, from the first on (`certain <= kept <= len(tokens)`). `next_token` follows the
    last kept row: the next prompt token inside a prompt, the sampled one after it; `None` when
    nothing follows.
    """

    kept: int
    next_token: int | None
