"""A request, and what the engine says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from engine.constraints import Form
from engine.phases import Phases
from engine.sampler import Choice
from engine.sampling import Sampling

Finish = Literal["stop", "length", "cancel", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Continue `tokens` (token ids, at least one) by at most `max_new` tokens.

    `id` is the caller's name for it, unique among the running ones. `slot` None: the engine
    chooses. `spec_min_p` None: the engine's own. `logprobs` None: none; n: the token's own and the
    n likeliest.
    """

    id: str
    tokens: tuple[int, ...]
    max_new: int
    sampling: Sampling = field(default_factory=Sampling)
    slot: int | None = None
    spec_min_p: float | None = None
    logprobs: int | None = None
    hashes: bool = False
    form: Form | None = None
    """What the answer must be."""


@dataclass(frozen=True, slots=True)
class Started:
    """The request has its seat; the first `reused` prompt tokens need not be computed."""

    id: str
    slot: int
    reused: int


@dataclass(frozen=True, slots=True)
class PromptRead:
    """The first `read` of `total` prompt tokens are in."""

    id: str
    slot: int
    read: int
    total: int
    phases: Phases
    """Of the admission so far."""


class Produced(NamedTuple):
    """A token of the answer, in order."""

    id: str
    slot: int
    choice: Choice


@dataclass(frozen=True, slots=True)
class Finished:
    """The request is over and its slot is free again; the slot holds its first `held` tokens.

    `generated` tokens were produced (an end token counts), `accepted` of `offered` draft tokens
    were right. `error` says what went wrong when `finish` is "error".
    """

    id: str
    slot: int
    finish: Finish
    generated: int
    accepted: int
    offered: int
    held: int
    error: str = ""


Event: TypeAlias = Started | PromptRead | Produced | Finished
