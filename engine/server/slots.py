"""Which conversation each slot of the engine holds, and which slot a new prompt goes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from engine.prefix import common_prefix

# Most tokens that open an answer in a chat's prompt and may be missing when it comes back.
ANSWER_OPENING = 8


@dataclass(slots=True)
class Slot:
    """One seat. `held` are the token ids whose state it keeps, the first `prompt` of them its last
    prompt; `rid` is empty while it is idle."""

    number: int
    held: list[int] = field(default_factory=list)
    prompt: int = 0
    rid: str = ""
    used: int = 0


class SlotTable:
    """The seats of one engine process."""

    def __init__(self, slots: int) -> None:
        self.slots = [Slot(number) for number in range(slots)]
        self._clock = count(1)

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def busy(self) -> int:
        """How many slots work on a request."""
        return sum(bool(slot.rid) for slot in self.slots)

    def take(self, prompt: Sequence[int], rid: str) -> Slot | None:
        """Seat `rid`; `None` when every slot is busy.

        A slot that the prompt continues comes first (a common prefix is all it holds, or at least
        half of the prompt, or the slot's last prompt up to the opening of its answer, since clients
        leave the thinking out of the next turn; the longest wins), then an empty one, then the one
        used longest ago. A shorter common prefix, such as a shared system prompt, does not cost
        another conversation its state while there is an empty slot.
        """
        free = [slot for slot in self.slots if not slot.rid]
        if not free:
            return None
        shared = {slot.number: common_prefix(slot.held, prompt) for slot in free}

        def rank(slot: Slot) -> tuple[int, int, int]:
            n = shared[slot.number]
            next_turn = n >= slot.prompt - ANSWER_OPENING > 0
            continues = n > 0 and (n == len(slot.held) or 2 * n >= len(prompt) or next_turn)
            return (-n if continues else 0, len(slot.held) > 0, slot.used)

        slot = min(free, key=rank)
        slot.rid = rid
        slot.prompt = len(prompt)
        slot.used = next(self._clock)
        return slot

    def release(self, number: int, held: Sequence[int]) -> None:
        """Slot `number` is idle and holds the state of `held`."""
        slot = self.slots[number]
        slot.rid = ""
        slot.held = list(held)
        slot.used = next(self._clock)
