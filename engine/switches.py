"""The `STRATA_*` environment variables of the engine, and what each does in this version.

They come from the config's `env`. This is the only place that reads the environment.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from engine.config import Decision, RunConfig
from engine.errors import ConfigError

Kind = Literal["flag", "whole", "number", "text"]
Effect = Literal["acting", "built in", "not in this version"]
Value = bool | int | float | str

API_KEY_VARIABLE = "STRATA_API_KEY"
"""What clients of the server must send; no switch of the engine."""

_PREFIX = "STRATA_"
_ALLOWED: dict[Kind, str] = {
    "flag": "0 or 1",
    "whole": "a whole number from 0",
    "number": "a number from 0",
    "text": "a text",
}


@dataclass(frozen=True, slots=True)
class Switch:
    """One variable: `name` without `STRATA_`. `default` is what holds where it is not set.

    `effect` says what this engine makes of it: it acts on the value, it always does what the switch
    asks for, or it has nothing that the switch is about.
    """

    name: str
    kind: Kind
    default: Value
    meaning: str
    effect: Effect = "not in this version"

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return _PREFIX + self.name

    def read(self, text: str) -> Value:
        """The value of `text`. `ConfigError` names the variable, the value and what is allowed."""
        value = _convert(self.kind, text.strip())
        if value is None:
            raise ConfigError(f"{self.variable} is {text!r}, allowed is {_ALLOWED[self.kind]}")
        return value


# A window carries a row of every slot that writes beside the prompt rows, slots share the model's
# own state, and one launch or loop serves all rows: what these switches ask for is how it works.
_BUILT_IN = (
    Switch("ADMIT_MERGE_FIRST", "flag", False, "Read a prompt's end and its first token together."),
    Switch("BATCH_ATTN_ROWS", "flag", False, "Attention of all rows in one launch."),
    Switch("BATCH_GDN_GROUPS", "flag", False, "The recurrence of all slots in one launch."),
    Switch("BATCH_MTP_SERIAL", "flag", False, "Drafts in the slots, in serial windows."),
    Switch("BATCH_SELF_COMMIT", "flag", False, "One row a slot advances the state itself."),
    Switch("CKPT_POOL", "flag", False, "A checkpoint takes the memory of a dropped one."),
    Switch("IQ_MT_MIN", "whole", 1, "Fewest rows that share a multi-row expert kernel."),
    Switch("QSA_SLOTS", "flag", False, "Block scores and attention of all slots in one launch."),
    Switch("SLOT_CKPT_MOVE", "flag", False, "A checkpoint is made in the slot that it is for."),
    Switch("SLOT_COPY_BATCHSYNC", "flag", False, "A slot's copies wait for the device once."),
    Switch("SLOT_COPY_DIRECT", "flag", False, "A slot's state moves without a host image."),
)
_LATER = (
    Switch("ARENA_PIN_GIB", "number", 0.0, "Memory of experts that is pinned, GiB."),
    Switch("BATCH_DECODE_SHARE", "number", 0.5, "Decoding time between chunks, over a chunk's."),
    Switch("BATCH_GROUPS_NV_SERIAL", "flag", False, "One group on two cards."),
    Switch("CKPT_THREADS", "flag", False, "Stages save their checkpoints at the same time."),
    Switch("DBG_GDN", "flag", False, "Debug variant of the recurrence."),
    Switch("DEFAULTS", "text", "", "Defaults of an earlier version."),
    Switch("EXPERIMENTAL_GFX1103", "flag", False, "Setup may choose a gfx1103 card."),
    Switch("EXPERIMENTAL_SM60", "flag", False, "Setup may choose Pascal and Volta cards."),
    Switch("FOUR_CARD_PROFILE", "flag", True, "The profile of four R9700 cards."),
    Switch("FS_SLOTS", "whole", 0, "Slots of experts that come from a file."),
    Switch("HANDOFF_PIPE", "whole", 0, "Pieces of a chunk handed to the next card."),
    Switch("IO_PREFETCH", "whole", 0, "Experts read ahead from a file."),
    Switch("MMQ_DIRECT", "flag", False, "Prompt kernels read experts where they lie."),
    Switch("MMQ_GROUP_SORT", "flag", False, "Expert groups sorted by their rows."),
    Switch("PARALLEL_SOLO", "flag", True, "A request left alone leaves its slot."),
    Switch("PIPED_CONCURRENT", "flag", False, "A prompt is read beside pipelined groups."),
    Switch("PIPED_CONCURRENT_PRIO", "flag", True, "The windows go before that prompt."),
    Switch("PIPED_DECODE_MAX_MS", "number", 0.0, "Most decoding time between pieces, ms."),
    Switch("PIPED_DECODE_MIN_MS", "number", 0.0, "Least decoding time between pieces, ms."),
    Switch("PIPED_MTP", "whole", 0, "Drafts of a slot in pipelined groups."),
    Switch("PIPED_READ_PIECE", "whole", 0, "Tokens of a piece of a pipelined read."),
    Switch("PIPE_ADAPT_EVERY", "whole", 0, "Group windows between rounds of the expert tier."),
    Switch("PIPE_BYIELD_NODRAIN", "flag", False, "BYIELD does not drain the groups."),
    Switch("PREFILL_HELP", "flag", False, "The CPU helps with prompts."),
    Switch("SPLIT_MTP_BATCH", "flag", False, "The draft layer reads prompts in batches."),
    Switch("STAGE_TRIM", "flag", False, "A card loads its own layers only."),
)
_MAX_WAIT = Switch(
    "ADMIT_MAX_WAIT_S", "number", 30.0, "After so long a prompt counts as short.", "acting"
)
_SHORT = Switch(
    "ADMIT_SHORT_FIRST", "whole", 0, "Prompts of at most so many tokens go first.", "acting"
)
_YIELD = Switch(
    "BATCH_YIELD_CHUNKS", "whole", 1, "Chunks of a piece when no slot decodes.", "acting"
)
_TRACE = Switch("TRACE", "flag", False, "One log line for each admission.", "acting")
_BATCH_MTP = Switch("BATCH_MTP", "flag", False, "Drafts in the slots too: `--batch-mtp`.", "acting")
_ACTING = (_BATCH_MTP, _MAX_WAIT, _SHORT, _YIELD, _TRACE)
SWITCHES: tuple[Switch, ...] = tuple(
    sorted(
        (*_ACTING, *_LATER, *(replace(switch, effect="built in") for switch in _BUILT_IN)),
        key=lambda switch: switch.name,
    )
)


def read_switches(environment: Mapping[str, str]) -> dict[Switch, Value]:
    """The switches that are set, with their values. Raises `ConfigError` for a bad value."""
    return {
        switch: switch.read(environment[switch.variable])
        for switch in SWITCHES
        if environment.get(switch.variable)
    }


def switch_decisions(environment: Mapping[str, str]) -> tuple[Decision, ...]:
    """What becomes of every switch that is set."""
    return tuple(_decision(switch, value) for switch, value in read_switches(environment).items())


def _decision(switch: Switch, value: Value) -> Decision:
    asked = int(value) if isinstance(value, bool) else value
    match switch.effect:
        case "acting":
            return Decision(switch.variable, asked, asked, f"acts: {switch.meaning}")
        case "built in":
            reason = f"built in, whatever is said: {switch.meaning}"
            # A switch asks for what is there; only "off" asks for something else.
            return Decision(switch.variable, asked, asked or 1, reason)
        case "not in this version":
            reason = f"not in this version, nothing follows: {switch.meaning}"
            return Decision(switch.variable, asked, None, reason)


def run_of_switches(environment: Mapping[str, str]) -> RunConfig:
    """What switches ask of the engine that flags may ask, too."""
    said = environment.get(_BATCH_MTP.variable)
    if not said:
        return RunConfig()
    return RunConfig(batch_mtp="on" if _BATCH_MTP.read(said) else "off")


def traces(environment: Mapping[str, str]) -> bool:
    """True when STRATA_TRACE asks for a log line at each admission."""
    return bool(_value(_TRACE, environment))


def admission(environment: Mapping[str, str]) -> tuple[int, float]:
    """Most tokens of a prompt that goes first, and the seconds after which any prompt does."""
    return int(_value(_SHORT, environment)), float(_value(_MAX_WAIT, environment))


def yield_chunks(environment: Mapping[str, str]) -> int:
    """Chunks after which a read may give way when no slot decodes; 0: it does not then."""
    return int(_value(_YIELD, environment))


def card_environment(identity: str) -> dict[str, str]:
    """What shows CUDA one card only, by its uuid or by its number in the order of PCI buses."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": identity}


def show_one_card(identity: str) -> None:
    """The same for this process, before it uses CUDA."""
    os.environ.update(card_environment(identity))


def this_environment() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def _value(switch: Switch, environment: Mapping[str, str]) -> Value:
    text = environment.get(switch.variable)
    return switch.read(text) if text else switch.default


def _convert(kind: Kind, text: str) -> Value | None:
    match kind:
        case "flag":
            return {"0": False, "1": True}.get(text)
        case "whole":
            return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
        case "number":
            try:
                value = float(text)
            except ValueError:
                return None
            return value if math.isfinite(value) and value >= 0 else None
        case "text":
            return text
