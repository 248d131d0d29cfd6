"""What the installed PyTorch was built for, read without importing it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path


def torch_has_cuda() -> bool:
    """Whether PyTorch can compute on NVIDIA cards; False where it is not installed."""
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return False
    if found is None or not found.origin:
        return False
    return built_for_cuda(Path(found.origin).with_name("version.py"))


def built_for_cuda(version_file: Path) -> bool:
    """Whether torch's `version.py` names a CUDA release."""
    try:
        text = version_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return bool(re.search(r"""^cuda\b[^=\n]*=\s*['"]\d""", text, re.MULTILINE))
