"""Models that a calibration loads: no more at once than memory holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.calibrate import Finding
from engine.config import RunConfig
from engine.resolve import make_plan
from setup.user_settings import Calibration, Gained, load_calibration, save_calibration
from strata_cli.console import Console
from strata_cli.setup_calibration import Kept, Pipelines, measure_and_keep
from tests.machines import flash_next_sizes, machine

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
