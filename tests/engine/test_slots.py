"""Which slot a request takes, and how much of its prompt it finds there."""

import pytest

from engine.checkpoints import Saves
from engine.errors import RequestError
from engine.pipeline import Checkpoint
from engine.request import Request
from engine.slots import Reuse, Run, Slot, choose_slot


def slot_with(index: int, held: list[int], *saved: int, used: int = 0) -> Slot:
    slot = Slot(index, 4)
    slot.tokens, slot.computed, slot.last_used = list(held), len(held), used
    for length in saved:
        slot.shelf.add(Checkpoint(length, None))
    return slot


def ask(tokens: list[int], slot: int | None = None) -> Request:
    return Request(id="r", tokens=tuple(tokens), max_new=1, slot=slot)


def occupy(slot: Slot) -> None:
    slot.seat(Run(ask([1, 2]), 1, 0, Saves()))


def test_all_that_is_held_is_reused_where_it_is_a_prefix() -> None:
    assert slot_with(0, [1, 2, 3]).reuse([1, 2, 3, 4]) == Reuse(3)


def test_the_last_prompt_token_is_always_computed() -> None:
    slot = slot_with(0, [1, 2, 3], 2, 3)
    assert slot.reuse([1, 2, 3]).length == 2
    assert slot_with(0, [1, 2, 3]).reuse([1, 2, 3]) == Reuse(0)


def test_a_longer_history_is_reused_up_to_a_checkpoint_in_the_common_part() -> None:
    slot = slot_with(0, [1, 2, 3, 4, 5], 2, 4)
    assert slot.reuse([1, 2, 3, 9, 9]).length == 2
    assert slot.reuse([1, 2, 3, 4, 9]).length == 4
    assert slot.reuse([1, 9, 9]) == Reuse(0)


def test_tokens_that_were_never_computed_are_not_held() -> None:
    slot = slot_with(0, [1, 2, 3])
    slot.computed = 2
    assert slot.reuse([1, 2, 3, 4]).length == 2


def test_the_longest_prefix_wins_then_an_empty_slot_then_the_oldest() -> None:
    a, b = slot_with(0, [1, 2], used=5), slot_with(1, [1, 2, 3], used=9)
    empty, old = slot_with(2, []), slot_with(3, [7], used=1)
    slots = [a, b, empty, old]
    assert choose_slot(slots, ask([1, 2, 3, 4])) is b
    assert choose_slot(slots, ask([1, 2, 9, 4])) is a
    assert choose_slot(slots, ask([5, 5])) is empty
    occupy(empty)
    assert choose_slot(slots, ask([5, 5])) is old


def test_a_named_slot_is_taken_when_it_is_free() -> None:
    slots = [slot_with(0, [1, 2]), slot_with(1, [])]
    assert choose_slot(slots, ask([1, 2, 3], slot=1)) is slots[1]
    occupy(slots[1])
    with pytest.raises(RequestError, match="slot 1 is busy"):
        choose_slot(slots, ask([1, 2, 3], slot=1))


@pytest.mark.parametrize("index", [-1, 2])
def test_a_slot_out_of_range_is_refused(index: int) -> None:
    slots = [slot_with(0, []), slot_with(1, [])]
    with pytest.raises(RequestError, match=f"slot is {index}, allowed is 0 to 1"):
        choose_slot(slots, ask([1], slot=index))


def test_no_free_slot_is_an_error() -> None:
    slot = slot_with(0, [])
    occupy(slot)
    with pytest.raises(RequestError, match="all 1 slots are busy"):
        choose_slot([slot], ask([1]))


def test_a_seat_drops_checkpoints_behind_its_start_and_leaving_keeps_what_is_computed() -> None:
    slot = slot_with(0, [1, 2, 3, 4], 2, 4)
    slot.seat(Run(ask([1, 2, 8, 9]), 1, 2, Saves()))
    assert slot.shelf.lengths == [2]
    assert slot.missing == 2
    slot.computed = 3
    slot.leave(used=4)
    assert (slot.tokens, slot.missing, slot.last_used, slot.run) == ([1, 2, 8], 0, 4, None)


def test_a_conversation_that_only_begins_alike_keeps_its_slot_while_another_is_empty() -> None:
    alike, empty = slot_with(0, list(range(30)), 20, used=1), slot_with(1, [])
    alike.asked = 28
    assert choose_slot([alike, empty], ask([*range(19), 9])) is empty
    assert choose_slot([alike, empty], ask([*range(28), 9])) is alike
    old = slot_with(1, [7], used=0)
    assert choose_slot([alike, old], ask([*range(19), 9])) is old


def test_what_others_may_begin_with_ends_at_a_checkpoint() -> None:
    slot = slot_with(0, list(range(30)), 10, 20)
    found = slot.shared([*range(25), 99])
    assert found is not None
    assert found.length == 20
    assert slot.shared([9, 9]) is None
    assert slot_with(0, list(range(30))).shared([*range(25), 99]) is None


def test_a_prompt_that_only_begins_alike_costs_a_conversation_its_slot() -> None:
    slot = slot_with(0, list(range(60)))
    slot.asked = 40
    assert not slot.loses([*range(60), 9]), "all of it and more"
    assert not slot.loses([*range(33), 9, 9, 9]), "the next turn, without the answer's thinking"
    assert slot.loses([*range(31), 9, 9, 9])
    assert not slot_with(1, []).loses([1])
