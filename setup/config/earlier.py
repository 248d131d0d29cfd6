"""The engine flags of a config that is there, as far as a new one keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.config import RunConfig
from engine.errors import ConfigError
from engine.flags import LATER_FLAGS, flag_for, parse_engine_args
from setup.config.args import flag_name, flag_pairs, word_pairs
from setup.config.diff import shown_pair
from setup.config.sound import told

Pair = tuple[str, ...]

LEARNED = frozenset({"--expert-profile", "--expert-profile-save"})
"""Flags whose files hold what was learned on this machine: `merge` knows whether they are there."""
_KEYS = {"--model": "model", "--device": "backend"}
"""Flags that would win over a key that setup writes."""
_PLANNED = ("--max-context", "--kv")
"""Flags that setup's rules start from and always write."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What stays without another word: `said` is what the flags ask for, `others` are those that
    are written again as they are. `faults` says why a pair does not stay."""

    said: RunConfig
    others: tuple[Pair, ...]
    faults: Mapping[Pair, str]

    def flags(self, *written: str, parallel: bool) -> tuple[str, ...]:
        """The words of `others` beside the flags in `written`; `parallel`: slots are said
        elsewhere."""
        taken = {flag_name(pair) for pair in word_pairs(written)}
        taken |= {flag_for("slots").names[0]} if parallel else set()
        return tuple(word for pair in self.others if flag_name(pair) not in taken for word in pair)


def read_earlier(old: Mapping[str, Any], where: str = "the config") -> Earlier:
    """The flags in `args`; of equal ones the last counts, as it does for the engine."""
    pairs: dict[str, Pair] = {}
    faults: dict[Pair, str] = {}
    for pair in flag_pairs(old):
        fault = _fault(pair, where)
        if fault is not None:
            faults[pair] = fault
        elif pair[0] not in LEARNED:
            pairs[flag_name(pair)] = pair
    return Earlier(
        parse_engine_args([word for pair in pairs.values() for word in pair]),
        tuple(pair for name, pair in pairs.items() if name not in _PLANNED),
        faults,
    )


def _fault(pair: Pair, where: str) -> str | None:
    """Why the engine would not take or not heed a flag; `None`: it acts on it."""
    try:
        parse_engine_args(pair, f"{where}: args:")
    except ConfigError as error:
        return f"{told(error)}: it is not kept"
    words = f"engine flag {shown_pair(pair)} of the old config is not kept"
    if pair[0] in _KEYS:
        return f"{words}: setup writes {_KEYS[pair[0]]}"
    if pair[0] in LATER_FLAGS and pair[0] not in LEARNED:
        return f"{words}: it has no effect in this version"
    return None
