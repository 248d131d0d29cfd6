"""How long a regular expression is when its repetitions are written out."""

from __future__ import annotations

import re

_PARTS = re.compile(
    r"\\(?:[pPxu]\{[^}]*\}|.)"  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a class of characters
    r"|(?P<open>\()|(?P<close>\))"
    r"|\{(?P<least>\d*)(?P<more>,?)(?P<most>\d*)\}"
    r"|[*+?|^$]|.",
    re.DOTALL,
)
_DIGITS = 9
_HUGE = 999_999_999


def regex_size(pattern: str) -> int:
    """Characters and classes of `pattern`, each as often as a counted repetition says (the larger
    count, and the smaller one where there is no larger), or `_HUGE`."""
    groups: list[int] = [0]
    last: int = 0
    for part in _PARTS.finditer(pattern):
        if part["open"]:
            groups.append(0)
            last = 0
        elif part["close"]:
            last = groups.pop() if len(groups) > 1 else 0
            groups[-1] += last
        elif part["more"] is not None:
            count = max(1, int((part["most"] or part["least"] or "1")[:_DIGITS]))
            groups[-1] += last * (count - 1)
            last = min(_HUGE, last * count)
        elif part[0] in "*+?|^$":
            continue
        else:
            last = 1
            groups[-1] += 1
    return min(sum(groups), _HUGE)
