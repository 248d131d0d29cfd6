"""`strata setup --calibrate`: measure on this machine, keep what gains, remember it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ConfigError

if TYPE_CHECKING:
    from bench.calibrate import Finding
    from engine.config import EngineConfig
    from engine.pipeline import Pipeline
    from setup.recommend import Recommendation
    from setup.user_settings import Gained
    from setup.wizard.situation import Situation
    from strata_cli.console import Console


def calibrated(situation: Situation, *, now: bool = False) -> Recommendation:
    """What setup would write, with the settings that a calibration on this machine has kept; `now`:
    by this run, so that it wins over the config that is there."""
    from setup.user_settings import load_calibration

    found = situation.planned()
    kept = load_calibration(_path(situation), _key(situation, found))
    if kept is None:
        return found
    return situation.planned(calibration=replace(kept, measured_now=now))


def forget_calibration(situation: Situation, found: Recommendation) -> None:
    """Without what a calibration has kept for this model; nothing happens where it kept nothing."""
    from setup.user_settings import Calibration, load_calibration, save_calibration

    path, key = _path(situation), _key(situation, found)
    kept = load_calibration(path, key)
    if kept is not None and kept.gained:
        save_calibration(path, key, Calibration((), kept.date))


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
    from setup.user_settings import load_calibration

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
            f"{found.memory.available_bytes / 1e9:.1f} may be used",
            "choose a smaller model or context",
        )
    console.note(
        "measuring on this machine takes some minutes; what gains is saved at once, and Ctrl-C "
        "keeps it"
    )
    config = _engine_config(situation, found, subject.path)
    # The winner and the default are measured in turn: two models, where memory has room for both.
    most = 2 if 2 * found.memory.total_bytes <= found.memory.available_bytes else 1
    path, key = _path(situation), _key(situation, found)
    before = load_calibration(path, key)
    kept = Kept(path, key, before.gained if before else ())
    measure_and_keep(lambda kept: _measured(config, kept, most, console), kept, console)


@dataclass(slots=True)
class Pipelines:
    """Loaded models, one for each number of drafts; never more than `most` at once."""

    load: Callable[[EngineConfig], Pipeline]
    most: int
    held: dict[int, Pipeline] = field(default_factory=dict)

    def __call__(self, config: EngineConfig) -> Pipeline:
        """The model for `config`. Its room is made before it is loaded."""
        if config.spec not in self.held:
            while len(self.held) >= self.most:
                del self.held[next(iter(self.held))]
            self.held[config.spec] = self.load(config)
        return self.held[config.spec]


@dataclass(slots=True)
class Kept:
    """What gained so far, saved under `key` in the file at `path` after each finding."""

    path: Path
    key: str
    earlier: tuple[Gained, ...] = ()
    """Of the calibration before: it holds for the settings that are not measured again yet."""
    gained: tuple[Gained, ...] = ()

    def __call__(self, findings: Sequence[Finding]) -> None:
        """Saves the findings that are kept, and the earlier ones of other settings."""
        from setup.user_settings import Gained

        measured = {found.setting for found in findings}
        self.gained = tuple(
            Gained(found.setting, found.best, found.gain) for found in findings if found.kept
        )
        self._save(*self.gained, *(one for one in self.earlier if one.setting not in measured))

    def finish(self) -> None:
        """Forgets what the calibration before had and this one did not measure."""
        self._save(*self.gained)

    @property
    def told(self) -> str:
        """The flags that gained, with how much; empty when none did."""
        return ", ".join(one.told for one in self.gained)

    def _save(self, *gained: Gained) -> None:
        from setup.user_settings import Calibration, save_calibration

        today = datetime.date.today().isoformat()
        save_calibration(self.path, self.key, Calibration(gained, today))


def measure_and_keep(measure: Callable[[Kept], object], kept: Kept, console: Console) -> None:
    """Runs `measure`, which calls `kept` with its findings. Ctrl-C goes on up, after it is said
    what stays saved."""
    try:
        measure(kept)
    except KeyboardInterrupt:
        found = f"saved in {kept.path}: {kept.told}" if kept.told else "nothing has gained so far"
        use = "; `strata setup` for this model writes it" if kept.told else ""
        console.note(f"\nstopped; {found}{use}. No config was written")
        raise
    kept.finish()
    console.note(f"saved in {kept.path}: {kept.told or 'the defaults are best'}")


def _measured(config: EngineConfig, kept: Kept, most: int, console: Console) -> None:
    """Measures settings around `config` with at most so many loaded models."""
    from bench.calibrate import Speeds, calibrate
    from engine.startup import load_planned

    loaded = load_planned(config)
    encode, can_draft = loaded.tokenizer.encode, loaded.pipeline.can_draft
    pipeline = Pipelines(lambda wanted: load_planned(wanted).pipeline, most)
    pipeline.held[config.spec] = loaded.pipeline
    del loaded
    speeds = Speeds(pipeline, encode)
    calibrate(
        config,
        {"decode": speeds.decode_tok_s, "prompt": speeds.prompt_tok_s},
        can_draft=can_draft,
        progress=console.note,
        on_finding=kept,
    )


def _engine_config(situation: Situation, found: Recommendation, model: Path) -> EngineConfig:
    from engine.flags import parse_engine_args
    from engine.resolve import make_plan

    subject = situation.subject
    assert subject is not None
    said = parse_engine_args(found.config["args"]).over(found.run)
    slots = found.config.get("parallel") if said.slots is None else said.slots
    run = replace(said, model=model, slots=slots)
    return make_plan(run, subject.info, situation.hardware).config


def _path(situation: Situation) -> Path:
    from setup.user_settings import settings_path

    return settings_path(situation.environment, Path.home())


def _key(situation: Situation, found: Recommendation) -> str:
    from setup.user_settings import hardware_key

    args = found.config["args"]
    context = int(args[args.index("--max-context") + 1])
    return hardware_key(situation.hardware, situation.row.tag, context)
