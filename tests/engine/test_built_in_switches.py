"""Each switch that is said to be built in: what it promises holds without it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from triton.runtime.interpreter import GridExecutor

import engine
from engine.engine import Engine, EngineOptions
from engine.kernels.kv_cache import KvCache
from engine.kernels.slot_state import SlotState
from engine.kernels.sparse_attention import sparse_attention
from engine.logits import whole_rows
from engine.models.config import AttentionConfig, IndexerConfig
from engine.models.pipeline import DevicePipeline
from engine.pipeline import Cells, Checkpoint
from engine.reference.rotary import rotary_table
from engine.request import Produced, PromptRead, Request
from engine.rows import rows_of
from engine.switches import SWITCHES
from engine.window import Span, Verdict, Window
from tests.engine.engine_driver import run
from tests.engine.kernels import delta_mixer
from tests.engine.toy_pipeline import ToyPipeline
from tests.machines import FIXTURES

Promise = Callable[..., None]
PROMISES: dict[str, Promise] = {}


def keeps(*names: str) -> Callable[[Promise], Promise]:
    """The test is of what these switches promise."""

    def note(test: Promise) -> Promise:
        PROMISES.update(dict.fromkeys(names, test))
        return test

    return note


def ask(name: str, tokens: Sequence[int], max_new: int = 6, slot: int | None = None) -> Request:
    return Request(id=name, tokens=tuple(tokens), max_new=max_new, slot=slot)


@keeps("ADMIT_MERGE_FIRST")
def test_the_window_that_reads_a_prompts_end_gives_its_first_token() -> None:
    engine = Engine(ToyPipeline(1), EngineOptions(chunk=8))
    engine.submit(ask("a", [1] * 20))
    for _ in range(2):
        assert not any(isinstance(event, Produced) for event in engine.step())
    kinds = [type(event) for event in engine.step()]
    assert kinds == [PromptRead, Produced]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched, by name."""
    names: list[str] = []
    call = GridExecutor.__call__

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        names.append(self.fn.__name__)
        call(self, *arguments, **options)

    monkeypatch.setattr(GridExecutor, "__call__", counted)
    return names


SLOTS = [[(0, 40, 1, 1)], [(slot, 37 + slot, 1, 1) for slot in range(4)]]


@keeps("BATCH_ATTN_ROWS", "QSA_SLOTS")
def test_attention_of_all_slots_takes_the_launches_of_one(launched: list[str]) -> None:
    config, index = AttentionConfig(2, 1, 32, 32, 8, 1e4), IndexerConfig(2, 32, 8)
    counts = []
    for spans in SLOTS:
        n, rows = len(spans), rows_of(spans)
        projected = tuple(torch.randn(n, width) for width in (128, 32, 32, 64, 32))
        norms = tuple(torch.ones(32) for _ in range(4))
        cache = KvCache.empty("f32", 4, 64, 1, 32, 32, device="cpu")
        raw, blocks = torch.randn(4, 7, 32), torch.randn(4, 17, 32)
        table = rotary_table(64, 8, 1e4)
        launched.clear()
        sparse_attention(projected, norms, table, cache, raw, blocks, 4, config, index, 1e-6, rows)
        counts.append(list(launched))
    assert counts[0] == counts[1]
    assert counts[0]


@keeps("BATCH_GDN_GROUPS")
def test_the_recurrence_of_all_slots_takes_the_launches_of_one(launched: list[str]) -> None:
    """One row has a launch of its own, more slots take no more launches than two."""
    counts = []
    for spans in (*SLOTS, SLOTS[1][:2]):
        launched.clear()
        delta_mixer.Layer(slots=4).kernels(delta_mixer.inputs(len(spans)), rows_of(spans))
        counts.append(list(launched))
    one, four, two = counts
    assert four == two
    assert 0 < len(one) <= len(two)


def small(**options: object) -> DevicePipeline:
    return engine.load(FIXTURES / "tiny-qwen35moe.gguf", max_context=64, **options).pipeline


@keeps("BATCH_SELF_COMMIT")
def test_one_row_a_slot_needs_no_second_pass_over_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = small(slots=2, spec=3)
    committed: list[object] = []
    monkeypatch.setattr(pipeline._runner, "commit", committed.append)
    window = Window((Span(0, 0, (5,), 1, 0), Span(1, 0, (6,), 1, 0)))
    pipeline.forward(window)()
    pipeline.commit(window, [Verdict(1, 7), Verdict(1, 8)])
    assert not committed
    drafted = Window((Span(0, 1, (7, 9), 1, 0),))
    pipeline.forward(drafted)()
    pipeline.commit(drafted, [Verdict(2, 3)])
    assert len(committed) == 1, "drafts that stay do"


@keeps("BATCH_MTP_SERIAL")
def test_slots_draft_in_windows_that_come_one_after_another() -> None:
    """`ToyPipeline` refuses a window before the commit of the one before it."""
    pipeline = ToyPipeline(3, accuracy=1.0)
    options = EngineOptions(spec=3, slot_drafts=True)
    run(Engine(pipeline, options), *(ask(name, [1, 2], 12) for name in "abc"))
    assert max(sum(span.drafts > 0 for span in window.spans) for window in pipeline.windows) == 3


@keeps("IQ_MT_MIN")
def test_rows_that_share_experts_have_the_bits_of_a_row_alone() -> None:
    pipeline = small(slots=4, spec=1)
    text = tuple(np.random.default_rng(1).integers(0, 200, 12).tolist())
    rows = []
    for token, position in zip(text, range(len(text)), strict=True):
        window = Window((Span(0, position, (token,), 1, 0),))
        rows.append(whole_rows(pipeline.forward(window)()))
        pipeline.commit(window, [Verdict(1, None)])
    pipeline.clear(0)
    window = Window(tuple(Span(slot, 0, text, len(text), 0) for slot in range(4)))
    together = whole_rows(pipeline.forward(window)())
    alone = np.concatenate(rows)
    for slot in range(4):
        assert together[slot * len(text) : (slot + 1) * len(text)].tobytes() == alone.tobytes()


class Copies(ToyPipeline):
    """Notes what is copied from and to slots."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.copied: list[str] = []

    def save(self, slot: int) -> Checkpoint:
        self.copied.append(f"save {slot}")
        return super().save(slot)

    def restore(self, slot: int, checkpoint: Checkpoint) -> None:
        self.copied.append(f"restore {slot}")
        super().restore(slot, checkpoint)

    def take_out(self, slot: int, length: int) -> Cells:
        self.copied.append(f"take out {slot}")
        return super().take_out(slot, length)

    def put_in(self, slot: int, cells: Cells, length: int) -> None:
        self.copied.append(f"put in {slot}")
        super().put_in(slot, cells, length)


@keeps("SLOT_COPY_DIRECT")
def test_an_admission_and_a_next_turn_copy_nothing() -> None:
    pipeline = Copies(2)
    engine = Engine(pipeline, EngineOptions(chunk=4, checkpoints=0))
    engine.submit(ask("first", [1] * 9, 20))
    for _ in range(5):
        engine.step()
    answers = run(engine, ask("joins", [2] * 9))
    run(engine, ask("next", [2] * 9 + answers["joins"].tokens + [3]))
    assert not pipeline.copied


@keeps("SLOT_CKPT_MOVE")
def test_an_admissions_checkpoint_is_made_once_and_in_its_slot() -> None:
    pipeline = Copies(2)
    engine = Engine(pipeline, EngineOptions(turn_ids=frozenset({3})))
    run(engine, ask("a", [1, 2, 3, 1, 1], slot=1))
    assert pipeline.copied == ["save 1", "save 1"], "before its last turn, and its end"


def state_of(tensors: int) -> SlotState:
    return SlotState([torch.randn(3, 2, 5) for _ in range(tensors)])


@keeps("CKPT_POOL")
def test_a_checkpoint_takes_the_memory_of_a_dropped_one() -> None:
    state = state_of(2)
    first = state.save(0)
    place = first.buffer.data_ptr()
    del first
    assert state.save(1).buffer.data_ptr() == place


@keeps("SLOT_COPY_BATCHSYNC")
def test_a_slots_copies_are_one_launch_however_many_tensors(launched: list[str]) -> None:
    for tensors in (1, 116):
        state = state_of(tensors)
        saved = state.save(0)
        assert launched == ["move"]
        state.restore(1, saved)
        assert launched == ["move", "move"]
        launched.clear()


def test_every_switch_that_is_built_in_has_its_test() -> None:
    built_in = {switch.name for switch in SWITCHES if switch.effect == "built in"}
    assert PROMISES.keys() == built_in
