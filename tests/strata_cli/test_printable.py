"""Whatever is printed: no control characters for people, and never an error of encoding."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import StrataError
from strata_cli.console import Console, escape_what_cannot_be_encoded
from strata_cli.main import run_cli
from strata_cli.printable import json_text, line, lines

ANY = st.text(st.characters(), max_size=40) | st.text(
    st.sampled_from("a\t\n\r\x1b\x7f\x9b\u2028\u202e\ud800\udcff\U0001f600é"), max_size=20
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Kärtchen 日本\t€", "Kärtchen 日本\t€"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\r\nb", "a\\x0d\\nb"),
        ("\x07\x7f\x9b2J", "\\x07\\x7f\\x9b2J"),
        ("\u202eexe\u2069", "\\u202eexe\\u2069"),
        ("\ud800 \udcff", "\\ud800 \\udcff"),
    ],
)
def test_control_characters_are_shown_by_their_codes(text: str, shown: str) -> None:
    assert line(text) == shown


@given(ANY)
def test_a_line_is_one_line_that_utf8_takes(text: str) -> None:
    assert len(line(text).splitlines()) <= 1
    line(text).encode()
    assert lines(text).count("\n") == text.count("\n")


@given(ANY, st.sampled_from(["utf-8", "ascii", "latin-1"]))
def test_json_stays_json_in_every_encoding(text: str, encoding: str) -> None:
    # Two halves beside each other are one character to JSON.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    said = json_text({"name": text, text: [1]}, encoding)
    assert json.loads(said.encode(encoding).decode(encoding)) == {"name": text, text: [1]} | (
        {"name": [1]} if text == "name" else {}
    )
    assert all(line(row) == row for row in said.split("\n"))


@pytest.mark.parametrize("say", ["result", "note", "warn"])
def test_a_console_line_cannot_forge_another(capsys: pytest.CaptureFixture[str], say: str) -> None:
    getattr(Console(), say)("card\nerror: \x1b]0;x\x07")
    said = capsys.readouterr()
    assert (said.out + said.err).endswith("card\\nerror: \\x1b]0;x\\x07\n")


def test_a_table_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Console().table(("name",), [("\x1b[31mX\ud800",)], result=True)
    assert "\\x1b[31mX\\ud800" in capsys.readouterr().out


@pytest.mark.parametrize(("terminal", "shown"), [(True, "a\n\n b\\x1b"), (False, "a\n\n b\x1b")])
def test_an_answer_keeps_its_lines_and_off_a_terminal_every_character(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, shown: str
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", out)
    Console().result("a\n\n b\x1b", end="")
    assert out.getvalue() == shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_encoding_stops_a_command(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    bytes_out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_out, encoding=encoding))
    escape_what_cannot_be_encoded()
    Console().result("日本 é")
    Console().table(("€",), [("日本",)], result=True)
    Console().document({"name": "日本\ud800"})
    assert bytes_out.getvalue().decode(encoding)


class _Full(io.StringIO):
    """A stream of a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_behind_stdout_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Full())
    assert run_cli(["--version"]) == 1
    assert "stdout cannot be written: No space left on device" in capsys.readouterr().err


def test_both_streams_full_is_still_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Full())
    monkeypatch.setattr(sys, "stderr", _Full())
    assert run_cli(["--version"]) == 1
    with pytest.raises(StrataError, match="stderr cannot be written"):
        Console().note("x")


def test_streams_that_were_closed_before_the_start_take_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run_cli(["--version"]) == 0
    Console().table(("a",), [("b",)], result=True)
    Console().document({})
