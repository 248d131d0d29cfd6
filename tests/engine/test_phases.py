"""Where an admission's time goes."""

import time

from engine.engine import Engine, EngineOptions
from engine.phases import Phases
from engine.request import PromptRead, Request
from tests.engine.toy_pipeline import ToyPipeline


def test_the_phases_of_a_prompt_that_is_read_in_pieces() -> None:
    engine = Engine(ToyPipeline(max_context=99), EngineOptions(chunk=8, checkpoint_every=8))
    engine.submit(Request(id="a", tokens=tuple(range(20)), max_new=4))
    reads = []
    while engine.busy:
        reads += [event for event in engine.step() if isinstance(event, PromptRead)]
    phases = reads[-1].phases
    moments = [phases.asked, phases.seated, phases.begun, phases.last_begun, phases.ended]
    assert moments == sorted(moments)
    assert phases.windows == 3
    assert 0 < phases.save_s < phases.ended - phases.asked
    assert phases.ended < time.perf_counter()


def test_the_sentence() -> None:
    phases = Phases(1.0, 1.001, 1.003, 1.1, 1.15, 0.0021, 5)
    assert phases.sentence() == (
        "seat 1.0, wait 2.0, prompt 97.0, first window 50.0; 5 windows, of them checkpoints 2.1"
    )
