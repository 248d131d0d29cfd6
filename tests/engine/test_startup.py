"""From flags to a running engine."""

from __future__ import annotations

import pytest

from engine.api import load
from engine.errors import ConfigError
from engine.startup import plan_from_args, read_once

SPEC = "qwen3.6-35b-a3b:ud-iq4_xs,small,layers=2,experts=4,vocabulary=512"


def test_a_piece_of_a_prompt_is_read_and_forgotten() -> None:
    model = load("", synthetic=SPEC, max_context=64, slots=2)
    before = model.logits([5, 6, 7])
    read_once(model, 48)
    read_once(model, 1000)
    assert (model.logits([5, 6, 7]) == before).all()


def test_random_weights_by_flags() -> None:
    config = plan_from_args(["--synthetic", SPEC, "--max-context", "256", "--device", "cpu"]).config
    assert (config.synthetic, config.device, config.max_context) == (SPEC, "cpu", 256)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "no model is named"),
        (["--synthetic", SPEC, "--model", "m.gguf"], "both given"),
        (["--synthetic", SPEC, "--device", "cuda:7"], "no NVIDIA card"),
    ],
)
def test_what_cannot_start(args: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        plan_from_args(args)
    assert raised.value.hint
