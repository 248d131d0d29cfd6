"""A slot's state is cleared, saved and restored whole, and no other slot's."""

from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.host_buffer import BufferPool, Lent
from engine.kernels.slot_state import WORDS, SlotState
from tests.engine.kernels.compiling import assert_compiles


def tensors() -> list[torch.Tensor]:
    """Of three slots: short and long ones, one whose axes lie in another order, one of int64."""
    random = torch.Generator().manual_seed(1)
    return [
        torch.randn(3, 5, generator=random),
        torch.randn(3, 2, WORDS // 2 + 3, generator=random),
        torch.randn(3, 2, 8, 4, generator=random).transpose(2, 3),
        torch.randint(0, 1 << 40, (3, 7), generator=random),
    ]


def test_one_slot_and_no_other() -> None:
    ours, theirs = tensors(), tensors()
    state = SlotState(ours)
    saved = state.save(1)
    state.clear(1)
    for one, other in zip(ours, theirs, strict=True):
        assert not one[1].any()
        assert torch.equal(one[::2], other[::2])
    state.restore(1, saved)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    state.restore(2, saved)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one[2], other[1])
        assert torch.equal(one[:2], other[:2])


def test_memory_of_dropped_copies_is_used_again() -> None:
    state = SlotState(tensors())
    first, second = state.save(0), state.save(1)
    places = {first.buffer.data_ptr(), second.buffer.data_ptr()}
    assert len(places) == 2
    before = second.buffer.clone()
    del first
    third = state.save(2)
    assert third.buffer.data_ptr() in places - {second.buffer.data_ptr()}
    assert torch.equal(second.buffer, before)


def test_copies_on_the_device_come_first_and_are_restored_alike() -> None:
    ours, theirs = tensors(), tensors()
    state = SlotState(ours, near=1, copies=3)
    state.prepare()
    near, far = state.save(0), state.save(1)
    near_place, far_place = near.buffer.data_ptr(), far.buffer.data_ptr()
    state.clear(0)
    state.clear(1)
    state.restore(1, far)
    state.restore(0, near)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    del near
    again, more = state.save(2), state.save(2)
    assert again.buffer.data_ptr() == near_place, "the only place on the device is free again"
    assert more.buffer.data_ptr() not in (near_place, far_place)


def test_a_copy_that_is_set_aside_leaves_its_place_on_the_device() -> None:
    ours, theirs = tensors(), tensors()
    state = SlotState(ours, near=1, copies=1)
    state.prepare()
    state.prepare_aside(2 * state.size_bytes)
    near = state.save(0)
    place = near.buffer.data_ptr()
    aside = state.set_aside(near)
    assert state.set_aside(aside) is aside
    del near
    assert state.save(1).buffer.data_ptr() == place
    state.clear(0)
    state.restore(0, aside)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@given(st.integers(0, 3), st.lists(st.booleans(), max_size=20))
def test_a_pool_lends_each_buffer_to_one_at_a_time(most: int, lends: list[bool]) -> None:
    pool = BufferPool(8, torch.device("cpu"), most=most)
    held: list[Lent] = []
    for lend in lends:
        if lend and not pool.empty:
            held.append(pool.lend())
        elif not lend and held:
            held.pop(0)
        places = {one.buffer.data_ptr() for one in held}
        assert len(places) == len(held) <= most
        assert pool.empty == (len(held) == most)


def launches(kernels: list[Any]) -> None:
    """All of them."""
    state = SlotState(tensors())
    state.restore(1, state.save(0))
    state.clear(2)
    assert len(kernels) == 3


def test_compiles(tmp_path: Path) -> None:
    assert_compiles(__name__, "launches", tmp_path)
