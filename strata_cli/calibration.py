"""`strata setup --calibrate`: measure on this machine, keep what gains, remember it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from strata_cli.console import Console

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.pipeline import Pipeline
    from setup.user_settings import Calibration


def run_calibration(config: EngineConfig, path: Path, key: str, console: Console) -> Calibration:
    """Measures settings around `config` and saves what gained under `key` in the file at `path`."""
    from bench.calibrate import Speeds, calibrate
    from engine.startup import load_planned
    from setup.user_settings import Calibration, Gained, save_calibration

    loaded = load_planned(config)
    pipelines: dict[int, Pipeline] = {config.spec: loaded.pipeline}

    def pipeline(wanted: EngineConfig) -> Pipeline:
        if wanted.spec not in pipelines:
            pipelines[wanted.spec] = load_planned(wanted).pipeline
        return pipelines[wanted.spec]

    speeds = Speeds(pipeline, loaded.tokenizer.encode)
    _, findings = calibrate(
        config,
        {"decode": speeds.decode_tok_s, "prompt": speeds.prompt_tok_s},
        can_draft=loaded.pipeline.can_draft,
        progress=console.note,
    )
    gained = tuple(
        Gained(found.setting, found.best, found.gain) for found in findings if found.kept
    )
    calibration = Calibration(gained, datetime.date.today().isoformat())
    save_calibration(path, key, calibration)
    console.note(f"saved in {path}: {', '.join(g.told for g in gained) or 'the defaults are best'}")
    return calibration
