"""Calibration keeps what is faster than the noise, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from bench.calibrate import PAIRS, TRIALS, Speeds, Trial, calibrate
from engine.config import EngineConfig
from engine.startup import load_planned, plan_from_args
from setup.models.bundled import bundled_model

SPEC = Trial("spec", (1, 2, 3, 4, 6), "decode", drafts_only=True)


@pytest.fixture(scope="module")
def config() -> EngineConfig:
    return plan_from_args(["--model", str(bundled_model()), "--max-context", "1024"]).config


def _speeds(decode: Callable[[EngineConfig], float]) -> dict[str, Callable[[EngineConfig], float]]:
    return {"decode": decode, "prompt": lambda config: 100.0}


@pytest.mark.parametrize(("gain", "kept"), [(1.029, False), (1.031, True), (2.0, True)])
def test_more_than_three_per_cent_is_kept(config: EngineConfig, gain: float, kept: bool) -> None:
    def speed(config: EngineConfig) -> float:
        return 100.0 * (gain if config.spec == 2 else 1.0)

    best, (found,) = calibrate(
        config, _speeds(speed), can_draft=True, progress=lambda text: None, trials=(SPEC,)
    )
    assert (found.before, found.best, found.kept) == (4, 2, kept)
    assert best.spec == (2 if kept else 4)
    assert type(best.spec) is int


@pytest.mark.parametrize("drift", [0.95, 1.05])
def test_a_machine_that_drifts_gives_no_gain(config: EngineConfig, drift: float) -> None:
    """Each measurement is 5% slower or faster than the one before, whatever ran."""
    calls = count()
    best, (found,) = calibrate(
        config,
        _speeds(lambda config: 100.0 * drift ** next(calls)),
        can_draft=True,
        progress=lambda text: None,
        trials=(SPEC,),
    )
    assert best == config
    assert found.gain == pytest.approx(1.0, abs=0.01)


def test_the_first_measurement_of_a_setting_warms_up_and_does_not_count(
    config: EngineConfig,
) -> None:
    calls = count()

    def cold(config: EngineConfig) -> float:
        return 1.0 if next(calls) == 0 else 100.0

    best, (found,) = calibrate(
        config, _speeds(cold), can_draft=True, progress=lambda text: None, trials=(SPEC,)
    )
    assert best == config
    assert found.before_tok_s == (100.0,) * PAIRS


def test_each_measurement_is_told_with_how_many_are_left(config: EngineConfig) -> None:
    told: list[str] = []
    calls = count()

    def speed(config: EngineConfig) -> float:
        next(calls)
        return 100.0

    calibrate(config, {"decode": speed, "prompt": speed}, can_draft=True, progress=told.append)
    lines = [line for line in told if line.startswith("measuring ")]
    # One to warm up, the other values, 4 pairs: 1 + 4 + 8, 1 + 2 + 8 and 1 + 3 + 8.
    assert len(lines) == next(calls) == 13 + 11 + 12
    assert lines[0] == "measuring spec 4 (measurements left: 36)"
    assert lines[-1].endswith("(measurements left: 1)")


def test_a_finding_is_handed_on_before_the_next_is_measured(config: EngineConfig) -> None:
    handed: list[list[str]] = []
    told: list[str] = []

    def speed(config: EngineConfig) -> float:
        if told[-1].startswith("measuring prefill"):
            raise KeyboardInterrupt
        return 100.0 * (2.0 if config.spec == 2 else 1.0)

    with pytest.raises(KeyboardInterrupt):
        calibrate(
            config,
            {"decode": speed, "prompt": speed},
            can_draft=True,
            progress=told.append,
            on_finding=lambda found: handed.append([one.setting for one in found if one.kept]),
        )
    assert handed == [["spec"], ["spec"]]


def test_without_a_draft_layer_only_prompts_are_tried(config: EngineConfig) -> None:
    _, findings = calibrate(
        config, _speeds(lambda config: 1.0), can_draft=False, progress=lambda text: None
    )
    assert [found.setting for found in findings] == ["prefill"]


def test_every_trial_names_a_setting_that_the_engine_takes(config: EngineConfig) -> None:
    for trial in TRIALS:
        assert getattr(config, trial.setting) in trial.values, trial


def test_speeds_are_measured_on_the_model(config: EngineConfig, tmp_path: Path) -> None:
    """Tokens over the time of a clock that we turn: 3 prompts, 4 tokens behind each first one."""
    model = load_planned(config)
    ticks = count()
    speeds = Speeds(
        lambda config: model.pipeline,
        model.tokenizer.encode,
        tokens=5,
        clock=lambda: 2.0 * next(ticks),
    )
    assert speeds.prompt_tok_s(config) == 512 / 2.0
    assert speeds.decode_tok_s(config) > 0
