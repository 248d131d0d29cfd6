"""The wheel holds the packages and their data, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.version import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"strata_moe-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_top_level_names(names: list[str]) -> None:
    info = f"strata_moe-{__version__}.dist-info"
    expected = {"strata_cli", "engine", "setup", "bench", "profiles", info}
    assert {name.split("/")[0] for name in names} == expected


def test_data_is_inside(names: list[str]) -> None:
    assert "profiles/models/strata-tiny.gguf" in names
    assert "bench/workloads/manual.txt" in names
    tables = {str(path.relative_to(ROOT)) for path in (ROOT / "profiles").rglob("*.toml")}
    assert tables
    assert tables <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_every_module_is_inside(names: list[str]) -> None:
    packages = ("strata_cli", "engine", "setup", "bench", "profiles")
    modules = {
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules <= set(names)
