"""The wizard and its surroundings: colours, pipes, the input's end, Ctrl-C, keys typed ahead."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.setup.expected.case import MACHINES
from tests.strata_cli.terminal import Terminal

NAME = "strata-tiny.json"
_ON = ("setup", "--probe", str(MACHINES / "rtx5090-64gb.json"))


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours(tmp_path: Path, env: dict[str, str]) -> None:
    with Terminal(tmp_path, *_ON, **env) as terminal:
        for _ in range(3):
            terminal.answer()
        assert terminal.end() == 0
    # NO_COLOR forbids colours; a dumb terminal gets no sequence at all.
    assert "\x1b[3" not in terminal.raw
    assert "TERM" not in env or "\x1b" not in terminal.raw


def test_the_result_alone_goes_into_a_pipe(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON, "--json", shell="{command} > out.json") as terminal:
        for _ in range(3):
            terminal.answer()
        assert terminal.end() == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["config"] == json.loads((tmp_path / NAME).read_text())


def test_both_streams_in_a_pipe(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON, shell="{command} 2>&1 | cat") as terminal:
        for _ in range(3):
            terminal.answer()
        assert terminal.end() == 0
    assert (tmp_path / NAME).exists()


def test_the_end_of_the_input(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        terminal.answer()
        terminal.until()
        terminal.child.sendeof()
        assert terminal.end() == 1
    assert "error: the input ended at the question: How long may" in terminal.text
    assert "--yes takes every recommended answer" in terminal.text
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        terminal.answer()
        terminal.until()
        terminal.child.sendintr()
        assert terminal.end() == 130
    assert "nothing was written" in terminal.text
    assert "Traceback" not in terminal.text
    assert list(tmp_path.iterdir()) == []


def test_keys_typed_ahead_are_not_lost_and_skip_nothing(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        # Two lines at once: the second is there before its question is.
        terminal.until()
        terminal.child.send("strata-tiny\n1k\n")
        terminal.until("Typed before this question stood here: 1k.")
        # Enter, typed before the question, does not answer it.
        assert "Write this?" in terminal.until()
        terminal.child.sendline()
        assert terminal.end() == 0
    assert json.loads((tmp_path / NAME).read_text())["args"][1] == "1024"


def test_enter_typed_ahead_does_not_answer(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        terminal.until()
        terminal.child.send("strata-tiny\n\n")
        terminal.until("so it does not count")
        terminal.answer("1k")
        terminal.answer()
        assert terminal.end() == 0
    assert json.loads((tmp_path / NAME).read_text())["args"][1] == "1024"


def test_a_dry_run_asks_and_prints(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON, "--dry-run", shell="{command} > out.json") as terminal:
        terminal.answer()
        terminal.answer("1k")
        assert terminal.end() == 0
    assert json.loads((tmp_path / "out.json").read_text())["args"][1] == "1024"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_bytes_that_are_no_text_are_a_wrong_answer(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        terminal.until()
        # 0xff begins no character of UTF-8.
        os.write(terminal.child.child_fd, b"\xff\xfe\n")
        assert "neither a family nor the path" in terminal.until()
        terminal.child.sendintr()
        assert terminal.end() == 130
