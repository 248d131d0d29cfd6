"""Which model file, and what its config is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ModelFileError
from setup.models.bundled import bundled_model, find_model, model_tag


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("strata-tiny.gguf", "tiny"),
        ("Qwen3.8-Flash-Next-IQ3_S-00001-of-00002.gguf", "qwen3.8-flash-next-iq3_s"),
        ("a model (1).gguf", "a-model-1"),
        (".gguf", "model"),
        ("-.gguf", "model"),
        ("ü.gguf", "model"),
    ],
)
def test_the_tag_of_a_file(name: str, tag: str) -> None:
    assert model_tag(Path("folder") / name) == tag


def test_a_named_model_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        find_model("none.gguf", tmp_path)
    with pytest.raises(ModelFileError, match="is a folder"):
        find_model(".", tmp_path)
    (tmp_path / "m.gguf").touch()
    assert find_model("m.gguf", tmp_path) == tmp_path / "m.gguf"
    assert find_model(str(tmp_path / "m.gguf"), Path("/")) == tmp_path / "m.gguf"


def test_without_a_name_it_is_the_bundled_one(tmp_path: Path) -> None:
    assert find_model(None, tmp_path) == bundled_model()
    assert bundled_model().name == "strata-tiny.gguf"
