"""What of a model lies where: on a card, beside it, or on the processor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.capabilities import Capabilities
from engine.config import Decision, RunConfig
from engine.device_memory import GRAPH_ROWS, PROMPT_GRAPH_ROWS, RESERVE_MIB, STAGING_EXPERTS
from engine.flags import engine_args, parse_engine_args
from engine.memory import MIB
from engine.model_info import ModelInfo
from engine.models.graphs import LADDER, PROMPT_LADDER
from engine.resolve import Plan, make_plan
from engine.synthetic import open_synthetic
from tests.machines import CARD, machine

FLASH = ModelInfo.from_gguf(open_synthetic("qwen3.8-flash-next:iq3_s"))
QWEN36 = ModelInfo.from_gguf(open_synthetic("qwen3.6-35b-a3b:ud-iq4_xs"))
RESIDENT = Capabilities(frozenset({"cuda"}))
STREAMING = Capabilities(frozenset({"cuda", "expert_cache"}))
H200 = replace(
    CARD, name="NVIDIA H200", arch="9.0", vram_bytes=150_754_820_096, vram_free_bytes=150 * 10**9
)
RTX4090 = replace(
    CARD, name="NVIDIA RTX 4090", arch="8.9", vram_bytes=25_757_220_864, vram_free_bytes=25 * 10**9
)


def _plan(
    run: RunConfig,
    info: ModelInfo = FLASH,
    card: object = H200,
    capabilities: Capabilities = STREAMING,
    free_gb: float = 120.0,
) -> Plan:
    return make_plan(run, info, machine(free_gb=free_gb, gpus=(card,)), capabilities)  # type: ignore[arg-type]


def _decision(plan: Plan, setting: str) -> Decision:
    return next(decision for decision in plan.decisions if decision.setting == setting)


def test_a_large_card_holds_everything() -> None:
    plan = _plan(RunConfig())
    assert (plan.config.device, plan.memory.fits) == ("cuda:0", True)
    card, share = plan.config.card, plan.memory.card
    assert card is not None
    assert share is not None
    # What is free, less 700 MiB, in whole MiB.
    assert card.vram_limit_mib == 150 * 10**9 // MIB - RESERVE_MIB
    assert (card.identity, card.table_place, card.adapt_every) == ("GPU-1", "vram", 0)
    assert card.expert_cache_bytes == share.all_expert_bytes == FLASH.on_card.expert_bytes
    assert share.table_bytes == FLASH.table_bytes == 28_800_138_240
    assert "all experts" in _decision(plan, "expert_cache").reason


def test_checkpoints_lie_on_a_card_where_room_is_left_behind_all_experts() -> None:
    card, share = _plan(RunConfig(slots=4)).config.card, _plan(RunConfig(slots=4)).memory.card
    assert card is not None
    assert share is not None
    assert card.checkpoints == share.checkpoints == 4 * 6
    assert share.checkpoint_bytes == 24 * FLASH.state_bytes
    rest = _plan(RunConfig(slots=4)).memory.total_bytes - share.checkpoint_bytes
    # A twentieth of the card stays free of checkpoints.
    limit = (rest + 10 * FLASH.state_bytes) * 20 // 19 // MIB + 1
    tight = _plan(RunConfig(slots=4, vram_limit_mib=limit, vram_reserve_mib=0)).memory
    assert tight.card is not None
    assert (tight.fits, tight.card.checkpoints) == (True, 10)
    assert tight.card.host_bytes - share.host_bytes == 14 * FLASH.state_bytes
    small = _plan(RunConfig(slots=4), card=RTX4090).memory.card
    assert small is not None
    assert small.checkpoints == 0, "experts are worth more"


def test_graphs_of_prompts_have_room_where_all_experts_lie_on_the_card() -> None:
    assert (LADDER[-1], PROMPT_LADDER[-1]) == (GRAPH_ROWS, PROMPT_GRAPH_ROWS)
    plans = [_plan(RunConfig(slots=2, prefill=rows, spec=1)).memory for rows in (64, 256, 4096)]
    for plan in plans:
        assert plan.card is not None
        assert plan.card.resident_experts == plan.card.layer_experts
    few, some, many = (plan.work_bytes for plan in plans)
    row = (many - some) // (4096 - 256)
    in_graphs = (some - few) // (256 - 64) - row
    assert in_graphs > row, "until the commit they keep what drafts need"
    beside = _plan(RunConfig(slots=2, prefill=256, spec=1, expert_cache="4096")).memory
    assert beside.card is not None
    staging = STAGING_EXPERTS * beside.card.all_expert_bytes // FLASH.expert_pairs
    assert beside.work_bytes == some - 256 * in_graphs + staging
    drafting = _plan(RunConfig(slots=2, prefill=256, spec=4)).memory
    assert drafting.work_bytes == some + 256 * (in_graphs - row)


def test_the_table_of_a_plan_adds_up() -> None:
    for limit in (16_384, 60_000, None):
        rows = list(_plan(RunConfig(vram_limit_mib=limit)).memory.rows())
        total = next(i for i, (what, _) in enumerate(rows) if what == "total")
        assert sum(count for _, count in rows[:total]) == rows[total][1]
        assert rows[total][1] <= rows[total + 1][1]


def test_experts_beside_a_small_card() -> None:
    plan = _plan(RunConfig(), card=RTX4090)
    card, share = plan.config.card, plan.memory.card
    assert card is not None
    assert share is not None
    assert 0.1 < card.expert_cache_bytes / share.all_expert_bytes < 0.3
    assert (card.table_place, share.table_bytes) == ("ram", 0)
    # The machine holds the other experts, the n-gram table, and what the process takes.
    outside = share.all_expert_bytes - share.expert_bytes
    assert 3e9 < share.host_bytes - outside - FLASH.table_bytes < 5e9
    assert card.adapt_every > 0
    # One expert more of each of 48 layers would not fit.
    left = plan.memory.available_bytes - plan.memory.total_bytes
    assert 0 <= left < share.all_expert_bytes // 512
    assert "experts of each layer" in _decision(plan, "expert_cache").reason


def test_slots_that_nobody_asked_for_leave_their_room_to_experts() -> None:
    assert _plan(RunConfig()).config.slots == 4
    plan = _plan(RunConfig(), card=RTX4090)
    assert plan.config.slots == 1
    assert "experts lie beside the card" in _decision(plan, "slots").reason
    assert _plan(RunConfig(slots=3), card=RTX4090).config.slots == 3


def test_a_card_that_cannot_hold_the_model_leaves_it_to_the_processor() -> None:
    plan = _plan(RunConfig(), card=RTX4090, capabilities=RESIDENT)
    assert (plan.config.device, plan.config.card) == ("cpu", None)
    reason = _decision(plan, "device").reason
    assert "NVIDIA RTX 4090 cannot hold the model" in reason
    assert "24.3 GB of NVIDIA RTX 4090's memory may be used" in reason
    named = _plan(RunConfig(device="cuda"), card=RTX4090, capabilities=RESIDENT)
    assert (named.config.device, named.memory.fits) == ("cuda:0", False)


def test_too_little_memory_beside_the_card_is_told_as_such() -> None:
    plan = _plan(RunConfig(), card=RTX4090, free_gb=40)
    assert plan.config.device == "cpu"
    assert "36.0 GB of memory beside the card may be used" in _decision(plan, "device").reason


def test_a_smaller_card_may_be_emulated() -> None:
    plan = _plan(RunConfig(vram_limit_mib=24_576, vram_reserve_mib=0))
    assert plan.memory.available_bytes == 24_576 * MIB
    assert not _decision(plan, "vram_limit_mib").changed
    more = _plan(RunConfig(vram_limit_mib=10**6))
    assert _decision(more, "vram_limit_mib").changed
    assert "free on the card" in _decision(more, "vram_limit_mib").reason


@pytest.mark.parametrize(
    ("limit_gb", "rows"), [(12, 256), (24, 256), (48, 1024), (80, 2048), (141, 4096)]
)
def test_larger_cards_read_longer_pieces_of_a_prompt(limit_gb: int, rows: int) -> None:
    limit = limit_gb * 10**9 // MIB
    plan = _plan(RunConfig(vram_limit_mib=limit, vram_reserve_mib=0, max_context=8192))
    assert plan.config.prefill == rows
    asked = _plan(RunConfig(vram_limit_mib=limit, max_context=8192, prefill=300))
    assert asked.config.prefill == 300
    short = _plan(RunConfig(vram_limit_mib=limit, max_context=100))
    assert short.config.prefill == 100


@pytest.mark.parametrize(
    # 512 experts of 48 layers take 59.2 GB: 115.7 MB for one of each layer.
    ("asked", "resident"),
    [(0, 0), (4096, 37), (20_000, 181), (60_000, 512)],
)
def test_experts_as_asked(asked: int, resident: int) -> None:
    plan = _plan(RunConfig(expert_cache=str(asked)))
    assert plan.config.card is not None
    assert plan.config.card.resident_experts == resident
    expected = 59_218_329_600 * max(1, resident) // 512
    assert plan.config.card.expert_cache_bytes == expected
    assert _decision(plan, "expert_cache").changed == (resident in (0, 512))


def test_what_the_processor_has_no_use_for_is_told() -> None:
    run = RunConfig(device="cpu", vram_reserve_mib=900, expert_cache="4096", table_place="ram")
    plan = _plan(run)
    for name in ("vram_reserve_mib", "expert_cache", "table_place"):
        assert _decision(plan, name).reason == "the model runs on the processor"
        assert _decision(plan, name).changed


def test_slots_and_context_shrink_on_a_card_as_in_memory() -> None:
    plan = _plan(RunConfig(slots=64, max_context=262_144), card=RTX4090, info=QWEN36)
    assert plan.memory.fits
    assert plan.config.slots < 64
    assert "as much as fits" in _decision(plan, "slots").reason


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(9_000, 140_000),
    slots=st.integers(1, 64),
    context=st.integers(1024, 262_144),
    spec=st.integers(1, 6),
    place=st.sampled_from([None, "ram", "vram"]),
    flash=st.booleans(),
)
def test_the_engine_process_plans_the_same_again(
    limit: int, slots: int, context: int, spec: int, place: str | None, flash: bool
) -> None:
    run = RunConfig(
        device="cuda:0",
        slots=slots,
        max_context=context,
        spec=spec,
        vram_limit_mib=limit,
        table_place=place,
    )
    info = FLASH if flash else QWEN36
    first = _plan(run, info)
    again = _plan(parse_engine_args(engine_args(first.config)), info)
    if first.memory.fits:
        assert again.config == first.config
        assert again.memory == first.memory
        assert not [decision for decision in again.decisions if decision.changed]
