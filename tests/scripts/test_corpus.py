"""Reading pages, making exchanges and token ids."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from engine.gguf.reader import open_gguf
from scripts.train.chat import seed_conversations, seeds, tool_conversations
from scripts.train.corpus import distinct
from scripts.train.exchanges import from_command, from_page, from_source
from scripts.train.export import export, named_geometry
from scripts.train.html_text import page_text, plain
from scripts.train.parameters import initial
from scripts.train.tokens import encode, load_tokens, train_tokenizer

PAGE = """<html><head><title>x</title></head><body><div class="sphinxsidebar"><p>menu</p></div>
<div class="body" role="main"><h1>Paths<a class="headerlink" href="#p">\u00b6</a></h1>
<p>Some   text with <em>words</em>.</p><pre>a = 1
  b</pre><ul><li>one</li><li>two</li></ul>
<dl><dt class="sig sig-object py" id="os.sep"><span>os.sep</span>()</dt>
<dd><p>Returns the character that separates the parts of a path.</p></dd></dl></div>
</body></html>"""


def test_page_text_keeps_the_main_text_only() -> None:
    text = page_text(PAGE)
    assert text.startswith("# Paths\n\nSome text with words.\n```\na = 1\n  b\n```")
    assert "* one\n\n* two" in text
    assert "menu" not in text
    assert plain("<b>a</b>\n <i>b</i>") == "a b"


def test_exchanges_come_from_signatures_commands_and_sources() -> None:
    draw = random.Random(1)
    asked = [e for e in from_page(PAGE, page_text(PAGE), draw) if "os.sep" in e.question]
    assert len(asked) == 2
    assert all(e.answer.endswith("separates the parts of a path.") for e in asked)
    command = "## DROP VIEW\n\n## Synopsis\n```\nDROP VIEW name\n```\n## Description\n\n"
    command += "DROP VIEW drops an existing view of the database."
    assert next(from_command(command, "PostgreSQL")).question.startswith("What does DROP VIEW")
    source = 'def twice(x):\n    """Return two times the number x."""\n    return 2 * x\n'
    assert "return 2 * x" in next(from_source(source, draw)).answer
    assert list(from_source("def broken(:", draw)) == []


def test_conversations_end_as_chats_do() -> None:
    draw = random.Random(2)
    assert len(seeds()) > 100
    texts = [*list(seed_conversations(draw, 1))[:200], *tool_conversations(draw, 20)]
    for text in texts:
        assert text.endswith("<|im_end|>\n")
        assert text.count("<|im_start|>") == text.count("<|im_end|>")
        assert text.count("<think>") == text.count("</think>") == text.count("assistant\n")


def test_repeated_paragraphs_are_dropped() -> None:
    long = "A paragraph of some length that stands on many pages of the manual. " * 2
    other = "Another paragraph that is found on this page and on no other page. " * 4
    found = list(distinct(iter([("docs", long * 2), ("docs", f"{long * 2}\n\n{other}")])))
    assert [text.strip() for _, text in found] == [(long * 2).strip(), other.strip()]


@pytest.mark.parametrize("model", ["strata-tiny", "tiny-qwen35moe"])
def test_a_new_vocabulary_can_be_exported(model: str, tmp_path: Path) -> None:
    texts = ["The list is a list of lists, and the tuple is not."] * 20
    tokenizer = train_tokenizer(iter(texts), 288)
    ids = encode(tokenizer, ["<|im_start|>a list<|im_end|>", "a<think>"])
    end = tokenizer.token_to_id("<|endoftext|>")
    assert (ids == end).sum() == 2
    assert tokenizer.decode(ids.tolist()[:-1], skip_special_tokens=False).endswith("a<think>")
    np.savez(tmp_path / "tokens.npz", text=ids)
    assert np.array_equal(load_tokens(tmp_path / "tokens.npz")["text"], ids)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    geometry = named_geometry(model, path)
    assert geometry.vocab == len(json.loads(path.read_text())["model"]["vocab"]) + 9
    export(initial(geometry, 1), geometry, path, tmp_path / "m.gguf", model)
    with open_gguf(tmp_path / "m.gguf") as file:
        assert file.metadata["general.architecture"] == geometry.architecture
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert isinstance(tokens, list)
        assert tokens.index("<|endoftext|>") == end
