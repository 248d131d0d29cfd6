"""Room for a download, with its numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.errors import ConfigError
from setup.models.disk_space import RESERVE_BYTES, decimal_size, free_bytes, need_space

GB = 10**9


@pytest.mark.parametrize(
    ("left", "free", "fits"),
    [
        (0, 0, True),
        (1, RESERVE_BYTES, False),
        (1, RESERVE_BYTES + 1, True),
        # IQ3_S: 83.6 + 1 = 84.6
        (83_600_000_000, 84_600_000_000, True),
        (83_600_000_000, 84_599_999_999, False),
    ],
)
def test_the_reserve_stays_free(left: int, free: int, fits: bool) -> None:
    folder = Path("models")
    if fits:
        need_space(folder, left, free, RESERVE_BYTES)
        return
    with pytest.raises(ConfigError, match="models"):
        need_space(folder, left, free, RESERVE_BYTES)


def test_the_error_has_every_number() -> None:
    """83.6 to get + 1 free - 50 there = 34.6 short."""
    with pytest.raises(ConfigError) as caught:
        need_space(Path("m"), 836 * GB // 10, 50 * GB, GB)
    assert caught.value.message == (
        "m: 83.6 GB are still to be downloaded and 1.0 GB stay free, but the disk has 50.0 GB"
    )
    assert caught.value.hint.startswith("free 34.6 GB, or")


def test_a_folder_that_is_not_there_yet_is_on_its_parents_disk(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    assert 0 < free_bytes(tmp_path / "a" / "b") <= total
    assert free_bytes(Path("nowhere") / "yet") > 0


def test_a_disk_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shutil, "disk_usage", failing)
    with pytest.raises(ConfigError, match="Input/output error"):
        free_bytes(tmp_path)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (12_345_678, "12.3 MB"),
        (66_400_000_000, "66.4 GB"),
        (1_500_000_000_000, "1500.0 GB"),
    ],
)
def test_sizes_are_decimal(count: int, text: str) -> None:
    assert decimal_size(count) == text
