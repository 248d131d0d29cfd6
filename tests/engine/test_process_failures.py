"""An engine process that fails says why, and one that is traced says more."""

import re

from engine.messages import (
    BatchGen,
    Failed,
)
from tests.engine.engine_child import Child


def test_a_failing_window_is_named() -> None:
    child = Child("broken").started()
    child.say(BatchGen(0, 5, (1, 60), rid="r"))
    events, log, code = child.close()
    assert code == 1
    assert events[-1] == Failed("RuntimeError: layer 3 timed out")
    assert "Traceback" in log


def test_a_model_that_cannot_be_loaded_is_named() -> None:
    events, log, code = Child("refused").close()
    assert code == 1
    assert events == [Failed("model.gguf is not a GGUF: name a GGUF file")]
    assert log == "error: model.gguf is not a GGUF: name a GGUF file\n"


def test_a_trace_tells_of_each_admission() -> None:
    child = Child("trace").started()
    child.say(BatchGen(1, 2, (1, 2, 4), rid="r"))
    _, log, _ = child.close()
    ms = r"[0-9]+\.[0-9]"
    line = (
        rf"slot 1 held 0 of 3 prompt tokens, the others took {ms} ms: seat {ms}, wait {ms},"
        rf" prompt {ms}, first window {ms}; 1 windows, of them checkpoints {ms}\n"
    )
    assert re.search(line, log), log
