"""Router, routed and shared experts against the reference, bit for bit."""

import numpy as np
import pytest
import torch

from engine.kernels.experts import mixture, route, shared_expert
from engine.reference import experts as reference
from tests.engine.kernels.packing import activations, both, tame_pair
from tests.engine.reference.checks import Outputs, assert_rows_independent, same_bits

COUNT, USED, WIDTH, INNER = 9, 2, 32, 32


@pytest.mark.parametrize(("count", "used"), [(5, 5), (40, 4), (520, 10), (3, 1)])
def test_route(count: int, used: int) -> None:
    wanted, weight = tame_pair("F32", (count,), WIDTH)
    x = activations(2, WIDTH)
    experts, shares = route(x, weight, used)
    best, parts = reference.route(x, wanted, used)
    assert same_bits(experts, best)
    assert same_bits(shares, parts)


def test_equal_probabilities_take_the_lowest_experts_first() -> None:
    """Also probabilities of 0, far below the best one."""
    weight = np.zeros((6, 32), np.float32)
    weight[4] = 100
    wanted, packed = both(weight.view(np.uint8), "F32", 32)
    experts, shares = route(torch.ones(1, 32), packed, 3)
    assert experts.tolist() == [[4, 0, 1]]
    assert same_bits(shares, reference.route(torch.ones(1, 32), wanted, 3)[1])


def test_a_row_without_numbers_is_not_hidden() -> None:
    _, weight = tame_pair("F32", (COUNT,), WIDTH)
    x = activations(2, WIDTH)
    x[1, 3] = torch.nan
    experts, shares = route(x, weight, USED)
    alone = route(x[:1], weight, USED)
    assert same_bits(experts[0], alone[0][0])
    assert same_bits(shares[0], alone[1][0])
    assert experts[1].tolist() == [0] * USED
    assert torch.isnan(shares[1]).all()


@pytest.mark.parametrize("kinds", [("F32", "F32", "F32"), ("Q4_0", "Q4_0", "Q8_0")])
def test_mixture(kinds: tuple[str, str, str]) -> None:
    """And its rows are independent of each other."""
    shapes = [(INNER, WIDTH), (INNER, WIDTH), (WIDTH, INNER)]
    pairs = [
        tame_pair(kind, (COUNT, n), k, i)
        for i, (kind, (n, k)) in enumerate(zip(kinds, shapes, strict=True))
    ]
    x = activations(2, WIDTH)
    experts = torch.tensor([[7, 3], [3, 8]], dtype=torch.int32)
    shares = torch.rand(2, USED, generator=torch.Generator().manual_seed(1))
    wanted = reference.mixture(x, experts, shares, *(p[0] for p in pairs))
    stacks = [p[1] for p in pairs]

    def on_rows(first: int, last: int) -> Outputs:
        rows = slice(first, last)
        return (mixture(x[rows], experts[rows], shares[rows], *stacks),)

    assert same_bits(on_rows(0, 2)[0], wanted)
    assert_rows_independent(on_rows, 2)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_shared_expert(kind: str) -> None:
    pairs = [
        tame_pair(kind, (INNER,), WIDTH, 1),
        tame_pair(kind, (INNER,), WIDTH, 2),
        tame_pair(kind, (WIDTH,), INNER, 3),
        tame_pair("F32", (1,), WIDTH, 4),
    ]
    x = activations(2, WIDTH)
    wanted = reference.shared_expert(x, *(p[0] for p in pairs))
    assert same_bits(shared_expert(x, *(p[1] for p in pairs)), wanted)
