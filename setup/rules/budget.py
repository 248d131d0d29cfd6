"""The budget of RAM for experts, for models that run within one."""

from __future__ import annotations

from math import ceil
from typing import Final

from engine.errors import ConfigError
from setup.models.catalogue import ModelRow
from setup.rules.sums import compared

LEAST_GIB: Final = 8
SPARE_GIB: Final = 24
"""What the rest of the machine keeps, and what a split needs beside the whole download."""
GB_PER_GIB: Final = 1.073741824


def resident_budget_gib(
    row: ModelRow, ram_gib: float, kv_stream_gb: float, asked: int | None = None
) -> tuple[int, str]:
    """GiB of experts to hold in RAM, and why. `kv_stream_gb`: keys and values kept in RAM.

    `ConfigError` when `asked` is below 1.
    """
    most = int(row.arena_gb / GB_PER_GIB)
    streamed = ceil(kv_stream_gb)
    free = round(ram_gib) - SPARE_GIB - streamed
    found = max(LEAST_GIB, min(free, most))
    taken = f" - {streamed} for keys and values" if streamed else ""
    sums = f"{ram_gib:.1f} GiB of RAM - {SPARE_GIB}{taken}, {LEAST_GIB} at least, {most} at most"
    if asked is None:
        return found, f"resident budget {found} GiB: {sums}"
    if asked < 1:
        raise ConfigError(f"resident-budget-gib is {asked}, allowed is a whole number from 1")
    more = f"; more than the {found} recommended ({sums})" if asked > found else ""
    return asked, f"resident budget {asked} GiB: as asked{more}"


def budget_split(row: ModelRow, ram_gib: float) -> tuple[bool, str]:
    """Whether a budget model may be spread over cards (it then drops its budget), and why."""
    need = row.download_gb + SPARE_GIB
    sums = compared(f"{row.download_gb:g} GB + {SPARE_GIB} GiB", need, ram_gib)
    if ram_gib >= need:
        return True, f"{row.key} may be split over cards, without a budget: {sums}"
    return False, f"{row.key} stays on one card: a split needs the whole model in RAM, {sums}"
