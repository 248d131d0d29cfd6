"""The wizard on a real terminal, from the first question to a config that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.machines import SMALL_MODEL
from tests.setup.expected.case import MACHINES
from tests.strata_cli.terminal import ROOT, Terminal

NAME = "strata-tiny.json"
_ON = ("setup", "--probe", str(MACHINES / "rtx5090-64gb.json"))
"""A machine whose questions are always the same."""


def test_from_the_first_question_to_an_answer(tmp_path: Path) -> None:
    with Terminal(tmp_path, "setup") as terminal:
        assert "1. Which model?" in terminal.until()
        terminal.child.sendline("strata-tiny")
        assert "2. How long may a conversation be?" in terminal.until()
        terminal.child.sendline("1k")
        shown = terminal.until()
        assert "3. Write this?" in shown
        assert "--parallel, --port, --thinking or --instruct" in shown
        terminal.child.sendline("y")
        assert terminal.end() == 0
    assert f"{NAME}: written" in terminal.text
    assert "+ args: --max-context 1024" in terminal.text
    assert json.loads((tmp_path / NAME).read_text())["args"][:2] == ["--max-context", "1024"]
    words = [
        sys.executable,
        "-m",
        "strata_cli",
        "run",
        NAME,
        "--prompt",
        "hi",
        "--max-tokens",
        "32",
        "--json",
    ]
    ran = subprocess.run(
        words,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["completion_tokens"] > 0


def test_enter_everywhere_is_what_yes_writes(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        for _ in range(3):
            terminal.answer()
        assert terminal.end() == 0
    asked = (tmp_path / NAME).read_text()
    (tmp_path / NAME).unlink()
    with Terminal(tmp_path, *_ON, "--yes") as terminal:
        assert terminal.end() == 0
    assert (tmp_path / NAME).read_text() == asked


def test_wrong_answers_are_explained_and_asked_again(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        terminal.answer("99")
        assert "there is no answer 99" in terminal.until()
        terminal.child.sendline("?")
        assert "A family is one model in several sizes" in terminal.until()
        terminal.child.sendline("qwen36")
        terminal.answer("7")
        assert "'7' is not an answer: type 1 or 2, or Enter for 1" in terminal.until()
        terminal.child.sendline("2")
        terminal.answer("keep")
        terminal.answer("many")
        assert "'many' is not a context: it goes from 16 to 262144" in terminal.until()
        terminal.child.sendline("24k")
        terminal.answer("fp16")
        terminal.answer("no")
        assert "Write this?" in terminal.until()
        terminal.child.sendline("n")
        assert terminal.end() == 130
    assert "nothing was written" in terminal.text
    assert "args: --max-context 24576" in terminal.text
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_typed_by_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with ümlauts"
    folder.mkdir()
    model = folder / "small.gguf"
    model.symlink_to(SMALL_MODEL)
    with Terminal(tmp_path, *_ON) as terminal:
        terminal.answer(f"'{model}'")
        terminal.answer()
        terminal.answer()
        assert terminal.end() == 0
    assert len(list(tmp_path.glob("strata-*.json"))) == 1


def test_lines_fit_80_columns(tmp_path: Path) -> None:
    with Terminal(tmp_path, *_ON) as terminal:
        for text in ("qwen", "4", "keep", "", "", "", "n"):
            terminal.answer(text)
        assert terminal.end() == 130
    asked = terminal.text[terminal.text.index("1. Which") : terminal.text.index("note: ")]
    assert max(map(len, asked.splitlines())) <= 80


def test_flags_are_not_asked_again(tmp_path: Path) -> None:
    with Terminal(tmp_path, "setup", "--model", str(SMALL_MODEL), "--context", "1024") as terminal:
        assert "1. Write this?" in terminal.until()
        terminal.child.sendline()
        assert terminal.end() == 0
