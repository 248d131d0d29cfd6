"""Sampling fields under their HTTP names, and their way to the protocol's keys."""

from __future__ import annotations

import secrets
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from engine.messages import Keys

Penalty = Annotated[float, Meta(ge=-2, le=2)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
LARGEST_SEED = 2**63 - 2
ANY_SEED = -1
"""A new seed for each request, as in llama.cpp's server."""


class SamplingFields(Struct, frozen=True, kw_only=True):
    """What a request (or the config's `sampling`) may say. `None`: nothing was said."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Fraction | None = None
    seed: Annotated[int, Meta(ge=ANY_SEED, le=LARGEST_SEED)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    penalty_last_n: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    spec_min_p: Fraction | None = None


def keys_of(asked: SamplingFields, default: SamplingFields, logprobs: int | None = None) -> Keys:
    """The protocol's keys of a request: what it asks, else the server's default.

    Nothing said at all is greedy. A sampled request without a seed gets a new one here, so that
    asking again gives another answer. On the line a seed is 1 to 2^63 - 1, and a client's 0 is the
    last of them.
    """

    def said(name: str) -> float | int | None:
        own = getattr(asked, name)
        value: float | int | None = own if own is not None else getattr(default, name)
        return value

    seed, top_k, temperature = said("seed"), said("top_k"), said("temperature")
    if seed == ANY_SEED or (seed is None and temperature):
        seed = secrets.randbelow(LARGEST_SEED + 1)
    repeat = said("repetition_penalty")
    return Keys(
        temperature=temperature,
        top_p=said("top_p"),
        top_k=None if top_k is None else max(0, int(top_k)),
        min_p=said("min_p"),
        seed=None if seed is None else int(seed) or _ZERO,
        penalty_repeat=repeat if repeat is not None else said("repeat_penalty"),
        penalty_freq=said("frequency_penalty"),
        penalty_present=said("presence_penalty"),
        penalty_last_n=_whole(said("penalty_last_n")),
        spec_min_p=said("spec_min_p"),
        logprobs=logprobs,
    )


def keys_of_choice(keys: Keys, number: int) -> Keys:
    """For a further answer to the same prompt: the seeds that follow the first one's, and 0 behind
    the largest one."""
    if not keys.seed or not number:
        return keys
    return msgspec.structs.replace(keys, seed=(keys.seed + number) % _ZERO or _ZERO)


_ZERO = LARGEST_SEED + 1
"""A client's seed 0 on the line, where 0 is a seed of the engine's choice."""


def _whole(value: float | int | None) -> int | None:
    return None if value is None else int(value)
