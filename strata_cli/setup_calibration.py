"""`--calibrate` in a run of setup: when it may measure, and what an earlier one has kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from setup.recommend import Recommendation
    from setup.wizard.situation import Situation
    from strata_cli.console import Console


def calibrated(situation: Situation) -> Recommendation:
    """What setup would write, with the settings that a calibration on this machine has kept."""
    from setup.user_settings import load_calibration

    found = situation.planned()
    kept = load_calibration(_path(situation), _key(situation, found))
    return found if kept is None else situation.planned(calibration=kept)


def refuse_calibration(*, recorded: bool, dry_run: bool) -> None:
    """`ConfigError` where nothing can be measured or kept."""
    if recorded:
        raise ConfigError(
            "--calibrate measures this machine, and --probe names a recorded one",
            "leave one of them out",
        )
    if dry_run:
        raise ConfigError(
            "--calibrate keeps what it finds, and --dry-run writes nothing", "leave one of them out"
        )


def calibrate(situation: Situation, console: Console) -> None:
    """Measures the chosen model and remembers what gained. `ConfigError` when it is not here."""
    from strata_cli.calibration import run_calibration

    subject = situation.subject
    assert subject is not None
    found = situation.planned()
    if subject.path is None:
        raise ConfigError(
            f"--calibrate: {subject.row.key} is not on this disk",
            "--download fetches it, --models-dir says where it lies",
        )
    if not found.memory.fits:
        raise ConfigError(
            f"--calibrate: {subject.row.key} does not fit in memory: it needs "
            f"{found.memory.total_bytes / 1e9:.1f} GB, "
            f"{found.memory.available_bytes / 1e9:.1f} are free",
            "choose a smaller model or context",
        )
    console.note("measuring on this machine takes some minutes; Ctrl-C keeps what is there now")
    config = _engine_config(situation, found, subject.path)
    run_calibration(config, _path(situation), _key(situation, found), console)


def _engine_config(situation: Situation, found: Recommendation, model: Path) -> EngineConfig:
    from engine.flags import parse_engine_args
    from engine.resolve import make_plan

    subject = situation.subject
    assert subject is not None
    said = parse_engine_args(found.config["args"])
    run = replace(said, model=model, slots=found.config.get("parallel"))
    return make_plan(run, subject.info, situation.hardware).config


def _path(situation: Situation) -> Path:
    from setup.user_settings import settings_path

    return settings_path(situation.environment, Path.home())


def _key(situation: Situation, found: Recommendation) -> str:
    from setup.user_settings import hardware_key

    args = found.config["args"]
    context = int(args[args.index("--max-context") + 1])
    return hardware_key(situation.hardware, found.config["model_name"], context)
