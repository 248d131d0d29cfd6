"""`strata --help` answers at once and imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numba", "numpy", "triton", "msgspec", "starlette", "jinja2", "gguf")


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT, check=True
    )


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["bench", "decode", "--help"], ["--version"]]
)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; from strata_cli.main import run_cli; "
        f"assert run_cli({words!r}) == 0; "
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]; "
        "print('heavy', heavy)"
    )
    assert _run("-c", code).stdout.splitlines()[-1] == "heavy []"


def test_help_takes_less_than_half_a_second() -> None:
    """The best of several, since other tests run beside this one."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        shown = _run("-m", "strata_cli", "--help").stdout
        best = min(best, time.perf_counter() - start)
    assert "check-exactness" in shown
    assert best < 0.5
