"""Matrix products: the literal order, torch in float64, row independence, quantisation."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.gguf.dequantize import dequantize
from engine.gguf.integer_form import INTEGER_TYPES, IntegerForm, integer_form
from engine.gguf.limbs import limbs_of
from engine.gguf.stored import tensor_of
from engine.gguf.types import quant_type
from engine.reference.linear import linear, quantise
from tests.engine.reference import literal, tolerances
from tests.engine.reference.checks import (
    Outputs,
    assert_all_written,
    assert_rows_independent,
    same_bits,
)
from tests.engine.reference.packing import FLOAT_TYPES, limb_matrix, packed, random_raw

# NVFP4 has a float scale for 16 elements: it takes the float order.
INTEGERS = sorted(INTEGER_TYPES - {"NVFP4"})
ALL = [*INTEGERS, "NVFP4", *FLOAT_TYPES]


def _activations(rows: int, columns: int, seed: int = 5) -> np.ndarray:
    """Rows and groups of very different sizes, and a group of zeros."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, columns), np.float32)
    x *= np.exp2(random.integers(-6, 6, (rows, 1))).astype(np.float32)
    x[0, 32:64] = 0
    return x


def _columns(type_name: str, about: int) -> int:
    elements = quant_type(type_name).block_elements
    return max(about // elements, 1) * elements


def _form(raw: np.ndarray, type_name: str) -> IntegerForm:
    return integer_form(tensor_of(raw), quant_type(type_name))


def _spread(values: torch.Tensor | None, columns: int, row: int) -> list[int]:
    if values is None:
        return [1] * columns
    return [int(v) for v in np.repeat(values[row].numpy(), columns // values.shape[-1])]


def _literal_integers(x: np.ndarray, form: IntegerForm) -> np.ndarray:
    rows, columns = form.codes.shape
    out = np.empty((len(x), rows), np.float32)
    for n in range(rows):
        weights = (
            [int(c) for c in form.codes[n]],
            _spread(form.multiplier, columns, n),
            form.scale[n].numpy(),
            _spread(form.minimum_multiplier, columns, n),
            None if form.minimum_scale is None else form.minimum_scale[n].numpy(),
        )
        out[:, n] = [literal.integer_dot(row, *weights) for row in x]
    return out


@pytest.mark.parametrize("about", [32, 1300])
@pytest.mark.parametrize("type_name", INTEGERS)
def test_integer_order(type_name: str, about: int) -> None:
    columns = _columns(type_name, about)
    raw = random_raw(type_name, (6,), columns)
    x = _activations(2, max(columns, 64))[:, :columns].copy()
    form = _form(raw, type_name)
    actual = linear(torch.from_numpy(x), packed(raw, type_name, columns))
    with np.errstate(over="ignore", invalid="ignore"):
        assert same_bits(actual, _literal_integers(x, form))


@pytest.mark.parametrize("rows", [1, 6, 31, 32, 33, 100])
def test_integer_order_of_any_number_of_outputs(rows: int) -> None:
    raw = random_raw("Q5_1", (rows,), 96)
    x = _activations(1, 96)
    form = _form(raw, "Q5_1")
    actual = linear(torch.from_numpy(x), packed(raw, "Q5_1", 96))
    assert same_bits(actual, _literal_integers(x, form))


@pytest.mark.parametrize(
    ("type_name", "rows", "columns"),
    [
        ("F32", 1, 5),
        ("F32", 6, 33),
        ("F32", 8, 40),
        ("F32", 9, 40),
        ("F32", 31, 100),
        ("F32", 32, 64),
        ("F16", 33, 515),
        ("BF16", 6, 1300),
        ("F32", 3, 1024),
        ("F16", 100, 48),
        ("NVFP4", 33, 128),
        ("NVFP4", 2, 1088),
    ],
)
def test_float_order(type_name: str, rows: int, columns: int) -> None:
    raw = random_raw(type_name, (rows,), columns)
    x = _activations(2, max(columns, 64))[:, :columns].copy()
    weights = dequantize(raw, quant_type(type_name))
    # Groups that are not whole follow this order with int8 activations, too.
    floats = columns % 32 == 0
    actual = linear(torch.from_numpy(x), packed(raw, type_name, columns, floats=floats))
    assert same_bits(actual, literal.float_linear(x, weights))


@pytest.mark.parametrize(
    ("type_name", "rows", "columns"),
    [("F32", 3, 32), ("BF16", 6, 1312), ("F16", 33, 96), ("F32", 40, 544)],
)
def test_limb_order(type_name: str, rows: int, columns: int) -> None:
    raw = random_raw(type_name, (rows,), columns)
    x = _activations(2, max(columns, 64))[:, :columns].copy()
    weights = dequantize(raw, quant_type(type_name))
    weights *= np.exp2(np.arange(columns) // 64 % 5, dtype=np.float32)
    weights[0, :32] = 0
    actual = linear(torch.from_numpy(x), limb_matrix(weights))
    wanted = np.array([[literal.limb_dot(row, w) for w in weights] for row in x], np.float32)
    assert same_bits(actual, wanted)


@pytest.mark.parametrize("exponent", [-149, -130, -100, 0, 127])
def test_limbs_of_every_size(exponent: int) -> None:
    """The smallest and the largest floats, and zeros."""
    random = np.random.default_rng(3)
    weights = random.integers(-255, 256, (2, 96)) * 2.0 ** (max(exponent, -141) - 8)
    weights = weights.astype(np.float32)
    weights[0, 0] = 2.0**exponent
    weights[1] = 0
    x = _activations(1, 96)
    wanted = np.array([[literal.limb_dot(x[0], w) for w in weights]], np.float32)
    with np.errstate(all="ignore"):
        assert same_bits(linear(torch.from_numpy(x), limb_matrix(weights)), wanted)


def test_limbs_keep_bfloat16_within_six_binades() -> None:
    random = np.random.default_rng(3)
    mantissas, exponents = random.integers(128, 256, (7, 512)), random.integers(-6, 1, (7, 512))
    values = (mantissas * 2.0**exponents * random.choice([-1, 1], (7, 512))).astype(np.float32)
    limbs = limbs_of(torch.from_numpy(values))
    whole = limbs.high.int() * 256 + limbs.low.int()
    scale = limbs.scale.repeat_interleave(32, 1)
    assert same_bits(whole * 256 * scale, values)
    assert limbs.high.abs().max() <= 64


def test_limbs_of_no_numbers() -> None:
    """A NaN reaches its output, and no other."""
    weights = np.ones((3, 512), np.float32)
    weights[1, 300], weights[2, 3] = np.nan, np.inf
    got = linear(torch.ones(1, 512), limb_matrix(weights))
    assert np.isfinite(got.numpy()).tolist() == [[True, False, False]]


@pytest.mark.parametrize("type_name", ["Q4_K", "IQ3_S", "Q5_1"])
def test_float_activations_use_the_float_order(type_name: str) -> None:
    columns = _columns(type_name, 600)
    raw = random_raw(type_name, (3,), columns)
    x = _activations(2, columns)
    weights = dequantize(raw, quant_type(type_name))
    actual = linear(torch.from_numpy(x), packed(raw, type_name, columns, floats=True))
    assert same_bits(actual, literal.float_linear(x, weights))


@pytest.mark.parametrize("type_name", ALL)
def test_against_torch(type_name: str) -> None:
    """Dequantised weights times what the activations were quantised to, in float64."""
    columns = _columns(type_name, 1120)
    raw = random_raw(type_name, (40,), columns, seed=9)
    x = _activations(5, columns)
    seen = x.astype(np.float64)
    tolerance = tolerances.LIMBS if type_name in FLOAT_TYPES else tolerances.LINEAR
    if type_name in INTEGERS:
        q, scale, _ = _quantised(x)
        seen = q * np.repeat(scale.astype(np.float64), 32, axis=1)
    weights = torch.from_numpy(dequantize(raw, quant_type(type_name)).astype(np.float64))
    activations = torch.from_numpy(seen)
    actual = linear(torch.from_numpy(x), packed(raw, type_name, columns)).double()
    wanted = activations @ weights.T
    size = activations.abs() @ weights.abs().T
    finite = torch.isfinite(size) & (size < 1e38) & (size > 1e-30)
    if type_name in INTEGERS:  # a code and its minimum may cancel: they count apart
        form = _form(raw, type_name)
        if form.minimum_scale is not None:
            by = form.minimum_multiplier
            least = form.minimum_scale.double()
            if by is not None:
                least = least.repeat_interleave(by.shape[1] // least.shape[1], 1) * by
            spread = least.abs().repeat_interleave(columns // least.shape[1], 1)
            size += 2 * activations.abs() @ spread.T
    assert finite.all() or type_name == "MXFP4"
    error = ((actual - wanted).abs() / size)[finite]
    assert error.max() <= tolerance


@pytest.mark.parametrize("type_name", ALL)
def test_rows_are_independent(type_name: str) -> None:
    columns = _columns(type_name, 544)
    weight = packed(random_raw(type_name, (33,), columns), type_name, columns)
    x = torch.from_numpy(_activations(16, columns))

    def on_rows(first: int, last: int) -> Outputs:
        return (linear(x[first:last], weight),)

    assert_rows_independent(on_rows)


def test_a_row_without_numbers_harms_no_other() -> None:
    weight = packed(random_raw("Q4_K", (5,), 256), "Q4_K", 256)
    x = _activations(4, 256)
    clean = linear(torch.from_numpy(x), weight)
    x[1, 7], x[2, 40] = np.nan, np.inf
    mixed = linear(torch.from_numpy(x), weight)
    assert same_bits(mixed[[0, 3]], clean[[0, 3]])
    assert not np.isfinite(mixed[[1, 2]].numpy()).any(), "and nothing hides it"


@pytest.mark.parametrize("type_name", ["Q4_0", "Q6_K", "F16"])
def test_every_output_is_written(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = _columns(type_name, 544)
    weight = packed(random_raw(type_name, (33,), columns), type_name, columns)
    x = torch.from_numpy(_activations(3, columns))
    assert_all_written(lambda: (linear(x, weight),), monkeypatch)


def _quantised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    groups = x.shape[1] // 32
    values = np.full(x.shape, 99, np.int32)
    scale = np.full((len(x), groups), np.nan, np.float32)
    sums = np.full((len(x), groups, 2), 99, np.int32)
    quantise(x, values, scale, sums)
    return values, scale, sums


FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
SUBNORMALS = st.integers(-400, 400).map(lambda n: float(np.float32(n * 2.0**-149)))
HALVES = st.integers(-254, 254).map(lambda n: n / 2)  # with amax 127 the ties themselves
GROUPS = st.one_of(
    st.lists(FLOATS, min_size=32, max_size=32),
    st.lists(SUBNORMALS, min_size=32, max_size=32),
    st.lists(HALVES, min_size=31, max_size=31).map(lambda values: [127.0, *values]),
)


@given(GROUPS)
@example([0.0] * 32)
@example([-0.0] * 32)
@example([190 * 2.0**-149] + [0.0] * 31)
@example([3.4028234663852886e38] * 32)
@settings(max_examples=150, deadline=None)
def test_quantise(group: list[float]) -> None:
    x = np.array([group], np.float32)
    values, scale, sums = _quantised(x)
    integers, scales = literal.quantise(x[0])
    assert values[0].tolist() == integers
    assert scale[0].tolist() == scales
    assert sums[0, 0].tolist() == [sum(integers[:16]), sum(integers[16:])]
    assert max(abs(q) for q in integers) <= 127


@given(st.lists(HALVES, min_size=31, max_size=31))
@settings(max_examples=50, deadline=None)
def test_ties_go_to_even(values: list[float]) -> None:
    """By exact fractions: Python rounds halves to even."""
    group = [127.0, *values]
    integers, _, _ = _quantised(np.array([group], np.float32))
    assert integers[0].tolist() == [round(Fraction(v)) for v in group]
