"""The exactness check finds nothing in an exact model, and finds every kind of defect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import engine
from bench.exactness import FEWEST_DISTINCT, Report, check, choose_suites
from bench.suites import SUITES
from bench.texts import GREEDY, SAMPLED, Text, texts
from engine.engine import EngineOptions
from engine.errors import ConfigError
from engine.logits import HostLogits, whole_rows
from engine.ops import ops_for
from engine.pipeline import Cells, Checkpoint
from engine.window import Window
from tests.engine.toy_pipeline import VOCAB, ToyPipeline
from tests.machines import SMALL_MODEL

OPTIONS = EngineOptions(chunk=32, spec=4, spec_min_p=0.0)


def _encode(text: str) -> list[int]:
    return [byte % VOCAB for byte in text.encode()]


def _texts(max_new: int = 100) -> tuple[Text, ...]:
    return tuple(
        replace(text, prompt=text.prompt[:60])
        for text in texts(_encode, max_new=max_new, context=2000)
    )


def _check(pipeline: ToyPipeline, suites: str | None = None, max_new: int = 100) -> Report:
    return check(pipeline, _encode, _texts(max_new), OPTIONS, suites=choose_suites(suites))


def test_an_exact_model_is_equal_in_every_suite() -> None:
    report = _check(ToyPipeline(slots=3, max_context=2000))
    assert report.equal
    played = [suite.name for suite in SUITES if not suite.needs_experts]
    assert [suite.suite for suite in report.suites] == played
    assert all(suite.rows > 0 for suite in report.suites)
    assert min(report.distinct.values()) >= FEWEST_DISTINCT
    assert report.left_out == {"residency": "all experts lie in one place"}


def test_without_a_draft_layer_those_suites_are_left_out() -> None:
    report = _check(ToyPipeline(slots=2, max_context=2000, can_draft=False))
    assert report.equal
    assert list(report.left_out) == ["drafts", "solo-drafts", "residency"]
    assert report.left_out["drafts"] == "the model has no draft layer"


def test_a_text_that_repeats_itself_does_not_count() -> None:
    class Constant(ToyPipeline):
        def forward(self, window: Window) -> Callable[[], HostLogits]:
            count = super().forward(window)().count
            logits = HostLogits(np.tile(np.arange(VOCAB, dtype=np.float32), (count, 1)))
            return lambda: logits

    report = _check(Constant(slots=3, max_context=2000), "slots")
    assert not report.equal
    assert all(suite.difference is None for suite in report.suites)
    assert set(report.weak) >= {text.name for text in _texts() if text.sampling.greedy}


class Ulp(ToyPipeline):
    """Moves one logit of the last row by one unit in the last place where `when` says so."""

    def __init__(self, when: Callable[[Window], bool]) -> None:
        super().__init__(slots=3, max_context=2000)
        self._when = when
        self.restored = self.continued = False

    def forward(self, window: Window) -> Callable[[], HostLogits]:
        logits = whole_rows(super().forward(window)())
        if len(logits) and (self._when(window) or self.restored or self.continued):
            logits[-1, 7] = np.nextafter(logits[-1, 7], np.float32(np.inf))
        return lambda: HostLogits(logits)


def _spans(window: Window) -> int:
    return len(window.spans)


@pytest.mark.parametrize(
    ("suite", "when"),
    [
        ("slots", lambda window: _spans(window) > 1),
        ("slots", lambda window: window.rows > 2 and _spans(window) > 1),
        ("slots", lambda window: any(span.slot for span in window.spans)),
        ("batch", lambda window: _spans(window) > 1 and any(s.start > 90 for s in window.spans)),
        ("rows", lambda window: window.rows == 16),
        ("rows", lambda window: any(span.certain > 1 and span.drafts for span in window.spans)),
        ("drafts", lambda window: any(span.drafts for span in window.spans)),
        ("solo-drafts", lambda window: any(span.drafts > 4 for span in window.spans)),
        ("chunks", lambda window: any(span.certain > 15 for span in window.spans)),
        ("prefill", lambda window: any(span.certain > 50 for span in window.spans)),
        (
            "prefix",
            lambda window: any(span.start > 150 and span.certain > 1 for span in window.spans),
        ),
        (
            "interleave",
            lambda window: _spans(window) > 2 and any(span.certain > 8 for span in window.spans),
        ),
        (
            "evict",
            lambda window: any(span.start > 150 and span.certain > 1 for span in window.spans),
        ),
        (
            "cancelled",
            lambda window: any(span.start > 100 and span.drafts for span in window.spans),
        ),
    ],
)
def test_every_suite_finds_one_unit_in_the_last_place(
    suite: str, when: Callable[[Window], bool]
) -> None:
    report = _check(Ulp(when), suite)
    assert not report.equal
    difference = report.suites[0].difference
    assert difference is not None
    assert difference.suite == suite
    assert difference.hash != difference.expected_hash
    assert f"position {difference.position}" in str(difference)


def test_a_checkpoint_that_brings_back_another_state_is_found() -> None:
    class Forgetful(Ulp):
        def restore(self, slot: int, checkpoint: Checkpoint) -> None:
            super().restore(slot, checkpoint)
            self.restored = True

    report = _check(Forgetful(lambda window: False), "checkpoint")
    assert report.suites[0].difference is not None


def test_a_parked_conversation_that_comes_back_otherwise_is_found() -> None:
    class Forgetful(Ulp):
        def put_in(self, slot: int, cells: Cells, length: int) -> None:
            super().put_in(slot, cells, length)
            self.restored = True

    report = _check(Forgetful(lambda window: False), "parking")
    assert report.suites[0].difference is not None


class Experts(Ulp):
    """Experts that move with every text; they change a bit some time if they `drift`."""

    def __init__(self, drift: bool) -> None:
        self._texts = 0
        super().__init__(lambda window: drift and self._texts > 10)

    def forward(self, window: Window) -> Callable[[], HostLogits]:
        self._texts += sum(span.start == 0 for span in window.spans)
        return super().forward(window)

    def counts(self) -> tuple[int, int]:
        return 0, self._texts


@pytest.mark.parametrize("drift", [False, True])
def test_experts_that_change_places_change_nothing(drift: bool) -> None:
    pipeline, suites = Experts(drift), choose_suites("residency")
    report = check(pipeline, _encode, _texts(), OPTIONS, suites=suites, experts=pipeline.counts)
    assert report.equal is not drift
    assert report.suites[0].texts > 0


def test_experts_that_stay_where_they_are_prove_nothing() -> None:
    pipeline, suites = ToyPipeline(slots=3, max_context=2000), choose_suites("residency")
    report = check(pipeline, _encode, _texts(), OPTIONS, suites=suites, experts=lambda: (5, 0))
    assert report.suites[0].difference is not None
    assert report.suites[0].difference.problem == "no expert came from elsewhere"


def test_a_suite_that_could_not_do_its_work_says_so() -> None:
    class Mute(ToyPipeline):
        def draft(self, asks: Sequence[Any]) -> Callable[[], list[list[int]]]:
            return lambda: [[] for _ in asks]

    difference = _check(Mute(slots=3, max_context=2000), "drafts").suites[0].difference
    assert difference is not None
    assert difference.problem == "no draft was made"


def test_an_error_of_the_engine_is_a_difference() -> None:
    class Broken(ToyPipeline):
        def forward(self, window: Window) -> Callable[[], HostLogits]:
            logits = whole_rows(super().forward(window)())
            if _spans(window) > 2:
                logits[:] = np.nan
            return lambda: HostLogits(logits)

    difference = _check(Broken(slots=3, max_context=2000), "slots").suites[0].difference
    assert difference is not None
    assert "logit" in difference.problem


def test_a_difference_names_the_first_row() -> None:
    first = 60 + 5
    target = ToyPipeline(slots=3, max_context=2000)

    class At(Ulp):
        def forward(self, window: Window) -> Callable[[], HostLogits]:
            self.continued = _spans(window) > 1 and window.spans[-1].start >= first
            return super().forward(window)

    assert _check(target, "slots").equal
    difference = _check(At(lambda window: False), "slots").suites[0].difference
    assert difference is not None
    # The row at position p chooses the token at position p + 1.
    assert difference.position >= first + 1
    assert difference.token == difference.expected_token


def test_unknown_suites_are_named() -> None:
    with pytest.raises(ConfigError, match="'slotz' is not a suite"):
        choose_suites("slots,slotz")
    with pytest.raises(ConfigError):
        choose_suites("")


def test_long_plays_every_text_with_every_set_of_keys() -> None:
    short = texts(_encode, max_new=16, context=4000)
    long = texts(_encode, max_new=16, context=4000, long=True)
    assert len(short) == 4
    assert len(long) == 10
    assert max(len(text.prompt) for text in long) == 1000
    assert {text.sampling for text in short} == {GREEDY, SAMPLED}


@pytest.fixture(scope="module")
def sound() -> engine.Model:
    return engine.load(SMALL_MODEL, slots=4)


def _check_real(model: engine.Model) -> Report:
    played = texts(model.tokenizer.encode, max_new=48, context=model.pipeline.max_context)[2:]
    played = tuple(replace(text, prompt=text.prompt[:40]) for text in played)
    return check(
        model.pipeline,
        model.tokenizer.encode,
        played,
        OPTIONS,
        suites=choose_suites("slots,chunks"),
    )


def test_a_real_model_is_equal(sound: engine.Model) -> None:
    report = _check_real(sound)
    assert report.equal, [str(suite.difference) for suite in report.suites]


def test_a_reduction_split_by_row_count_is_found() -> None:
    """The defect that batching brings in everywhere else: more rows, another order of the sum."""
    exact = ops_for("cpu")

    def split(x: torch.Tensor, weight: Any) -> torch.Tensor:
        if x.shape[0] < 2:
            return exact.linear(x, weight)
        low, high = x.clone(), x.clone()
        half = x.shape[1] // 2
        low[:, half:] = 0
        high[:, :half] = 0
        return exact.linear(low, weight) + exact.linear(high, weight)

    def split_all(x: torch.Tensor, weights: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        return tuple(split(x, weight) for weight in weights)

    defective = replace(exact, linear=split, project=split_all)
    report = _check_real(engine.load(SMALL_MODEL, slots=4, ops=defective))
    assert not report.equal
    for suite in report.suites:
        assert suite.difference is not None, suite.suite
        assert suite.difference.hash != suite.difference.expected_hash
