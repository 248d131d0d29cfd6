"""DevicePipeline: windows of any mix give the bits of a text that is read alone."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import engine
from engine.logits import whole_rows
from engine.pipeline import DraftAsk, Pipeline
from engine.window import Span, Verdict, Window

FIXTURES = Path(__file__).parents[2] / "fixtures"
DRAFTS = 3
CONTEXT = 128
LENGTH = 72

# File, activations, K/V. Files with a dash and a family come from conftest.py, with a draft layer.
CASES = [
    ("q4exp-a-q4k", "int8", "int8"),
    ("q4exp-a-q4k", "float", "f32"),
    ("q35moe-a-iq3s", "int8", "fp16"),
    ("tiny-qwen35moe", "int8", "int8"),
    ("qwen4exp", "float", "f32"),
    ("qwen4exp-q8", "int8", "int8"),
    ("qwen4exp-q8", "int8", "fp16"),
    ("qwen35moe-q8", "int8", "f32"),
]


@dataclass
class Case:
    """Pipelines of one file: `many` has three slots and drafts, `alone` one slot and none."""

    path: Path
    many: Pipeline
    alone: engine.Model
    logits: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def expected(self, ids: tuple[int, ...]) -> np.ndarray:
        """Logits after every token of a text that is read alone, in one window."""
        if ids not in self.logits:
            self.logits[ids] = self.alone.logits(ids)
        return self.logits[ids]


@cache
def _case(path: Path, activations: str, kv: str) -> Case:
    options = {"activations": activations, "kv": kv, "max_context": CONTEXT}
    many = engine.load(path, slots=3, spec=DRAFTS + 1, **options)
    return Case(path, many.pipeline, engine.load(path, slots=1, spec=1, **options))


@pytest.fixture(params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest, draft_files: dict[str, Path]) -> Case:
    name, activations, kv = request.param
    found = _case(draft_files.get(name, FIXTURES / f"{name}.gguf"), activations, kv)
    for slot in range(3):
        found.many.clear(slot)
    return found


def _text(seed: int, length: int = LENGTH) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, 500, length).tolist())


def _feed(
    pipeline: Pipeline,
    slot: int,
    start: int,
    tokens: tuple[int, ...],
    *,
    certain: int | None = None,
    kept: int | None = None,
    follows: int | None = None,
) -> np.ndarray:
    """One window of one span; logits of all its rows."""
    certain = len(tokens) if certain is None else certain
    kept = len(tokens) if kept is None else kept
    window = Window((Span(slot, start, tokens, certain, 0),))
    logits = whole_rows(pipeline.forward(window)())
    pipeline.commit(window, [Verdict(kept, follows)])
    return logits


def _same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == np.float32
    assert actual.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("seed", [0, 1])
def test_windows_of_any_mix(case: Case, seed: int) -> None:
    """Three texts in random spans: chunks, single rows, right drafts and wrong ones."""
    random = np.random.default_rng(seed)
    texts = [_text(10 * seed + slot) for slot in range(3)]
    done = [0, 0, 0]
    while min(done) < LENGTH:
        spans, verdicts = [], []
        for slot in random.permutation(3).tolist():
            left = LENGTH - done[slot]
            if left and random.random() < 0.8:
                span, verdict = _random_span(random, slot, done[slot], texts[slot])
                spans.append(span)
                verdicts.append(verdict)
        if not spans:
            continue
        window = Window(tuple(spans))
        found = case.many.forward(window)()
        assert found.count == window.wanted
        logits = whole_rows(found)
        case.many.commit(window, verdicts)
        row = 0
        for span, verdict in zip(spans, verdicts, strict=True):
            expected = case.expected(texts[span.slot])
            stay = verdict.kept - span.logits_from
            if stay > 0:
                first = span.start + span.logits_from
                _same(logits[row : row + stay], expected[first : first + stay])
            row += span.wanted
            done[span.slot] = span.start + verdict.kept
        asks = [
            DraftAsk(s.slot, DRAFTS, 0.2)
            for s, v in zip(spans, verdicts, strict=True)
            if v.next_token is not None and done[s.slot] + DRAFTS < LENGTH
        ]
        if case.many.can_draft and asks and random.random() < 0.7:
            drafts = case.many.draft(asks)()
            assert all(len(tokens) <= DRAFTS for tokens in drafts)


def _random_span(
    random: np.random.Generator, slot: int, start: int, text: tuple[int, ...]
) -> tuple[Span, Verdict]:
    left = LENGTH - start
    if random.random() < 0.4:
        count = int(random.integers(1, min(left, 30) + 1))
        wants = int(random.integers(0, count + 1))
        tokens = text[start : start + count]
        span = Span(slot, start, tokens, count, wants)
        kept = count
    else:
        certain = min(int(random.integers(1, 3)), left)
        right = min(int(random.integers(0, DRAFTS + 1)), left - certain)
        wrong = int(random.integers(0, DRAFTS + 1 - right))
        tokens = text[start : start + certain + right]
        tokens += tuple(random.integers(0, 500, wrong).tolist())
        span = Span(slot, start, tokens, certain, certain - 1)
        kept = certain + right
    end = start + kept
    return span, Verdict(kept, text[end] if end < LENGTH else None)


@pytest.mark.parametrize("kept", range(1, DRAFTS + 2))
def test_dropped_drafts_leave_no_trace(case: Case, kept: int) -> None:
    text = _text(5)
    _feed(case.many, 1, 0, text[:33], follows=text[33])
    wrong = tuple((token + 7) % 500 for token in text[33 + kept : 37])
    logits = _feed(
        case.many,
        1,
        33,
        text[33 : 33 + kept] + wrong,
        certain=1,
        kept=kept,
        follows=text[33 + kept],
    )
    expected = case.expected(text)
    _same(logits[:kept], expected[33 : 33 + kept])
    for position in range(33 + kept, 50):
        _same(
            _feed(case.many, 1, position, text[position : position + 1]),
            expected[position : position + 1],
        )


def test_a_cleared_slot_is_a_new_one(case: Case) -> None:
    first, second = _text(1), _text(2)
    _feed(case.many, 0, 0, first, follows=3)
    case.many.clear(0)
    _same(_feed(case.many, 0, 0, second), case.expected(second))


def test_clearing_one_slot_leaves_the_others(case: Case) -> None:
    texts = _text(1), _text(2)
    for slot, text in enumerate(texts):
        _feed(case.many, slot, 0, text[:40])
    case.many.clear(0)
    _same(_feed(case.many, 1, 40, texts[1][40:]), case.expected(texts[1])[40:])


@pytest.mark.parametrize("length", [1, 5, 32, 43])
def test_a_checkpoint_can_be_restored_again_and_again(case: Case, length: int) -> None:
    text = _text(3)
    _feed(case.many, 2, 0, text[:length], follows=text[length])
    checkpoint = case.many.save(2)
    assert checkpoint.length == length
    for seed in (8, 9):
        other = _text(seed)
        whole = text[:length] + other[length:]
        half = (length + LENGTH) // 2
        _same(_feed(case.many, 2, length, other[length:half]), case.expected(whole)[length:half])
        case.many.restore(2, checkpoint)
        assert case.many.save(2).length == length
    _same(_feed(case.many, 2, length, text[length:]), case.expected(text)[length:])


def test_a_checkpoint_after_dropped_drafts(case: Case) -> None:
    text = _text(4)
    _feed(case.many, 0, 0, text[:30], follows=text[30])
    _feed(case.many, 0, 30, (*text[30:32], 1, 2), certain=1, kept=2, follows=text[32])
    checkpoint = case.many.save(0)
    assert checkpoint.length == 32
    _feed(case.many, 0, 32, _text(6)[32:60])
    case.many.restore(0, checkpoint)
    _same(_feed(case.many, 0, 32, text[32:]), case.expected(text)[32:])


def test_restoring_one_slot_leaves_the_others(case: Case) -> None:
    texts = _text(1), _text(2)
    _feed(case.many, 0, 0, texts[0][:20])
    checkpoint = case.many.save(0)
    _feed(case.many, 0, 20, texts[0][20:])
    _feed(case.many, 1, 0, texts[1][:40])
    case.many.restore(0, checkpoint)
    _same(_feed(case.many, 1, 40, texts[1][40:]), case.expected(texts[1])[40:])
    _same(_feed(case.many, 0, 20, texts[0][20:]), case.expected(texts[0])[20:])


@pytest.mark.parametrize(("saved", "taken", "begins"), [(32, 43, 43), (32, 43, 32), (5, 41, 5)])
def test_a_conversation_goes_on_in_another_slot(
    case: Case, saved: int, taken: int, begins: int
) -> None:
    """Its cells are taken out behind `taken` tokens, and `begins` of them are put in."""
    text, other = _text(3), _text(12)
    _feed(case.many, 0, 0, text[:saved], follows=text[saved])
    states = {saved: case.many.save(0)}
    _feed(case.many, 0, saved, text[saved:taken], follows=text[taken])
    states[taken] = case.many.save(0)
    cells = case.many.take_out(0, taken)
    assert cells.length == taken
    assert case.many.cell_bytes(taken) > 0
    case.many.clear(0)
    for slot in range(3):
        _feed(case.many, slot, 0, other[: 50 + slot])
    case.many.put_in(2, cells, begins)
    case.many.restore(2, states[begins])
    _same(_feed(case.many, 2, begins, text[begins:]), case.expected(text)[begins:])
    _same(_feed(case.many, 1, 51, other[51:]), case.expected(other)[51:])


@pytest.mark.parametrize("begins", [32, 43])
def test_a_beginning_goes_on_in_another_slot_beside_its_own(case: Case, begins: int) -> None:
    text, other = _text(3), _text(12)
    _feed(case.many, 0, 0, text[:32], follows=text[32])
    states = {32: case.many.save(0)}
    _feed(case.many, 0, 32, text[32:43], follows=text[43])
    states[43] = case.many.save(0)
    _feed(case.many, 2, 0, other[:50])
    case.many.copy_cells(0, 2, begins)
    case.many.restore(2, states[begins])
    _same(_feed(case.many, 2, begins, text[begins:]), case.expected(text)[begins:])
    _same(_feed(case.many, 0, 43, text[43:]), case.expected(text)[43:])


def test_a_window_without_wanted_rows(case: Case) -> None:
    text = _text(7)
    window = Window((Span(0, 0, text[:40], 40, 40),))
    assert case.many.forward(window)().count == 0
    case.many.commit(window, [Verdict(40, text[40])])
    _same(_feed(case.many, 0, 40, text[40:]), case.expected(text)[40:])


def test_a_slot_can_be_filled_to_the_last_cell(case: Case) -> None:
    text = _text(11, CONTEXT)
    _feed(case.many, 0, 0, text[: CONTEXT - 2], follows=text[-2])
    if case.many.can_draft:
        case.many.draft([DraftAsk(0, DRAFTS, 0.0)])()
    last = _feed(case.many, 0, CONTEXT - 2, text[-2:], certain=1, follows=1)
    _same(last, case.expected(text)[-2:])
    if case.many.can_draft:
        assert len(case.many.draft([DraftAsk(0, DRAFTS, 0.0)])()[0]) <= DRAFTS


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    """Beside a model that was computed with whatever torch chose."""
    path = Path(__file__).parents[2] / "fixtures" / "q4exp-a-q4k.gguf"
    ids = list(range(3, 40))
    model = engine.load(path, slots=1)
    before = torch.get_num_threads()
    expected = model.logits(ids)
    torch.set_num_threads(threads)
    try:
        assert np.array_equal(model.logits(ids), expected)
    finally:
        torch.set_num_threads(before)
