"""Engine flags: every flag reads its own words, and refuses others with what is allowed."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import RunConfig
from engine.errors import ConfigError, StrataError
from engine.flags import ENGINE_FLAGS, LATER_FLAGS, engine_args, parse_engine_args
from engine.resolve import resolve
from tests.machines import flash_next_sizes, machine


def test_values_of_every_kind() -> None:
    words = (
        "--model m.gguf --mtp=d.gguf --slots 3 --max-context 4096 --kv fp16 --activations float "
        "--spec 5 --spec-min-p 0.25 --prefill auto:512 --window-rows 8 --prompt-cache 2 "
        "--prompt-cache-every 0 --mtp-hnorm pooled --device cuda:1"
    )
    assert parse_engine_args(shlex.split(words)) == RunConfig(
        model=Path("m.gguf"),
        mtp=Path("d.gguf"),
        slots=3,
        max_context=4096,
        kv="fp16",
        activations="float",
        spec=5,
        spec_min_p=0.25,
        prefill=512,
        window_rows=8,
        prompt_cache=2,
        prompt_cache_every=0,
        mtp_hnorm="pooled",
        device="cuda:1",
    )


def test_batch_and_slots_are_one_flag_and_the_last_counts() -> None:
    assert parse_engine_args(["--batch", "2", "--slots", "7"]).slots == 7


def test_prefill_auto_says_nothing_but_auto() -> None:
    assert parse_engine_args(["--prefill", "auto"]).prefill == 0


def test_flags_of_gpus_are_taken_and_named() -> None:
    run = parse_engine_args(["--trim-stage-weights", "--pcie-frac", "0.35", "--spec", "2"])
    assert run.unused == (("--trim-stage-weights", ""), ("--pcie-frac", "0.35"))
    assert run.spec == 2


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--slots", "two"], ["--slots", "'two'", "whole number from 0"]),
        (["--slots", "-1"], ["'-1'"]),
        (["--slots", "1.5"], ["'1.5'"]),
        (["--slots", "9" * 40], ["--slots"]),
        (["--spec-min-p", "1.5"], ["a number from 0 to 1"]),
        (["--spec-min-p", "nan"], ["'nan'"]),
        (["--kv", "int4"], ["int8, fp16, f32"]),
        (["--max-context", "1"], ["'1'", "a number of tokens from 16"]),
        (["--max-context", "24x"], ["'24x'", "such as 4096, 24k or 1M"]),
        (["--max-context", "1.5k"], ["'1.5k'"]),
        (["--max-context", "-4k"], ["'-4k'"]),
        (["--prefill", "0"], ["auto"]),
        (["--device", "tpu"], ["cpu, cuda"]),
        (["--model", ""], ["GGUF"]),
        (["--slots"], ["--slots needs a value"]),
        (["--slotz", "1"], ["'--slotz' is not known", "did you mean --slots"]),
        (["stray"], ["'stray' is not known"]),
    ],
)
def test_refusals_name_flag_value_and_what_is_allowed(words: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_engine_args(words)
    for part in parts:
        assert part in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("text", "tokens"),
    # k is 1024, M is 1024 * 1024.
    [("16", 16), ("24k", 24_576), ("32K", 32_768), ("1M", 1_048_576), ("1m", 1_048_576)],
)
def test_a_context_may_be_said_in_thousands(text: str, tokens: int) -> None:
    assert parse_engine_args(["--max-context", text]).max_context == tokens


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([name for flag in ENGINE_FLAGS for name in flag.names]),
            st.sampled_from(sorted(LATER_FLAGS)),
            st.text(max_size=8),
            st.integers().map(str),
        ),
        max_size=8,
    )
)
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    with contextlib.suppress(StrataError):
        parse_engine_args(words)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 40),
    st.integers(16, 300_000),
    st.sampled_from(["int8", "fp16", "f32"]),
    st.integers(0, 16),
    st.floats(0, 1),
)
def test_the_flags_of_a_plan_give_the_plan_again(
    slots: int, context: int, kv: str, spec: int, probability: float
) -> None:
    run = RunConfig(slots=slots, max_context=context, kv=kv, spec=spec, spec_min_p=probability)
    info, hardware = flash_next_sizes(), machine()
    config, _ = resolve(run, info, hardware)
    again, decisions = resolve(parse_engine_args(engine_args(config)), info, hardware)
    assert again == config
    assert not [decision for decision in decisions if decision.changed]
