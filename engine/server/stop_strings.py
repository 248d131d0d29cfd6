"""Ends an answer at a stop string, wherever the borders of the tokens lie."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text through and holds back what may be the beginning of a stop string.

    Of several stop strings the one that is complete first counts, and of those that end at the same
    character the longest, so the result does not depend on how the text is cut into pieces. The
    stop string itself is never passed on.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.hit: str | None = None
        """The stop string that was found; nothing passes after it."""

    def push(self, text: str) -> str:
        """The part of the text so far that is certain not to belong to a stop string."""
        if self.hit is not None:
            return ""
        text = self._held + text
        found = [(text.find(stop), stop) for stop in self._stops]
        ends = [(start + len(stop), start, stop) for start, stop in found if start >= 0]
        if ends:
            _, start, self.hit = min(ends)
            self._held = ""
            return text[:start]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, now that nothing follows it."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
