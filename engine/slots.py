"""Slots: the seat and state of one conversation each, and which of them a new request takes.

A slot knows `tokens`, of which the first `computed` are in the model's state. Everything follows
from the difference: more than one token missing is a prompt being read, one is an answer being
written, and a free slot misses none: it is the cache of the conversation that it last served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.checkpoints import Saves, Shelf
from engine.constraints import Constraint
from engine.errors import RequestError
from engine.phases import Phases
from engine.pipeline import Checkpoint
from engine.prefix import common_prefix
from engine.request import Request

ANSWER_OPENING = 8
"""Most tokens at the end of a prompt that open its answer, and come back otherwise or not at all:
clients leave the thinking out of the next turn."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Where a prompt starts: `length` tokens of it are held, reached by `checkpoint` or, when that
    is `None`, as the conversation stands (length 0: from nothing)."""

    length: int
    checkpoint: Checkpoint | None = None


def find_reuse(held: Sequence[int], shelf: Shelf, prompt: Sequence[int]) -> Reuse:
    """How much of `prompt` need not be computed where `held` tokens are computed.

    All of them, where they are a prefix, else the deepest checkpoint that is one; at most all but
    the last token, whose row yields logits. Token ids are compared.
    """
    usable = min(common_prefix(held, prompt), len(prompt) - 1)
    if usable == len(held):
        return Reuse(usable)
    checkpoint = shelf.deepest(usable)
    return Reuse(checkpoint.length, checkpoint) if checkpoint else Reuse(0)


def goes_on(held: Sequence[int], asked: int, prompt: Sequence[int]) -> bool:
    """Whether `prompt` continues the conversation of which `held` is computed and `asked` tokens
    were its last prompt, rather than another one that begins like it."""
    same = common_prefix(held, prompt)
    return same == len(held) or same >= asked - ANSWER_OPENING > 0


@dataclass(slots=True)
class Run:
    """A request in its slot."""

    request: Request
    arrival: int
    reused: int
    saves: Saves
    """Where a checkpoint is due; a prompt chunk ends there."""
    plain: bool = field(init=False)
    """The id of a row's largest logit is all that is needed of it."""
    constraint: Constraint | None = None
    drafts: list[int] = field(default_factory=list)
    """Tokens that may follow the known ones."""
    accepted: int = 0
    offered: int = 0
    judged: int = 0
    """Drafts that were right, and those that were the first wrong one."""
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
        self.asked = 0
        """Tokens of the last prompt."""
        self.last_used = 0

    @property
    def missing(self) -> int:
        """Tokens known and not computed."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens produced for the request in the slot."""
        return len(self.tokens) - len(self.run.request.tokens) if self.run else 0

    @property
    def held(self) -> list[int]:
        """The tokens that are computed."""
        return self.tokens[: self.computed]

    def reuse(self, prompt: Sequence[int]) -> Reuse:
        """How much of `prompt` need not be computed here."""
        return find_reuse(self.held, self.shelf, prompt)

    def shared(self, prompt: Sequence[int]) -> Checkpoint | None:
        """The deepest checkpoint that the conversation here has in common with `prompt`."""
        if not len(self.shelf):
            return None
        return self.shelf.deepest(min(common_prefix(self.held, prompt), len(prompt) - 1))

    def loses(self, prompt: Sequence[int]) -> bool:
        """Whether the slot would lose a conversation to `prompt`."""
        return self.computed > 0 and not goes_on(self.held, self.asked, prompt)

    def seat(self, run: Run) -> None:
        """Take a request whose first `run.reused` tokens are in the model's state."""
        self.run = run
        self.tokens = list(run.request.tokens)
        self.asked = len(self.tokens)
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
    """The slot that `request` names, or the free one whose conversation it continues, the longest.

    Where there is none: an empty one, or else the one used longest ago. (What others hold of its
    beginning is copied.) Raises `RequestError` when all are busy, or the named one is.
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
    prompt = request.tokens
    continued = [slot for slot in free if slot.computed and not slot.loses(prompt)]
    if continued:
        return max(continued, key=lambda slot: slot.reuse(prompt).length)
    return min(free, key=lambda slot: (slot.computed > 0, slot.last_used, slot.index))
