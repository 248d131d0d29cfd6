"""The engine flags in a config's `args`, as pairs of a flag and what stands behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SAME_FLAG = {"--slots": "--batch"}
"""Second names of flags."""


def flag_pairs(config: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Each flag of `args` with its values, as words; `--name=value` is cut in two.

    A word behind a flag belongs to it unless it begins with `--`. `args` that are no list of texts
    give nothing.
    """
    args = config.get("args", [])
    if not isinstance(args, list):
        return ()
    pairs: list[list[str]] = []
    for word in (str(arg) for arg in args):
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
