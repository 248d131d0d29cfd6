"""Slots: the seat and state of one conversation each, and which of them a new request takes.

A slot knows `tokens`, of which the first `computed` are in the model's state. Everything follows
from the difference: more than one token missing is a prompt being read, one is an answer being
written, and a free slot misses none: it is the cache of the conversation that it last served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.checkpoints import Shelf
from engine.constraints import Constraint
from engine.errors import RequestError
from engine.phases import Phases
from engine.pipeline import Checkpoint
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Reuse:
    """Where a prompt starts in a slot: `length` tokens are there, reached by `checkpoint` or, when
    that is `None`, as the slot stands (length 0: after a clear)."""

    length: int
    checkpoint: Checkpoint | None = None


@dataclass(slots=True)
class Run:
    """A request in its slot."""

    request: Request
    arrival: int
    reused: int
    save_at: tuple[int, ...]
    """Lengths at which a checkpoint is due; a prompt chunk ends there."""
    plain: bool = field(init=False)
    """The id of a row's largest logit is all that is needed of it."""
    constraint: Constraint | None = None
    drafts: list[int] = field(default_factory=list)
    """Tokens that may follow the known ones."""
    accepted: int = 0
    offered: int = 0
    chunks: int = 0
    """Windows that read a piece of its prompt."""
    phases: Phases = field(default_factory=Phases)
    gave_way: set[int] = field(default_factory=set)
    """Arrivals of the shorter prompts that it let pass."""

    def __post_init__(self) -> None:
        request = self.request
        told = request.hashes or request.logprobs is not None
        self.plain = request.sampling.plain and not told and self.constraint is None


class Slot:
    """One seat. `run` is the request in it, `last_used` a counter of the engine."""

    def __init__(self, index: int, checkpoints: int) -> None:
        self.index = index
        self.tokens: list[int] = []
        self.computed = 0
        self.shelf = Shelf(checkpoints)
        self.run: Run | None = None
        self.last_used = 0

    @property
    def missing(self) -> int:
        """Tokens known and not computed."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens produced for the request in the slot."""
        return len(self.tokens) - len(self.run.request.tokens) if self.run else 0

    def reuse(self, prompt: Sequence[int]) -> Reuse:
        """How much of `prompt` need not be computed here.

        All that the slot holds, where that is a prefix, else its deepest checkpoint that is one; at
        most all but the last token, whose row yields logits. Token ids are compared.
        """
        usable = min(_common_prefix(self.tokens[: self.computed], prompt), len(prompt) - 1)
        if usable == self.computed:
            return Reuse(usable)
        checkpoint = self.shelf.deepest(usable)
        return Reuse(checkpoint.length, checkpoint) if checkpoint else Reuse(0)

    def seat(self, run: Run) -> None:
        """Take a request whose first `run.reused` tokens are in the model's state."""
        self.run = run
        self.tokens = list(run.request.tokens)
        self.computed = run.reused
        self.shelf.cut(run.reused)

    def leave(self, used: int) -> None:
        """Free the seat; what is computed stays as a cache."""
        del self.tokens[self.computed :]
        self.run = None
        self.last_used = used

    def forget(self) -> None:
        """Hold nothing (the caller clears the model's state)."""
        self.tokens, self.computed = [], 0
        self.shelf.cut(0)


def choose_slot(slots: Sequence[Slot], request: Request) -> Slot:
    """The slot that `request` names, or the free one that holds most of its prompt.

    Where none holds any: an empty one, or else the one used longest ago. Raises `RequestError` when
    there is none, or the named one is busy.
    """
    if request.slot is not None:
        if not 0 <= request.slot < len(slots):
            raise RequestError(f"slot is {request.slot}, allowed is 0 to {len(slots) - 1}")
        if slots[request.slot].run:
            raise RequestError(f"slot {request.slot} is busy", "wait until its request is over")
        return slots[request.slot]
    free = [slot for slot in slots if slot.run is None]
    if not free:
        raise RequestError(f"all {len(slots)} slots are busy", "wait until one is free")
    best = max(free, key=lambda slot: slot.reuse(request.tokens).length)
    if best.reuse(request.tokens).length > 0:
        return best
    return min(free, key=lambda slot: (slot.computed > 0, slot.last_used, slot.index))


def _common_prefix(held: Sequence[int], prompt: Sequence[int]) -> int:
    pairs = enumerate(zip(held, prompt, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(held), len(prompt)))
