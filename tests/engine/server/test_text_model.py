"""The text side of a real model file."""

from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.server.bodies import ChatBody, ChatMessage
from engine.server.chat_prompt import chat_prompt
from engine.server.text_model import GgufText

FIXTURE = Path(__file__).parents[2] / "fixtures" / "q4exp-a-f16.gguf"


@pytest.fixture(scope="module")
def text() -> GgufText:
    return GgufText(FIXTURE)


def test_a_chat_becomes_tokens_and_text_again(text: GgufText) -> None:
    prompt = text.render([{"role": "user", "content": "Hello"}], None, {})
    ids = text.encode(prompt, parse_special=True)
    assert text.decode(ids) == prompt
    assert "Hello" in prompt
    assert len(ids) < len(text.encode(prompt))
    assert all(0 <= token < text.vocab_size for token in ids)


def test_streamed_text_is_the_whole_text_without_end_tokens(text: GgufText) -> None:
    decoder = text.stream()
    ids = [*text.encode("naïve 🌍 text"), *text.eos_ids]
    assert "".join(map(decoder.push, ids)) + decoder.finish() == "naïve 🌍 text"
    assert text.eos_ids


@pytest.mark.parametrize("content", ["The answer", "  with space ", "1."])
def test_a_last_turn_that_is_continued_is_rendered_as_transformers_does(
    text: GgufText, content: str
) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": content},
    ]
    oracle, _ = render_jinja_template(
        [turns], chat_template=text.chat_template, continue_final_message=True
    )
    messages = [ChatMessage(**turn) for turn in turns]
    prompt = chat_prompt(ChatBody(messages=messages, continue_final_message=True), text)
    assert text.decode(prompt.ids).rstrip() == oracle[0].rstrip()
    assert not prompt.thinking
