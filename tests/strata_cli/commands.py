"""Runs a command line in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from strata_cli.main import run_cli


@dataclass(frozen=True)
class Ran:
    """Exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


def strata(capsys: pytest.CaptureFixture[str], *words: str) -> Ran:
    """`strata WORDS`."""
    capsys.readouterr()
    code = run_cli(words)
    said = capsys.readouterr()
    return Ran(code, said.out, said.err)
