"""The messages of the line protocol. `engine/protocol.py` says which lines flow and reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Finish = Literal["stop", "length", "cancel"]
Count = Annotated[int, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(ge=0)]


class Keys(Struct, frozen=True, omit_defaults=True):
    """How one request is sampled and reported. `None`: the engine's own default.

    `temperature` 0 is greedy. `top_k` 0 is no limit. `seed` 0 is a seed of the engine's choice.
    `penalty_last_n` is how many of the last tokens the penalties see. `logit_bias` pairs token ids
    with what is added to their logits. `grammar` is one of llguidance's
    in URL-safe base64, which the answer keeps to: all of it, or what follows token `think_end`,
    before which stand at most `think_most` tokens.
    """

    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Count | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    penalty_repeat: Annotated[float, Meta(gt=0, le=100)] | None = None
    penalty_freq: Annotated[float, Meta(ge=-100, le=100)] | None = None
    penalty_present: Annotated[float, Meta(ge=-100, le=100)] | None = None
    penalty_last_n: Count | None = None
    spec_min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    logprobs: Count | None = None
    hashes: bool | None = None
    grammar: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+=*$")] | None = None
    logit_bias: tuple[tuple[Count, float], ...] | None = None
    think_end: Count | None = None
    think_most: Count | None = None


# Commands, to the engine


class Gen(Struct, frozen=True):
    """Answer `ids` (token ids) with at most `max_new` tokens, in a seat of the engine's choice."""

    max_new: int
    ids: tuple[int, ...]
    keys: Keys = Keys()
    rid: str = ""


class BatchGen(Struct, frozen=True):
    """`Gen` in a seat of the server's choice."""

    slot: int
    max_new: int
    ids: tuple[int, ...]
    keys: Keys = Keys()
    rid: str = ""


class Stop(Struct, frozen=True):
    """End the running GEN and every prompt being read."""


class BatchStop(Struct, frozen=True):
    """End what runs in `slot`; with a rid, only if it is that request."""

    slot: Count
    rid: str = ""


class BatchYield(Struct, frozen=True):
    """The prompt being read for `slot` gives way at its next chunk."""

    slot: Count
    rid: str = ""


class Quit(Struct, frozen=True):
    """End the engine process now, with exit code 0."""


Command: TypeAlias = Gen | BatchGen | Stop | BatchStop | BatchYield | Quit


# Events, from the engine


class Info(Struct, frozen=True):
    """Facts of the engine; whole numbers are ints, everything else is text without spaces."""

    values: Mapping[str, int | str]


class Ready(Struct, frozen=True):
    """The engine takes requests of at most `max_context` tokens, prompt and answer together."""

    max_context: Count


class Resume(Struct, frozen=True):
    """Reading starts behind `reused` tokens that are held already."""

    reused: Count
    rid: str = ""


class PromptRead(Struct, frozen=True):
    """`read_to` of `total` prompt tokens are in, `ms` after the start, `rate` new tokens a s."""

    read_to: Count
    total: Count
    ms: Milliseconds
    rate: float
    rid: str = ""


class Reused(Struct, frozen=True):
    """The prompt is in; `reused` of its tokens were not computed."""

    reused: Count
    rid: str = ""


class Token(Struct, frozen=True):
    """A token of a GEN, or the first one of a BGEN."""

    id: Count
    rid: str = ""


class Yielded(Struct, frozen=True):
    """A read gave way with `tokens` of its prompt in `slot`."""

    slot: Count
    tokens: Count
    rid: str = ""


class Done(Struct, frozen=True):
    """A GEN, or the admission of a BGEN, is over. Counts are tokens unless their name says so."""

    generated: Count
    prompt_tokens: Count
    prompt_ms: Milliseconds
    decode_ms: Milliseconds
    finish: Finish
    drafts_accepted: Count = 0
    drafts_offered: Count = 0
    reused: Count = 0
    hits: Count = 0
    lookups: Count = 0
    ram_blobs: Count = 0
    file_blobs: Count = 0
    file_mb: float = 0.0
    prompt_read: Count = 0
    offloaded: Count = 0
    rid: str = ""


class Admitted(Struct, frozen=True):
    """After the DONE of an admission: `goes_on` in its slot, or it is over."""

    slot: Count
    goes_on: bool
    rid: str = ""


class SlotToken(Struct, frozen=True):
    """A further token of the request in `slot`."""

    slot: Count
    id: Count
    rid: str = ""


class SlotDone(Struct, frozen=True):
    """The request in `slot` is over; `generated` counts all its tokens, `ms` since its DONE."""

    slot: Count
    generated: Count
    finish: Finish
    ms: Milliseconds
    accepted: Count = 0
    offered: Count = 0
    rid: str = ""


class LogProbs(Struct, frozen=True):
    """The next token's natural log-probability and those of the likeliest others, best first."""

    id: Count
    logprob: float
    others: tuple[tuple[int, float], ...] = ()
    rid: str = ""


class RowHash(Struct, frozen=True):
    """A hash of the logits that the next token was chosen from."""

    hash: str
    rid: str = ""


class Failed(Struct, frozen=True):
    """`ERR`: with a rid, that request is over; without one, see the module's text."""

    message: str
    rid: str = ""


Event: TypeAlias = (
    Info
    | Ready
    | Resume
    | PromptRead
    | Reused
    | Token
    | Yielded
    | Done
    | Admitted
    | SlotToken
    | SlotDone
    | LogProbs
    | RowHash
    | Failed
)
