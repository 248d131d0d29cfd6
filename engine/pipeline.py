"""What the engine asks of a model: windows in, logits out, and the state of every slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.logits import Logits
from engine.window import Verdict, Window


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The recurrent state of a slot after its first `length` tokens.

    `state` is the pipeline's own and is never changed after the save. K/V cells are not in it:
    they are indexed by position and stay in the slot.
    """

    length: int
    state: Any


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """K/V cells, and whatever else is indexed by position, of a slot's first `length` tokens.

    `state` is the pipeline's own, in host memory, and is never changed.
    """

    length: int
    state: Any


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """A wish for at most `count` (at least 1) draft tokens of a slot.

    A draft is offered while the draft layer gives it, and gave every one before it, at least
    `min_probability`.
    """

    slot: int
    count: int
    min_probability: float


class Pipeline(Protocol):
    """A model with `slots` seats, each the state of one conversation of up to `max_context` tokens.

    Calls come from one thread. Between `forward` and the `commit` of the same window only slots
    without rows in it may be cleared, saved, restored or put in. In a window the first row of a
    span has the position that follows the slot's committed rows. Any exception is fatal for the
    engine.
    """

    slots: int
    max_context: int
    vocab_size: int
    can_draft: bool
    runs_ahead: bool
    """True when `forward` returns long before its window is done."""
    checkpoint_bytes: int
    """Host memory of one checkpoint."""

    def forward(self, window: Window) -> Callable[[], Logits]:
        """Begins a window; what is returned waits for the rows that want logits, in window order.

        They may be gone after the commit. Certain rows may go into the recurrent state at once;
        draft rows may not.
        """

    def commit(self, window: Window, verdicts: Sequence[Verdict]) -> None:
        """Apply the kept rows to the recurrent state and feed them to the draft layer.

        One verdict a span, in order. Nothing that a dropped row did may be visible afterwards.
        `next_token` is what the draft layer sees behind the last kept row. The slot's next span may
        still begin with another token: a finished conversation that is continued differently.
        """

    def draft(self, asks: Sequence[DraftAsk]) -> Callable[[], list[list[int]]]:
        """Begins to draft; what is returned waits for the drafts, before the next `forward`.

        For each ask the tokens that follow `next_token` of the slot's last commit, 0 to `count` of
        them. Called only when `can_draft`, at most once after a commit, for slots whose last commit
        named a next token. It changes nothing that later windows see.
        """

    def clear(self, slot: int) -> None:
        """Forget everything about a slot: its next row has position 0."""

    def save(self, slot: int) -> Checkpoint:
        """The recurrent state at the slot's current length."""

    def restore(self, slot: int, checkpoint: Checkpoint) -> None:
        """Go back to `checkpoint.length` tokens, which must be unchanged since the save.

        A checkpoint of this slot, or of the conversation that was put in there; it can be restored
        any number of times. Cells at later positions are overwritten by later windows.
        """

    def set_aside(self, checkpoint: Checkpoint) -> Checkpoint:
        """The same one where there is room for those that may wait for long."""

    def prepare_parking(self, size_bytes: int) -> None:
        """Makes room for what is set aside and taken out before the first request, so that none
        waits for it."""

    def cell_bytes(self, length: int) -> int:
        """Host memory of the cells of `length` tokens."""

    def take_out(self, slot: int, length: int) -> Cells:
        """A copy of the cells of the slot's first `length` tokens, which are committed. The slot
        stays as it is, and may have rows in the window under way.
        """

    def put_in(self, slot: int, cells: Cells, length: int) -> None:
        """Write the first `length` tokens' cells into a slot, whose own are lost.

        A `restore` of a checkpoint of their conversation, of at most that length, must follow.
        """

    def copy_cells(self, source: int, target: int, length: int) -> None:
        """As if the cells of `source` were taken out and put into `target`."""

    def idle_bytes(self) -> int:
        """Host memory that cells which are gone have left, for others."""
