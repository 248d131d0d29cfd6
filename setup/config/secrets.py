"""Which parts of a config are secret, and the config as it may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from setup.config.keys import KEYS_BY_NAME

HIDDEN = "(not shown)"
"""Stands in place of a secret."""

_SECRET_NAME = re.compile(
    r"(?:^|[_. -])(?:key|api_?keys?|token|secrets?|pass|password|passwd|passphrase|pwd"
    r"|credentials?|auth|authorization|bearer|cookie)$",
    re.IGNORECASE,
)
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str) -> bool:
    """Whether the value of a key, an entry or a flag is secret.

    By the table of keys; of other names by how such things are called.
    """
    key = KEYS_BY_NAME.get(name)
    if key is not None:
        return key.secret
    return bool(_SECRET_NAME.search(_WORD_START.sub("_", name.lstrip("-"))))


def shown_words(words: list[str]) -> list[str]:
    """Words of a command line; what follows a flag with a secret is hidden, up to the next flag."""
    shown = []
    secret = False
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            secret = is_secret(flag)
            shown.append(f"{flag}={HIDDEN}" if secret and equals and value else word)
        else:
            shown.append(HIDDEN if secret else word)
    return shown


def shown_value(name: str, value: Any) -> Any:
    """The value of the key, entry or flag `name` without its secrets."""
    if is_secret(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return shown_config(value)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shown_words(value)
    if isinstance(value, list):
        return [shown_value("", item) for item in value]
    if isinstance(value, str) and "--" in value:
        return " ".join(shown_words(value.split(" ")))
    return value


def shown_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config, or an object in it, without its secrets."""
    return {str(name): shown_value(str(name), value) for name, value in config.items()}
