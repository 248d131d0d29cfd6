"""Copies of what slots hold by position."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.models import cells
from engine.models.cells import SlotCells

SLOTS, CONTEXT = 3, 40


def _tensors() -> list[tuple[torch.Tensor, int]]:
    """Keys, scales, and one key for each four tokens, all different."""
    shapes = ((torch.int8, CONTEXT, (2, 5), 1), (torch.float16, CONTEXT, (2, 1), 1))
    shapes += ((torch.float32, CONTEXT // 4 + 1, (6,), 4),)
    made = []
    for dtype, length, entry, tokens in shapes:
        count = SLOTS * length * torch.Size(entry).numel()
        values = torch.arange(count) % 113 + 1
        made.append((values.to(dtype).view(SLOTS, length, *entry), tokens))
    return made


@given(st.integers(0, CONTEXT), st.integers(0, CONTEXT), st.integers(1, 70))
def test_what_was_saved_comes_back_and_nothing_else_changes(
    held: int, wanted: int, block: int
) -> None:
    wanted = min(held, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "SMALLEST_BLOCK", 1)
        patch.setattr(cells, "LARGEST_BLOCK", block)
        tensors = _tensors()
        slots = SlotCells(tensors, CONTEXT, "cpu")
    before = [tensor.clone() for tensor, _ in tensors]
    saved = slots.save(1, held)
    assert sum(one.buffer.nbytes for one in saved) == slots.size_bytes(held)
    for tensor, _ in tensors:
        tensor.zero_()
    slots.load(2, wanted, saved, held)
    for (tensor, tokens), old in zip(tensors, before, strict=True):
        entries = wanted // tokens
        assert torch.equal(tensor[2, :entries], old[1, :entries])
        assert not tensor[:2].any()
        assert not tensor[2, entries:].any()


def test_memory_of_copies_that_are_gone_is_used_again() -> None:
    slots = SlotCells(_tensors(), CONTEXT, "cpu")
    saved = slots.save(0, CONTEXT)
    assert slots.idle_bytes == 0
    places = [one.buffer.data_ptr() for one in saved]
    del saved
    assert slots.idle_bytes == slots.size_bytes(CONTEXT)
    again = slots.save(1, CONTEXT)
    assert [one.buffer.data_ptr() for one in again] == places
