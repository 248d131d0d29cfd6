"""Products of one row by their assembly give the reference's bits, as far as a CPU can tell."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import pytest
import torch
import triton
import triton.language as tl

from engine.kernels.experts_product import load_tile, tile_terms, tile_totals
from engine.kernels.inputs import as_input
from engine.kernels.integer_product import input_of_rows
from engine.reference import linear as reference
from tests.engine.kernels.packing import activations, random_pair
from tests.engine.kernels.ptx import run_assembly
from tests.engine.kernels.test_assembly import TYPES
from tests.engine.reference.checks import same_bits


@triton.jit
def row_by_tile(CODES, INFO, RECORD, OUT, row, step, quads, groups, FORM: tl.constexpr,
                QUADS: tl.constexpr, WHOLE: tl.constexpr):  # fmt: skip
    """OUT: results of all 32 threads, outputs n, then n + 8. One tile."""
    lane = tl.arange(0, 32)
    x = input_of_rows(CODES, INFO, row, row, row, step, lane)
    tile = RECORD.to(tl.pointer_type(tl.int32)) + lane * 0
    if QUADS:
        weights = load_tile(tile, lane, FORM, QUADS, True)
        y = tile_terms(weights, x, groups, lane, FORM, 1, False, QUADS, WHOLE, 1, True)
    else:
        y = tile_totals(tile, x, quads, groups, lane, FORM, 1, False, WHOLE, 1, True)
    tl.store(OUT + lane, y[0])
    tl.store(OUT + 32 + lane, y[1])


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("name", TYPES)
def test_row_by_tile(name: str, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run_assembly(monkeypatch)
    columns = TYPES[name]
    wanted, weight = random_pair(name, (16,), columns)
    values = activations(11, columns)
    x = as_input(values)
    out = torch.empty(2, 8, 4)
    row_by_tile[(1,)](
        x.codes, x.info, weight.record, out, 9, x.codes.shape[1], weight.quads, weight.groups,
        FORM=weight.form, QUADS=weight.quads if at_once else 0,
        WHOLE=weight.groups % (4 if at_once else 16) == 0,
    )  # fmt: skip
    expected = reference.linear(values[9:10], wanted).view(2, 8, 1).expand(2, 8, 4)
    assert same_bits(out, expected.contiguous())
