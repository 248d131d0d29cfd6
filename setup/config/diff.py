"""What would change in a config, line by line, without its secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from setup.config.args import flag_pairs
from setup.config.secrets import HIDDEN, is_secret, shown_value, shown_words


def config_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """`- key: value` for what goes and `+ key: value` for what comes, in the order of `new`.

    Each engine flag and each entry of an object has its own line. A secret that changes gets its
    lines without its value. Empty when nothing changes.
    """
    before, after = _entries(old), _entries(new)
    lines = []
    for label in dict.fromkeys((*after, *before)):
        if before.get(label) != after.get(label):
            lines += [f"- {line}" for line in _lines(label, before)]
            lines += [f"+ {line}" for line in _lines(label, after)]
    return tuple(map(_printable, lines))


def shown(name: str, value: Any) -> str:
    """A value of the key or entry `name` as JSON, or that it is not shown."""
    if is_secret(name):
        return HIDDEN
    return _printable(json.dumps(shown_value(name, value), ensure_ascii=False))


def shown_pair(pair: tuple[str, ...]) -> str:
    """An engine flag with its values, as it may be shown."""
    return " ".join(shown_words(list(pair)))


def _printable(text: str) -> str:
    """Half a surrogate pair, which JSON may hold and no terminal takes, as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


class _Flag(str):
    """The name of an engine flag, as a label."""

    __slots__ = ()


_Entries = dict[tuple[str, ...], list[Any]]


def _entries(config: Mapping[str, Any]) -> _Entries:
    """The values behind each label: (key,), (key, entry) or (args, flag).

    A label has several values when a flag stands more than once.
    """
    found: _Entries = {}
    for name, value in config.items():
        if name == "args" and isinstance(value, list):
            for pair in flag_pairs(config):
                found.setdefault((name, _Flag(pair[0])), []).append(pair)
        elif isinstance(value, dict) and value:
            found |= {(name, str(entry)): [inner] for entry, inner in value.items()}
        else:
            found[(name,)] = [value]
    return found


def _lines(label: tuple[str, ...], entries: _Entries) -> list[str]:
    name, inner = label[0], label[-1]
    if isinstance(inner, _Flag):
        return [f"args: {shown_pair(pair)}" for pair in entries.get(label, [])]
    shown_as = name if is_secret(name) else inner
    return [f"{'.'.join(label)}: {shown(shown_as, value)}" for value in entries.get(label, [])]
