"""The engine: requests in, windows through the model, events out. One thread calls it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.checkpoints import plan_saves
from engine.constraints import Constraints
from engine.draft_rows import DraftRows
from engine.errors import RequestError
from engine.host_memory import free_memory
from engine.logits import Logits
from engine.parking import FEW_TOKENS, NO_PARKING, ParkingLimits, ParkingLot
from engine.phases import Phases
from engine.pipeline import DraftAsk, Pipeline
from engine.request import Event, Finished, Request, Started
from engine.sampling import MAX_SEED
from engine.scheduler import Scheduler
from engine.seating import Seating
from engine.slots import Run, Slot
from engine.speculative import Outcome, judge
from engine.window import Window
from engine.work import Work

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
    yield_chunks: int = 1
    """Chunks after which a read may give way when no slot writes; 0: it does not then."""
    spec: int = 1
    """Most rows of one slot that writes: its own token and `spec - 1` drafts."""
    spec_min_p: float = 0.0
    window_rows: int | None = None
    """Most rows of all slots that write, drafts included; never fewer than one each."""
    slot_drafts: bool | None = None
    """Whether several slots that write draft; `None`: as far as measurements say that it pays."""
    checkpoints: int = 6
    """Most checkpoints of one slot."""
    checkpoint_every: int = 2048
    """Tokens between checkpoints inside a prompt; 0: none there."""
    checkpoint_root: int = 2048
    """Fewest tokens before a prompt's second turn for a checkpoint there that stays; 0: none."""
    few_tokens: int = FEW_TOKENS
    """Shorter beginnings of other conversations are not copied."""
    parking: ParkingLimits = NO_PARKING


class Engine:
    """Serves requests on the slots of `pipeline`, which it clears first."""

    def __init__(
        self,
        pipeline: Pipeline,
        options: EngineOptions,
        constraints: Constraints | None = None,
        free: Callable[[], int] = free_memory,
    ) -> None:
        """`constraints`: for answers of a given form; without them these are refused. `free`: bytes
        that the machine can give."""
        self.options = options
        self._pipeline = pipeline
        self.constraints = constraints
        self.slots = tuple(Slot(i, options.checkpoints) for i in range(pipeline.slots))
        self._scheduler = Scheduler(self.slots, options.chunk, options.yield_chunks)
        self.work = Work()
        self.parking = ParkingLot(pipeline, options.parking, self.work, free)
        self._seating = Seating(pipeline, self.slots, self.parking, options.few_tokens)
        self._draft_rows = DraftRows(options.spec - 1, options.window_rows, options.slot_drafts)
        self._window_end: float | None = None
        """When the last window was over, if nothing but windows happened since."""
        self._arrivals = 0
        self._under_way: tuple[Window, Callable[[], Logits]] | None = None
        self._drafts: tuple[list[Run | None], Callable[[], list[list[int]]]] | None = None
        for slot in self.slots:
            pipeline.clear(slot.index)

    @property
    def busy(self) -> bool:
        """True while a request runs."""
        return any(slot.run for slot in self.slots)

    def submit(self, request: Request) -> Started:
        """Give a request its seat. Raises `RequestError`, which leaves everything as it was."""
        self._check(request)
        self._window_end = None
        phases = Phases()
        slot, reused = self._seating.place(request)
        self._arrivals += 1
        options = self.options
        saves = plan_saves(
            request.tokens,
            reused,
            limit=options.checkpoints,
            every=options.checkpoint_every,
            root=options.checkpoint_root,
            turn_ids=options.turn_ids,
        )
        constraint = None
        if request.form and self.constraints:
            constraint = self.constraints.make(request.form)
        phases.seat()
        counts = (self._arrivals, reused)
        slot.seat(Run(_seeded(request), *counts, saves, constraint, phases=phases))
        return Started(request.id, slot.index, reused)

    def cancel(self, request_id: str) -> Finished | None:
        """End a request before the next window; `None` when it is over already.

        `settle` comes first.
        """
        assert self._under_way is None, "a window is under way"
        for slot in self.slots:
            if slot.run and slot.run.request.id == request_id:
                return self._scheduler.free(slot, "cancel")
        return None

    def step(self) -> list[Event]:
        """Run one window; no events when no request runs.

        A pipeline that runs ahead has the next one under way while these events are told.
        """
        if self._under_way is None:
            self._begin()
        events = self.settle()
        if self._pipeline.runs_ahead:
            self._begin()
        return events

    def settle(self) -> list[Event]:
        """Finish the window under way, if there is one, and begin no other."""
        if self._under_way is None:
            return []
        window, logits = self._under_way
        self._under_way = None
        work, since = self.work, time.perf_counter()
        ready = logits()
        since = work.spent("run_s", since)
        outcomes = self._judge(window, ready)
        since = work.spent("choose_s", since)
        self._pipeline.commit(window, [outcome.verdict for outcome in outcomes])
        self._save(window, outcomes)
        since = work.spent("commit_s", since)
        work.add(window, outcomes)
        for phases in self._admissions(window):
            phases.end()
        self._learn(window, outcomes)
        events = self._scheduler.update(outcomes)
        self._begin_drafts()
        self._window_end = work.spent("draft_s", since) if self.busy else None
        return events

    def _learn(self, window: Window, outcomes: Sequence[Outcome]) -> None:
        """How long windows of so many rows take with their drafts, and which drafts were right."""
        if self._window_end is not None and all(not span.logits_from for span in window.spans):
            self._draft_rows.times.add(window.rows, time.perf_counter() - self._window_end)
        for outcome in outcomes:
            run = self.slots[outcome.slot].run
            if run and outcome.offered:
                self._draft_rows.judged(run, outcome.offered, outcome.accepted)

    def _begin(self) -> None:
        since = time.perf_counter()
        self._take_drafts()
        since = self.work.spent("draft_s", since)
        window = self._scheduler.schedule()
        if window.spans:
            for phases in self._admissions(window):
                phases.begin()
            self._under_way = window, self._pipeline.forward(window)
            self.work.spent("run_s", since)

    def _admissions(self, window: Window) -> list[Phases]:
        """Of the requests in `window` that have no token yet."""
        slots = [self.slots[span.slot] for span in window.spans]
        return [slot.run.phases for slot in slots if slot.run and not slot.generated]

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
        biased = [token for token, _ in request.sampling.logit_bias]
        if biased and not 0 <= min(biased) <= max(biased) < vocab:
            raise RequestError(f"logit_bias names tokens {min(biased)} to {max(biased)} of {vocab}")
        if request.form and self.constraints is None:
            raise RequestError("this engine holds answers to no grammar")
        if request.logprobs is not None and not 0 <= request.logprobs <= MAX_LOGPROBS:
            raise RequestError(f"logprobs is {request.logprobs}, allowed is 0 to {MAX_LOGPROBS}")

    def _begin_drafts(self) -> None:
        """Ask for drafts of every slot that writes; they are taken by the next window."""
        asks = self._asks() if self._pipeline.can_draft else []
        if asks:
            runs = [self.slots[ask.slot].run for ask in asks]
            self._drafts = runs, self._pipeline.draft(asks)

    def _take_drafts(self) -> None:
        """Hand over the drafts that were asked for; some runs may be over by now."""
        if self._drafts:
            runs, drafts = self._drafts
            self._drafts = None
            for run, tokens in zip(runs, drafts(), strict=True):
                if run:
                    run.drafts = tokens

    def _asks(self) -> list[DraftAsk]:
        writing = [(slot, slot.run) for slot in self.slots if slot.run and slot.generated]
        counts = self._draft_rows.counts([run for _, run in writing])
        asks = []
        for (slot, run), most in zip(writing, counts, strict=True):
            minimum = run.request.spec_min_p
            # One row more than drafts, and one token a row: never past max_new or the context.
            count = min(most, run.request.max_new - slot.generated - 1)
            if count > 0:
                asks.append(
                    DraftAsk(
                        slot.index, count, self.options.spec_min_p if minimum is None else minimum
                    )
                )
        return asks

    def _judge(self, window: Window, logits: Logits) -> list[Outcome]:
        outcomes, row = [], 0
        for span in window.spans:
            slot = self.slots[span.slot]
            outcomes.append(judge(span, logits, row, slot, self.options.eos_ids))
            row += len(span.tokens) - span.logits_from
        assert row == logits.count
        return outcomes

    def _save(self, window: Window, outcomes: Sequence[Outcome]) -> None:
        """Checkpoints that are due; the state behind an error is forgotten."""
        for span, outcome in zip(window.spans, outcomes, strict=True):
            slot = self.slots[span.slot]
            assert slot.run is not None
            if outcome.error:
                self._pipeline.clear(slot.index)
            elif span.start + outcome.verdict.kept in slot.run.saves.lengths:
                since = time.perf_counter()
                slot.shelf.add(self._pipeline.save(slot.index))
                if span.start + outcome.verdict.kept == slot.run.saves.root:
                    slot.shelf.root = slot.run.saves.root
                slot.run.phases.save_s += time.perf_counter() - since


def _seeded(request: Request) -> Request:
    """`request` with a seed of our choice where it has none."""
    if request.sampling.seed or request.sampling.greedy:
        return request
    seed = secrets.randbelow(MAX_SEED) + 1
    return replace(request, sampling=replace(request.sampling, seed=seed))
