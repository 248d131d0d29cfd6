"""What would change in a config, line by line, without its secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from setup.config_args import flag_pairs
from setup.config_keys import KEYS_BY_NAME

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS", re.IGNORECASE)
_HIDDEN = "(not shown)"


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
    return tuple(lines)


def shown(name: str, value: Any) -> str:
    """A value of the key `name` as JSON, or that it is not shown."""
    key = KEYS_BY_NAME.get(name)
    if (key is not None and key.secret) or _SECRET_NAME.search(name):
        return _HIDDEN
    return json.dumps(value, ensure_ascii=False)


_Entries = dict[tuple[str, ...], list[Any]]


def _entries(config: Mapping[str, Any]) -> _Entries:
    """The values behind each label: (key,), (key, entry) or ("args", flag).

    A label has several values when a flag stands more than once.
    """
    found: _Entries = {}
    for name, value in config.items():
        if name == "args" and isinstance(value, list):
            for pair in flag_pairs(config):
                found.setdefault((name, pair[0]), []).append(pair)
        elif isinstance(value, dict) and value:
            found |= {(name, str(entry)): [inner] for entry, inner in value.items()}
        else:
            found[(name,)] = [value]
    return found


def _lines(label: tuple[str, ...], entries: _Entries) -> list[str]:
    values = entries.get(label, [])
    if label[0] == "args" and len(label) == 2:
        return [f"args: {' '.join(pair)}" for pair in values]
    hidden = any(shown(name, "") == _HIDDEN for name in label)
    texts = [_HIDDEN if hidden else json.dumps(value, ensure_ascii=False) for value in values]
    return [f"{'.'.join(label)}: {text}" for text in texts]
