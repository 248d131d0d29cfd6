"""The gated delta rule and its norm against the reference, bit for bit: outputs and states."""

from dataclasses import replace

import pytest
import torch

from engine.errors import UnsupportedModelError
from engine.kernels import gated_delta_net as kernels
from engine.models.config import GatedDeltaNetConfig
from engine.reference import gated_delta_net as reference
from engine.rows import Rows, rows_of
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.spans import one_slot

CONFIG = GatedDeltaNetConfig(
    key_heads=1, value_heads=2, key_length=48, value_length=5, conv_kernel=4, gate="sigmoid"
)
DECAY = -torch.tensor([0.05, 4.0])
BIAS = torch.tensor([-1.0, 2.0])
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _inputs(rows: int, seed: int = 0, config: GatedDeltaNetConfig = CONFIG) -> Inputs:
    heads = config.value_heads
    return (
        _random(rows, config.channels, seed=seed),
        _random(rows, heads, seed=seed + 1) * 2,
        _random(rows, heads, seed=seed + 2) * 2,
    )


def _state(slots: int = 3, config: GatedDeltaNetConfig = CONFIG) -> torch.Tensor:
    shape = slots, config.value_heads, config.key_length, config.value_length
    return _random(*shape, seed=9)


def _keys_together(state: torch.Tensor) -> torch.Tensor:
    """The same state with the keys of a value next to each other in memory."""
    return state.transpose(2, 3).contiguous().transpose(2, 3)


def _agree(
    inputs: Inputs, state: torch.Tensor, rows: Rows, config: GatedDeltaNetConfig = CONFIG
) -> None:
    """Both compute; the state goes on with what the kernel wrote."""
    expected_state = state.contiguous().clone()
    gates = DECAY[: config.value_heads], BIAS[: config.value_heads]
    wanted = reference.gated_delta_rule(*inputs, *gates, expected_state, config, rows)
    actual = kernels.gated_delta_rule(*inputs, *gates, state, config, rows)
    assert same_bits(actual, wanted)
    assert same_bits(state, expected_state)


@pytest.fixture(params=["scaled on the way", "prepared"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "UNPREPARED_ROWS", 0 if request.param == "prepared" else 1_000_000)


# Less than a group of keys, a group, a group and a part, the models' 128, a segment.
@pytest.mark.parametrize(("keys", "values"), [(24, 5), (32, 32), (48, 17), (128, 16), (512, 1)])
@pytest.mark.usefixtures("_way")
def test_order(keys: int, values: int) -> None:
    config = replace(CONFIG, value_heads=1, key_length=keys, value_length=values)
    inputs, state = _inputs(2, 1, config), _state(2, config)
    _agree(inputs, state.clone(), one_slot(1, 0, 2), config)
    _agree(inputs, _keys_together(state), one_slot(1, 0, 2), config)


@pytest.mark.parametrize("heads", [(1, 3), (2, 4), (3, 3)])
@pytest.mark.usefixtures("_way")
def test_heads(heads: tuple[int, int]) -> None:
    """Value head j reads key head j % key_heads; a number of heads that is no power of two."""
    config = replace(CONFIG, key_heads=heads[0], value_heads=heads[1], key_length=16)
    inputs = _inputs(2, 3, config)
    decay, bias = -torch.linspace(0.1, 4, heads[1]), torch.linspace(-1, 1, heads[1])
    state, expected = _state(1, config), _state(1, config)
    rows = one_slot(0, 0, 2)
    wanted = reference.gated_delta_rule(*inputs, decay, bias, expected, config, rows)
    assert same_bits(kernels.gated_delta_rule(*inputs, decay, bias, state, config, rows), wanted)
    assert same_bits(state, expected)


@pytest.mark.parametrize("certain", [0, 1, 3])
@pytest.mark.usefixtures("_way")
def test_draft_rows_change_no_state(certain: int) -> None:
    _agree(_inputs(3), _state(), one_slot(1, 10, 3, certain))


@pytest.mark.usefixtures("_way")
def test_spans_of_several_slots() -> None:
    """Drafts, an empty span of a slot that another span changes, spans out of slot order."""
    spans = [(2, 0, 3, 3), (0, 5, 2, 1), (2, 3, 0, 0), (1, 9, 1, 1)]
    _agree(_inputs(6), _state(), rows_of(spans))


def test_kept_drafts_are_applied() -> None:
    """What `commit` asks for: spans over some rows of the window, nothing else in `Rows`."""
    inputs, state = _inputs(6), _state()
    none = torch.empty(0, dtype=torch.int32)
    lines = torch.tensor([[1, 1, 2, 11, 2], [0, 5, 1, 3, 1]], dtype=torch.int32)
    expected = state.clone()
    rows = Rows(lines, none, none)
    wanted = reference.gated_delta_rule(*inputs, DECAY, BIAS, expected, CONFIG, rows)
    actual = kernels.gated_delta_rule(*inputs, DECAY, BIAS, state, CONFIG, rows)
    assert same_bits(state, expected)
    for row in (1, 2, 5):
        assert same_bits(actual[row], wanted[row])


@pytest.mark.usefixtures("_way")
def test_rows_are_independent() -> None:
    x, past = _inputs(3), _state(3)

    def on_rows(first: int, last: int) -> Outputs:
        state = past.clone()
        rows = rows_of([(i, 7, 1, 1) for i in range(first, last)])
        mine = tuple(part[first:last] for part in x)
        out = kernels.gated_delta_rule(*mine, DECAY, BIAS, state, CONFIG, rows)
        return out, state[first:last]

    assert_rows_independent(on_rows, most=3)


def test_zeros_and_extremes() -> None:
    """Keys of length 0, gates far out, a state of zeros of both signs."""
    qkv, alpha, beta = _inputs(3)
    qkv[0] = 0
    qkv[1] = -0.0
    alpha[:, 0] = torch.tensor([-200.0, 200.0, 0.0])
    beta[:, 1] = torch.tensor([200.0, -200.0, -0.0])
    state = _state(1)
    state[:, :, ::2] = -0.0
    _agree((qkv, alpha, beta), state, one_slot(0, 0, 3))


def test_more_keys_than_a_segment() -> None:
    config = replace(CONFIG, key_length=600)
    with pytest.raises(UnsupportedModelError, match="600"):
        _agree(_inputs(1, 0, config), _state(1, config), one_slot(0, 0, 1), config)


@pytest.mark.parametrize("gate", ["sigmoid", "silu"])
@pytest.mark.parametrize("width", [10, 128])
def test_gated_norm(gate: str, width: int) -> None:
    config = replace(CONFIG, gate=gate)
    x, gates = _random(3, 2 * width, seed=1), _random(3, 2 * width, seed=2) * 3
    x[1, :width] = 0
    weight = torch.linspace(0.5, 1.5, width)
    wanted = reference.gated_norm(x, gates, weight, config, 1e-6)
    assert same_bits(kernels.gated_norm(x, gates, weight, config, 1e-6), wanted)


def test_gated_norm_of_rows_is_independent() -> None:
    x, gates, weight = _random(3, 20, seed=1), _random(3, 20, seed=2), torch.rand(10)

    def on_rows(first: int, last: int) -> Outputs:
        return (kernels.gated_norm(x[first:last], gates[first:last], weight, CONFIG, 1e-6),)

    assert_rows_independent(on_rows, most=3)


@pytest.mark.usefixtures("_way")
def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, x, weight = _inputs(2), _random(1, 10, seed=5), torch.rand(10)

    def operators() -> Outputs:
        state = _state()
        rows = one_slot(0, 0, 2, 1)
        out = kernels.gated_delta_rule(*inputs, DECAY, BIAS, state, CONFIG, rows)
        return out, state, kernels.gated_norm(x, x, weight, CONFIG, 1e-6)

    assert_all_written(operators, monkeypatch)


def test_no_rows() -> None:
    out = kernels.gated_delta_rule(*_inputs(0), DECAY, BIAS, _state(), CONFIG, rows_of([]))
    assert out.shape == (0, 10)
    empty = torch.empty(0, 10)
    assert kernels.gated_norm(empty, empty, torch.ones(5), CONFIG, 1e-6).shape == (0, 10)
