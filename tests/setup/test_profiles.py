"""Which machine has which profile."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.hardware import Gpu, Hardware
from setup.models.catalogue import catalogue
from setup.profile_file import Profile
from setup.profiles import load_profiles, matching_profile
from tests.setup.four_cards import FOUR, R9700, four_card_profile

MACHINES = sorted((Path(__file__).parent / "machines").glob("*.json"))


def _cards(path: Path) -> tuple[Gpu, ...]:
    return Hardware.from_json(json.loads(path.read_text(encoding="utf-8"))).gpus


@pytest.mark.parametrize(
    ("cards", "key", "matches"),
    [
        (FOUR, "IQ3_S", True),
        (FOUR, "iq3_s", True),
        (tuple(reversed(FOUR)), "IQ3_S", True),
        (FOUR, "IQ3_XXS", False),
        (FOUR, "UD-IQ4_XS", False),
        (FOUR[:3], "IQ3_S", False),
        ((*FOUR, replace(R9700, index=4)), "IQ3_S", False),
        ((), "IQ3_S", False),
        # 28 GiB = 30,064,771,072 bytes
        ((*FOUR[:3], replace(R9700, vram_bytes=30_064_771_072)), "IQ3_S", True),
        ((*FOUR[:3], replace(R9700, vram_bytes=30_064_771_071)), "IQ3_S", False),
        ((*FOUR[:3], replace(R9700, name="AMD Radeon RX 9070 XT")), "IQ3_S", False),
        ((*FOUR[:3], replace(R9700, name="radeon ai pro r9700")), "IQ3_S", True),
        ((*FOUR[:3], replace(R9700, arch="gfx1200")), "IQ3_S", False),
        ((*FOUR[:3], replace(R9700, vendor="nvidia")), "IQ3_S", False),
    ],
)
def test_four_cards_of_that_kind_and_that_model(
    cards: tuple[Gpu, ...], key: str, matches: bool
) -> None:
    found = matching_profile(load_profiles(), cards, key)
    assert (found == four_card_profile()) if matches else (found is None)


@pytest.mark.parametrize("profile", load_profiles(), ids=lambda profile: profile.name)
def test_every_profile_matches_a_recorded_machine(profile: Profile) -> None:
    keys = profile.match.models
    assert any(
        matching_profile([profile], _cards(path), key) for path in MACHINES for key in keys
    ), "a profile that matches no machine is of no use"


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_no_machine_has_two_profiles(path: Path) -> None:
    cards = _cards(path)
    for key in {row.key for row in catalogue()}:
        for count in range(len(cards) + 1):
            for some in combinations(cards, count):
                matching_profile(load_profiles(), some, key)  # raises for two


@pytest.mark.parametrize("profile", load_profiles(), ids=lambda profile: profile.name)
def test_the_models_of_a_profile_are_one_row_each(profile: Profile) -> None:
    for key in profile.match.models:
        assert len([row for row in catalogue() if row.key == key]) == 1


def test_two_profiles_for_one_machine_are_an_error() -> None:
    twin = replace(four_card_profile(), name="another")
    with pytest.raises(ConfigError, match="profiles four-card-r9700 and another match the same"):
        matching_profile([four_card_profile(), twin], FOUR, "IQ3_S")
    assert matching_profile([four_card_profile(), twin], FOUR[:2], "IQ3_S") is None
