"""What the rules put on each card: the order of the cards, and the cost model's placement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from setup.asked import Asked
from setup.models.catalogue import find_row
from setup.models.catalogue_info import info_of
from setup.recommend import Recommendation, Subject, recommend
from tests.setup.expected.case import machine

BOTH = Asked(gpus="all", context=32_768)


CORES = {"NVIDIA GeForce RTX 4080": 9_728, "NVIDIA GeForce RTX 4090": 16_384}


def found(name: str, asked: Asked = BOTH, **old: Any) -> Recommendation:
    row = find_row("IQ3_S", "qwen")
    subject = Subject(row, info_of(row), None)
    hardware = machine(name)
    gpus = (replace(g, cores=CORES.get(g.name, 0), clock_mhz=2_500) for g in hardware.gpus)
    hardware = replace(hardware, gpus=tuple(gpus))
    return recommend(subject, hardware, asked, Path("/nowhere"), old=old)


def reasons(result: Recommendation) -> list[str]:
    return [reason for reason in result.reasons if reason.startswith("layer split")]


def test_auto_puts_the_fastest_card_last() -> None:
    # 9728 / 128 = 76 multiprocessors and 128 of them, at the same clock.
    for numbers in ((0, 1), (1, 0)):
        result = found("4080-and-4090-64gb", Asked(gpus=numbers, context=32_768))
        assert [card.index for card in result.rule.cards] == list(numbers)
        assert "4090" in result.rule.stages[-1].name
        assert "4090" in result.cards[-1].name


@pytest.mark.parametrize(
    ("asked", "old"),
    [
        (Asked(gpus=(1, 0), layer_split="24"), {}),
        (Asked(gpus=(1, 0)), {"gpu_order": "as_given"}),
        (Asked(gpus=(0, 1), layer_split="24"), {}),
        (Asked(gpus=(0, 1)), {"gpu_order": "as_given"}),
    ],
)
def test_an_order_that_was_asked_for_stays(asked: Asked, old: dict[str, str]) -> None:
    result = found("4080-and-4090-64gb", asked, **old)
    assert result.rule.stages == result.rule.cards


@pytest.mark.parametrize(
    "name", ["4080-and-4090-64gb", "2x3090-32gb", "2x5060ti16-48gb", "4xa4000-128gb"]
)
def test_the_sentence_and_the_tables_are_of_one_placement(name: str) -> None:
    result = found(name)
    (sentence,) = reasons(result)
    points = ",".join(str(plan.layers[0]) for plan in result.cards[1:])
    assert sentence.startswith(f"layer split auto: {points} - predicted ")
    held = int(sentence.partition("hold ")[2].split()[0])
    # The cost model and the tables round a layer's bytes and a card's experts by themselves.
    assert held == pytest.approx(sum(plan.resident for plan in result.cards), abs=len(result.cards))


def test_a_split_that_was_asked_for_has_no_prediction() -> None:
    assert reasons(found("2x3090-32gb", Asked(layer_split="20"))) == ["layer split 20: 2 cards"]
    assert reasons(found("rtx4090-32gb", Asked())) == []
