"""The matcher against a plain search, however the text is cut."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.server.stop_strings import StopStrings

letters = st.text("ab<", max_size=20)


def cut_at_first_end(text: str, stops: list[str]) -> str:
    """What passes when text comes letter by letter."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


@settings(max_examples=400, deadline=None)
@given(st.lists(letters, max_size=8), st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3))
def test_any_pieces_pass_what_a_plain_search_passes(pieces: list[str], stops: list[str]) -> None:
    matcher = StopStrings(stops)
    passed = ""
    wanted = cut_at_first_end("".join(pieces), stops)
    for piece in pieces:
        passed += matcher.push(piece)
        assert wanted.startswith(passed)
    assert passed + matcher.finish() == wanted
    assert (matcher.hit is not None) == any(stop in "".join(pieces) for stop in stops)


def test_text_is_not_held_back_longer_than_needed() -> None:
    matcher = StopStrings(["</end>"])
    assert matcher.push("abc<") == "abc"
    assert matcher.push("/x") == "</x"
    assert matcher.push("</end") == ""
    assert matcher.push(">tail") == ""
    assert matcher.hit == "</end>"
