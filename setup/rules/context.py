"""How long conversations may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

from engine.errors import ConfigError
from setup.models.catalogue import QWEN36_ARCHITECTURE, ModelRow
from setup.rules.cells import cell_bytes
from setup.rules.kv import DRAFT_LAYERS

CONTEXTS: Final = (8_192, 32_768, 65_536, 131_072, 204_800, 262_144, 393_216, 524_288)
"""What the menu offers, in tokens."""
CARD_CONTEXTS: Final = ((14.0, 32_768), (20.0, 65_536))
"""(the smallest card has less than so many GiB, tokens)."""
LARGE_CARD_CONTEXT: Final = 131_072
BUDGET_CARD_GIB: Final = 14.0
BUDGET_CONTEXTS: Final = (8_192, 32_768)
RAM_RULE_SIZES: Final = ("IQ3_XXS", "IQ3_S")
RAM_RULE_SPARE_GIB: Final = 24.0
ALWAYS_ALLOWED: Final = 131_072
QWEN36_SMALL_CARD_GIB: Final = 5.5
QWEN36_SMALL_CARD_CONTEXT: Final = 8_192

RopeMethod = Literal["yarn", "linear"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Scaling of positions beyond the trained length."""

    method: RopeMethod
    factor: float
    reason: str


def recommend_context(
    row: ModelRow, ram_gib: float, cards_gib: Sequence[float], low_ram: bool
) -> tuple[int, str]:
    """Tokens of one conversation, and why. Without a card: as with the smallest ones."""
    tokens, why = _by_card(row, cards_gib)
    allowed = CONTEXTS[-1] if low_ram else ram_context(row, ram_gib)
    if allowed < tokens:
        tokens, why = allowed, f"{ram_gib:.1f} GiB of RAM hold no more"
    if row.train_context < tokens:
        tokens, why = row.train_context, "the longest that the model allows"
    return tokens, f"context {tokens}: {why}"


def ram_context(row: ModelRow, ram_gib: float) -> int:
    """The longest context of `CONTEXTS` that RAM allows; only the largest sizes have such a rule.

    The arena and the keys and values are decimal GB, RAM is GiB: compared as they are, as the
    original's setup 0.1.40 does.
    """
    if row.key not in RAM_RULE_SIZES or row.architecture == QWEN36_ARCHITECTURE:
        return CONTEXTS[-1]
    fitting = [c for c in CONTEXTS if c <= ALWAYS_ALLOWED or ram_gib >= context_need(row, c)]
    return fitting[-1]


def context_need(row: ModelRow, context: int) -> float:
    """What the RAM rule asks for: experts, keys and values as int8, and 24 for the rest."""
    cells_gb = context * (row.attention_layers + DRAFT_LAYERS) * cell_bytes("int8") / 1e9
    return row.arena_gb + cells_gb + RAM_RULE_SPARE_GIB


def long_context_note(row: ModelRow, ram_gib: float, context: int, low_ram: bool) -> str | None:
    """What a context risks that is longer than RAM allows. It is kept all the same."""
    if low_ram or context <= ram_context(row, ram_gib):
        return None
    return (
        f"context {context} is kept, but {row.key} needs {context_need(row, context):.1f} GiB of "
        f"RAM for it; this machine has {ram_gib:.1f}"
    )


def rope(
    context: int, train_context: int, method: str | None = None, scale: float | None = None
) -> Rope | None:
    """The scaling for a context (None: not needed). `ConfigError` for answers that cannot work."""
    needed = max(1.0, context / train_context)
    if method not in (None, "none", "yarn", "linear"):
        raise ConfigError(
            f"rope-scaling is {method!r}, allowed is none, yarn or linear",
            "leave out --rope-scaling: it is yarn where the context needs it",
        )
    if scale is not None and not (isfinite(scale) and scale >= 1):
        raise ConfigError(
            f"rope-scale is {scale:g}, allowed is a number from 1",
            "leave out --rope-scale: it is the context over the longest that the model allows",
        )
    if method == "none" and needed > 1:
        raise ConfigError(
            f"rope-scaling none: context {context} is above {train_context}, the longest "
            "that the model allows by itself",
            f"use --rope-scaling yarn, or --context {train_context}",
        )
    if method in (None, "none") and needed == 1:
        if scale is not None:
            raise ConfigError(
                f"rope-scale {scale:g} without a method: context {context} is within the "
                f"{train_context} tokens that the model allows by itself",
                "leave out --rope-scale, or say --rope-scaling yarn",
            )
        return None
    return _scaled(context, train_context, "linear" if method == "linear" else "yarn", scale)


def _scaled(context: int, train_context: int, method: RopeMethod, scale: float | None) -> Rope:
    needed = max(1.0, context / train_context)
    sums = f"{context} / {train_context} = {context / train_context:g}"
    if scale is None:
        return Rope(method, needed, f"rope scaling {method} {needed:g}: {sums}")
    less = ", which is too little for that context" if scale < needed else ""
    return Rope(method, scale, f"rope scaling {method} {scale:g}: as asked ({sums}{less})")


def _by_card(row: ModelRow, cards_gib: Sequence[float]) -> tuple[int, str]:
    if not cards_gib:
        return (BUDGET_CONTEXTS if row.budget else (CARD_CONTEXTS[0][1],))[0], "no card"
    card = min(cards_gib)
    size = f"the smallest card has {card:.1f} GiB"
    if row.architecture == QWEN36_ARCHITECTURE and card < QWEN36_SMALL_CARD_GIB:
        return QWEN36_SMALL_CARD_CONTEXT, f"{size}, under {QWEN36_SMALL_CARD_GIB:g}"
    if row.budget:
        small, large = BUDGET_CONTEXTS
        if card < BUDGET_CARD_GIB:
            return small, f"{size}, under {BUDGET_CARD_GIB:g}"
        return large, f"{size}, {BUDGET_CARD_GIB:g} or more, for a model with a budget"
    for limit, tokens in CARD_CONTEXTS:
        if card < limit:
            return tokens, f"{size}, under {limit:g}"
    return LARGE_CARD_CONTEXT, f"{size}, {CARD_CONTEXTS[-1][0]:g} or more"
