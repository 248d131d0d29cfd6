"""Parts of a model that do the same with other numbers, such as blocks of one kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import fields, is_dataclass
from typing import TypeVar

import torch

T = TypeVar("T")


def one_of_each(parts: Iterable[T]) -> tuple[T, ...]:
    """The first part of each kind, in order."""
    found: dict[Hashable, T] = {}
    for part in parts:
        found.setdefault(kind_of(part), part)
    return tuple(found.values())


def kind_of(thing: object, within: tuple[int, ...] = ()) -> Hashable:
    """Equal for things that differ in the numbers of tensors only. within: what is looked at."""
    if isinstance(thing, torch.Tensor):
        return thing.shape, thing.stride(), thing.dtype
    if isinstance(thing, str | int | float | None):
        return thing
    if id(thing) in within:
        return None
    parts: Iterable[object] = ()
    if isinstance(thing, tuple | list):
        parts = thing
    elif is_dataclass(thing):
        parts = (getattr(thing, field.name) for field in fields(thing))
    elif hasattr(thing, "__dict__"):
        parts = vars(thing).values()
    inside = (*within, id(thing))
    return type(thing), *(kind_of(part, inside) for part in parts)
