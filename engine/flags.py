"""The engine's flags: one table that reads, checks and documents them.

They stand in `args` of the config file and on the command line of `python -m engine`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from engine.capabilities import FEATURES, THIS_VERSION
from engine.config import (
    ACTIVATIONS,
    MTP_HNORMS,
    NAMED_KV_FORMATS,
    TABLE_PLACES,
    EngineConfig,
    RunConfig,
)
from engine.engine_flag import EngineFlag
from engine.errors import ConfigError
from engine.memory import MIB

LEAST_CONTEXT = 16
"""Tokens of the shortest conversation that may be asked for."""

ENGINE_FLAGS: tuple[EngineFlag, ...] = (
    EngineFlag("model", ("--model",), "path", "The GGUF file; any shard of a split one."),
    EngineFlag(
        "synthetic",
        ("--synthetic",),
        "synthetic",
        "A model of random weights in place of a file, FAMILY:MIX[,OPTION=VALUE...].",
    ),
    EngineFlag("mtp", ("--mtp",), "path", "A second GGUF that holds the draft layer."),
    EngineFlag(
        "mtp_hnorm",
        ("--mtp-hnorm",),
        "choice",
        "The draft layer's norm of the residual: one mean square a stream, or one over all.",
        choices=MTP_HNORMS,
    ),
    EngineFlag(
        "draft_vocab",
        ("--mtp-draft-vocab",),
        "vocabulary",
        "The tokens that may be drafted; else all. Never changes a token of an answer.",
    ),
    EngineFlag(
        "device",
        ("--device",),
        "device",
        "Where the model runs; auto: the first usable NVIDIA card that can hold it, else the CPU.",
    ),
    EngineFlag("slots", ("--batch", "--slots"), "whole", "Conversations decoded together."),
    EngineFlag(
        "max_context",
        ("--max-context",),
        "tokens",
        "Tokens of one conversation.",
        low=LEAST_CONTEXT,
    ),
    EngineFlag(
        "kv", ("--kv",), "choice", "How keys and values are stored.", choices=NAMED_KV_FORMATS
    ),
    EngineFlag(
        "activations",
        ("--activations",),
        "choice",
        "Arithmetic of quantised weights: int8 is the contract, float is for comparing.",
        choices=ACTIVATIONS,
    ),
    EngineFlag(
        "spec",
        ("--spec",),
        "whole",
        "Most rows of one conversation in a window: its token and N-1 drafts. 0 or 1: no drafts.",
        high=64,
    ),
    EngineFlag(
        "spec_min_p",
        ("--spec-min-p",),
        "number",
        "Drafts enter a window while the draft layer gives each at least this probability.",
        high=1,
    ),
    EngineFlag(
        "batch_mtp",
        ("--batch-mtp",),
        "switch",
        "Drafts while several conversations write; else as far as it is measured to pay.",
    ),
    EngineFlag("prefill", ("--prefill",), "prefill", "Prompt tokens read in one window."),
    EngineFlag(
        "window_rows", ("--window-rows",), "whole", "Most decode rows of one window.", low=1
    ),
    EngineFlag(
        "prompt_cache",
        ("--prompt-cache",),
        "whole",
        "Checkpoints kept for each conversation; 0 keeps none.",
        high=1024,
    ),
    EngineFlag(
        "prompt_cache_every",
        ("--prompt-cache-every",),
        "whole",
        "Tokens between checkpoints inside a prompt; 0 makes none there.",
    ),
    EngineFlag(
        "prompt_cache_root",
        ("--prompt-cache-root",),
        "whole",
        "Fewest tokens before a prompt's second turn for a checkpoint there that stays; 0: none.",
    ),
    EngineFlag(
        "conversation_cache_mib",
        ("--conversation-cache-mib",),
        "whole",
        "MiB of memory for conversations that lose their slot; 0: they are read again.",
    ),
    EngineFlag(
        "conversation_cache_slots",
        ("--conversation-cache-slots",),
        "whole",
        "Most conversations there; 0: any number.",
    ),
    EngineFlag(
        "conversation_cache_min_free_mib",
        ("--conversation-cache-min-free-mib",),
        "whole",
        "MiB of the machine's memory that they leave free.",
    ),
    EngineFlag(
        "vram_limit_mib",
        ("--vram-limit",),
        "whole",
        "MiB of a card that are used at most, as if it had no more.",
        low=1,
    ),
    EngineFlag(
        "vram_reserve_mib",
        ("--vram-reserve-mib",),
        "whole",
        "MiB of a card that are left to the driver, the screen and other programs.",
    ),
    EngineFlag(
        "expert_cache",
        ("--expert-cache",),
        "experts",
        "MiB of a card for routed experts, the others lie in memory; auto: what is left.",
    ),
    EngineFlag(
        "table_place",
        ("--ple-io",),
        "choice",
        "Where the n-gram table lies on a card's machine: in the card's memory or in RAM.",
        choices=TABLE_PLACES,
    ),
    EngineFlag(
        "adapt_every",
        ("--adapt-every",),
        "whole",
        "Windows between rounds that bring experts onto the card by their use; 0: none.",
    ),
    EngineFlag(
        "adapt_swaps", ("--adapt-swaps",), "whole", "Most experts of a layer in such a round."
    ),
    EngineFlag(
        "adapt_decay",
        ("--adapt-decay",),
        "number",
        "What is left of an expert's count after a round.",
        high=1,
    ),
)

_BY_NAME = {name: flag for flag in ENGINE_FLAGS for name in flag.names}
_SWITCHES = {name for name, flag in _BY_NAME.items() if flag.kind == "switch"}

LATER_FLAGS: dict[str, bool] = {
    name: takes_value
    for feature in FEATURES
    if not THIS_VERSION.has(feature.name)
    for name, takes_value in feature.flags
}
"""Flags of features that this version lacks, and whether they take a value.

They are taken, and said to do nothing: a config that names them is never refused.
"""


def flag_for(field: str) -> EngineFlag:
    """The flag that sets a field of `RunConfig`."""
    return next(flag for flag in ENGINE_FLAGS if flag.field == field)


def parse_engine_args(args: Sequence[str], where: str = "engine flag") -> RunConfig:
    """The engine flags of `args` (`--name value` or `--name=value`) as a `RunConfig`.

    Raises `ConfigError` for an unknown flag (with the nearest known one), a missing value, or a
    value that the flag does not take. The last of two equal flags counts.
    """
    said: dict[str, Any] = {}
    unused: dict[str, str] = {}
    rest = list(args)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if name not in _BY_NAME and name not in LATER_FLAGS:
            raise ConfigError(f"{where} {name!r} is not known", _nearest_hint(name))
        if not has_value and name in _SWITCHES:
            value = "1"
        elif not has_value and LATER_FLAGS.get(name, True):
            if not rest:
                raise ConfigError(f"{where} {name} needs a value", "write it after the flag")
            value = rest.pop(0)
        if name in _BY_NAME:
            flag = _BY_NAME[name]
            said[flag.field] = flag.read(value, f"{where} {name}")
        else:
            unused[name] = value
    return RunConfig(**said, unused=tuple(unused.items()))


def _nearest_hint(name: str) -> str:
    """All flags begin with dashes, so what follows is compared."""
    known = {flag.lstrip("-"): flag for flag in (*_BY_NAME, *LATER_FLAGS)}
    near = difflib.get_close_matches(name.lstrip("-"), known, n=1)
    return f"did you mean {known[near[0]]}?" if near else "docs/cli.md lists the engine flags"


def engine_args(config: EngineConfig) -> list[str]:
    """The flags that make `parse_engine_args` and `resolve` give `config` again."""
    said = {flag.field: getattr(config, flag.field, None) for flag in ENGINE_FLAGS}
    if config.synthetic is not None:
        said["model"] = None
    if config.card is not None:
        card = config.card
        said |= {field: getattr(card, field, None) for field in said if hasattr(card, field)}
        said["vram_reserve_mib"] = 0  # it is taken off the limit already
        said["expert_cache"] = -(-card.expert_cache_bytes // MIB)
    return [
        word
        for flag in ENGINE_FLAGS
        if said[flag.field] is not None
        for word in _words(flag, said[flag.field])
    ]


def _words(flag: EngineFlag, value: Any) -> tuple[str, ...]:
    name = flag.names[0]
    return (f"{name}={value}",) if flag.kind == "switch" else (name, str(value))
