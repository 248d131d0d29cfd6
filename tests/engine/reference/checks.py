"""What every operator is held to: no dependence on other rows, and every output written."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

Outputs = tuple[torch.Tensor, ...]
OnRows = Callable[[int, int], Outputs]


def same_bits(a: torch.Tensor | np.ndarray, b: torch.Tensor | np.ndarray) -> bool:
    """Equal shapes and equal bytes: -0 is not 0, and a NaN equals itself."""
    x, y = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def assert_rows_independent(on_rows: OnRows, most: int = 16) -> None:
    """`on_rows(first, last)` computes rows first..last-1 of some fixed input.

    For 1..`most` rows, row i of the batch has the bits of row i computed alone.
    """
    alone = [on_rows(i, i + 1) for i in range(most)]
    for count in range(1, most + 1):
        together = on_rows(0, count)
        for i in range(count):
            for whole, single in zip(together, alone[i], strict=True):
                assert same_bits(whole[i], single[0]), f"row {i} of {count} differs"


def assert_all_written(operator: Callable[[], Outputs], patch: pytest.MonkeyPatch) -> None:
    """The outputs do not depend on what was in fresh memory before.

    The first call also compiles, which must not see the changed allocators.
    """
    expected = [output.clone() for output in operator()]
    for garbage in (0x7F, 0xFF):  # large numbers, then NaNs and -1
        with patch.context() as context:
            _fill_fresh_memory(context, garbage)
            outputs = operator()
        for output, wanted in zip(outputs, expected, strict=True):
            assert same_bits(output, wanted)


def _fill_fresh_memory(patch: pytest.MonkeyPatch, garbage: int) -> None:
    numpy_empty, torch_empty, torch_empty_like = np.empty, torch.empty, torch.empty_like

    def filled(array: np.ndarray) -> np.ndarray:
        array.view(np.uint8).reshape(-1)[:] = garbage
        return array

    def empty(shape: object, dtype: object = float, **options: object) -> np.ndarray:
        made = numpy_empty(shape, dtype, **options)
        return filled(made) if made.ndim and made.dtype != object else made

    def tensor(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*arguments: object, **options: object) -> torch.Tensor:
            result = make(*arguments, **options)
            if result.numel():
                filled(result.numpy())
            return result

        return made

    patch.setattr(np, "empty", empty)
    patch.setattr(torch, "empty", tensor(torch_empty))
    patch.setattr(torch, "empty_like", tensor(torch_empty_like))
