"""The texts that a check compares: prompts of the shipped workloads, with how they are sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from engine.errors import ConfigError
from engine.sampling import Sampling

Encode = Callable[[str], list[int]]

WORKLOADS = ("manual", "python", "letter", "question")
FOLLOW_UP = "follow"
GREEDY = Sampling(penalty_repeat=1.3)
"""The likeliest token, with a penalty: a small model that is left alone soon repeats itself."""
SAMPLED = Sampling(temperature=0.9, top_k=50, top_p=0.97, penalty_repeat=1.1, seed=1)
MOST_PROMPT = 96
"""Tokens of a prompt, unless long ones are asked for."""
TOGETHER = 288
LEAST_ROOM = 8
"""Tokens of the prompt made of all workloads: more than a small model's indexer may select."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A prompt (token ids) to be continued by `max_new` tokens, whatever they are."""

    name: str
    prompt: tuple[int, ...]
    sampling: Sampling
    max_new: int


def workload(name: str) -> str:
    """The text of one shipped workload."""
    return files("bench.workloads").joinpath(f"{name}.txt").read_text(encoding="utf-8").rstrip()


def prompts(encode: Encode, most: int) -> dict[str, tuple[int, ...]]:
    """Every workload as at most `most` token ids."""
    return {name: tuple(encode(workload(name))[:most]) for name in WORKLOADS}


def long_prompt(encode: Encode, length: int) -> tuple[int, ...]:
    """Exactly `length` token ids: the workloads one after another, as often as it takes."""
    return pieces(encode, 1, length)[0]


def pieces(encode: Encode, count: int, length: int) -> list[tuple[int, ...]]:
    """As `long_prompt`, `count` times from different places."""
    together = encode("\n\n".join(workload(name) for name in (*WORKLOADS, FOLLOW_UP)))
    endless = together * (length // len(together) + 2)
    begins = [i * len(together) // count for i in range(count)]
    return [tuple(endless[begin : begin + length]) for begin in begins]


def texts(
    encode: Encode,
    *,
    max_new: int,
    context: int,
    long: bool = False,
    keys: Sequence[Sampling] = (GREEDY, SAMPLED),
) -> tuple[Text, ...]:
    """Three workloads and a prompt made of all of them, small enough for two turns in `context`.

    They take turns with the sampling keys; with `long` every workload, uncut, and a prompt of a
    quarter of the context are played with every set of keys.
    """
    room = context // 2 - 2 * max_new
    if room < LEAST_ROOM:
        raise ConfigError(
            f"a context of {context} tokens has no room for two turns of {max_new} new tokens",
            f"raise --context to {2 * (LEAST_ROOM + 2 * max_new)}, or lower --max-new",
        )
    if long:
        named = prompts(encode, room)
        named["long"] = long_prompt(encode, max(1, min(room, context // 4)))
        pairs = [(name, sampling) for name in named for sampling in keys]
    else:
        named = {"together": long_prompt(encode, min(room, TOGETHER))}
        named |= dict(list(prompts(encode, min(room, MOST_PROMPT)).items())[:3])
        pairs = [(name, keys[i % len(keys)]) for i, name in enumerate(named)]
    return tuple(
        Text(
            name=f"{name}, {'greedy' if sampling.greedy else 'sampled'}",
            prompt=named[name],
            sampling=sampling,
            max_new=max_new,
        )
        for name, sampling in pairs
    )
