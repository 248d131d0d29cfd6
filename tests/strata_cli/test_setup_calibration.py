"""What a calibration refuses, loads and keeps, and that its findings are written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.calibrate import Finding
from engine.config import RunConfig
from engine.resolve import make_plan
from setup.user_settings import (
    Calibration,
    Gained,
    hardware_key,
    load_calibration,
    save_calibration,
)
from strata_cli.console import Console
from strata_cli.setup_calibration import Kept, Pipelines, measure_and_keep
from tests.machines import SMALL_MODEL, flash_next_sizes, machine
from tests.strata_cli.commands import strata
from tests.strata_cli.test_setup_machines import DRY, recorded

Capture = pytest.CaptureFixture[str]

CONFIG = make_plan(RunConfig(), flash_next_sizes(path=Path("/m.gguf"), name="m"), machine()).config


@pytest.mark.parametrize(
    ("most", "loads"),
    [
        # A sweep from 4 over 1, 2 and 3, then 4 and 2 in turn.
        (1, [4, 1, 2, 3, 4, 2, 4]),
        # 2 goes when 4 comes back (3 stays), and 3 when 2 does.
        (2, [4, 1, 2, 3, 4, 2]),
    ],
)
def test_room_is_made_before_a_model_is_loaded(most: int, loads: list[int]) -> None:
    loaded: list[int] = []

    def load(config: Any) -> Any:
        assert len(pipelines.held) < most
        loaded.append(config.spec)
        return config.spec

    pipelines = Pipelines(load, most)
    for spec in (4, 1, 2, 3, 4, 2, 2, 4):
        found: Any = pipelines(replace(CONFIG, spec=spec))
        assert found == spec
    assert loaded == loads


SPEC = Finding("spec", 4, 2, (100.0,), (112.0,))
SLOW = Finding("spec_min_p", 0.5, 0.7, (100.0,), (101.0,))


def test_ctrl_c_leaves_saved_what_has_gained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.json"
    earlier = (Gained("spec", 3, 1.2), Gained("prefill", 512, 1.1))
    save_calibration(path, "key", Calibration(earlier, "2026-01-01"))

    def measure(kept: Kept) -> None:
        kept([SPEC])
        kept([SPEC, SLOW])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_and_keep(measure, Kept(path, "key", earlier), Console())
    found = load_calibration(path, "key")
    assert found is not None
    # spec was measured again, prefill not yet.
    assert [(one.setting, one.value) for one in found.gained] == [("spec", 2), ("prefill", 512)]
    err = capsys.readouterr().err
    assert f"saved in {path}: --spec 2 (+12%)" in err
    assert "No config was written" in err


def test_ctrl_c_before_the_first_finding_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(kept: Kept) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_and_keep(measure, Kept(tmp_path / "settings.json", "key"), Console())
    assert "nothing has gained so far" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_whole_calibration_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    kept = Kept(path, "key", (Gained("prefill", 512, 1.1),))
    measure_and_keep(lambda kept: kept([SPEC]), kept, Console(quiet=True))
    found = load_calibration(path, "key")
    assert found is not None
    assert [one.setting for one in found.gained] == ["spec"]


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (recorded("rtx4090-32gb"), "--probe names a recorded one"),
        (["--dry-run"], "--dry-run writes nothing"),
        (["--model", "Q2_0"], "Q2_0 is not on this disk"),
    ],
)
def test_what_cannot_be_calibrated_is_told(
    capsys: Capture, tmp_path: Path, words: list[str], message: str
) -> None:
    ran = strata(capsys, "setup", "--yes", "--calibrate", *words)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_here")
def test_what_a_calibration_has_kept_is_written(capsys: Capture, tmp_path: Path) -> None:
    hardware = machine()
    (tmp_path / "here.json").write_text(json.dumps(hardware.to_json()))
    key = hardware_key(hardware, "q35moe-a-iq3s", 4096)
    kept = Calibration((Gained("prefill", 512, 1.1),), "2026-11-30")
    save_calibration(tmp_path / ".config" / "strata" / "settings.json", key, kept)
    words = ["--probe", "here.json", "--model", str(SMALL_MODEL), *DRY]
    document = strata(capsys, "setup", *words).document
    assert document["config"]["args"][-2:] == ["--prefill", "512"]
    assert any("measured here on 2026-11-30" in reason for reason in document["reasons"])
    # Another context is another measurement.
    other = strata(capsys, "setup", *words, "--context", "1024").document
    assert "--prefill" not in other["config"]["args"]
