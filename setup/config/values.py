"""Checks values of the config file that have a table of their own: switches and sampling."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.inspect import FloatType, IntType

from engine.errors import ConfigError
from engine.server.sampling import SamplingFields
from engine.switches import API_KEY_VARIABLE, SWITCHES, read_switches

_PREFIX = "STRATA_"


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of a sentence about an unknown name: ", did you mean X?", or nothing. `prefix` is
    what all names begin with, and neither `name` nor `known` has here."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {prefix}{near[0]}?" if near else ""


def told_names(
    names: Iterable[str], tell: Callable[[str], str], what: str, most: int = 20
) -> tuple[str, ...]:
    """A sentence for each unknown name, and one for all after the first `most`: a damaged config
    may have very many, and to look for what is nearest takes its time."""
    unknown = list(names)
    told = tuple(tell(name) for name in unknown[:most])
    more = len(unknown) - len(told)
    return (*told, f"{more} more {what} are not known") if more else told


def check_environment(values: Mapping[str, str], where: str) -> tuple[str, ...]:
    """Warnings about `STRATA_*` names that no switch has.

    Raises `ConfigError` naming `where`, the switch, its value and what is allowed.
    """
    try:
        read_switches(values)
    except ConfigError as error:
        raise ConfigError(f"{where}: env: {error.message}", "mend it, or remove it") from None
    known = {switch.variable for switch in SWITCHES}
    unknown = (n for n in values if n.upper().startswith(_PREFIX) and n not in known)
    return told_names(unknown, _unknown_switch, "names of env")


def _unknown_switch(name: str) -> str:
    """The warning about a name that no switch has; all begin alike, so the rest is compared."""
    if name.upper() == API_KEY_VARIABLE:
        return (
            f"env {name!r} has no effect in the config: write the key as api_key, or set "
            f"{API_KEY_VARIABLE} in the environment of `strata run`"
        )
    near = nearest(name.upper().removeprefix(_PREFIX), (s.name for s in SWITCHES), _PREFIX)
    return f"env {name!r} is not a switch of the engine{near}"


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
    return told_names(
        (name for name in values if name not in known),
        lambda name: f"sampling {name!r} is not known{nearest(name, known)}",
        "names of sampling",
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
