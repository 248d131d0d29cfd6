"""How far two lists of token ids are the same."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCK = 512
"""Ids that are compared at once, which takes much less time than one after another."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = min(len(a), len(b))
    for start in range(0, length, _BLOCK):
        left, right = list(a[start : start + _BLOCK]), list(b[start : start + _BLOCK])
        if left != right:
            pairs = enumerate(zip(left, right, strict=False))
            same = min(len(left), len(right))
            return start + next((i for i, (one, other) in pairs if one != other), same)
    return length
