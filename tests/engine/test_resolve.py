"""resolve: nothing is refused for its size, and whatever changes is said."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Decision, EngineConfig, RunConfig
from engine.resolve import make_plan, resolve
from tests.machines import CARD, flash_next_sizes, machine


def _decision(decisions: tuple[Decision, ...], setting: str) -> Decision:
    return next(decision for decision in decisions if decision.setting == setting)


def test_nothing_said_gives_defaults_with_reasons() -> None:
    config, decisions = resolve(RunConfig(), flash_next_sizes(), machine(free_gb=100))
    assert (config.slots, config.max_context, config.kv, config.spec) == (4, 32_768, "int8", 4)
    assert config.drafts == 3
    assert all(decision.reason for decision in decisions)
    assert not [decision for decision in decisions if decision.changed]


def test_every_setting_has_its_decision() -> None:
    _, decisions = resolve(RunConfig(), flash_next_sizes(), machine())
    named = {decision.setting for decision in decisions}
    assert named == {field.name for field in fields(EngineConfig)} - {"card", "synthetic"}


def test_too_many_slots_become_what_fits() -> None:
    config, decisions = resolve(
        RunConfig(slots=500, prompt_cache=1), flash_next_sizes(), machine(free_gb=20)
    )
    plan = make_plan(
        RunConfig(slots=config.slots + 1, prompt_cache=1), flash_next_sizes(), machine(free_gb=20)
    )
    assert 1 < config.slots < 500
    assert plan.config.slots == config.slots, "one more would not fit"
    decision = _decision(decisions, "slots")
    assert decision.changed
    assert decision.asked == 500
    assert "fits" in decision.reason


def test_a_model_too_large_for_the_machine_keeps_what_was_asked() -> None:
    """Weights 5.9 GB, 1.07 to work with, 0.24 of state; 0.9 of 1 GB is free: nothing helps."""
    run = RunConfig(slots=8, max_context=32_768)
    plan = make_plan(run, flash_next_sizes(), machine(free_gb=1))
    assert (plan.config.slots, plan.config.max_context) == (8, 32_768)
    assert not plan.memory.fits
    assert (
        "does not fit: 7.2 GB at the least, 0.9 GB"
        in _decision(plan.decisions, "max_context").reason
    )


def test_context_is_held_to_what_the_model_knows() -> None:
    info = flash_next_sizes(train_context=4096)
    config, decisions = resolve(RunConfig(max_context=100_000), info, machine())
    assert config.max_context == 4096
    assert "the longest that the model allows is 4096" in _decision(decisions, "max_context").reason


@pytest.mark.parametrize(("spec", "rows"), [(0, 1), (1, 1), (2, 2), (9, 9)])
def test_spec_counts_rows(spec: int, rows: int) -> None:
    config, _ = resolve(RunConfig(spec=spec), flash_next_sizes(), machine())
    assert config.spec == rows


def test_a_model_without_a_draft_layer_drafts_nothing() -> None:
    info = flash_next_sizes(has_drafts=False)
    config, decisions = resolve(RunConfig(spec=4), info, machine())
    assert config.spec == 1
    assert "no draft layer" in _decision(decisions, "spec").reason
    with_file, _ = resolve(RunConfig(mtp=Path("mtp.gguf")), info, machine())
    assert (with_file.spec, with_file.mtp) == (4, Path("mtp.gguf"))


@pytest.mark.parametrize("kv", ["k8v4", "q4_0"])
def test_formats_of_later_become_the_nearest(kv: str) -> None:
    config, decisions = resolve(RunConfig(kv=kv), flash_next_sizes(), machine())
    assert config.kv == "int8"
    assert _decision(decisions, "kv").changed


def test_cards_and_flags_for_them_are_named() -> None:
    run = RunConfig(device="cuda:0", unused=(("--pcie-frac", "0.35"),))
    config, decisions = resolve(run, flash_next_sizes(), machine(gpus=(CARD,)))
    assert config.device == "cuda:0"
    assert not _decision(decisions, "device").changed
    assert _decision(decisions, "--pcie-frac") == Decision(
        "--pcie-frac",
        "0.35",
        "off",
        "this version cannot limit what the bus carries for experts",
    )


_MAYBE = st.none()


@settings(max_examples=150, deadline=None)
@given(
    slots=_MAYBE | st.integers(0, 2000),
    max_context=_MAYBE | st.integers(16, 10**7),
    prompt_cache=_MAYBE | st.integers(0, 64),
    prefill=_MAYBE | st.integers(0, 10**6),
    window_rows=_MAYBE | st.integers(1, 100),
    mtp_hnorm=_MAYBE | st.sampled_from(["stream", "pooled"]),
    spec=_MAYBE | st.integers(0, 64),
    free_gb=st.floats(0, 500),
    cores=st.integers(0, 64),
)
def test_any_count_gives_a_plan_that_stands(
    slots: int | None,
    max_context: int | None,
    prompt_cache: int | None,
    prefill: int | None,
    window_rows: int | None,
    mtp_hnorm: str | None,
    spec: int | None,
    free_gb: float,
    cores: int,
) -> None:
    run = RunConfig(
        slots=slots,
        max_context=max_context,
        prompt_cache=prompt_cache,
        prefill=prefill,
        window_rows=window_rows,
        mtp_hnorm=mtp_hnorm,
        spec=spec,
    )
    hardware = machine(free_gb=free_gb, cores=cores)
    plan = make_plan(run, flash_next_sizes(), hardware)
    config = plan.config
    assert 1 <= config.slots <= max(1, slots or 4)
    assert 16 <= config.max_context <= 262_144
    assert config.window_rows >= config.slots
    assert 1 <= config.prefill <= config.max_context
    smallest = make_plan(
        RunConfig(
            slots=1,
            max_context=min(512, config.max_context),
            prompt_cache=min(1, 1 if prompt_cache is None else prompt_cache),
        ),
        flash_next_sizes(),
        machine(free_gb=500),
    )
    assert plan.memory.fits == (smallest.memory.total_bytes <= plan.memory.available_bytes)
    assert plan == make_plan(run, flash_next_sizes(), hardware)
    for decision in plan.decisions:
        said = getattr(run, decision.setting)
        # prefill 0 means auto: nothing was asked for.
        assert decision.asked == (said or None if decision.setting == "prefill" else said)
        assert str(decision.value) == str(getattr(config, decision.setting))
