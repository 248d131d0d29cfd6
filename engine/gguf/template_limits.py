"""What a chat template may use up, and the checks that keep one operation from using up more.

A template comes with the model file, so it is a stranger's program. The sandbox of Jinja keeps it
away from Python; these limits keep it from hanging the server or filling its memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import TemplateError

_MOST_BITS = 10_000
_MOST_FILTER_NUMBER = 10_000
# Widths of five digits or taken from an argument, in `%` and in brace formats.
_WIDE_PERCENT = re.compile(r"%(\([^)]*\))?[^%a-zA-Z]*(\*|\d{5})")
_WIDE_BRACE = re.compile(r"\{[^}]*:[^}]*(\{|\d{5})")


@dataclass(frozen=True, slots=True)
class Limits:
    """`characters` of the result and of any value on the way, `seconds` for one rendering."""

    characters: int = 8_000_000
    seconds: float = 10.0

    def check(self, size: int) -> None:
        """Raises TemplateError where a value of `size` characters or items is too large."""
        if size > self.characters:
            raise TemplateError(
                f"the chat template makes a text or list of more than {self.characters} characters",
                hint="Shorten the messages, or use a model file whose template is sound.",
            )

    def check_value(self, value: Any) -> Any:
        """`value` itself. Counts nested items too: a list that holds itself twice, made forty
        times, is small in memory and endless in print."""
        if isinstance(value, str):
            self.check(len(value))
        elif isinstance(value, Mapping | list | tuple):
            self._check_nested(value)
        return value

    def _check_nested(self, value: Any) -> None:
        size, stack = 0, [value]
        while stack:
            item = stack.pop()
            size += 1 + (len(item) if isinstance(item, str | Mapping | list | tuple) else 0)
            self.check(size)
            if isinstance(item, Mapping):
                stack.extend(item)
                stack.extend(item.values())
            elif isinstance(item, list | tuple):
                stack.extend(item)

    def check_binop(self, operator: str, left: Any, right: Any) -> None:
        """Raises TemplateError for an operator whose result would be too large."""
        if operator == "%" and isinstance(left, str):
            self.check_format(left, right)
        elif operator == "+" and isinstance(left, str | list | tuple):
            self.check_value([left, right])
        elif operator == "*":
            for a, b in ((left, right), (right, left)):
                if isinstance(a, str | list | tuple) and isinstance(b, int):
                    self.check(len(a) * b)
        if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else left.bit_length()
            if bits + right.bit_length() > _MOST_BITS:
                raise TemplateError("the chat template computes with a number that is too large")

    def check_format(self, text: str, values: Any) -> None:
        """Checks both `text % values` and `text.format(*values)`."""
        if _WIDE_PERCENT.search(text) or _WIDE_BRACE.search(text):
            raise TemplateError("the chat template formats a text with a width that is too large")
        places = text.count("%") + text.count("{")
        self.check_value(values)
        self.check(len(text) + places * len(str(values)))

    def check_text_call(self, name: str, text: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Checks `text.name(*args)`, also for the filters of these names. Returns the arguments,
        with an iterator among them replaced by its list."""
        if name == "replace" and len(args) > 1:
            self.check(len(text) + text.count(str(args[0])) * len(str(args[1])))
        elif name == "join" and args:
            items = list(args[0])
            self.check_value(items)
            self.check(sum(len(str(item)) for item in items) + len(text) * len(items))
            return (items, *args[1:])
        elif any(isinstance(arg, int) and arg > self.characters for arg in args):
            self.check(self.characters + 1)
        return args

    def check_filter(self, name: str, value: Any, args: Iterable[Any]) -> None:
        """Raises TemplateError for a filter whose result would be too large."""
        args = tuple(args)
        for arg in args:
            if isinstance(arg, int) and abs(arg) > _MOST_FILTER_NUMBER and name in _SIZED_BY_NUMBER:
                raise TemplateError(f"the chat template calls {name} with {arg}")
        if name in ("string", "tojson", "upper", "lower", "trim", "title", "indent"):
            self.check_value(value)
        if name == "indent" and args and isinstance(value, str):
            width = args[0] if isinstance(args[0], int) else len(str(args[0]))
            self.check(len(value) + value.count("\n") * width)
        elif name == "format":
            self.check_format(str(value), args)
        elif name == "replace":
            self.check_text_call(name, str(self.check_value(value)), args)


_SIZED_BY_NUMBER = frozenset({"batch", "center", "indent", "round", "slice", "tojson"})


class Budget:
    """What one rendering has used so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._end_s = time.monotonic() + limits.seconds
        self._characters = 0

    def _tick(self) -> None:
        if time.monotonic() > self._end_s:
            raise TemplateError(
                f"the chat template ran longer than {self._limits.seconds:g} s",
                hint="Shorten the messages, or use a model file whose template is sound.",
            )

    def _emit(self, characters: int) -> None:
        self._tick()
        self._characters += characters
        self._limits.check(self._characters // _MOST_PASSES)


# Text that passes through macros is put out once per macro.
_MOST_PASSES = 4
