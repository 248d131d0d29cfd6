"""Models that a calibration loads: no more at once than memory holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import RunConfig
from engine.resolve import make_plan
from strata_cli.setup_calibration import Pipelines
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
