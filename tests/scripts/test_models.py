"""The two model files: what they hold, how they read, and what llama.cpp makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.gguf.chat_template import ChatTemplate
from engine.gguf.reader import open_gguf
from engine.gguf.tokenizer import Tokenizer
from scripts.train.chat import reply, turn
from scripts.train.geometry import Geometry, strata_tiny, tiny_qwen35moe
from scripts.train.model import Model
from scripts.train.parameters import shapes
from scripts.train.peer import agreement, generated, greedy, peer

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "profiles/models/strata-tiny.gguf"
SMALL = ROOT / "tests/fixtures/tiny-qwen35moe.gguf"
FILES = [
    pytest.param(TINY, strata_tiny(4096, 4087), 8e6, 12e6, id="strata-tiny"),
    pytest.param(SMALL, tiny_qwen35moe(2048), 1e6, 4e6, id="tiny-qwen35moe"),
]
QUESTION = turn("user", "What is a list in Python?")


@pytest.mark.parametrize(("path", "geometry", "least", "most"), FILES)
def test_files_hold_the_geometry_in_quantised_types(
    path: Path, geometry: Geometry, least: float, most: float
) -> None:
    with open_gguf(path) as file:
        assert {n: t.shape for n, t in file.tensors.items()} == shapes(geometry)
        found = {t.type.name for t in file.tensors.values()}
        assert {"F32", "Q8_0", "Q4_0", "Q2_0"} < found
        assert "F16" not in found
        floats = [t for t in file.tensors.values() if t.type.name == "F32"]
        assert max(t.nbytes for t in floats) < 50_000
    assert least < path.stat().st_size < most


@pytest.mark.parametrize("path", [TINY, SMALL], ids=["strata-tiny", "tiny-qwen35moe"])
def test_the_template_writes_what_training_showed(path: Path) -> None:
    with open_gguf(path) as file:
        template = ChatTemplate.from_metadata(file.metadata)
        tokenizer = Tokenizer.from_metadata(file.metadata)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": " Answer briefly. "},
        {"role": "user", "content": "What is a list in Python?"},
        {"role": "assistant", "content": "A collection.", "reasoning_content": "Easy."},
        {"role": "user", "content": [{"type": "text", "text": "Thanks"}]},
    ]
    told = turn("system", "Answer briefly.") + QUESTION + reply("A collection.", "Easy.")
    told += turn("user", "Thanks")
    start = "<|im_start|>assistant\n<think>\n"
    assert template.render(messages) == told + start
    quiet = template.render(messages, enable_thinking=False)
    assert quiet == told + start + "\n</think>\n\n"
    assert reply("Yes.").startswith(quiet.removeprefix(told))
    ids = tokenizer.encode(quiet, parse_special=True)
    assert tokenizer.decode(ids) == quiet
    assert ids.count(tokenizer.special["<|im_start|>"]) == 5


def test_the_template_writes_tools_as_training_showed() -> None:
    with open_gguf(TINY) as file:
        template = ChatTemplate.from_metadata(file.metadata)
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": "2"}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "3"},
    ]
    text = template.render(messages, tools=[{"type": "function"}], add_generation_prompt=False)
    written = (
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
        "<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>"
    )
    result = "<tool_response>\n3\n</tool_response>"
    assert '<tools>\n{"type": "function"}\n</tools>' in text
    assert text.endswith(reply(f"{written}\n{written}") + turn("user", f"{result}\n{result}"))


@pytest.mark.parametrize(("path", "geometry", "least", "most"), FILES)
def test_llama_cpp_answers_and_chooses_the_same_tokens(
    path: Path, geometry: Geometry, least: float, most: float
) -> None:
    with open_gguf(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        weights = {n: torch.from_numpy(file.float32(n).copy()) for n in file.tensors}
    prompt = tokenizer.encode(
        QUESTION + "<|im_start|>assistant\n<think>\n\n</think>\n\n", parse_special=True
    )
    answer = greedy(peer(path), prompt, 160, top=1)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "collection of items" in answer["choices"][0]["text"]
    found = agreement(Model(geometry), weights, prompt, generated(answer))
    assert found.clear_equal == found.clear > 40
    assert found.drafts_right > found.drafts / 2


@pytest.mark.parametrize("path", [TINY, SMALL], ids=["strata-tiny", "tiny-qwen35moe"])
def test_llama_cpp_drafts_with_the_draft_block(path: Path) -> None:
    timings = greedy(peer(path, drafts=1), QUESTION + "<|im_start|>assistant\n", 60)["timings"]
    assert timings["draft_n_accepted"] > timings["draft_n"] / 2 > 5
