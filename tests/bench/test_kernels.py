"""Operators write down their calls, and change nothing by it."""

from __future__ import annotations

import torch

from bench.kernels import Recorder, by_kind, window_calls
from engine.api import load
from engine.ops import ops_for

SPEC = "qwen3.6-35b-a3b:ud-iq4_xs,small,layers=4,experts=4,vocabulary=512"


def test_calls_of_a_window_are_written_down() -> None:
    recorder = Recorder(ops_for("cpu"))
    plain = load("", synthetic=SPEC, max_context=64, slots=3, spec=1)
    model = load("", synthetic=SPEC, max_context=64, slots=3, spec=1, ops=recorder.ops)
    assert (plain.logits([1, 2, 3]) == model.logits([1, 2, 3])).all()
    kinds = by_kind(window_calls(recorder, model.pipeline.trunk, 3, 8))
    # Three layers with the recurrence and one that attends, each with its mixture; one head.
    assert sum(len(calls) for kind, calls in kinds.items() if kind.startswith("mixture_into")) == 4
    assert len(kinds["linear 512x512"]) == 1
    assert sum(len(calls) for kind, calls in kinds.items() if kind.startswith("delta_mixer")) == 3
    call = kinds["linear 512x512"][0]
    assert call.arguments[0].shape == (3, 512)
    call()
    assert isinstance(call.arguments[0], torch.Tensor)
