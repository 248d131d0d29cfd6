"""An engine process with the toy model: `python -m tests.engine.toy_engine [broken|slow|refused]`.

Token 60 sleeps for a minute in a "slow" engine and fails its window in a "broken" one; token 59
makes its request's logits NaN.
"""

import sys
import time

import numpy as np

from engine.engine import Engine, EngineOptions
from engine.errors import ModelFileError
from engine.process import Loaded, run_process
from engine.window import Window
from tests.engine.toy_pipeline import ToyPipeline

CONTEXT = 400
EOS = 58
TURN = 3


class Moody(ToyPipeline):
    """Prints where it should not; token 60 has a meaning of its own."""

    def __init__(self, mood: str) -> None:
        super().__init__(slots=2, max_context=CONTEXT, fail_on=59)
        self._mood = mood

    def forward(self, window: Window) -> np.ndarray:
        print("a stray line")
        if any(60 in span.tokens for span in window.spans):
            if self._mood == "slow":
                time.sleep(60)
            if self._mood == "broken":
                raise RuntimeError("layer 3 timed out")
        return super().forward(window)


def load(mood: str) -> Loaded:
    """An engine with two slots, drafts and small chunks."""
    if mood == "refused":
        raise ModelFileError("model.gguf is not a GGUF", "name a GGUF file")
    options = EngineOptions(
        eos_ids=frozenset({EOS}), turn_ids=frozenset({TURN}), chunk=8, spec=3, checkpoint_every=0
    )
    return Loaded(Engine(Moody(mood), options), CONTEXT, {"model": "toy"})


if __name__ == "__main__":
    sys.exit(run_process(lambda: load("".join(sys.argv[1:]))))
