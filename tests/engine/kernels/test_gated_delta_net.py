"""The mixer of gated delta nets against the reference, bit for bit: outputs, states and rings."""

from dataclasses import replace

import pytest
import torch

from engine.errors import UnsupportedModelError
from engine.kernels import gated_delta_net as kernels
from engine.kernels.inputs import Input, as_input
from engine.models.config import GatedDeltaNetConfig
from engine.reference import gated_delta_net as reference
from engine.rows import Rows, rows_of
from tests.engine.kernels.delta_mixer import CONFIG, DRAFTS, Layer, inputs
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.spans import chunks_of, one_slot


@pytest.fixture(params=["short windows", "long windows", "several tiles"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_ROWS", 1_000_000 if request.param == "short windows" else 0)
    if request.param == "several tiles":
        monkeypatch.setattr(kernels, "schedulers", lambda device: 1)


def _agree(rows: Rows, layer: Layer, seed: int = 0) -> tuple[kernels.Walked, reference.DeltaInputs]:
    """Both compute; the layer's state goes on with what the kernels wrote."""
    expected = layer.copy()
    x = inputs(rows.count, layer.config, seed)
    wanted, inputs_kept = expected.reference(x, rows)
    made, kept = layer.kernels(x, rows)
    mine = torch.cat([torch.arange(s[1], s[1] + s[2]) for s in rows.spans.tolist()])
    assert same_bits(made.values[mine], wanted[mine])
    _assert_quantised(made)
    assert same_bits(layer.state, expected.state)
    assert same_bits(layer.ring, expected.ring)
    return kept, inputs_kept


@pytest.mark.parametrize("heads", [(1, 1), (2, 3)])
@pytest.mark.parametrize(("keys", "values"), [(24, 5), (32, 32), (48, 17), (128, 128), (512, 1)])
def test_one_row(keys: int, values: int, heads: tuple[int, int]) -> None:
    """Certain or a draft, before and after the ring is full; a state with its values together."""
    config = replace(CONFIG, key_heads=heads[0], value_heads=heads[1])
    layer = Layer(replace(config, key_length=keys, value_length=values))
    for start in (0, 2, 11):
        _agree(one_slot(1, start, 1), layer, start)
    _agree(one_slot(1, 12, 1, 0), layer, 1)
    _agree(rows_of([(0, 4, 1, 1), (1, 12, 0, 0)]), layer, 2)
    _agree(one_slot(0, 0, 1), Layer(layer.config, keys_together=False))


def _assert_quantised(made: Input) -> None:
    """Codes and scales are those of the values, in rows and groups that exist."""
    wanted = as_input(made.values)
    rows, groups = made.values.shape[0], made.values.shape[1] // 32
    for row in range(rows):
        block, line = row // 8, row % 8
        assert same_bits(made.info[block, :groups, line], wanted.info[block, :groups, line])
        # Both limbs.
        shape = (*made.info.shape[:2], 2, 8, 32)
        codes = (part.codes.view(shape)[block, :groups, :, line] for part in (made, wanted))
        assert same_bits(*codes)


# Less than a group of keys, a group, a group and a part, the models' 128, a segment.
@pytest.mark.parametrize(("keys", "values"), [(24, 5), (32, 32), (48, 17), (128, 128), (512, 1)])
@pytest.mark.usefixtures("_way")
def test_order(keys: int, values: int) -> None:
    config = replace(CONFIG, value_heads=1, key_length=keys, value_length=values)
    _agree(one_slot(1, 3, 2), Layer(config))
    _agree(one_slot(0, 0, 1), Layer(config, keys_together=False))


@pytest.mark.parametrize("heads", [(1, 2), (2, 3), (3, 3)])
@pytest.mark.usefixtures("_way")
def test_heads(heads: tuple[int, int]) -> None:
    """Value head j reads key head j % key_heads; a number of heads that is no power of two."""
    config = replace(CONFIG, key_heads=heads[0], value_heads=heads[1], key_length=16)
    layer = Layer(config)
    _agree(one_slot(0, 9, 2), layer)
    _agree(one_slot(0, 11, 9), layer, 1)  # longer than the ring


@pytest.mark.parametrize("certain", [0, 1, 3])
@pytest.mark.usefixtures("_way")
def test_draft_rows_change_no_state(certain: int) -> None:
    _agree(one_slot(1, 10, 3, certain), Layer())


@pytest.mark.usefixtures("_way")
def test_spans_of_several_slots() -> None:
    """Drafts, an empty span of a slot that another span changes, spans out of slot order."""
    spans = [(2, 0, 3, 3), (0, 5, 2, 1), (2, 3, 0, 0), (1, 9, 1, 1), (3, 2, 9, 9), (4, 0, 1, 1)]
    _agree(rows_of(spans), Layer(slots=5))


@pytest.mark.parametrize("sizes", [(1, 5), (4, 1, 35)])
@pytest.mark.usefixtures("_way")
def test_chunks(sizes: tuple[int, ...]) -> None:
    """The ring goes round many times, within a span and from span to span."""
    layer = Layer()
    for start, count in chunks_of({5: 7, 35: 40}[max(sizes)], sizes):
        _agree(one_slot(1, start, count), layer, start)


@pytest.mark.usefixtures("_way")
def test_dropped_drafts_and_a_slot_used_again() -> None:
    layer = Layer()
    _agree(one_slot(1, 0, 7), layer)
    _agree(one_slot(1, 7, 1 + DRAFTS, 1), layer, 1)
    _agree(one_slot(1, 8, 1 + DRAFTS, 1), layer, 2)  # all drafts were dropped
    layer.state[1] = 0
    _agree(one_slot(1, 0, 2), layer, 3)


@pytest.mark.usefixtures("_way")
def test_kept_drafts_are_applied() -> None:
    """What `commit` asks for: spans over some rows of the window, nothing else in `Rows`."""
    layer = Layer()
    kept, kept_inputs = _agree(rows_of([(1, 10, 4, 1), (0, 2, 4, 1)]), layer)
    none = torch.empty(0, dtype=torch.int32)
    lines = [[1, 1, 2, 11, 2], [0, 5, 1, 3, 1], [2, 0, 0, 0, 0]]
    rows = Rows(torch.tensor(lines, dtype=torch.int32), none, none)
    expected = layer.state.clone()
    gates = layer.decay, layer.bias
    reference.delta_commit(kept_inputs, *gates, expected, layer.config, rows)
    kernels.delta_commit(kept, *gates, layer.state, layer.config, rows)
    assert same_bits(layer.state, expected)


@pytest.mark.usefixtures("_way")
def test_rows_are_independent() -> None:
    x, past = inputs(3), Layer()

    def on_rows(first: int, last: int) -> Outputs:
        layer = past.copy()
        rows = rows_of([(i, 7, 1, 1) for i in range(first, last)])
        made, _ = layer.kernels(tuple(part[first:last] for part in x), rows)
        return made.values, layer.state[first:last], layer.ring[first:last]

    assert_rows_independent(on_rows, most=3)


@pytest.mark.usefixtures("_way")
def test_zeros_and_extremes() -> None:
    """Keys of length 0, gates far out, a state of zeros of both signs."""
    layer, rows = Layer(), one_slot(0, 0, 3)
    x = inputs(3)
    qkv, gate, alpha, beta = x
    qkv[:2] = torch.tensor([[0.0], [-0.0]])
    alpha[:, 0] = torch.tensor([-200.0, 200.0, 0.0])
    beta[:, 1] = torch.tensor([200.0, -200.0, -0.0])
    gate[1] = -0.0
    layer.state[:, :, ::2] = -0.0
    expected = layer.copy()
    wanted, _ = expected.reference(x, rows)
    assert same_bits(layer.kernels(x, rows)[0].values, wanted)
    assert same_bits(layer.state, expected.state)


@pytest.mark.parametrize("gate", ["sigmoid", "silu"])
@pytest.mark.usefixtures("_way")
def test_gates(gate: str) -> None:
    config = GatedDeltaNetConfig(1, 2, 32, 64, 3, "silu" if gate == "silu" else "sigmoid")
    _agree(one_slot(2, 1, 5), Layer(config))


@pytest.mark.usefixtures("_way")
def test_every_output_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, key_length=32, value_length=32)
    x, past = inputs(2, config), Layer(config)

    def operators() -> Outputs:
        layer = past.copy()
        made, kept = layer.kernels(x, one_slot(0, 0, 2, 1))
        codes = made.codes.view(-1, 8, 32)[:2, :2]
        return made.values, codes, made.info[0, :2, :2], *kept, layer.state, layer.ring

    assert_all_written(operators, monkeypatch)


def test_rows_of_wider_tensors() -> None:
    """Inputs may be columns of one product."""
    layer, rows = Layer(), one_slot(0, 3, 2)
    expected = layer.copy()
    x = inputs(2)
    wanted, _ = expected.reference(x, rows)
    wide = torch.cat(x, dim=1)
    ends = torch.tensor([part.shape[1] for part in x]).cumsum(0)[:-1]
    parts = wide.tensor_split(ends, dim=1)
    assert same_bits(layer.kernels(parts, rows)[0].values, wanted)


def test_more_keys_than_a_segment() -> None:
    layer = Layer(replace(CONFIG, key_length=600))
    with pytest.raises(UnsupportedModelError, match="600"):
        _agree(one_slot(0, 0, 1), layer)


def test_no_rows() -> None:
    made, kept = Layer().kernels(inputs(0), rows_of([]))
    assert made.values.shape == (0, CONFIG.value_heads * CONFIG.value_length)
    layer = Layer()
    kernels.delta_commit(kept, layer.decay, layer.bias, layer.state, CONFIG, rows_of([]))
