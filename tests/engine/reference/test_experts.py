"""Router, routed and shared experts: literal order, torch in float64, ties, row independence."""

import numpy as np
import pytest
import torch

from engine.reference.experts import mixture, route, shared_expert
from engine.reference.linear import linear
from engine.reference.matrix import Matrix
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.packing import float_matrix, q8_matrix, random_matrix

COUNT, USED, WIDTH, INNER = 40, 4, 96, 64
Stacks = tuple[Matrix, Matrix, Matrix]


def _input(rows: int, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))


def _float_stacks() -> tuple[list[np.ndarray], Stacks]:
    random = np.random.default_rng(3)
    shapes = [(COUNT, INNER, WIDTH), (COUNT, INNER, WIDTH), (COUNT, WIDTH, INNER)]
    values = [random.standard_normal(s, np.float32) / np.float32(s[-1] ** 0.5) for s in shapes]
    gate, up, down = (float_matrix(v) for v in values)
    return values, (gate, up, down)


def _integer_stacks() -> Stacks:
    return (
        q8_matrix(INNER, WIDTH, 1, COUNT),
        q8_matrix(INNER, WIDTH, 2, COUNT),
        q8_matrix(WIDTH, INNER, 3, COUNT),
    )


def _literal_route(x: np.ndarray, weight: np.ndarray, used: int) -> tuple[list[int], np.ndarray]:
    logits = [literal.dot(row, x) for row in weight]
    highest = max(logits)
    p = [literal.exp(np.float32(logit - highest)) for logit in logits]
    total = literal.ordered_sum(p)
    p = [np.float32(value / total) for value in p]
    best = sorted(range(len(p)), key=lambda e: -p[e])[:used]
    chosen = np.float32(0)
    for e in best:
        chosen = np.float32(chosen + p[e])
    return best, np.array([np.float32(p[e] / chosen) for e in best], np.float32)


@pytest.mark.parametrize(("count", "used"), [(5, 5), (40, 4), (600, 10), (3, 1)])
def test_route_order(count: int, used: int) -> None:
    values, weight = random_matrix(count, WIDTH, 1)
    x = _input(4)
    experts, shares = route(x, weight, used)
    assert experts.dtype == torch.int32
    for r in range(4):
        best, wanted = _literal_route(x[r].numpy(), values, used)
        assert experts[r].tolist() == best
        assert same_bits(shares[r], wanted)


def test_route_against_torch() -> None:
    values, weight = random_matrix(COUNT, WIDTH, 1)
    x = _input(30)
    experts, shares = route(x, weight, USED)
    p = torch.softmax(x.double() @ torch.from_numpy(values).double().T, dim=1)
    best = p.topk(USED)
    assert torch.equal(experts.long(), best.indices)
    wanted = best.values / best.values.sum(1, keepdim=True)
    assert (shares - wanted).abs().max() <= tolerances.EXPERTS
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-6)


def test_equal_probabilities_take_the_lowest_experts_first() -> None:
    row = np.random.default_rng(0).standard_normal((1, WIDTH), np.float32)
    x = _input(2)
    experts, shares = route(x, float_matrix(np.repeat(row, 9, axis=0)), 4)
    assert experts.tolist() == [[0, 1, 2, 3]] * 2
    assert (shares == 0.25).all()
    pairs = np.random.default_rng(1).standard_normal((4, WIDTH), np.float32)
    experts, _ = route(x, float_matrix(np.repeat(pairs, 2, axis=0)), 8)
    for row_of_experts in experts.tolist():
        for a, b in zip(row_of_experts[::2], row_of_experts[1::2], strict=True):
            assert (a % 2, b) == (0, a + 1)


def test_probabilities_that_vanish_are_still_ranked() -> None:
    """Far below the best one every probability is 0: the lowest indices follow."""
    weight = np.zeros((6, 32), np.float32)
    weight[4] = 100
    experts, shares = route(torch.ones(1, 32), float_matrix(weight), 3)
    assert experts.tolist() == [[4, 0, 1]]
    assert shares.tolist() == [[1, 0, 0]]


def _literal_expert(
    x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray
) -> np.ndarray:
    g, u = literal.float_linear(x[None], gate)[0], literal.float_linear(x[None], up)[0]
    middle = np.array([literal.silu(a) * b for a, b in zip(g, u, strict=True)], np.float32)
    return literal.float_linear(middle[None], down)[0]


def test_mixture_order() -> None:
    (gate, up, down), stacks = _float_stacks()
    x = _input(2)
    experts = torch.tensor([[7, 3, 39], [3, 0, 7]], dtype=torch.int32)
    shares = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.7, 0.2]])
    actual = mixture(x, experts, shares, *stacks)
    for r in range(2):
        acc = None
        for e, w in zip(experts[r].tolist(), shares[r].numpy(), strict=True):
            term = w * _literal_expert(x[r].numpy(), gate[e], up[e], down[e])
            acc = term if acc is None else acc + term
        assert same_bits(actual[r], acc)


def test_mixture_against_torch() -> None:
    (gate, up, down), stacks = _float_stacks()
    x = _input(12)
    _, weight = random_matrix(COUNT, WIDTH, 1)
    experts, shares = route(x, weight, USED)
    actual = mixture(x, experts, shares, *stacks)
    g, u, d = (torch.from_numpy(v).double() for v in (gate, up, down))
    for r in range(12):
        wanted = torch.zeros(WIDTH, dtype=torch.float64)
        for e, w in zip(experts[r].tolist(), shares[r].double(), strict=True):
            row = x[r].double()
            wanted += w * (d[e] @ (torch.nn.functional.silu(g[e] @ row) * (u[e] @ row)))
        assert (actual[r] - wanted).abs().max() <= tolerances.EXPERTS * wanted.abs().max()


@pytest.mark.parametrize("integers", [True, False])
def test_mixture_rows_are_independent(integers: bool) -> None:
    """Rows that share experts with others, in every mix of neighbours."""
    stacks = _integer_stacks() if integers else _float_stacks()[1]
    _, weight = random_matrix(COUNT, WIDTH, 1)
    x = _input(16)
    x[8:12] = x[:4]

    def on_rows(first: int, last: int) -> Outputs:
        experts, shares = route(x[first:last], weight, USED)
        return experts, shares, mixture(x[first:last], experts, shares, *stacks)

    assert_rows_independent(on_rows)
    whole = on_rows(0, 16)[2]
    assert same_bits(whole[8:12], whole[:4])


@pytest.mark.parametrize("integers", [True, False])
def test_shared_expert(integers: bool) -> None:
    """By the products of `linear`, whose order has its own tests."""
    gate, up, down = (
        (q8_matrix(INNER, WIDTH, 1), q8_matrix(INNER, WIDTH, 2), q8_matrix(WIDTH, INNER, 3))
        if integers
        else [random_matrix(n, k, s)[1] for n, k, s in ((64, 96, 1), (64, 96, 2), (96, 64, 3))]
    )
    _, scalar = random_matrix(1, WIDTH, 9)
    x = _input(16)
    actual = shared_expert(x, gate, up, down, scalar)
    g, u = linear(x, gate).numpy(), linear(x, up).numpy()
    middle = np.array([literal.silu(v) for v in g.reshape(-1)], np.float32).reshape(g.shape) * u
    y = linear(torch.from_numpy(middle), down).numpy()
    share = [literal.sigmoid(s) for s in linear(x, scalar).numpy()[:, 0]]
    assert same_bits(actual, np.array(share, np.float32)[:, None] * y)

    def on_rows(first: int, last: int) -> Outputs:
        return (shared_expert(x[first:last], gate, up, down, scalar),)

    assert_rows_independent(on_rows)


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    _, weight = random_matrix(COUNT, WIDTH, 1)
    stacks = _integer_stacks()
    shared = q8_matrix(INNER, WIDTH, 1), q8_matrix(INNER, WIDTH, 2), q8_matrix(WIDTH, INNER, 3)
    _, scalar = random_matrix(1, WIDTH, 9)
    x = _input(5)

    def operators() -> Outputs:
        experts, shares = route(x, weight, USED)
        routed = mixture(x, experts, shares, *stacks)
        return experts, shares, routed, shared_expert(x, *shared, scalar)

    assert_all_written(operators, monkeypatch)
