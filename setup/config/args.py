"""The engine flags in a config's `args`, as pairs of a flag and what stands behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SAME_FLAG = {"--slots": "--batch"}
"""Second names of flags."""


def flag_pairs(config: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """`word_pairs` of `args`; `args` that are no list give nothing."""
    args = config.get("args", [])
    return word_pairs([str(arg) for arg in args]) if isinstance(args, list) else ()


def word_pairs(words: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Each flag with its values, as words; `--name=value` is cut in two.

    A word behind a flag belongs to it unless it begins with `--`.
    """
    pairs: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            pairs.append([part for part in word.split("=", 1) if part])
        elif pairs:
            pairs[-1].append(word)
        else:
            pairs.append([word])
    return tuple(map(tuple, pairs))


def flag_name(pair: tuple[str, ...]) -> str:
    """The flag of a pair by its first name."""
    return SAME_FLAG.get(pair[0], pair[0])
