"""The profile of a machine, and what of it may be filled in: what the person said always wins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.capabilities import Capabilities
from engine.errors import ConfigError
from engine.hardware import Gpu
from setup.config.args import flag_pairs, word_pairs
from setup.profile_file import Match, Profile, profile_folder, read_profile

# What the person may have said of a setting in other words.
_OTHER_WORDS: Mapping[str, tuple[str, ...]] = {
    "parallel": ("--parallel", "--batch", "--slots"),
    "layer_split": ("--layer-split",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFill:
    """What a profile fills in: keys of the config, switches, engine flags.

    `left` has a sentence for each setting that stays as the person said, or for why nothing is
    filled in.
    """

    name: str
    config: Mapping[str, Any]
    env: Mapping[str, str]
    args: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def text(self) -> str:
        """What is filled in, in one sentence; empty: nothing is."""
        words = [f"{key} {value}" for key, value in self.config.items()]
        words += [" ".join(pair) for pair in word_pairs(self.args)]
        words += [f"{variable}={value}" for variable, value in self.env.items()]
        return f"profile {self.name} sets {', '.join(words)}" if words else ""


@cache
def load_profiles(folder: Path | None = None) -> tuple[Profile, ...]:
    """All profiles, by name. Raises what `read_profile` raises, and for two of one name."""
    paths = sorted((folder or profile_folder()).glob("*.toml"))
    found = tuple(read_profile(path) for path in paths)
    for path, profile in zip(paths, found, strict=True):
        if path.stem != profile.name:
            raise ConfigError(f"{path}: 'name' is {profile.name!r}, not the file's name")
    return found


def matching_profile(
    profiles: Sequence[Profile], hardware_cards: Sequence[Gpu], row_key: str
) -> Profile | None:
    """The profile of these cards (all that the model runs on) and this model, if there is one.

    `ConfigError` when two profiles match: which one was meant cannot be told.
    """
    found = [p for p in profiles if _matches(p.match, hardware_cards, row_key)]
    if len(found) > 1:
        names = " and ".join(profile.name for profile in found)
        raise ConfigError(f"profiles {names} match the same machine with {row_key}")
    return found[0] if found else None


def _matches(match: Match, cards: Sequence[Gpu], row_key: str) -> bool:
    return (
        len(cards) == match.count
        and row_key.casefold() in map(str.casefold, match.models)
        and all(
            card.vendor == match.vendor
            and card.arch == match.arch
            and match.name.casefold() in card.name.casefold()
            and card.vram_gib >= match.least_gib
            for card in cards
        )
    )


def profile_fills(
    profile: Profile,
    config: Mapping[str, Any],
    environment: Mapping[str, str],
    asked: Collection[str] = (),
) -> ProfileFill:
    """What the profile sets that nobody else has.

    `config` is the person's config, `environment` that of the process, `asked` the settings said by
    flags of the command: names of config keys (`parallel`), of engine flags (`--prefill`) or of
    switches. A config key that asks for `auto`, and `--prefill auto`, leave the choice open. What
    has the profile's value is filled in again: setup wrote it, and writes its keys anew.
    """
    args = _said_flags(config)
    refusal = _refusal(profile, config, environment, {*asked, *args})
    if refusal:
        return ProfileFill(name=profile.name, config={}, env={}, args=(), left=(refusal,))
    places = (config.get("env") or {}, environment)
    said = {
        **{key: _said_key(key, v, config, args, asked) for key, v in profile.settings.items()},
        **{flag: _said_flag(flag, v, args, asked) for flag, v in profile.args.items()},
        **{name: _said_variable(name, v, places, asked) for name, v in profile.env.items()},
    }
    for flag, setting in profile.together.items():
        if said[setting] and not said[flag]:
            said[flag] = f"the engine chooses, because {setting} stays"
    wanted = {**profile.settings, **profile.args, **profile.env}
    return ProfileFill(
        name=profile.name,
        config={key: value for key, value in profile.settings.items() if not said[key]},
        env={name: value for name, value in profile.env.items() if not said[name]},
        args=tuple(w for pair in profile.args.items() if not said[pair[0]] for w in pair),
        left=tuple(
            f"{name}: {by}; profile {profile.name} would set {wanted[name]}"
            for name, by in said.items()
            if by
        ),
    )


def fill_for(
    cards: Sequence[Gpu],
    row_key: str,
    config: Mapping[str, Any],
    environment: Mapping[str, str],
    asked: Collection[str],
    capabilities: Capabilities,
) -> ProfileFill | None:
    """The fill of the matching profile, empty with a note where this version lacks what it needs;
    nothing where no profile matches. Setup and `run` share it."""
    profile = matching_profile(load_profiles(), cards, row_key)
    if profile is None:
        return None
    missing = profile.missing(capabilities)
    if missing:
        note = f"profile {profile.name} is not used: {missing}"
        return ProfileFill(name=profile.name, config={}, env={}, args=(), left=(note,))
    return profile_fills(profile, config, environment, asked)


def filled(config: Mapping[str, Any], fill: ProfileFill) -> dict[str, Any]:
    """The config with the fill in it. Flags go to the end of `args`, where the last one counts."""
    result = {**config, **fill.config}
    if fill.env:
        result["env"] = {**(config.get("env") or {}), **fill.env}
    words = [str(word) for word in config.get("args") or ()]
    there = _said_flags(config)
    new = [pair for pair in word_pairs(fill.args) if there.get(pair[0]) != " ".join(pair[1:])]
    if new:
        result["args"] = [*words, *(word for pair in new for word in pair)]
    return result


def _refusal(
    profile: Profile, config: Mapping[str, Any], environment: Mapping[str, str], flags: set[str]
) -> str:
    """Why nothing is filled in; empty: it may be."""
    switch, key = profile.opt_out_switch, profile.opt_out_key
    for where in (environment, config.get("env") or {}):
        text = where.get(switch.variable)
        if text and not switch.read(text):
            return f"profile {profile.name} is not used: {switch.variable}={text}"
    if config.get(key) is False:
        return f"profile {profile.name} is not used: {key} is false"
    for flag in profile.not_with:
        if flag in flags:
            return f"profile {profile.name} is not used: it does not go with {flag}"
    return ""


def _said_key(
    key: str,
    wanted: object,
    config: Mapping[str, Any],
    args: Mapping[str, str],
    asked: Collection[str],
) -> str:
    """By what a config key is set to something else than `wanted`; empty: by nothing."""
    for word in (key, *_OTHER_WORDS.get(key, ())):
        if word in asked:
            return "asked by a flag"
        if word in args:
            return f"{word} {args[word]} in args"
    value = config.get(key)
    if isinstance(value, str) and value.strip().casefold() in ("", "auto"):
        return ""
    return "" if value in (None, wanted) else f"{value} in the config"


def _said_flag(flag: str, wanted: str, args: Mapping[str, str], asked: Collection[str]) -> str:
    if flag in asked:
        return "asked by a flag"
    value = args.get(flag)
    return "" if value in (None, wanted, "auto") else f"{value} in args"


def _said_variable(
    name: str, wanted: str, places: Sequence[Mapping[str, str]], asked: Collection[str]
) -> str:
    if name in asked:
        return "asked by a flag"
    value = next((place[name] for place in places if place.get(name)), "")
    return "" if value in ("", wanted) else f"{value} in the environment"


def _said_flags(config: Mapping[str, Any]) -> dict[str, str]:
    """Engine flags in `args` with their values; a flag without one has an empty value."""
    return {flag: " ".join(values) for flag, *values in flag_pairs(config)}
