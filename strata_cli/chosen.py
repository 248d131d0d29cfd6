"""What a command runs: its flags over the config file over the defaults."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import RunConfig
from engine.errors import ConfigError
from engine.flags import flag_for, parse_engine_args

if TYPE_CHECKING:
    from engine.resolve import Plan
    from strata_cli.console import Console


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan, and the server's part of the config file."""

    plan: Plan
    server: Mapping[str, Any]
    config_path: Path | None


def engine_flags(*, engine_args: str | None = None, **said: Any) -> RunConfig:
    """What a command's flags ask of the engine; named flags win over `--engine-args`."""
    checked = {name: _checked(name, value) for name, value in said.items() if value is not None}
    try:
        words = shlex.split(engine_args or "")
    except ValueError as error:
        raise ConfigError(f"--engine-args: {engine_args!r}: {error}") from None
    return RunConfig(**checked).over(parse_engine_args(words, "--engine-args:"))


def _checked(field: str, value: Any) -> Any:
    flag = flag_for(field)
    return flag.read(str(value), flag.names[-1])


def choose(config: Path | None, flags: RunConfig, console: Console) -> Chosen:
    """Reads the config, the model's header and the machine, and resolves them."""
    from engine.model_info import read_model_info
    from engine.resolve import make_plan
    from setup.config_file import read_config
    from setup.models import find_model
    from setup.probe import ThisMachine, probe

    here = Path.cwd()
    path = config if config or flags.model else only_config(here)
    run, server = flags, {}
    if path is not None:
        file = read_config(path)
        for warning in file.warnings:
            console.warn(warning)
        run, server = flags.over(file.run), dict(file.values)
        console.detail(f"config: {path}")
    run = replace(run, model=find_model(None if run.model is None else str(run.model), here))
    assert run.model is not None
    plan = make_plan(run, read_model_info(run.model), probe(ThisMachine(here)))
    return Chosen(plan, server, path)


def only_config(folder: Path) -> Path | None:
    """The config in `folder`, when there is just one; `ConfigError` when there are several."""
    found = sorted(folder.glob("strata-*.json"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(f"there are several configs here: {names}", "name one of them")
    return found[0] if found else None
