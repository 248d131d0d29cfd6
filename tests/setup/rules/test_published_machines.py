"""The original's recorded machines, through all rules of sizes together."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from setup.models.catalogue import catalogue, find_row
from setup.rules.budget import resident_budget_gib
from setup.rules.context import recommend_context
from setup.rules.kv import kv_ram_gb, kv_streaming, recommend_kv
from setup.rules.low_ram import low_ram
from setup.rules.size import recommend_row


@dataclass(frozen=True, slots=True)
class Chosen:
    key: str
    context: int
    kv: str
    resident: int | None
    mode: str | None


def choose(ram: float, cards: list[float], name: str | None = None) -> Chosen:
    row = find_row(name) if name else recommend_row(catalogue(), ram, cards)[0]
    needed = low_ram(row, ram, cards, 32_768, "int8").needed
    context, _ = recommend_context(row, ram, cards, needed)
    kv, _ = recommend_kv(context)
    resident, _ = kv_streaming(row, ram, context, kv, wsl=False, asked=None, free_vram_gib=None)
    return Chosen(row.key, context, kv, resident, low_ram(row, ram, cards, context, kv).mode)


@pytest.mark.parametrize(
    ("ram", "cards", "chosen"),
    [
        # 60 GiB or more: IQ3_XXS. A card of 20 or more: 131072. 60 + 1.80 + 1 = 62.8 <= 63.7
        (63.7, [31.8], Chosen("IQ3_XXS", 131_072, "int8", 32_768, None)),
        # 31.9 < 34 + 10; the pair holds min(34, 2 * (19 - 1.35)) = 34: 34 - 34 + 10 = 10 <= 31.9
        (31.9, [24, 24], Chosen("Q2_0", 131_072, "int8", None, "resident")),
        # 47 >= 44; a card of 14 to 20: 65536; 48 + 0.90 + 1 = 49.9 > 47
        (47.0, [15.9, 15.9], Chosen("Q2_0", 65_536, "int8", None, None)),
        # 60 + 0.90 + 1 = 61.9 <= 95.8
        (95.8, [15.9], Chosen("IQ3_XXS", 65_536, "int8", 32_768, None)),
        (127.8, [24], Chosen("IQ3_XXS", 131_072, "int8", 32_768, None)),
    ],
)
def test_with_the_recommended_size(ram: float, cards: list[float], chosen: Chosen) -> None:
    assert choose(ram, cards) == chosen


def test_the_largest_size_does_not_stream_on_64_gb() -> None:
    # 62 + 1.80 + 1 = 64.8 > 63.7; 63.7 >= 50.3 + 10
    assert choose(63.7, [31.8], "IQ3_S") == Chosen("IQ3_S", 131_072, "int8", None, None)


@pytest.mark.parametrize(
    ("ram", "cards", "budget"),
    [
        (63.7, [31.8], 40),  # 64 - 24
        (31.9, [24], 8),  # 32 - 24
        (47.0, [15.9], 23),  # 47 - 24
        (95.8, [15.9], 71),  # 96 - 24 = 72; 77 / 1.0737 = 71.7
        (127.8, [24], 71),
    ],
)
def test_the_largest_model_with_a_budget(ram: float, cards: list[float], budget: int) -> None:
    # a card of 14 or more: 32768, which does not stream, so nothing is taken off the budget
    chosen = choose(ram, cards, "UD-Q4_K_XL")
    assert chosen == Chosen("UD-Q4_K_XL", 32_768, "int8", None, None)
    row = find_row("UD-Q4_K_XL")
    assert resident_budget_gib(row, ram, 0)[0] == budget


def test_a_budget_with_streaming() -> None:
    # asked for 131072 tokens: 1.80 GB in RAM, so 64 - 24 - 2 = 38
    row = find_row("UD-Q4_K_XL")
    assert resident_budget_gib(row, 63.7, kv_ram_gb(row, 131_072, "int8"))[0] == 38


@pytest.mark.parametrize(
    ("ram", "cards", "chosen"),
    [
        # 15.6 < 12.9 + 10; 12.9 - 6.9 + 10 = 16 > 15.6
        (15.6, [11.9], Chosen("Qwen3.6-UD-IQ3_S", 32_768, "int8", None, "mmap")),
        # 23.4 >= 12.9 + 10
        (23.4, [11.9], Chosen("Qwen3.6-UD-IQ3_S", 32_768, "int8", None, None)),
        # a card under 5.5: 8192 tokens, which are kept as fp16
        (15.6, [4.0], Chosen("Qwen3.6-UD-IQ3_S", 8_192, "fp16", None, "mmap")),
    ],
)
def test_small_machines(ram: float, cards: list[float], chosen: Chosen) -> None:
    assert choose(ram, cards) == chosen
