"""The files of the profiles: what they say, and that a fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ConfigError
from engine.layer_split import balanced_split
from setup.profile_file import profile_folder, read_profile
from setup.profiles import load_profiles
from setup.rules.groups import batch_groups
from tests.setup.four_cards import NAME, SWITCHES, four_card_profile

FAULTLESS = (profile_folder() / f"{NAME}.toml").read_text(encoding="utf-8")


def test_the_four_card_profile_says_what_was_measured() -> None:
    profile = four_card_profile()
    assert profile.settings == {"parallel": 32, "layer_split": "13,26,39"}
    assert profile.args == {"--batch-groups": "4", "--prefill": "2048"}
    assert profile.env == dict.fromkeys(SWITCHES, "1")
    assert profile.needs == ("hip", "layer_split", "batch_groups")
    measured = {e.what: (e.before, e.after) for e in profile.evidence}
    assert measured["1 request"] == (66.6, 67.9)
    assert measured["8 requests at once"] == (156.6, 261.2)
    assert measured["32 requests at once"] == (155.4, 369.6)
    assert measured["first token of a next turn"] == (0.78, 0.77)
    assert str(profile.evidence[2]) == "32 requests at once: 155.4 -> 369.6 tokens/s"


def test_the_profile_agrees_with_the_rules() -> None:
    # The head counts as 4 layers: (48 + 4) / 4 = 13 layers a card, 13, 26, 39.
    assert balanced_split(48, 4, 4) == (13, 26, 39)
    # 32 slots on 4 stages: 4 groups of 8.
    assert batch_groups(32, 4) == 4


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "four', 'color = "red"\nname = "four', "'color' is not a key"),
        ('opt_out_key = "four_card_profile"', "", "'opt_out_key' is missing"),
        ("count = 4", "count = 4.0", "match: 'count' is 4.0, not a whole number"),
        ("count = 4", "count = 0", "'count', 'models' or 'evidence' is empty"),
        ("count = 4", "count = 4\nram = 3", "match: 'ram' is not a key"),
        ('models = ["IQ3_S"]', "models = []", "'count', 'models' or 'evidence' is empty"),
        ("parallel = 32", "parallels = 32", "settings: 'parallels' is not a key of the config"),
        ("parallel = 32", 'parallel = "32"', 'settings: parallel is "32", not a whole number'),
        ('"--prefill" = "2048"', '"--prefil" = "2048"', "--prefil' is not known"),
        ('"--prefill" = "2048"', '"--prefill" = "much"', "args: --prefill: 'much' is not"),
        ('"--prefill" = "2048"', '"--prefill" = 2048', "args: --prefill is 2048, not a text"),
        ('STRATA_QSA_SLOTS = "1"', 'STRATA_QSA = "1"', "STRATA_QSA = '1' is not a switch"),
        ('STRATA_QSA_SLOTS = "1"', "STRATA_QSA_SLOTS = 1", "STRATA_QSA_SLOTS = 1 is not a switch"),
        ('STRATA_QSA_SLOTS = "1"', 'STRATA_QSA_SLOTS = "x"', "STRATA_QSA_SLOTS is 'x', allowed"),
        (
            '"--batch-groups" = "parallel"',
            '"--batch-groups" = "port"',
            "together: '--batch-groups'",
        ),
        ('needs = ["hip"', 'needs = ["vulkan"', "'vulkan' is not a feature"),
        ('"STRATA_FOUR_CARD_PROFILE"', '"STRATA_X"', "'opt_out_variable' is 'STRATA_X'"),
        ('key = "four_card_profile"', 'key = "x"', "'opt_out_key' is 'x'"),
        ("before = 66.6\n", "", r"evidence\[0\]: 'before' is missing"),
    ],
)
def test_a_fault_in_a_profile_names_file_and_key(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in FAULTLESS
    path = tmp_path / f"{NAME}.toml"
    path.write_text(FAULTLESS.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        read_profile(path)
    assert f"{NAME}.toml" in caught.value.message


def test_a_file_is_called_like_its_profile(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(FAULTLESS, encoding="utf-8")
    with pytest.raises(ConfigError, match="'name' is 'four-card-r9700', not the file's name"):
        load_profiles(tmp_path)
