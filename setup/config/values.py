"""Checks values of the config file that have a table of their own: switches and sampling."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.inspect import FloatType, IntType

from engine.errors import ConfigError
from engine.server.sampling import SamplingFields
from engine.switches import SWITCHES, read_switches

_PREFIX = "STRATA_"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: ", did you mean X?", or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]}?" if near else ""


def check_environment(values: Mapping[str, str], where: str) -> tuple[str, ...]:
    """Warnings about `STRATA_*` names that no switch has.

    Raises `ConfigError` naming `where`, the switch, its value and what is allowed.
    """
    try:
        read_switches(values)
    except ConfigError as error:
        raise ConfigError(f"{where}: env: {error.message}", "mend it, or remove it") from None
    known = {switch.variable for switch in SWITCHES}
    return tuple(
        f"env {name!r} is not a switch of the engine{nearest(name, known)}"
        for name in values
        if name.upper().startswith(_PREFIX) and name not in known
    )


def check_sampling(values: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Warnings about names that no request has either.

    The ranges are those of `engine.server.sampling`. Raises `ConfigError` naming `where`, the
    field, its value and what is allowed.
    """
    known = {field: allowed_sampling(field) for field in SamplingFields.__struct_fields__}
    for name, value in values.items():
        if name in known and not _sound(name, value):
            raise ConfigError(
                f"{where}: sampling: {name} is {json.dumps(value)}, not {known[name]}",
                f"write {known[name]}, or remove {name}",
            )
    return tuple(
        f"sampling {name!r} is not known{nearest(name, known)}"
        for name in values
        if name not in known
    )


def allowed_sampling(name: str) -> str:
    """What a sampling field takes, in words."""
    kind = _TYPES[name]
    noun = "a whole number" if isinstance(kind, IntType) else "a number"
    low = f" above {kind.gt:g}" if kind.gt is not None else ""
    low = f" from {_written(kind.ge)}" if kind.ge is not None else low
    return f"{noun}{low}" + (f" to {_written(kind.le)}" if kind.le is not None else "")


def _written(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _number_type(name: str) -> IntType | FloatType:
    """The type of a field without its `None`."""
    info = msgspec.inspect.type_info(SamplingFields)
    assert isinstance(info, msgspec.inspect.StructType)
    union = next(field.type for field in info.fields if field.name == name)
    assert isinstance(union, msgspec.inspect.UnionType)
    return next(kind for kind in union.types if isinstance(kind, IntType | FloatType))


_TYPES = {name: _number_type(name) for name in SamplingFields.__struct_fields__}


def _sound(name: str, value: Any) -> bool:
    """Whether the server takes it. `null` is not a number here: a key that says nothing is left
    out."""
    try:
        msgspec.convert({name: value}, SamplingFields)
    except msgspec.ValidationError:
        return False
    return value is not None
