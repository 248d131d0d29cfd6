"""Kernels run under Triton's interpreter here: it must be asked for before they are imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
