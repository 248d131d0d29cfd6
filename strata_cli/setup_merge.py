"""The new config over the one that is there, and what the person is told about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from setup.recommend import Recommendation
    from setup.wizard.situation import Situation


@dataclass(frozen=True, slots=True)
class Outcome:
    """The config to write. `notes` are sentences about it, `warnings` are those that -q shows."""

    config: Mapping[str, Any]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def outcome(
    situation: Situation, found: Recommendation, old: Mapping[str, Any], path: Path, *, reset: bool
) -> Outcome:
    """What becomes of `old`, the config at `path`. It holds nothing that `run` refuses."""
    from setup.config.file import check_config
    from setup.config.merge import merge, start_again

    if reset:
        merged = start_again(old, found.config, path.name)
    else:
        merged = merge(old, found.config, situation.folder, path.name)
    checked = check_config(merged.config, path)
    risk = _risk(situation, merged.config)
    return Outcome(
        merged.config,
        (
            *merged.notes,
            *(() if reset else _stays(situation, old, merged.config, path.name)),
            *checked.warnings,
        ),
        (*found.unheeded, *((risk,) if risk else ())),
    )


def _risk(situation: Situation, config: Mapping[str, Any]) -> str | None:
    """Who else can use the server; the key may also come from the environment."""
    from engine.server.exposure import open_to_anyone
    from engine.switches import API_KEY_VARIABLE

    has_key = "api_key" in config or bool(situation.environment.get(API_KEY_VARIABLE))
    return open_to_anyone(config["host"], has_key=has_key)


def _stays(
    situation: Situation, old: Mapping[str, Any], config: Mapping[str, Any], name: str
) -> tuple[str, ...]:
    """What setup would not write without the config that is there."""
    from setup.config.merge_notes import stays_notes
    from strata_cli.setup_calibration import calibrated

    if not old:
        return ()
    # The same run beside a config without flags; the rest of it may change what fits.
    bare = {key: value for key, value in old.items() if key not in ("args", "model_name")}
    fresh = calibrated(replace(situation, old=lambda row: bare))
    return stays_notes(old, config, fresh.config, name)
