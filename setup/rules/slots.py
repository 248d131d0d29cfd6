"""What a slot costs on the cards, and how many are recommended.

Cards are GiB, slots and experts decimal GB, and the rule compares them as they are: the original's
setup 0.1.40 does so, and its answers are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.errors import ConfigError
from setup.models.catalogue import ModelRow
from setup.rules.cells import cell_bytes
from setup.rules.kv import STREAM_WINDOW
from setup.rules.low_ram import CARD_OVERHEAD_GIB
from setup.rules.sums import AS_GIB, gigabytes

MOST_RECOMMENDED: Final = 4
LARGEST_SHARE: Final = 0.20
"""Slots may take a fifth of what the cards have for experts."""
LEAST_HELD: Final = 0.50
"""Half of the experts must still be on the cards beside the slots."""

COST: Final = (
    "parallel N reduces waiting for several users but costs about 10-25% speed per request on "
    "this card"
)
GUIDE: Final = "docs/batching.md"


def slot_gb(row: ModelRow, context: int, kv: str, streaming: bool) -> float:
    """Decimal GB of one slot: keys and values of its context on the card, and its state.

    Every format but q4_0 is charged as int8, as in the original's rule.
    """
    tokens = min(context, STREAM_WINDOW) if streaming else context
    cell = cell_bytes("q4_0" if kv == "q4_0" else "int8")
    return tokens * row.attention_layers * cell / 1e9 + row.state_gb


def cache_gb(cards_gib: Sequence[float]) -> float:
    """Room for experts: what each card has beyond its fixed costs."""
    return sum(max(0.0, card - CARD_OVERHEAD_GIB) for card in cards_gib)


def recommend_parallel(
    row: ModelRow, cards_gib: Sequence[float], context: int, kv: str, streaming: bool
) -> int:
    """Conversations at once: 2, 3 or 4, or 0 for one at a time."""
    cache, slot = cache_gb(cards_gib), slot_gb(row, context, kv, streaming)
    for count in range(MOST_RECOMMENDED, 1, -1):
        taken = count * slot
        if taken <= LARGEST_SHARE * cache and cache - taken >= LEAST_HELD * row.arena_gb:
            return count
    return 0


def parallel_reason(
    row: ModelRow, cards_gib: Sequence[float], context: int, kv: str, streaming: bool
) -> str:
    """The sums behind `recommend_parallel`, in one sentence."""
    cache, slot = cache_gb(cards_gib), slot_gb(row, context, kv, streaming)
    count = recommend_parallel(row, cards_gib, context, kv, streaming)
    taken = (count or 2) * slot
    verdict = f"parallel {count}" if count else "parallel 0 (one at a time)"
    return (
        f"{verdict}: the cards have {cache:.1f} GiB for experts; {count or 2} slots of "
        f"{gigabytes(slot)} take {gigabytes(taken)} (at most {LARGEST_SHARE * cache:.2f} GiB) and "
        f"leave {max(0.0, cache - taken):.1f} (at least {gigabytes(LEAST_HELD * row.arena_gb)}, "
        f"half of {row.key}), {AS_GIB}"
    )


def parallel_messages(asked: int | None, recommended: int, slot: float) -> tuple[str, ...]:
    """What setup says about `parallel`; the first line is the news, the others are warnings.

    `slot` is decimal GB of one slot. `ConfigError` when `asked` is negative.
    """
    if asked is None:
        return (_unasked(recommended, slot),)
    if asked < 0:
        raise ConfigError(f"parallel is {asked}, allowed is a whole number from 0")
    if asked <= 1:
        return ("one request at a time, as asked",)
    return (
        f"{asked} conversations at once, as asked: about {gigabytes(slot, 1)} each, "
        f"{gigabytes(asked * slot, 1)} together",
        *_warnings(asked, recommended),
    )


def _unasked(recommended: int, slot: float) -> str:
    if not recommended:
        return f"recommended is one request at a time: {COST}; see {GUIDE}"
    return (
        f"--parallel {recommended} serves {recommended} conversations at once, for about "
        f"{gigabytes(slot, 1)} of a card each. It is opt-in: nothing was written; see {GUIDE}"
    )


def _warnings(asked: int, recommended: int) -> tuple[str, ...]:
    lines = []
    if not recommended:
        lines.append(f"recommended is one at a time: {COST}; {asked} is kept")
    elif asked > recommended:
        lines.append(
            f"recommended is {recommended}: more slots leave room for fewer experts on the cards; "
            f"{asked} is kept"
        )
    return tuple(lines)
