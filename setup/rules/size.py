"""Which family and which size of a model suits a machine."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from engine.errors import ConfigError
from setup.catalogue import ModelRow
from setup.rules.budget import resident_budget_gib
from setup.rules.context import QWEN36_ARCHITECTURE, QWEN36_SMALL_CARD_GIB
from setup.rules.low_ram import OVERHEAD_CONTEXT, RAM_SPARE_GIB, low_ram

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
    unified = family is None and carve_out_gib is not None
    if unified and ram_gib + (carve_out_gib or 0) >= UNIFIED_LEAST_GIB:
        family = UNIFIED_FAMILY
    sizes = _sizes(rows, family or recommend_family(rows, ram_gib))
    if sizes[0].architecture == QWEN36_ARCHITECTURE:
        return _small_model(sizes, ram_gib, cards_gib)
    for row in sizes:
        if row.key == LARGE_RAM_SIZE and ram_gib >= LARGE_RAM_GIB:
            return row, f"{row.key}: {ram_gib:.1f} GiB of RAM ({LARGE_RAM_GIB:g} or more)"
    return sizes[
        0
    ], f"{sizes[0].key}: the first size of {sizes[0].family}, {ram_gib:.1f} GiB of RAM"


def size_verdict(row: ModelRow, ram_gib: float, cards_gib: Sequence[float]) -> tuple[str, str]:
    """ "fits", "tight", "low memory" or "does not fit", and a sentence with the numbers."""
    need = f"{row.key} wants {row.ram_gib:g} GiB of RAM, this machine has {ram_gib:.1f}"
    if row.budget:
        need = f"{need}; {resident_budget_gib(row, ram_gib, 0)[1]}"
    if ram_gib >= row.ram_gib:
        return "fits", need
    if ram_gib >= row.ram_gib - TIGHT_SLACK_GIB:
        return "tight", need
    if row.budget:
        return "does not fit", need
    found = low_ram(row, ram_gib, cards_gib, OVERHEAD_CONTEXT, "int8", "on")
    return ("low memory" if found.fits else "does not fit"), f"{need}; {found.reason}"


def below_floor(rows: Sequence[ModelRow], ram_gib: float, cards_gib: Sequence[float]) -> str | None:
    """What a machine risks that is too small for the smallest of `rows`, even in low memory."""
    smallest = min(rows, key=lambda row: row.ram_gib)
    if ram_gib >= _floor(rows):
        return None
    if low_ram(smallest, ram_gib, cards_gib, OVERHEAD_CONTEXT, "int8").fits:
        return None
    return (
        f"this machine has {ram_gib:.1f} GiB of RAM; the smallest size, {smallest.key}, wants "
        f"{smallest.ram_gib:g} and does not fit in low memory, either"
    )


def _floor(rows: Sequence[ModelRow]) -> float:
    return min(row.ram_gib for row in rows) - FLOOR_SLACK_GIB


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


def _small_model(
    sizes: list[ModelRow], ram_gib: float, cards_gib: Sequence[float]
) -> tuple[ModelRow, str]:
    """The largest size whose experts RAM holds; the smallest for small cards and small machines."""
    tested = [row for row in sizes if not row.experimental] or sizes
    smallest = min(tested, key=lambda row: row.arena_gb)
    if cards_gib and min(cards_gib) < QWEN36_SMALL_CARD_GIB:
        limit = f"under {QWEN36_SMALL_CARD_GIB:g}"
        return smallest, f"{smallest.key}: a card has {min(cards_gib):.1f} GiB, {limit}"
    holding = [row for row in tested if ram_gib >= row.arena_gb + RAM_SPARE_GIB]
    best = max(holding, key=lambda row: row.arena_gb, default=smallest)
    need = best.arena_gb + RAM_SPARE_GIB
    sums = f"{best.arena_gb:g} + {RAM_SPARE_GIB:g} = {need:.1f} of {ram_gib:.1f} GiB of RAM"
    return best, f"{best.key}: {sums}"
