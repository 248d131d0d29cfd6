"""An engine process with the toy model: `python -m tests.engine.toy_engine [MOOD ...]`.

Moods: `ends` (token 58 ends an answer), `nan` (token 59 makes its row's logits NaN), `broken`
(token 60 fails its window), `slow` (token 60 sleeps for a minute), `trace` (a log line for each
admission), `experts` (some lie elsewhere), `parks` (conversations that lose their slot), `words`
(its tokens are JSON's), `refused` (the model cannot be loaded), `gate=FD` (every window first takes
a byte from the file descriptor).
"""

import os
import sys
import time
from collections.abc import Callable

from engine.constraints import Constraints
from engine.engine import Engine, EngineOptions
from engine.errors import ModelFileError
from engine.logits import HostLogits
from engine.memory import MIB
from engine.parking import ParkingLimits
from engine.process import Loaded, run_process
from engine.window import Window
from tests.engine.toy_pipeline import VOCAB, ToyPipeline
from tests.engine.toy_words import ToyWords

CONTEXT = 400
EOS = 58
TURN = 3
PARKING_BYTES = 8 * MIB


class Moody(ToyPipeline):
    """Prints where it should not, and has moods."""

    def __init__(self, moods: set[str]) -> None:
        super().__init__(slots=2, max_context=CONTEXT, fail_on=59 if "nan" in moods else None)
        self._moods = moods
        gates = [int(mood.removeprefix("gate=")) for mood in moods if mood.startswith("gate=")]
        self._gate = gates[0] if gates else None

    def forward(self, window: Window) -> Callable[[], HostLogits]:
        print("a stray line")
        if self._gate is not None:
            os.read(self._gate, 1)
        if any(60 in span.tokens for span in window.spans):
            if "slow" in self._moods:
                time.sleep(60)
            if "broken" in self._moods:
                raise RuntimeError("layer 3 timed out")
        return super().forward(window)


def load(moods: set[str]) -> Loaded:
    """An engine with two slots, drafts and small chunks."""
    if "refused" in moods:
        raise ModelFileError("model.gguf is not a GGUF", "name a GGUF file")
    options = EngineOptions(
        eos_ids=frozenset({EOS} if "ends" in moods else ()),
        turn_ids=frozenset({TURN}),
        chunk=8,
        spec=3,
        checkpoint_every=0,
        few_tokens=4,
        parking=ParkingLimits(size_bytes=PARKING_BYTES * ("parks" in moods), least_tokens=4),
    )
    constraints = Constraints(ToyWords(), VOCAB) if "words" in moods else None
    engine = Engine(Moody(moods), options, constraints)

    def experts() -> tuple[int, int]:
        return 3 * engine.work.windows, engine.work.windows

    counts = experts if "experts" in moods else None
    return Loaded(engine, CONTEXT, {"model": "toy"}, "trace" in moods, counts)


if __name__ == "__main__":
    sys.exit(run_process(lambda: load(set(sys.argv[1:]))))
