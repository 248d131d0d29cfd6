"""How busy the cards of this machine are while something runs."""

from __future__ import annotations

import threading
from typing import Any

_EVERY_S = 0.1


class GpuUse:
    """A context in which NVML is asked, ten times a second; `share` is the mean over all cards, or
    `None` where no card answers (the server may be elsewhere)."""

    def __init__(self) -> None:
        self._found: list[float] = []
        self._over = threading.Event()
        self._asking = threading.Thread(target=self._ask, daemon=True)

    @property
    def share(self) -> float | None:
        """From 0 to 1."""
        return sum(self._found) / len(self._found) if self._found else None

    def __enter__(self) -> GpuUse:
        self._asking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._asking.join()

    def _ask(self) -> None:
        import pynvml

        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            cards: list[Any] = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
            while not self._over.wait(_EVERY_S):
                shares = [pynvml.nvmlDeviceGetUtilizationRates(card).gpu for card in cards]
                if shares:
                    self._found.append(sum(shares) / len(shares) / 100)
        except pynvml.NVMLError:
            return
