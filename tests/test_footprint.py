"""Nothing is written outside the checkout, and nothing names a place to download from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines import SMALL_MODEL

ROOT = Path(__file__).parents[1]


def test_commands_leave_the_home_folder_alone(tmp_path: Path) -> None:
    """setup, an answer and a check, with a home of their own that stays empty."""
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    for words in (
        ["setup", "--model", str(SMALL_MODEL), "--yes"],
        ["run", "--prompt", "Hello", "--max-tokens", "2"],
    ):
        subprocess.run(
            [sys.executable, "-m", "strata_cli", *words],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
        )
    assert list(home.rglob("*")) == []
    assert [path.name for path in folder.iterdir()] == ["strata-q35moe-a-iq3s.json"]


def _tracked() -> list[Path]:
    """Text files that git knows, or all of them where there is no checkout."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = done.stdout.split("\0") if done.returncode == 0 else []
    paths = [ROOT / name for name in names if name]
    if not paths:
        pytest.skip("not a checkout: there is no list of files")
    return [path for path in paths if path.suffix not in (".gguf", ".npz", ".png", ".xz", ".gz")]


_FORBIDDEN = (
    "py" + r"pi\.org",
    "python" + r"hosted\.org",
    r"index-" + "url",
    r"find-" + "links",
    "download" + r"\.pytorch",
    r"registry\." + "npmjs",
)


def test_no_registry_is_named() -> None:
    pattern = re.compile("|".join(_FORBIDDEN))
    for path in _tracked():
        if path.is_file():
            found = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{path}: {found}"


def test_the_constraints_are_exact() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    assert "torch==2.13.0" in pins
    assert len({pin.split("==")[0].lower() for pin in pins}) == len(pins)
