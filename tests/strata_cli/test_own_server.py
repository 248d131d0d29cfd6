"""A server that does not start says why."""

import sys
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineDiedError
from strata_cli import own_server


def test_its_last_words_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho listening on nothing >&2\necho error: no model >&2\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(own_server, "engine_args", lambda config: [])
    config: Any = None
    with (
        pytest.raises(EngineDiedError, match="did not start: listening on nothing / error: no mod"),
        own_server.own_server(None, config),
    ):
        pass
