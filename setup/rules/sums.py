"""How the rules' sums are told.

Models and keys and values are decimal GB, machines are GiB, and the rules add both as they are: the
original's setup 0.1.40 does so, and its answers are kept. The sentences say so.
"""

from __future__ import annotations

from typing import Final

AS_GIB: Final = "with a GB counted as a GiB"


def number(value: float) -> str:
    """Three digits, and never more than two behind the point."""
    return f"{value:.3g}" if abs(value) >= 10 else f"{round(value, 2):g}"


def total(value: float) -> str:
    """A sum: one digit behind the point, or two of a small one."""
    return f"{value:.1f}" if abs(value) >= 10 else f"{round(value, 2):g}"


def compared(parts: str, need: float, ram_gib: float) -> str:
    """Such as "34 GB + 10 GiB = 44.0 of 47.0 GiB, with a GB counted as a GiB"."""
    return f"{parts} = {total(need)} of {ram_gib:.1f} GiB, {AS_GIB}"


def amount(value: float) -> str:
    """Decimal GB with the digits of `number`, or MB."""
    return f"{number(value)} GB" if value >= 0.1 else f"{number(value * 1000)} MB"


def gigabytes(value: float, places: int = 2) -> str:
    """Decimal GB, or MB where that would be next to nothing."""
    return f"{value:.{places}f} GB" if value >= 0.1 else f"{number(value * 1000)} MB"
