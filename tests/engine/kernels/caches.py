"""Caches that hold the same cells on both sides."""

import numpy as np
import torch

from engine.kernels import kv_cache
from engine.reference import kv_cache as reference
from tests.engine.reference.checks import same_bits


def _stored(cells: reference.Cells) -> tuple[np.ndarray, np.ndarray]:
    """Values and scales of the reference's cells in the types of the kernels' cells."""
    if cells.codes.size:
        return cells.codes, cells.scales.view(np.float16)
    values = cells.halves.view(np.float16) if cells.halves.size else cells.floats
    return values, np.empty(0, np.float16)


def copy_cells(target: kv_cache.Cells, source: reference.Cells) -> None:
    """Makes the kernels' cells hold what the reference's hold."""
    values, scales = _stored(source)
    target.values.copy_(torch.from_numpy(values))
    if scales.size:
        target.scales.copy_(torch.from_numpy(scales))


def same_cells(actual: kv_cache.Cells, wanted: reference.Cells) -> bool:
    """Whether both hold the same bits."""
    values, scales = _stored(wanted)
    same_scales = not scales.size or same_bits(actual.scales, scales)
    return same_bits(actual.values, values) and same_scales
