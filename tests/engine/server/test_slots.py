"""Which slot a prompt goes to."""

from engine.server.slots import SlotTable


def table(*held: list[int]) -> SlotTable:
    slots = SlotTable(len(held))
    for number, ids in enumerate(held):
        if ids:
            slots.release(number, ids)
    return slots


def test_the_slot_that_the_prompt_continues() -> None:
    slots = table([1, 2], [1, 2, 3], [], [9])
    assert slots.take([1, 2, 3, 4], "r").number == 1


def test_a_next_turn_whose_thinking_was_dropped() -> None:
    assert table([], [1, 2, 3, 77, 78, 79, 80, 81]).take([1, 2, 3, 4], "r").number == 1


def test_a_shared_beginning_does_not_cost_a_conversation_its_slot() -> None:
    assert table([1, 2, 3, 4, 5], []).take([1, 2, 7, 8, 9], "r").number == 1


def test_an_empty_slot_then_the_one_used_longest_ago() -> None:
    slots = table([5], [], [6])
    assert slots.take([1], "a").number == 1
    assert slots.take([1], "b").number == 0
    assert slots.take([1], "c").number == 2
    assert slots.take([1], "d") is None
    slots.release(2, [6])
    assert slots.take([1], "e").number == 2


def test_a_next_turn_without_the_thinking_goes_to_its_slot() -> None:
    """The prompt ends with the opening of an answer that comes back in another form."""
    table = SlotTable(2)
    first = list(range(40))
    slot = table.take(first, "a")
    assert slot is not None
    table.release(slot.number, first + list(range(100, 160)))
    follow_up = table.take(first[:37] + list(range(200, 320)), "b")
    assert follow_up is not None
    assert follow_up.number == slot.number
