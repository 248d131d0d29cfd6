"""Reads and checks `strata-<model>.json`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import RunConfig
from engine.draft_vocabulary import OWN_TOKENS
from engine.errors import ConfigError
from engine.flags import parse_engine_args
from setup.config.json_words import quoted
from setup.config.keys import KEYS_BY_NAME, ConfigKey
from setup.config.secrets import shown_value
from setup.config.text import no_file, read_json, read_value
from setup.config.values import check_environment, check_sampling, nearest, told_names


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config that was read and found sound. `values` has the known keys that stand in it."""

    path: Path
    values: Mapping[str, Any]
    run: RunConfig
    """What `args`, `model`, `backend` and `parallel` ask of the engine."""
    warnings: tuple[str, ...]


def read_config(path: Path) -> ConfigFile:
    """Reads and checks a config file; relative paths in it count from its folder.

    Raises `ConfigError`: not there, not JSON (with line and column), a wrong type or range (with
    key, value and what is allowed), an engine flag or the value of a switch that is not known.
    """
    return check_config(read_json(path), path)


def check_config(values: Mapping[str, Any], path: Path) -> ConfigFile:
    """Checks what stands, or will stand, in the config at `path`. Raises as `read_config`."""
    known = {name: value for name, value in values.items() if name in KEYS_BY_NAME}
    for name, value in known.items():
        check_value(KEYS_BY_NAME[name], value, str(path))
    notes = (KEYS_BY_NAME[name].note(value) for name, value in known.items())
    warnings = (
        *told_names((n for n in values if n not in KEYS_BY_NAME), unknown_key, "config keys"),
        *check_environment(known.get("env", {}), str(path)),
        *check_sampling(known.get("sampling", {}), str(path)),
        *(note for note in notes if note is not None),
    )
    return ConfigFile(path, known, run_of(known, path.parent, str(path)), warnings)


def run_of(values: Mapping[str, Any], folder: Path, where: str) -> RunConfig:
    """What the keys of a config ask of the engine; `where` names it in errors.

    The flags in `args` win over the keys `model`, `backend`, `gpu` and `parallel`.
    """
    try:
        args = parse_engine_args(values.get("args", []), f"{where}: args:")
    except ConfigError as error:
        hint = error.hint or "mend args; docs/cli.md lists the engine flags"
        raise ConfigError(error.message, hint) from None
    keys = RunConfig(
        model=_placed(folder, values.get("model")),
        slots=values.get("parallel"),
        draft_vocab=values.get("draft_vocab"),
        device=_device(values),
        vram_reserve_mib=values.get("vram_reserve_mib"),
    )
    ids = args.draft_vocab
    placed = RunConfig(
        model=_placed(folder, args.model),
        mtp=_placed(folder, args.mtp),
        draft_vocab=ids if ids is None or ids in OWN_TOKENS else str(_placed(folder, ids)),
    )
    return placed.over(args).over(keys)


def _device(values: Mapping[str, Any]) -> str | None:
    """What `backend` and `gpu` mean: cuda:N for the first of the cards that are named."""
    backend, gpu = values.get("backend"), values.get("gpu")
    first = gpu[0] if isinstance(gpu, list) and gpu else gpu
    return f"cuda:{first}" if backend == "cuda" and isinstance(first, int) else backend


def check_value(key: ConfigKey, value: Any, where: str) -> None:
    """Raises `ConfigError` naming `where`, the key, the value and what is allowed."""
    if key.check(value):
        return
    visible = shown_value(key.name, value)
    shown = "not usable" if key.secret else quoted(json.dumps(visible, ensure_ascii=False))
    raise ConfigError(f"{where}: {key.name} is {shown}, not {key.allowed}", _hint(key, value))


def unknown_key(name: str) -> str:
    """The warning about a key that no version has."""
    return f"config key {name!r} is not known{nearest(name, KEYS_BY_NAME)}"


def is_config(path: Path) -> bool:
    """Whether a file is a config: an object with a known key, or a text that needs mending."""
    if _is_foreign(path) or no_file(path):
        return False
    try:
        value = read_value(path)
    except ConfigError:
        return True
    return isinstance(value, dict) and not KEYS_BY_NAME.keys().isdisjoint(value)


def not_files(folder: Path) -> tuple[str, ...]:
    """A sentence for each thing that has the name of a config and cannot be one."""
    found = (path for path in sorted(folder.glob("strata-*.json")) if not _is_foreign(path))
    return tuple(f"{fault}; it is left out" for fault in map(no_file, found) if fault)


def find_configs(folder: Path) -> tuple[Path, ...]:
    """The configs of a folder, by name."""
    return tuple(filter(is_config, sorted(folder.glob("strata-*.json"))))


def _is_foreign(path: Path) -> bool:
    return path.name.endswith(".shared-settings.json")


def _hint(key: ConfigKey, value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) and key.check(int(value)):
        return f"write {value} without quotes"
    if value in ("true", "false") and key.check(value == "true"):
        return f"write {value} without quotes"
    if isinstance(value, str) and re.search(r"[\x00-\x1f]", value) and not key.secret:
        return "a backslash is written twice in JSON; / works in paths, too"
    if key.name == "api_key":
        return "remove api_key to serve without a key"
    if key.name == "env" and isinstance(value, dict):
        return 'values stand in quotes, as in "STRATA_TRACE": "1"'
    return f"write {key.allowed}, or remove {key.name}"


def _placed(folder: Path, said: str | Path | None) -> Path | None:
    return None if said is None else folder / os.path.expanduser(said)
