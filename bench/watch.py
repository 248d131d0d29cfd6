"""Something that is asked again and again while something else runs: how busy cards are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from glob import glob
from typing import TYPE_CHECKING, Any

from engine.system_files import Reader, read_system_file, whole

if TYPE_CHECKING:
    import httpx

GPU_EVERY_S = 0.1
_HERE = ("127.0.0.1", "localhost", "::1")
_AMD_BUSY = "/sys/class/drm/card*/device/gpu_busy_percent"


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

    @property
    def mean(self) -> float | None:
        """Of all answers; `None` where there is none."""
        return sum(self.found) / len(self.found) if self.found else None

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            answer = self._ask()
            if answer is None:
                return
            self.found.append(answer)


AskGpu = Callable[[], float | None]


def gpu_of(http: httpx.Client, progress: Callable[[str], None]) -> AskGpu:
    """What tells how busy the card of a server is, as `gpu_share` does. Of a server on another
    machine, and where no driver answers, that is not known, which `progress` hears once."""
    if http.base_url.host not in _HERE:
        progress("GPU utilisation: not known, the server is on another machine")
    elif gpu_share() is None:
        progress("GPU utilisation: not known, no driver of a card tells it here")
    else:
        return gpu_share
    return lambda: None


def gpu_share() -> float | None:
    """How busy the busiest of this machine's cards is, from 0 to 1; `None` where none answers."""
    return max([*_nvidia_shares(), *amd_shares(glob(_AMD_BUSY), read_system_file)], default=None)


def amd_shares(paths: Sequence[str], read: Reader) -> list[float]:
    """Of AMD cards, whose driver writes per cent into these files."""
    counted = (whole(read(path)) for path in paths)
    return [min(100, count) / 100 for count in counted if count is not None]


def _nvidia_shares() -> list[float]:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        cards: list[Any] = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        return [pynvml.nvmlDeviceGetUtilizationRates(card).gpu / 100 for card in cards]
    except pynvml.NVMLError:
        return []
