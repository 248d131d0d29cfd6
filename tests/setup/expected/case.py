"""One expected choice, and how a recorded machine is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType

from engine.hardware import Hardware
from setup.asked import Asked

MACHINES = Path(__file__).parents[1] / "machines"


@dataclass(frozen=True)
class Case:
    """What the rules choose for a model on a machine. `...`: the description leaves it open."""

    machine: str
    model: str
    asked: Asked
    cards: tuple[int, ...] | EllipsisType
    """Numbers of the cards in the recording; the first one runs layer 0."""
    context: int | EllipsisType
    parallel: int | EllipsisType
    kv: str = "int8"
    kv_resident: int | EllipsisType | None = None
    split: str | None = None
    low_ram: str | None = None
    budget: int | None = None

    def __str__(self) -> str:
        said = ",".join(
            f"{name}={getattr(self.asked, name)}"
            for name in Asked.__slots__
            if getattr(self.asked, name) is not None
        )
        return f"{self.machine}-{self.model}-{said or 'default'}"


def machine(name: str) -> Hardware:
    """The recorded machine of that name."""
    return Hardware.from_json(json.loads((MACHINES / f"{name}.json").read_text(encoding="utf-8")))


def machine_names() -> list[str]:
    """Every recorded machine."""
    return sorted(path.stem for path in MACHINES.glob("*.json"))


NOTHING = Asked()
K32 = Asked(context=32_768)
K128 = Asked(context=131_072)
K128_HELD = Asked(context=131_072, kv_streaming="off")
K256 = Asked(context=262_144)
K256_HELD = Asked(context=262_144, kv_streaming="off")
WINDOW = 32_768
"""Cells that stay on the card where keys and values are streamed."""
