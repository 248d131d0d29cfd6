"""Something that is asked again and again while something else runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Watch:
    """A context in which a thread asks every `every_s` seconds; `found` are the answers in their
    order. `None` ends it: there is nothing to ask."""

    def __init__(self, ask: Callable[[], float | None], every_s: float) -> None:
        self.found: list[float] = []
        self._ask, self._every_s = ask, every_s
        self._over = threading.Event()
        self._asking = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._asking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._asking.join()

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            answer = self._ask()
            if answer is None:
                return
            self.found.append(answer)


def gpu_share() -> float | None:
    """How busy this machine's cards are, from 0 to 1, on average; `None` where none answers."""
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        cards: list[Any] = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        shares = [pynvml.nvmlDeviceGetUtilizationRates(card).gpu for card in cards]
    except pynvml.NVMLError:
        return None
    return sum(shares) / len(shares) / 100 if shares else None
