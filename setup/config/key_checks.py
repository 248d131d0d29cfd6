"""What a value of the config file may be: small checks that the table of keys is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Check = Callable[[Any], bool]


def whole(low: int, high: int | None = None) -> Check:
    """A whole number in a range; true and false are none."""

    def check(value: Any) -> bool:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and value >= low and (high is None or value <= high)

    return check


def number(low: float) -> Check:
    """A number from `low`."""
    return lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v >= low


def flag(value: Any) -> bool:
    """True or false."""
    return isinstance(value, bool)


def text(value: Any) -> bool:
    """A text with something in it, and no character that breaks a line or a header, or is half of
    one."""
    return path(value) and not any("\ud800" <= character <= "\udfff" for character in value)


def path(value: Any) -> bool:
    """The same; what Python makes of bytes that are no text may be in it, for paths have any."""
    if not isinstance(value, str) or not value.strip() or _has_control(value):
        return False
    return not any(
        "\ud800" <= character < "\udc80" or "\udcff" < character <= "\udfff" for character in value
    )


def api_key(value: Any) -> bool:
    """Keys separated by commas, none of them empty."""
    return text(value) and all(part.strip() for part in value.split(","))


def texts(value: Any) -> bool:
    """A list of texts."""
    return isinstance(value, list) and all(map(text, value))


def arguments(value: Any) -> bool:
    """A list of texts as a program takes them; an empty one is a text, too."""
    return isinstance(value, list) and all(isinstance(v, str) and "\0" not in v for v in value)


def text_or_texts(value: Any) -> bool:
    """A text or a list of texts."""
    return text(value) or texts(value)


def mapping(value: Any) -> bool:
    """An object."""
    return isinstance(value, dict)


def mapping_or_flag(value: Any) -> bool:
    """An object, or true or false."""
    return mapping(value) or flag(value)


def environment(value: Any) -> bool:
    """Texts by name, as an environment takes them."""
    return isinstance(value, dict) and all(
        name and "=" not in name and "\0" not in name and isinstance(v, str) and "\0" not in v
        for name, v in value.items()
    )


def gpu(value: Any) -> bool:
    """A number of a card, or a list of different ones."""
    indices = value if isinstance(value, list) else [value]
    return bool(indices) and all(map(whole(0), indices)) and len(set(indices)) == len(indices)


def split(value: Any) -> bool:
    """The shape of a layer split; `engine.layer_split` checks it against cards and layers."""
    if isinstance(value, list):
        return all(map(whole(0), value))
    return value is None or isinstance(value, str) or whole(0)(value)


def one_of(*names: Any) -> Check:
    """One of some values, of the same type."""
    return lambda value: any(value == name and type(value) is type(name) for name in names)


def _has_control(value: str) -> bool:
    return any(character < " " or "\x7f" <= character <= "\x9f" for character in value)
