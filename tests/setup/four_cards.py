"""The machine of the four-card profile, and the profile, for its tests."""

from __future__ import annotations

from dataclasses import replace

from setup.profile_file import Profile
from setup.profiles import load_profiles
from tests.machines import CARD

R9700 = replace(
    CARD,
    vendor="amd",
    name="AMD Radeon AI PRO R9700",
    arch="gfx1201",
    vram_bytes=34_208_743_424,  # 31.86 GiB
    driver="",
)
FOUR = tuple(replace(R9700, index=i, uuid=f"GPU-{i}") for i in range(4))
SWITCHES = ("STRATA_QSA_SLOTS", "STRATA_BATCH_SELF_COMMIT", "STRATA_SLOT_COPY_DIRECT")
NAME = "four-card-r9700"


def four_card_profile() -> Profile:
    """The profile as it comes with Strata."""
    (profile,) = (p for p in load_profiles() if p.name == NAME)
    return profile
