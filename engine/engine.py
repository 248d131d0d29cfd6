"""The engine: requests in, windows through the model, events out. One thread calls it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.checkpoints import checkpoint_lengths
from engine.errors import RequestError
from engine.pipeline import DraftAsk, Pipeline
from engine.request import Event, Finished, Request, Started
from engine.sampler import Floats
from engine.sampling import MAX_SEED
from engine.scheduler import Scheduler
from engine.slots import Reuse, Run, Slot, choose_slot
from engine.speculative import Outcome, judge
from engine.window import Window

MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How an engine runs its pipeline. None of this changes a token of any answer."""

    eos_ids: frozenset[int] = frozenset()
    """Tokens that end an answer."""
    turn_ids: frozenset[int] = frozenset()
    """Tokens that begin a turn of a chat."""
    chunk: int = 256
    """Most prompt rows in one window."""
    spec: int = 1
    """Most rows of one slot that writes: its own token and `spec - 1` drafts."""
    spec_min_p: float = 0.0
    window_rows: int | None = None
    """Most rows of all slots that write, drafts included; never fewer than one each."""
    checkpoints: int = 6
    """Most checkpoints of one slot."""
    checkpoint_every: int = 2048
    """Tokens between checkpoints inside a prompt; 0: none there."""


class Engine:
    """Serves requests on the slots of `pipeline`, which it clears first."""

    def __init__(self, pipeline: Pipeline, options: EngineOptions) -> None:
        self.options = options
        self._pipeline = pipeline
        self.slots = tuple(Slot(i, options.checkpoints) for i in range(pipeline.slots))
        self._scheduler = Scheduler(self.slots, options.chunk)
        self._arrivals = 0
        for slot in self.slots:
            pipeline.clear(slot.index)

    @property
    def busy(self) -> bool:
        """True while a request runs."""
        return any(slot.run for slot in self.slots)

    def submit(self, request: Request) -> Started:
        """Give a request its seat. Raises `RequestError`, which leaves everything as it was."""
        self._check(request)
        slot = choose_slot(self.slots, request)
        reuse = slot.reuse(request.tokens)
        self._go_back(slot, reuse)
        self._arrivals += 1
        save_at = checkpoint_lengths(
            request.tokens,
            reuse.length,
            self.options.checkpoints,
            self.options.checkpoint_every,
            self.options.turn_ids,
        )
        slot.seat(Run(_seeded(request), self._arrivals, reuse.length, save_at))
        return Started(request.id, slot.index, reuse.length)

    def cancel(self, request_id: str) -> Finished | None:
        """End a request before the next window; `None` when it is over already."""
        for slot in self.slots:
            if slot.run and slot.run.request.id == request_id:
                return self._scheduler.free(slot, "cancel")
        return None

    def step(self) -> list[Event]:
        """Run one window; no events when no request runs."""
        self._draft()
        window = self._scheduler.schedule()
        if not window.spans:
            return []
        logits = self._pipeline.forward(window)
        outcomes = self._judge(window, logits)
        self._pipeline.commit(window, [outcome.verdict for outcome in outcomes])
        self._save(window, outcomes)
        return self._scheduler.update(outcomes)

    def _check(self, request: Request) -> None:
        vocab, context = self._pipeline.vocab_size, self._pipeline.max_context
        count = len(request.tokens)
        if not count:
            raise RequestError("the prompt has no tokens, at least 1 is needed")
        bad = next((token for token in request.tokens if not 0 <= token < vocab), None)
        if bad is not None:
            raise RequestError(f"token id {bad} is not in the vocabulary of {vocab} tokens")
        if request.max_new < 1:
            raise RequestError(f"max_new is {request.max_new}, at least 1 is needed")
        if count + request.max_new > context:
            raise RequestError(
                f"{count} prompt tokens and {request.max_new} new ones are more than the context"
                f" of {context} tokens"
            )
        if request.logprobs is not None and not 0 <= request.logprobs <= MAX_LOGPROBS:
            raise RequestError(f"logprobs is {request.logprobs}, allowed is 0 to {MAX_LOGPROBS}")

    def _go_back(self, slot: Slot, reuse: Reuse) -> None:
        """Bring the model's state of a free slot to the first `reuse.length` tokens."""
        if reuse.checkpoint:
            self._pipeline.restore(slot.index, reuse.checkpoint)
        elif reuse.length == 0 and slot.computed:
            self._pipeline.clear(slot.index)

    def _draft(self) -> None:
        """Ask for drafts of every slot whose last commit left it with one token to compute."""
        asks = self._asks() if self._pipeline.can_draft else []
        if asks:
            for ask, drafts in zip(asks, self._pipeline.draft(asks), strict=True):
                run = self.slots[ask.slot].run
                assert run is not None
                run.drafts = drafts[: ask.count]

    def _asks(self) -> list[DraftAsk]:
        writing = [slot for slot in self.slots if slot.run and slot.generated]
        most = self.options.spec - 1
        if self.options.window_rows and writing:
            most = min(most, self.options.window_rows // len(writing) - 1)
        asks = []
        for slot in writing:
            assert slot.run is not None
            request = slot.run.request
            minimum = request.spec_min_p
            # One row more than drafts, and one token a row: never past max_new or the context.
            count = min(most, request.max_new - slot.generated - 1)
            if count > 0:
                asks.append(
                    DraftAsk(
                        slot.index, count, self.options.spec_min_p if minimum is None else minimum
                    )
                )
        return asks

    def _judge(self, window: Window, logits: Floats) -> list[Outcome]:
        assert logits.shape == (window.wanted, self._pipeline.vocab_size)
        outcomes, row = [], 0
        for span in window.spans:
            rows = logits[row : row + span.wanted]
            outcomes.append(judge(span, rows, self.slots[span.slot], self.options.eos_ids))
            row += span.wanted
        return outcomes

    def _save(self, window: Window, outcomes: Sequence[Outcome]) -> None:
        """Checkpoints that are due; the state behind an error is forgotten."""
        for span, outcome in zip(window.spans, outcomes, strict=True):
            slot = self.slots[span.slot]
            assert slot.run is not None
            if outcome.error:
                self._pipeline.clear(slot.index)
            elif span.start + outcome.verdict.kept in slot.run.save_at:
                slot.shelf.add(self._pipeline.save(slot.index))


def _seeded(request: Request) -> Request:
    """`request` with a seed of our choice where it has none."""
    if request.sampling.seed or request.sampling.greedy:
        return request
    seed = secrets.randbelow(MAX_SEED) + 1
    return replace(request, sampling=replace(request.sampling, seed=seed))
