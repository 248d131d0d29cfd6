"""Flags over the config file over the environment over a profile over the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.capabilities import THIS_VERSION, Capabilities
from engine.config import Decision, RunConfig
from engine.flags import flag_for
from engine.hardware import Gpu, Hardware
from engine.layer_split import parse_layer_split
from engine.model_info import ModelInfo
from engine.switches import run_of_switches, switch_decisions
from setup.config.file import ConfigFile, run_of

if TYPE_CHECKING:
    from setup.profiles import ProfileFill

_SPLIT = "--layer-split"


@dataclass(frozen=True, slots=True)
class Layered:
    """What was asked from all sides, and sentences about what a profile filled in or left."""

    run: RunConfig
    values: Mapping[str, Any]
    """The config file's keys, with a profile's where nobody else says anything."""
    notes: tuple[str, ...]
    decisions: tuple[Decision, ...] = ()
    """What becomes of the switches that are set."""


def layered(
    flags: RunConfig,
    file: ConfigFile | None,
    info: ModelInfo,
    hardware: Hardware,
    environment: Mapping[str, str],
    capabilities: Capabilities = THIS_VERSION,
) -> Layered:
    """Lays the sources over each other; `flags` are a command's, the model's path stays theirs.

    Raises `ConfigError` for a switch whose value cannot be used and for a layer split that does not
    suit the cards and the model.
    """
    values = {} if file is None else file.values
    fill = _fill(flags, values, info, hardware, environment, capabilities)
    notes = () if fill is None else (*((fill.text,) if fill.text else ()), *fill.left)
    if fill is not None:
        from setup.profiles import filled

        values = filled(values, fill)
    switches = {**environment, **values.get("env", {})}
    decisions = switch_decisions(switches)
    folder = Path() if file is None else file.path.parent
    where = "profile" if file is None else str(file.path)
    run = flags.over(run_of(values, folder, where)).over(run_of_switches(switches))
    split = _split(run, values, info.layers)
    if split is not None and _SPLIT not in dict(run.unused):
        run = replace(run, unused=(*run.unused, (_SPLIT, split)))
    return Layered(run, values, notes, decisions)


def said_by(flags: RunConfig) -> frozenset[str]:
    """The names of the engine flags, and of the config keys, that a command's flags set."""
    said = [
        f.name for f in fields(flags) if f.name != "unused" and getattr(flags, f.name) is not None
    ]
    names = {name for field in said for name in flag_for(field).names}
    keys = {"parallel"} if "slots" in said else set()
    return frozenset(names | keys | dict(flags.unused).keys())


def _fill(
    flags: RunConfig,
    values: Mapping[str, Any],
    info: ModelInfo,
    hardware: Hardware,
    environment: Mapping[str, str],
    capabilities: Capabilities,
) -> ProfileFill | None:
    """What the profile of the model's cards fills in; `None` when there is none."""
    cards = _cards(flags.device, values, hardware)
    if not cards:
        return None
    from setup.models.catalogue_info import row_of
    from setup.profiles import fill_for

    asked = said_by(flags)
    return fill_for(cards, row_of(info).key, values, environment, asked, capabilities)


def _cards(device: str | None, values: Mapping[str, Any], hardware: Hardware) -> tuple[Gpu, ...]:
    """The cards that the config names, in its order; all of its backend where it names none.

    None when the model runs on the CPU, or on the one card that a flag picks.
    """
    backend, gpu = values.get("backend"), values.get("gpu")
    if (device or backend) == "cpu" or ":" in (device or ""):
        return ()
    cards = [card for card in hardware.gpus if backend in (None, card.backend)]
    if gpu is None:
        return tuple(cards)
    numbers = gpu if isinstance(gpu, list) else [gpu]
    return tuple(card for number in numbers for card in cards if card.index == number)


def _split(run: RunConfig, values: Mapping[str, Any], layers: int) -> str | None:
    """The checked layer split of the flags, else of the config; `None` when nothing is to split.

    How many cards there are is the config's word: the check is the same on every machine.
    """
    asked = dict(run.unused).get(_SPLIT, values.get("layer_split"))
    gpu = values.get("gpu")
    cards = len(gpu) if isinstance(gpu, list) else 1
    if asked is None or cards < 2:
        return None
    points = parse_layer_split(asked, cards, layers)
    return "auto" if points is None else ",".join(map(str, points))
