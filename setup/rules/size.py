"""Which family and which size of a model suits a machine."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from engine.errors import ConfigError
from setup.models.catalogue import QWEN36_ARCHITECTURE, ModelRow, spare_gib
from setup.rules.budget import resident_budget_gib
from setup.rules.context import QWEN36_SMALL_CARD_GIB
from setup.rules.low_ram import OVERHEAD_CONTEXT, low_ram
from setup.rules.sums import amount, compared, number

LARGE_RAM_GIB: Final = 60.0
LARGE_RAM_SIZE: Final = "IQ3_XXS"
FLOOR_SLACK_GIB: Final = 4.0
"""A machine may have so much less than a size's line before it is too small."""
TIGHT_SLACK_GIB: Final = 8.0
UNIFIED_LEAST_GIB: Final = 80.0
UNIFIED_FAMILY: Final = "unsloth"
SMALL_FAMILY: Final = "qwen36"


def recommend_family(rows: Sequence[ModelRow], ram_gib: float) -> str:
    """The first family; the small one where no size of a large one reaches its RAM line."""
    if not rows:
        raise ConfigError("there is no model to choose from")
    large = [row for row in rows if row.architecture != QWEN36_ARCHITECTURE]
    has_small = any(row.family == SMALL_FAMILY for row in rows)
    if not large or (has_small and ram_gib < _floor(large)):
        return SMALL_FAMILY if has_small else rows[0].family
    return large[0].family


def recommend_row(
    rows: Sequence[ModelRow],
    ram_gib: float,
    cards_gib: Sequence[float],
    family: str | None = None,
    *,
    carve_out_gib: float | None = None,
) -> tuple[ModelRow, str]:
    """A size, and why. `carve_out_gib`: the memory that a processor with graphics gives away.

    `ConfigError` for a family that is not there.
    """
    if family is None and carve_out_gib is not None:
        unified = _unified(rows, ram_gib, carve_out_gib)
        if unified is not None:
            return unified
    sizes = _sizes(rows, family or recommend_family(rows, ram_gib))
    if sizes[0].architecture == QWEN36_ARCHITECTURE:
        return _small_model(sizes, ram_gib, cards_gib)
    return _large_model(sizes, ram_gib)


def size_verdict(row: ModelRow, ram_gib: float, cards_gib: Sequence[float]) -> tuple[str, str]:
    """ "fits", "tight", "low memory" or "does not fit", and a sentence with the numbers."""
    need = f"{row.key} wants {row.ram_gib:.3g} GiB of RAM, this machine has {ram_gib:.1f}"
    if row.budget:
        need = f"{need}; {resident_budget_gib(row, ram_gib, 0)[1]}"
    if ram_gib >= row.ram_gib:
        return "fits", need
    if ram_gib >= row.ram_gib - TIGHT_SLACK_GIB:
        return "tight", need
    if row.budget:
        return "does not fit", need
    found = low_ram(row, ram_gib, _used(row, cards_gib), OVERHEAD_CONTEXT, "int8")
    return ("low memory" if found.fits else "does not fit"), f"{need}; {found.reason}"


def below_floor(rows: Sequence[ModelRow], ram_gib: float, cards_gib: Sequence[float]) -> str | None:
    """What a machine risks that is too small for the smallest of `rows`, even in low memory."""
    smallest = min(rows, key=lambda row: row.ram_gib)
    if ram_gib >= _floor(rows):
        return None
    if low_ram(smallest, ram_gib, _used(smallest, cards_gib), OVERHEAD_CONTEXT, "int8").fits:
        return None
    return (
        f"this machine has {ram_gib:.1f} GiB of RAM; the smallest size, {smallest.key}, wants "
        f"{smallest.ram_gib:.3g} and does not fit in low memory, either"
    )


def _floor(rows: Sequence[ModelRow]) -> float:
    return min(row.ram_gib for row in rows) - FLOOR_SLACK_GIB


def _used(row: ModelRow, cards_gib: Sequence[float]) -> Sequence[float]:
    """A model that cannot be spread runs on the largest card."""
    return (max(cards_gib),) if row.one_card and cards_gib else cards_gib


def _sizes(rows: Sequence[ModelRow], family: str) -> list[ModelRow]:
    """The family's sizes in the catalogue's order, experimental ones last."""
    sizes = [row for row in rows if row.family == family]
    if sizes:
        return sorted(sizes, key=lambda row: row.experimental)
    families = list(dict.fromkeys(row.family for row in rows))
    near = difflib.get_close_matches(family, families, 1)
    raise ConfigError(
        f"family is {family!r}, allowed is one of {', '.join(families)}",
        f"did you mean {near[0]}?" if near else "",
    )


def _unified(
    rows: Sequence[ModelRow], ram_gib: float, carve_out_gib: float
) -> tuple[ModelRow, str] | None:
    both = ram_gib + carve_out_gib
    if both < UNIFIED_LEAST_GIB or all(row.family != UNIFIED_FAMILY for row in rows):
        return None
    row = _sizes(rows, UNIFIED_FAMILY)[0]
    sums = f"{ram_gib:.1f} + {carve_out_gib:.1f} = {both:.1f} GiB of RAM and graphics memory"
    return row, f"{row.key}: {sums} ({UNIFIED_LEAST_GIB:g} or more)"


def _large_model(sizes: list[ModelRow], ram_gib: float) -> tuple[ModelRow, str]:
    """The family's first size, or `LARGE_RAM_SIZE` where it has that and RAM is large."""
    first = sizes[0]
    larger = next((row for row in sizes if row.key == LARGE_RAM_SIZE), None)
    ram = f"{ram_gib:.1f} GiB of RAM"
    if larger is None:
        return first, f"{first.key}: the first size of {first.family}, {ram}"
    if ram_gib >= LARGE_RAM_GIB:
        return larger, f"{larger.key}: {ram} ({LARGE_RAM_GIB:g} or more)"
    later = f"({larger.key} from {LARGE_RAM_GIB:g})"
    return first, f"{first.key}: the first size of {first.family}, {ram} {later}"


def _small_model(
    sizes: list[ModelRow], ram_gib: float, cards_gib: Sequence[float]
) -> tuple[ModelRow, str]:
    """The largest size whose experts RAM holds; the smallest for small cards and small machines."""
    tested = [row for row in sizes if not row.experimental] or sizes
    smallest = min(tested, key=lambda row: row.arena_gb)
    card = max(cards_gib, default=None)
    if card is not None and card < QWEN36_SMALL_CARD_GIB:
        limit = f"under {QWEN36_SMALL_CARD_GIB:g}"
        return smallest, f"{smallest.key}: the card has {card:.1f} GiB, {limit}"
    holding = [row for row in tested if ram_gib >= row.arena_gb + spare_gib(row.download_gb)]
    best = max(holding, key=lambda row: row.arena_gb, default=smallest)
    spare = spare_gib(best.download_gb)
    parts = f"{amount(best.arena_gb)} + {number(spare)} GiB"
    return best, f"{best.key}: experts {compared(parts, best.arena_gb + spare, ram_gib)}"
