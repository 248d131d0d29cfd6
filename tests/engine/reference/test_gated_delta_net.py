"""The gated delta rule: literal order, the published recurrence in float64, drafts, windows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from engine.models.config import GatedDeltaNetConfig
from engine.reference.gated_delta_net import gated_delta_rule, gated_norm
from engine.rows import Rows, rows_of
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.spans import CHUNKINGS, chunks_of, one_slot

CONFIG = GatedDeltaNetConfig(
    key_heads=2, value_heads=4, key_length=24, value_length=10, conv_kernel=4, gate="sigmoid"
)
DECAY = -torch.tensor([0.05, 0.4, 1.5, 4.0])
BIAS = torch.tensor([-1.0, 0.3, 2.0, -3.0])


@dataclass
class Inputs:
    """What one token of one conversation gives to the rule."""

    qkv: torch.Tensor
    alpha: torch.Tensor
    beta: torch.Tensor

    def rows(self, first: int, last: int) -> "Inputs":
        part = slice(first, last)
        return Inputs(self.qkv[part], self.alpha[part], self.beta[part])


def _inputs(length: int, seed: int = 0, config: GatedDeltaNetConfig = CONFIG) -> Inputs:
    random = torch.Generator().manual_seed(seed)
    heads = config.value_heads
    return Inputs(
        torch.randn(length, config.channels, generator=random),
        torch.randn(length, heads, generator=random) * 2,
        torch.randn(length, heads, generator=random) * 2,
    )


def _joined(parts: Sequence[Inputs]) -> Inputs:
    return Inputs(*(torch.cat([getattr(p, n) for p in parts]) for n in ("qkv", "alpha", "beta")))


def _state(slots: int = 3, config: GatedDeltaNetConfig = CONFIG) -> torch.Tensor:
    return torch.zeros(slots, config.value_heads, config.key_length, config.value_length)


def _run(
    x: Inputs, state: torch.Tensor, rows: Rows, config: GatedDeltaNetConfig = CONFIG
) -> torch.Tensor:
    return gated_delta_rule(x.qkv, x.alpha, x.beta, DECAY, BIAS, state, config, rows)


def _literal(x: Inputs, state: np.ndarray, config: GatedDeltaNetConfig) -> np.ndarray:
    """Rows in turn from `state` [H, K, V], which is changed."""
    kl, vl, heads = config.key_length, config.value_length, config.key_heads
    out = np.empty((len(x.qkv), config.value_heads * vl), np.float32)
    for r, row in enumerate(x.qkv.numpy()):
        for h in range(config.value_heads):
            at = (h % heads) * kl
            q = literal.unit(row[at : at + kl], np.float32(kl**-0.5))
            k = literal.unit(row[heads * kl + at : heads * kl + at + kl], np.float32(1))
            v = row[2 * heads * kl + h * vl : 2 * heads * kl + (h + 1) * vl]
            step = literal.softplus(x.alpha.numpy()[r, h] + BIAS.numpy()[h])
            decay = literal.exp(DECAY.numpy()[h] * step)
            beta = literal.sigmoid(x.beta.numpy()[r, h])
            out[r, h * vl : (h + 1) * vl] = literal.delta_step(state[h], q, k, v, decay, beta)
    return out


@pytest.mark.parametrize("key_length", [24, 32, 128, 600])
def test_order(key_length: int) -> None:
    config = replace(CONFIG, key_length=key_length, value_length=3)
    x, state = _inputs(4, 1, config), _state(2, config)
    wanted_state = state[1].numpy().copy()
    wanted = _literal(x, wanted_state, config)
    assert same_bits(_run(x, state, one_slot(1, 0, 4), config), wanted)
    assert same_bits(state[1], wanted_state)
    assert not state[0].any()


def test_against_the_published_recurrence() -> None:
    """Gated Delta Networks: S_t = S_(t-1) (a (I - b k k^T)) + b v k^T, o = S q, in float64."""
    length, heads = 80, CONFIG.key_heads
    x = _inputs(length)
    actual = _run(x, _state(), one_slot(0, 0, length)).double().view(length, 4, -1)
    q, k, v = x.qkv.double().split([heads * 24, heads * 24, 4 * 10], dim=1)
    q, k = q.view(length, heads, 24), k.view(length, heads, 24)
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * 24**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    a = torch.exp(DECAY.double() * torch.nn.functional.softplus(x.alpha.double() + BIAS))
    b = x.beta.double().sigmoid()
    eye = torch.eye(24, dtype=torch.float64)
    for h in range(4):
        s = torch.zeros(10, 24, dtype=torch.float64)
        for t in range(length):
            key, value = k[t, h % heads], v[t].view(4, 10)[h]
            forget = a[t, h] * (eye - b[t, h] * torch.outer(key, key))
            s = s @ forget + b[t, h] * torch.outer(value, key)
            wanted = s @ q[t, h % heads]
            error = (actual[t, h] - wanted).abs().max()
            assert error <= tolerances.DELTA_RULE * s.abs().max()


def test_any_chunking_gives_the_same_bits() -> None:
    x = _inputs(60)
    results = []
    for sizes in CHUNKINGS:
        state = _state()
        parts = [_run(x.rows(a, a + n), state, one_slot(2, a, n)) for a, n in chunks_of(60, sizes)]
        results.append((torch.cat(parts), state))
    for out, state in results[1:]:
        assert same_bits(out, results[0][0])
        assert same_bits(state, results[0][1])


@pytest.mark.parametrize("certain", [1, 2, 4])
def test_draft_rows_change_no_state(certain: int) -> None:
    """Their outputs are those of certain rows; applying kept ones later gives the same state."""
    x, state, sure = _inputs(14), _state(), _state()
    for s in (state, sure):
        _run(x.rows(0, 10), s, one_slot(1, 0, 10))
    window = x.rows(10, 14)
    drafted = _run(window, state, one_slot(1, 10, 4, certain))
    assert same_bits(drafted, _run(window, sure.clone(), one_slot(1, 10, 4)))
    _run(x.rows(10, 10 + certain), sure, one_slot(1, 10, certain))
    assert same_bits(state, sure)
    if certain < 4:
        more = 4 - certain
        line = torch.tensor([[1, certain, more, 10 + certain, more]], dtype=torch.int32)
        none = torch.empty(0, dtype=torch.int32)
        _run(window, state, Rows(line, none, none))
        _run(x.rows(10 + certain, 14), sure, one_slot(1, 10 + certain, more))
        assert same_bits(state, sure)


def test_spans_of_several_slots() -> None:
    spans = [(2, 0, 20, 20), (0, 5, 4, 2), (1, 9, 1, 1)]
    inputs = [_inputs(count, seed) for seed, (_, _, count, _) in enumerate(spans)]
    together, apart = _state(), _state()
    for state in (together, apart):
        state[:] = torch.randn(state.shape, generator=torch.Generator().manual_seed(4))
    out = _run(_joined(inputs), together, rows_of(spans))
    alone = [_run(x, apart, rows_of([span])) for x, span in zip(inputs, spans, strict=True)]
    assert same_bits(out, torch.cat(alone))
    assert same_bits(together, apart)


def test_rows_are_independent() -> None:
    x = _inputs(16)
    past = torch.randn(16, 4, 24, 10, generator=torch.Generator().manual_seed(3))

    def on_rows(first: int, last: int) -> Outputs:
        state = past.clone()
        out = _run(x.rows(first, last), state, rows_of([(i, 7, 1, 1) for i in range(first, last)]))
        return out, state[first:last]

    assert_rows_independent(on_rows)


def _norm_inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(rows)
    return (
        torch.randn(rows, 40, generator=random),
        torch.randn(rows, 40, generator=random) * 3,
        torch.rand(10, generator=random) + 0.5,
    )


@pytest.mark.parametrize("gate", ["sigmoid", "silu"])
def test_gated_norm(gate: str) -> None:
    config = replace(CONFIG, gate=gate)
    x, gates, weight = _norm_inputs(5)
    actual = gated_norm(x, gates, weight, config, 1e-6)
    active = getattr(literal, gate)
    for r in range(5):
        for h in range(4):
            part = slice(10 * h, 10 * h + 10)
            normed = literal.rms_norm(x[r, part].numpy(), weight.numpy(), 1e-6)
            wanted = [n * active(g) for n, g in zip(normed, gates[r, part].numpy(), strict=True)]
            assert same_bits(actual[r, part], np.array(wanted, np.float32))
    exact = torch.nn.functional.rms_norm(x.double().view(5, 4, 10), (10,), weight.double(), 1e-6)
    g = gates.double()
    exact = exact.reshape(5, 40) * (g.sigmoid() if gate == "sigmoid" else g * g.sigmoid())
    assert (actual - exact).abs().max() <= tolerances.NORM * exact.abs().max()


@pytest.mark.parametrize("gate", ["sigmoid", "silu"])
def test_gated_norm_of_rows_is_independent(gate: str) -> None:
    config = replace(CONFIG, gate=gate)
    x, gates, weight = _norm_inputs(16)

    def on_rows(first: int, last: int) -> Outputs:
        return (gated_norm(x[first:last], gates[first:last], weight, config, 1e-6),)

    assert_rows_independent(on_rows)


def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    x, (y, gates, weight) = _inputs(6), _norm_inputs(6)

    def operators() -> Outputs:
        state = _state()
        out = _run(x, state, one_slot(0, 0, 6, 3))
        return out, state, gated_norm(y, gates, weight, CONFIG, 1e-6)

    assert_all_written(operators, monkeypatch)
