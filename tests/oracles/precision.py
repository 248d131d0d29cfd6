"""Runs transformers in float64, so that a comparison shows only the engine's own rounding.

In float32 transformers strays up to 1e-5 of the largest logit by itself on some random models (its
chunked delta rule), which is the whole tolerance of the tests.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def in_double(model: nn.Module) -> Iterator[nn.Module]:
    """`model`, turned to float64 for good, with the casts inside its code going to float64 too.

    The modelling code names `torch.float32` and `Tensor.float` where it wants precision; inside
    this context both mean float64.
    """
    float32, plain, cast = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield model.double()
    finally:
        torch.float32, torch.float, torch.Tensor.float = float32, plain, cast
        torch.set_default_dtype(float32)
