"""Stored bytes as torch tensors, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class _Writable:
    """An array as numpy sees it that may not be told that it is read-only."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self.array = array


def tensor_of(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor of the same memory. That of an open file must not be written to: torch warns of
    such arrays, so it is not told."""
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Writable(array)))
