"""Which checkpoints are taken and which are kept."""

from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoints import Saves, Shelf, plan_saves
from engine.pipeline import Checkpoint

TURN = 9


def shelf_of(limit: int, *lengths: int) -> Shelf:
    shelf = Shelf(limit)
    for length in lengths:
        shelf.add(Checkpoint(length, None))
    return shelf


def test_the_deepest_that_fits_is_found() -> None:
    shelf = shelf_of(4, 3, 8, 12)
    found = [shelf.deepest(length) for length in (2, 3, 11, 12, 99)]
    assert [checkpoint and checkpoint.length for checkpoint in found] == [None, 3, 8, 12, 12]


def test_going_back_drops_what_lies_behind() -> None:
    shelf = shelf_of(4, 3, 8, 12)
    shelf.cut(8)
    assert shelf.lengths == [3, 8]
    shelf.cut(0)
    assert shelf.lengths == []


def test_what_costs_least_to_read_again_goes_first() -> None:
    assert shelf_of(3, 100, 110, 200, 300).lengths == [100, 200, 300]
    assert shelf_of(1, 5, 9).lengths == [9]


@given(st.integers(1, 6), st.lists(st.integers(1, 400), unique=True, max_size=30).map(sorted))
def test_the_last_two_stay_and_the_limit_holds(limit: int, lengths: list[int]) -> None:
    kept = shelf_of(limit, *lengths).lengths
    assert kept == sorted(kept)
    assert len(kept) == min(limit, len(lengths))
    assert kept[-min(2, limit) :] == lengths[-min(2, limit) :]


def test_periodic_checkpoints_stay_spread() -> None:
    kept = shelf_of(6, *range(10, 1001, 10)).lengths
    gaps = [b - a for a, b in zip([0, *kept], kept, strict=False)]
    assert max(gaps[:-2]) <= 600


def saves(
    prompt: list[int], reused: int = 0, limit: int = 6, every: int = 0, root: int = 0
) -> Saves:
    return plan_saves(prompt, reused, limit=limit, every=every, root=root, turn_ids={TURN})


def test_a_prompt_is_saved_before_its_last_turn_and_at_its_end() -> None:
    prompt = [TURN, 1, 2, TURN, 1, 2]
    assert saves(prompt).lengths == (3, 6)
    assert saves(prompt, reused=3).lengths == (6,)
    assert saves([TURN, 1, 2]).lengths == (3,)
    assert saves([1, 2, 3]).lengths == (3,)


def test_with_room_for_one_the_turn_is_saved() -> None:
    assert saves([1, 2, TURN, 3], limit=1).lengths == (2,)
    assert saves([1, 2, 3], limit=1).lengths == (3,)
    assert saves([1, 2, TURN, 3], limit=0, every=1) == Saves()


def test_long_prompts_are_saved_every_n_tokens() -> None:
    assert saves([1] * 25, every=10).lengths == (10, 20, 25)
    assert saves([1] * 25, reused=10, every=10).lengths == (20, 25)


def test_a_long_beginning_is_saved_before_the_second_turn() -> None:
    prompt = [TURN, *[1] * 8, TURN, 2, TURN, 3]
    assert saves(prompt, root=9) == Saves((9, 11, 13), root=9)
    assert saves(prompt, root=10) == Saves((11, 13))
    assert saves(prompt, root=0) == Saves((11, 13))
    assert saves(prompt, root=9, limit=2) == Saves((11, 13)), "no room beside the latest two"


def test_the_root_stays_until_the_slot_goes_back_behind_it() -> None:
    shelf = shelf_of(3, 100)
    shelf.root = 100
    for length in (101, 200, 300, 301):
        shelf.add(Checkpoint(length, None))
    assert shelf.lengths == [100, 300, 301]
    shelf.cut(100)
    assert (shelf.lengths, shelf.root) == ([100], 100)
    shelf.cut(99)
    assert (shelf.lengths, shelf.root) == ([], 0)


def test_a_copy_has_what_fits_and_leaves_the_shelf_as_it_was() -> None:
    shelf = shelf_of(4, 3, 8, 12, 20)
    assert shelf.copy(12).lengths == [3, 8, 12]
    assert shelf.copy(20, 2).lengths == [12, 20]
    assert shelf.lengths == [3, 8, 12, 20]
