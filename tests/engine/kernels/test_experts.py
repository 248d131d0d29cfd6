"""Router, routed and shared experts against the reference, bit for bit."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from engine.kernels import experts as kernels
from engine.kernels.awaited import NOT_YET, room
from engine.kernels.experts_route import (
    awaited_words_of_row,
    choose,
    choose_of_row,
    room_for,
)
from engine.reference import experts as reference
from tests.engine.kernels.mixtures import (
    FLOATS,
    INTEGERS,
    USED,
    WIDTH,
    Kinds,
    mixture,
    residuals,
)
from tests.engine.kernels.packing import activations, poison
from tests.engine.kernels.ptx import run_assembly
from tests.engine.reference.checks import same_bits


def _reference_top(logits: torch.Tensor, used: int) -> tuple[np.ndarray, np.ndarray]:
    experts = np.empty((len(logits), used), np.int32)
    shares = np.empty((len(logits), used), np.float32)
    reference.top_experts(logits.numpy(), experts, shares)
    return experts, shares


def top(logits: torch.Tensor, used: int) -> tuple[torch.Tensor, torch.Tensor]:
    choice = room_for(len(logits), used, logits.device)
    choose(logits, choice)
    return choice.experts, choice.shares


@pytest.mark.parametrize(("count", "used"), [(5, 5), (40, 4), (520, 10), (3, 1)])
def test_top(count: int, used: int) -> None:
    logits = torch.randn(2, count, generator=torch.Generator().manual_seed(count))
    best, parts = _reference_top(logits, used)
    experts, shares = top(logits, used)
    assert same_bits(experts, best)
    assert same_bits(shares, parts)


@triton.jit
def all_choose(LOGITS, EXPERTS, SHARES, rows, COUNT: tl.constexpr, USED: tl.constexpr,
               ASM: tl.constexpr):  # fmt: skip
    """Four warps, as at the end of a launch."""
    thread = tl.arange(0, 128)
    row = thread // 32
    lane = thread % 32
    at = LOGITS.to(tl.pointer_type(tl.int32)) + row * COUNT + lane
    words = awaited_words_of_row(at, row < rows, lane, COUNT, ASM)
    choose_of_row(words, EXPERTS, SHARES, row, row < rows, lane, COUNT, USED, 4, ASM)  # fmt: skip


@pytest.mark.parametrize("count", [32, 40, 520])
@pytest.mark.parametrize("assembly", [False, True])
def test_a_warp_a_row(count: int, assembly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with the instructions that a card runs; behind the last row nothing is written."""
    if assembly:
        run_assembly(monkeypatch)
    logits = torch.randn(3, count, generator=torch.Generator().manual_seed(count)) * 3
    logits[0, :20] = 2.5
    logits[1, 7] = -torch.inf
    best, parts = _reference_top(logits, 10)
    choice = room_for(4, 10, logits.device)
    choice.experts.fill_(-7)
    all_choose[(1,)](logits, choice.experts, choice.shares, 3, COUNT=count, USED=10, ASM=assembly)
    assert same_bits(choice.experts[:3].contiguous(), best)
    assert same_bits(choice.shares[:3].contiguous(), parts)
    assert (choice.experts[3] == -7).all()


def test_equal_probabilities_take_the_lowest_experts_first() -> None:
    """Also probabilities of 0, far below the best one, and those that division makes equal."""
    logits = torch.tensor([[0, 0, 0, 0, 3000, 0], [1, 1 + 1e-7, 1 - 1e-7, 1, 1, 1 + 2e-7]])
    best, parts = _reference_top(logits, 3)
    experts, shares = top(logits, 3)
    assert experts[0].tolist() == [4, 0, 1]
    assert same_bits(experts, best)
    assert same_bits(shares, parts)


def test_a_row_without_numbers_is_not_hidden() -> None:
    logits = torch.randn(2, 9)
    logits[1, 3] = torch.nan
    experts, shares = top(logits, 2)
    alone = top(logits[:1], 2)
    assert same_bits(experts[0], alone[0][0])
    assert same_bits(shares[0], alone[1][0])
    assert experts[1].tolist() == [0, 0]
    assert torch.isnan(shares[1]).all()


@pytest.mark.parametrize(
    ("routed", "shared", "streams"),
    [(INTEGERS, INTEGERS, 4), (INTEGERS, FLOATS, 1), (FLOATS, INTEGERS, 1), (FLOATS, FLOATS, 2)],
)
def test_mixture(
    routed: Kinds, shared: Kinds, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, x = mixture(routed, shared), activations(2, WIDTH)
    residual, shares = residuals(2, streams)
    wanted = both.expected(residual, shares, x)
    poison(monkeypatch)
    assert same_bits(both.got(residual, shares, x), wanted)


@pytest.mark.parametrize(("few", "crowded"), [(80, 16), (0, 16), (0, 2)])
def test_rows_are_independent(few: int, crowded: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven rows of two experts each: alone, in blocks, and as of prompts; some experts have more
    than eight pairs."""
    monkeypatch.setattr(kernels, "_FEW", few)
    monkeypatch.setattr(kernels, "_CROWDED", crowded)
    both, x = mixture(), activations(11, WIDTH)
    x[1:10] = x[1]
    residual, shares = residuals(11, 2)
    assert shares is not None
    whole = both.got(residual, shares, x)
    assert same_bits(whole, both.expected(residual, shares, x))
    for i in (0, 9, 10):
        row = slice(i, i + 1)
        assert same_bits(both.got(residual[row], shares[row], x[row])[0], whole[i])


def test_awaited_memory_is_left_as_it_was_found() -> None:
    """Twice the same: what a launch's programs waited for is nothing again."""
    both, x = mixture(), activations(3, WIDTH)
    residual, shares = residuals(3, 2)
    wanted = both.expected(residual, shares, x)
    pairs = 3 * USED
    for _ in range(2):
        assert same_bits(both.got(residual, shares, x), wanted)
        for use, count in (("routed", pairs * WIDTH), ("shared", 3 * WIDTH)):
            left = room(f"{use} 3", count, torch.float32, x.device)
            assert (left.view(torch.int32) == NOT_YET.value).all()
