"""A whole model on one device behind `engine/pipeline.py`'s protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.models.config import ModelConfig
from engine.models.drafter import Drafter
from engine.models.runner import EagerRunner, GraphRunner, Runner
from engine.models.state import StateShape
from engine.models.trunk import Trunk
from engine.models.weights import ModelWeights
from engine.ops import Ops
from engine.pipeline import Checkpoint, DraftAsk
from engine.rows import rows_of
from engine.window import Span, Verdict, Window


@dataclass(slots=True, eq=False)
class _DraftSeat:
    """A slot as the draft layer sees it.

    `residual`, `token`: the last committed row's residual and the token that the layer was told
    follows it (None: not told). `start`: (position, residual, hidden) that a chain goes on from.
    """

    length: int = 0
    residual: torch.Tensor | None = None
    token: int | None = None
    start: tuple[int, torch.Tensor, torch.Tensor] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Rows for the draft layer: residuals with the tokens that follow them."""

    residuals: list[torch.Tensor] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)


class DevicePipeline:
    """Weights and all slots' state on one device."""

    def __init__(
        self,
        w: ModelWeights,
        config: ModelConfig,
        draft_config: ModelConfig | None,
        shape: StateShape,
        ops: Ops,
        *,
        pooled_norm: bool = False,
    ) -> None:
        self.slots = shape.slots
        graphs = ops.device.startswith("cuda")
        if graphs:  # one slot more, in which graphs run their operators for the first time
            shape = replace(shape, slots=shape.slots + 1)
        self.max_context = shape.context
        self.vocab_size = config.vocab_size
        self.can_draft = w.draft is not None and shape.drafts > 0
        a = config.attention
        table = ops.rotary_table(shape.context, a.rotary, a.freq_base)
        self.trunk = Trunk(w, config, shape, ops, table)
        self.drafter: Drafter | None = None
        if w.draft is not None and draft_config is not None and shape.drafts > 0:
            self.drafter = Drafter(
                w.draft, draft_config, shape, ops, table, pooled_norm=pooled_norm
            )
        self._state = [*self.trunk.state, *(self.drafter.state if self.drafter else [])]
        self.device = ops.device
        self._runner: Runner = EagerRunner(
            self.trunk, ops.device, hyper=config.hyper_streams > 0, drafts=self.drafter is not None
        )
        if graphs:
            self._runner = GraphRunner(self.trunk, ops.device, self.slots, self._runner)
        self._seats = [_DraftSeat() for _ in range(shape.slots)]
        self._residual = torch.empty(0)

    def warm_up(self) -> None:
        """Runs every operator once, in slot 0, which is empty afterwards.

        The first run on a machine compiles them, so that no request has to wait for it.
        """
        window = Window((Span(0, 0, (0, 0), 1, 0),))
        self.forward(window)
        self.commit(window, [Verdict(2, 0)])
        if self.can_draft:
            self.draft([DraftAsk(0, 2, 0.0)])
        self.clear(0)

    def forward(self, window: Window) -> npt.NDArray[np.float32]:
        """See `Pipeline.forward`."""
        tokens = [token for span in window.spans for token in span.tokens]
        spans = [(s.slot, s.start, len(s.tokens), s.certain) for s in window.spans]
        wanted: list[int] = []
        first = 0
        for span in window.spans:
            wanted += range(first + span.logits_from, first + len(span.tokens))
            first += len(span.tokens)
        found = self._runner.forward(tokens, spans, wanted)
        self._residual = found.residual
        return found.logits

    def commit(self, window: Window, verdicts: Sequence[Verdict]) -> None:
        """See `Pipeline.commit`."""
        lines: list[list[int]] = []
        first = 0
        for span, verdict in zip(window.spans, verdicts, strict=True):
            more = verdict.kept - span.certain
            if more > 0:
                start = span.start + span.certain
                lines.append([span.slot, first + span.certain, more, start, more])
            first += len(span.tokens)
        if lines:
            self._runner.commit(lines)
        if self.drafter is not None and self.can_draft:
            self._catch_up(window, verdicts, self.drafter)
        else:
            for span, verdict in zip(window.spans, verdicts, strict=True):
                self._seats[span.slot].length = span.start + verdict.kept

    def draft(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        """See `Pipeline.draft`."""
        assert self.drafter is not None, "drafts asked of a pipeline without a draft layer"
        drafts: list[list[int]] = [[] for _ in asks]
        running = []
        for index, ask in enumerate(asks):
            start = self._seats[ask.slot].start
            if start is not None:
                running.append((index, ask, *start))
        while running:
            best = self._best(torch.cat([hidden for *_, hidden in running]), self.drafter)
            go_on = []
            for (index, ask, position, residual, _), (token, p) in zip(running, best, strict=True):
                if p < ask.min_probability:
                    continue
                drafts[index].append(token)
                if len(drafts[index]) < ask.count and position + 1 < self.max_context:
                    go_on.append((index, ask, position + 1, residual))
            if not go_on:
                break
            residual, hidden = self.drafter.forward(
                torch.cat([r for *_, r in go_on]),
                self._tokens([drafts[index][-1] for index, *_ in go_on]),
                rows_of([(a.slot, position, 1, 1) for _, a, position, _ in go_on], self.device),
            )
            running = [
                (index, ask, position, residual[i : i + 1], hidden[i : i + 1])
                for i, (index, ask, position, _) in enumerate(go_on)
            ]
        return drafts

    def pause_drafts(self, paused: bool) -> None:
        """Leaves the draft layer out of windows, or takes it in again. Slots must be empty."""
        self.can_draft = self.drafter is not None and not paused

    def clear(self, slot: int) -> None:
        """See `Pipeline.clear`."""
        for tensor in self._state:
            tensor[slot].zero_()
        self._seats[slot] = _DraftSeat()

    def save(self, slot: int) -> Checkpoint:
        """See `Pipeline.save`."""
        seat = self._seats[slot]
        state: Any = ([tensor[slot].clone() for tensor in self._state], seat.residual)
        return Checkpoint(seat.length, state)

    def restore(self, slot: int, checkpoint: Checkpoint) -> None:
        """See `Pipeline.restore`."""
        tensors, residual = checkpoint.state
        for tensor, saved in zip(self._state, tensors, strict=True):
            tensor[slot].copy_(saved)
        self._seats[slot] = _DraftSeat(length=checkpoint.length, residual=residual)

    def _catch_up(self, window: Window, verdicts: Sequence[Verdict], drafter: Drafter) -> None:
        """Feeds the draft layer every kept row whose next token is known."""
        pairs = _Pairs()
        ends: list[tuple[_DraftSeat, int, int]] = []
        first = 0
        for span, verdict in zip(window.spans, verdicts, strict=True):
            kept = self._residual[first : first + verdict.kept]
            seat = self._seats[span.slot]
            self._pair(pairs, seat, span, verdict, kept)
            seat.length = span.start + verdict.kept
            seat.residual = kept[-1:].clone()
            seat.token, seat.start = verdict.next_token, None
            if verdict.next_token is not None:
                ends.append((seat, len(pairs.tokens) - 1, seat.length - 1))
            first += len(span.tokens)
        if not pairs.tokens:
            return
        residual, hidden = drafter.forward(
            torch.cat(pairs.residuals),
            self._tokens(pairs.tokens),
            rows_of(pairs.spans, self.device),
        )
        for seat, row, position in ends:
            seat.start = position, residual[row : row + 1], hidden[row : row + 1]

    def _tokens(self, ids: list[int]) -> torch.Tensor:
        return torch.tensor(ids, device=self.device)

    def _pair(
        self, pairs: _Pairs, seat: _DraftSeat, span: Span, verdict: Verdict, kept: torch.Tensor
    ) -> None:
        """Adds the pairs of one span: from the row before it, if that saw another token, on."""
        start, rows = span.start, 0
        if seat.residual is not None and seat.length == start and seat.token != span.tokens[0]:
            pairs.residuals.append(seat.residual)
            pairs.tokens.append(span.tokens[0])
            start, rows = start - 1, 1
        follow = list(span.tokens[1 : verdict.kept])
        if verdict.next_token is not None:
            follow.append(verdict.next_token)
        pairs.residuals.append(kept[: len(follow)])
        pairs.tokens.extend(follow)
        rows += len(follow)
        if rows:
            pairs.spans.append((span.slot, start, rows, rows))

    def _best(self, hidden: torch.Tensor, drafter: Drafter) -> list[tuple[int, float]]:
        """The most probable token of each row and its probability."""
        logits = drafter.logits(hidden).cpu().numpy()
        tokens = logits.argmax(axis=1)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        return [(int(t), float(1.0 / s)) for t, s in zip(tokens, shifted.sum(axis=1), strict=True)]
