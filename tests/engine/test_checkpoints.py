"""Which checkpoints are taken and which are kept."""

from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoints import Shelf, checkpoint_lengths
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


def test_a_prompt_is_saved_before_its_last_turn_and_at_its_end() -> None:
    prompt = [TURN, 1, 2, TURN, 1, 2]
    assert checkpoint_lengths(prompt, 0, 6, 0, {TURN}) == (3, 6)
    assert checkpoint_lengths(prompt, 3, 6, 0, {TURN}) == (6,)
    assert checkpoint_lengths([TURN, 1, 2], 0, 6, 0, {TURN}) == (3,)
    assert checkpoint_lengths([1, 2, 3], 0, 6, 0, {TURN}) == (3,)


def test_with_room_for_one_the_turn_is_saved() -> None:
    assert checkpoint_lengths([1, 2, TURN, 3], 0, 1, 0, {TURN}) == (2,)
    assert checkpoint_lengths([1, 2, 3], 0, 1, 0, {TURN}) == (3,)
    assert checkpoint_lengths([1, 2, TURN, 3], 0, 0, 1, {TURN}) == ()


def test_long_prompts_are_saved_every_n_tokens() -> None:
    assert checkpoint_lengths([1] * 25, 0, 6, 10, {TURN}) == (10, 20, 25)
    assert checkpoint_lengths([1] * 25, 10, 6, 10, {TURN}) == (20, 25)
