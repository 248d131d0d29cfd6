"""The draft layer's own state: its drafts depend on the conversation, not on how it was read."""

from pathlib import Path

import numpy as np
import pytest

import engine
from engine.models.pipeline import DevicePipeline
from engine.pipeline import DraftAsk
from engine.window import Span, Verdict, Window
from tests.engine.reference.spans import chunks_of

COUNT = 3
NAMES = ("qwen4exp", "qwen4exp-q8", "qwen35moe-q8")


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest, draft_files: dict[str, Path]) -> engine.Model:
    return engine.load(draft_files[request.param], slots=3, max_context=96, spec=COUNT + 1)


@pytest.fixture
def pipeline(model: engine.Model) -> DevicePipeline:
    for slot in range(3):
        model.pipeline.clear(slot)
    return model.pipeline


TEXT = tuple(np.random.default_rng(1).integers(0, 500, 60).tolist())


def _read(
    pipeline: DevicePipeline, slot: int, first: int, last: int, sizes: tuple[int, ...] = (96,)
) -> None:
    """Rows first..last-1 of TEXT, told that TEXT goes on."""
    for a, n in chunks_of(last - first, sizes):
        start, end = first + a, first + a + n
        window = Window((Span(slot, start, TEXT[start:end], n, n - 1),))
        pipeline.forward(window)
        pipeline.commit(window, [Verdict(n, TEXT[end])])


def _draft(pipeline: DevicePipeline, slot: int, count: int = COUNT, p: float = 0.0) -> list[int]:
    (drafts,) = pipeline.draft([DraftAsk(slot, count, p)])()
    return drafts


def test_drafts_are_the_layer_s_best_tokens(model: engine.Model, pipeline: DevicePipeline) -> None:
    """Position by position against the one pass of `draft_logits`, which has its own oracle."""
    first, chain = model.draft_logits(TEXT[:41], COUNT)
    pipeline.clear(0)
    for last in range(1, 41):
        _read(pipeline, 0, last - 1, last)
        assert _draft(pipeline, 0)[0] == first[last - 1].argmax()
    assert _draft(pipeline, 0) == chain.argmax(axis=1).tolist()


@pytest.mark.parametrize("sizes", [(1,), (2, 5), (39, 1)])
def test_any_chunking_gives_the_same_drafts(
    pipeline: DevicePipeline, sizes: tuple[int, ...]
) -> None:
    _read(pipeline, 0, 0, 40)
    _read(pipeline, 1, 0, 40, sizes)
    assert _draft(pipeline, 0) == _draft(pipeline, 1)


def test_drafting_twice_changes_nothing(pipeline: DevicePipeline) -> None:
    _read(pipeline, 0, 0, 40)
    once = _draft(pipeline, 0)
    assert len(once) == COUNT
    assert _draft(pipeline, 0) == once
    assert _draft(pipeline, 0, 1) == once[:1]


def test_dropped_rows_leave_no_trace_in_the_draft_layer(pipeline: DevicePipeline) -> None:
    """Slot 0 reads wrong drafts in between and draws chains; slot 1 only reads."""
    for position in range(30):
        _draft_and_read(pipeline, position)
        _read(pipeline, 1, position, position + 1)
        assert _draft(pipeline, 0) == _draft(pipeline, 1)


def _draft_and_read(pipeline: DevicePipeline, position: int) -> None:
    wrong = tuple((TEXT[position + i] + 3) % 500 for i in range(1, COUNT + 1))
    window = Window((Span(0, position, (TEXT[position], *wrong), 1, 0),))
    pipeline.forward(window)
    pipeline.commit(window, [Verdict(1, TEXT[position + 1])])
    _draft(pipeline, 0)


def test_kept_drafts_count_like_certain_rows(pipeline: DevicePipeline) -> None:
    _read(pipeline, 0, 0, 20)
    _read(pipeline, 1, 0, 20)
    window = Window((Span(0, 20, TEXT[20:24], 1, 0),))
    pipeline.forward(window)
    pipeline.commit(window, [Verdict(3, TEXT[23])])
    _read(pipeline, 1, 20, 23)
    assert _draft(pipeline, 0) == _draft(pipeline, 1)


def test_several_slots_draft_together(pipeline: DevicePipeline) -> None:
    for slot, length in enumerate((10, 25, 40)):
        _read(pipeline, slot, 0, length)
    alone = [_draft(pipeline, slot, slot + 1) for slot in range(3)]
    together = pipeline.draft([DraftAsk(slot, slot + 1, 0.0) for slot in (2, 0, 1)])()
    assert together == [alone[2], alone[0], alone[1]]


def test_the_probability_ends_a_chain(pipeline: DevicePipeline) -> None:
    """More is asked of a draft, fewer are offered, and they are the same ones."""
    _read(pipeline, 0, 0, 40)
    whole = _draft(pipeline, 0)
    lengths = []
    for p in (0.0, 0.005, 0.02, 0.1, 0.5, 1.0):
        drafts = _draft(pipeline, 0, p=p)
        assert drafts == whole[: len(drafts)]
        lengths.append(len(drafts))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == 0


def test_a_conversation_that_goes_on_differently(pipeline: DevicePipeline) -> None:
    """The layer was told another next token than the one that came: its last cell is redone."""
    window = Window((Span(0, 0, TEXT[:20], 20, 19),))
    pipeline.forward(window)
    pipeline.commit(window, [Verdict(20, (TEXT[20] + 1) % 500)])
    _draft(pipeline, 0)
    _read(pipeline, 0, 20, 40)
    _read(pipeline, 1, 0, 40)
    assert _draft(pipeline, 0) == _draft(pipeline, 1)


def test_nothing_follows_and_then_something_does(pipeline: DevicePipeline) -> None:
    window = Window((Span(0, 0, TEXT[:20], 20, 19),))
    pipeline.forward(window)
    pipeline.commit(window, [Verdict(20, None)])
    _read(pipeline, 0, 20, 40)
    _read(pipeline, 1, 0, 40)
    assert _draft(pipeline, 0) == _draft(pipeline, 1)


@pytest.mark.parametrize("length", range(12, 24))
def test_after_a_restore(pipeline: DevicePipeline, length: int) -> None:
    _read(pipeline, 0, 0, length)
    checkpoint = pipeline.save(0)
    wrong = tuple((token + 5) % 500 for token in TEXT[length : length + 10])
    window = Window((Span(0, length, wrong, 10, 9),))
    pipeline.forward(window)
    pipeline.commit(window, [Verdict(10, 1)])
    _draft(pipeline, 0)
    pipeline.restore(0, checkpoint)
    _read(pipeline, 0, length, 40)
    _read(pipeline, 1, 0, 40)
    assert _draft(pipeline, 0) == _draft(pipeline, 1)


def test_a_cleared_slot_drafts_like_a_new_one(pipeline: DevicePipeline) -> None:
    window = Window((Span(0, 0, TEXT[10:50], 40, 39),))
    pipeline.forward(window)
    pipeline.commit(window, [Verdict(40, 1)])
    pipeline.clear(0)
    _read(pipeline, 0, 0, 40)
    _read(pipeline, 1, 0, 40)
    assert _draft(pipeline, 0) == _draft(pipeline, 1)


def test_a_part_of_the_tokens(draft_files: dict[str, Path], tmp_path: Path) -> None:
    """The draft is the best of those that may be drafted, and the answer stays the same."""
    ids = np.arange(1, 500, 7, dtype="<i4")
    part = tmp_path / "draft_vocab.bin"
    part.write_bytes(ids[::-1].tobytes())
    options = {"slots": 3, "max_context": 96, "spec": COUNT + 1}
    model = engine.load(draft_files[NAMES[1]], **options)
    small = engine.load(draft_files[NAMES[1]], draft_vocab=str(part), **options)
    whole, _ = model.draft_logits(TEXT[:20], 1)
    found, _ = small.draft_logits(TEXT[:20], 1)
    assert np.array_equal(found, whole[:, ids])
    small.pipeline.clear(0)
    _read(small.pipeline, 0, 0, 19)
    drafts = _draft(small.pipeline, 0)
    assert drafts[0] == ids[whole[-1, ids].argmax()]
    assert set(drafts) <= set(ids.tolist())
    assert small.generate(TEXT[:20], 24) == model.generate(TEXT[:20], 24)
