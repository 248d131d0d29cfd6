"""What a command runs: its config, its model, this machine, and the plan of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import RunConfig
from engine.errors import ConfigError
from engine.flags import flag_for, parse_engine_args
from engine.memory import WEIGHTS_IN_MEMORY
from engine.sizes import shortage
from strata_cli.folder import here
from strata_cli.options import told_names

if TYPE_CHECKING:
    from engine.resolve import Plan
    from setup.config.file import ConfigFile
    from strata_cli.console import Console


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan, and the server's part of the config."""

    plan: Plan
    server: Mapping[str, Any]
    """The keys of the config file, with a profile's where nobody else says anything."""
    config_path: Path | None
    machine_bytes: int
    """Memory of this machine with its swap."""

    def check_room(self) -> None:
        """Raises `ConfigError` for a model that the card, or this machine where no card is used,
        cannot hold, whatever else ends."""
        memory = self.plan.memory
        if memory.card is not None:
            if not memory.fits:
                raise ConfigError(
                    f"{self.plan.config.model.name} does not fit on {memory.card.name}: "
                    f"{shortage(memory, 'its memory', least=False)}",
                    "a shorter --context or fewer --slots need less; --device cpu uses no card",
                )
            return
        needed, there = self.plan.memory.total_bytes, self.machine_bytes
        if needed <= there:
            return
        raise ConfigError(
            f"{self.plan.config.model.name} needs {needed / 1e9:.1f} GB of memory, this machine "
            f"has {there / 1e9:.1f} GB: {WEIGHTS_IN_MEMORY}",
            "choose a smaller model: `strata setup --check` says what fits",
        )


def engine_flags(*, engine_args: str | None = None, **said: Any) -> RunConfig:
    """What a command's flags ask of the engine; named flags win over `--engine-args`."""
    from setup.config.secrets import shown_words

    checked = {name: _checked(name, value) for name, value in said.items() if value is not None}
    try:
        words = shlex.split(engine_args or "")
    except ValueError as error:
        told = " ".join(shown_words((engine_args or "").split()))
        raise ConfigError(f"--engine-args: {told!r}: {error}") from None
    return RunConfig(**checked).over(parse_engine_args(words, "--engine-args:"))


def _checked(field: str, value: Any) -> Any:
    return flag_for(field).read(str(value), told_names(field))


def choose(config: Path | None, flags: RunConfig, console: Console) -> Chosen:
    """Reads the config, the model's header and the machine, and resolves them."""
    from engine.model_info import named_model_info
    from engine.resolve import make_plan
    from engine.switches import this_environment
    from setup.probe import ThisMachine, probe
    from strata_cli.precedence import layered

    folder = here()
    file = _read(config, flags, folder, console)
    asked = flags if file is None else flags.over(file.run)
    asked = _with_model(flags, asked, folder)
    info = named_model_info(asked)
    hardware = probe(ThisMachine(folder))
    found = layered(flags, file, info, hardware, this_environment())
    for note in found.notes:
        console.note(note)
    plan = make_plan(
        replace(found.run, model=asked.model, synthetic=asked.synthetic), info, hardware
    )
    plan = replace(plan, decisions=plan.decisions + found.decisions)
    path = None if file is None else file.path
    return Chosen(plan, found.values, path, hardware.ram_bytes + hardware.swap_bytes)


def _with_model(flags: RunConfig, asked: RunConfig, folder: Path) -> RunConfig:
    """With the file that is meant; random weights that a flag names need none."""
    from setup.models.bundled import find_model

    if flags.synthetic is not None:
        return replace(asked, model=flags.model)
    if asked.synthetic is not None and flags.model is None:
        return asked
    name = None if asked.model is None else str(asked.model)
    return replace(asked, model=find_model(name, folder), synthetic=None)


def _read(
    config: Path | None, flags: RunConfig, folder: Path, console: Console
) -> ConfigFile | None:
    """The config that is named, or the only one here; none beside a model that a flag names."""
    from setup.config.file import not_files, read_config

    named = config or flags.model or flags.synthetic
    path = config if named else only_config(folder)
    for sentence in () if named else not_files(folder):
        console.warn(sentence)
    if path is None:
        return None
    _check_named(path)
    file = read_config(path)
    for warning in file.warnings:
        console.warn(warning)
    console.detail(f"config: {path}")
    return file


def _check_named(path: Path) -> None:
    """Raises for the usual slips: a model in place of a config, a name that is not there."""
    from setup.config.file import find_configs

    if path.suffix.lower() == ".gguf":
        raise ConfigError(f"{path}: is a model, not a config", f"strata run --model {path}")
    there = [] if path.exists() else [other.name for other in find_configs(path.parent)]
    if there:
        folder = "here" if path.parent == Path() else f"in {path.parent}"
        raise ConfigError(
            f"{path}: cannot be read: it does not exist",
            f"{folder} {'are' if len(there) > 1 else 'is'} {', '.join(there)}",
        )


def only_config(folder: Path) -> Path | None:
    """The config in `folder`, when there is just one; `ConfigError` when there are several."""
    from setup.config.file import find_configs

    found = find_configs(folder)
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ConfigError(
            f"there are {len(found)} configs here: {names}",
            f"name one of them, as in `strata run {found[0].name}`",
        )
    return found[0] if found else None
