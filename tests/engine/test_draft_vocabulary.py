"""Which tokens may be drafted: by the name of a vocabulary, or by a file of ids."""

from pathlib import Path

import numpy as np
import pytest

from engine.config import RunConfig
from engine.draft_vocabulary import OWN_TOKENS, draft_ids, most_ids
from engine.errors import ConfigError
from engine.gguf.reader import open_gguf
from engine.gguf.tokenizer import Tokenizer
from engine.resolve import make_plan
from tests.machines import SMALL_MODEL, flash_next_sizes, machine


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    with open_gguf(SMALL_MODEL) as gguf:
        return Tokenizer.from_metadata(gguf.metadata)


def test_named_vocabularies_have_their_script_and_all_special_tokens(tokenizer: Tokenizer) -> None:
    size = tokenizer.vocab_size
    found = {name: draft_ids(name, tokenizer, size) for name in OWN_TOKENS}
    for name, ids in found.items():
        assert list(ids) == sorted(set(ids))
        assert len(ids) <= most_ids(name, size)
        assert set(tokenizer.special.values()) <= set(ids)
        assert set(found["en"]) <= set(ids)
    for name, text in (("en", " the"), ("fr", "é"), ("cyrillic", "д"), ("cjk", "好")):
        assert set(tokenizer.encode(text)) <= set(found[name])
    texts = [tokenizer.token_bytes(id) for id in found["en"]]
    special = {text.encode() for text in tokenizer.special}
    assert all(text.isascii() for text in texts if text not in special)


def test_a_file_of_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "draft_vocab.bin"
    path.write_bytes(np.array([9, 3, 3, 40], "<i4").tobytes())
    assert draft_ids(str(path), tokenizer, tokenizer.vocab_size) == (3, 9, 40)
    assert most_ids(str(path), tokenizer.vocab_size) == 4


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "0 bytes"),
        (b"abc", "3 bytes"),
        (np.array([4, -1], "<i4").tobytes(), "token -1"),
        (np.array([4, 10**6], "<i4").tobytes(), "token 1000000"),
        (None, "No such file"),
    ],
)
def test_files_that_are_no_lists(
    tokenizer: Tokenizer, tmp_path: Path, raw: bytes | None, why: str
) -> None:
    path = tmp_path / "ids"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(ConfigError, match=why):
        draft_ids(str(path), tokenizer, tokenizer.vocab_size)


def test_the_plan_counts_and_tells_it() -> None:
    said = (RunConfig(), RunConfig(draft_vocab="en"), RunConfig(draft_vocab="en", spec=0))
    plans = [make_plan(run, flash_next_sizes(), machine()) for run in said]
    assert [plan.config.draft_vocab for plan in plans] == [None, "en", None]
    weights = [plan.memory.weight_bytes for plan in plans]
    assert weights[0] == weights[2] < weights[1]
    told = {d.setting: d for d in plans[2].decisions}["draft_vocab"]
    assert (told.value, told.reason) == ("en", "no drafts are made: no effect")
