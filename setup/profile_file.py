"""A profile: settings measured on one kind of machine, from `profiles/machines/*.toml`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import profiles
from engine.capabilities import FEATURES, Capabilities
from engine.errors import ConfigError
from engine.flags import parse_engine_args
from engine.switches import SWITCHES, Switch
from setup.config.keys import CONFIG_KEYS
from setup.toml_table import Kind, checked, read_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The machines and models of a profile: exactly so many cards, all of one kind."""

    count: int
    vendor: str
    name: str
    """Stands in the name of each card, upper or lower case."""
    arch: str
    least_gib: float
    """Memory of each card."""
    models: tuple[str, ...]
    """Keys of the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measurement, without the profile's settings and with them."""

    what: str
    unit: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.what}: {self.before:g} -> {self.after:g} {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile. `settings` are keys of the config, `args` engine flags, `env` switches."""

    name: str
    text: str
    match: Match
    settings: Mapping[str, Any]
    args: Mapping[str, str]
    env: Mapping[str, str]
    together: Mapping[str, str]
    """A flag that is filled in only together with a setting."""
    needs: tuple[str, ...]
    """Features of the engine without which it fills in nothing."""
    not_with: tuple[str, ...]
    """Engine flags beside which it fills in nothing."""
    opt_out_key: str
    """A key of the config: `false` turns the profile off."""
    opt_out_variable: str
    """A switch: `0` turns the profile off."""
    evidence: tuple[Evidence, ...]
    source: str

    def missing(self, capabilities: Capabilities) -> str:
        """What it needs and the engine lacks: "this version cannot ..."; empty: nothing."""
        lacks = (capabilities.missing(need) for need in self.needs if not capabilities.has(need))
        return next(lacks, "")

    @property
    def opt_out_switch(self) -> Switch:
        """The switch of `opt_out_variable`."""
        return _SWITCHES[self.opt_out_variable]


_REQUIRED: Mapping[str, Kind] = {
    "name": "text",
    "text": "text",
    "match": "table",
    "settings": "table",
    "args": "table",
    "env": "table",
    "together": "table",
    "needs": "texts",
    "not_with": "texts",
    "opt_out_key": "text",
    "opt_out_variable": "text",
    "evidence": "tables",
    "source": "text",
}
_MATCH: Mapping[str, Kind] = {
    "count": "whole",
    "vendor": "text",
    "name": "text",
    "arch": "text",
    "least_gib": "number",
    "models": "texts",
}
_EVIDENCE: Mapping[str, Kind] = {
    "what": "text",
    "unit": "text",
    "before": "number",
    "after": "number",
}
_SWITCHES = {switch.variable: switch for switch in SWITCHES}
_KEYS = {key.name: key for key in CONFIG_KEYS}
_FEATURES = frozenset(feature.name for feature in FEATURES)


def profile_folder() -> Path:
    """Where the profiles lie that come with Strata."""
    return Path(profiles.__file__).parent / "machines"


def read_profile(path: Path) -> Profile:
    """The profile in a file. `ConfigError` names the file and the key of any fault: an unknown or
    missing key, a wrong type, a setting, flag, switch or feature that the engine does not know."""
    where = str(path)
    values = checked(read_toml(path), _REQUIRED, {}, where)
    values["match"] = Match(**checked(values["match"], _MATCH, {}, f"{where}: match"))
    values["evidence"] = tuple(
        Evidence(**checked(record, _EVIDENCE, {}, f"{where}: evidence[{i}]"))
        for i, record in enumerate(values["evidence"])
    )
    profile = Profile(**values)
    _check_settings(profile, where)
    _check_args(profile, where)
    _check_env(profile, where)
    _check_rest(profile, where)
    return profile


def _check_settings(profile: Profile, where: str) -> None:
    for key, value in profile.settings.items():
        known = _KEYS.get(key)
        if known is None:
            raise ConfigError(f"{where}: settings: {key!r} is not a key of the config")
        if not known.check(value):
            said = json.dumps(value, default=str)
            raise ConfigError(f"{where}: settings: {key} is {said}, not {known.allowed}")


def _check_args(profile: Profile, where: str) -> None:
    for flag, value in profile.args.items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}: args: {flag} is {value!r}, not a text")
        parse_engine_args([flag, value], f"{where}: args:")
    for flag, key in profile.together.items():
        if flag not in profile.args or key not in profile.settings:
            raise ConfigError(f"{where}: together: {flag!r} with {key!r}: one is not set above")


def _check_env(profile: Profile, where: str) -> None:
    for variable, value in profile.env.items():
        if variable not in _SWITCHES or not isinstance(value, str):
            raise ConfigError(f"{where}: env: {variable} = {value!r} is not a switch and a text")
        try:
            _SWITCHES[variable].read(value)
        except ConfigError as error:
            raise ConfigError(f"{where}: env: {error.message}") from None


def _check_rest(profile: Profile, where: str) -> None:
    for need in profile.needs:
        if need not in _FEATURES:
            raise ConfigError(f"{where}: needs: {need!r} is not a feature of the engine")
    if profile.opt_out_variable not in _SWITCHES:
        raise ConfigError(f"{where}: 'opt_out_variable' is {profile.opt_out_variable!r}, no switch")
    if profile.opt_out_key not in _KEYS:
        raise ConfigError(f"{where}: 'opt_out_key' is {profile.opt_out_key!r}, no config key")
    if not profile.match.count or not profile.match.models or not profile.evidence:
        raise ConfigError(f"{where}: 'count', 'models' or 'evidence' is empty")
