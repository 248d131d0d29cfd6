"""llama.cpp's figures: speed, drafts, a missing wheel, and the draft block's ratio."""

import sys
from pathlib import Path

import pytest
from gguf import GGUFReader

from bench.peers import (
    Acceptance,
    PeerFailedError,
    PeerMissingError,
    available,
    decode_speed,
    draft_acceptance,
    draftable,
    generate,
)
from tests.oracles.convert import write_model
from tests.oracles.draft_weights import draft_tensors
from tests.oracles.shape import Shape, build

IDS = list(range(20, 50))

RATIOS = "qwen4exp.attention.compress_ratios"


def _model(folder: Path, **changes: object) -> Path:
    shape = Shape("peer", seed=60, layers="gag", **changes)
    return write_model(folder / "model.gguf", shape, build(shape), draft_tensors(shape))


def test_speed_counts_every_token(tmp_path: Path) -> None:
    path = _model(tmp_path)
    assert decode_speed(path, IDS, 40, 1) > 0
    assert len(generate(path, IDS, 40, past_end=True).tokens) == 40


@pytest.mark.parametrize("family", ["qwen4exp", "qwen35moe"])
def test_drafts_are_counted(family: str, tmp_path: Path) -> None:
    found = draft_acceptance(_model(tmp_path, family=family), IDS, 20, 3)
    assert found.drafted >= 20
    assert 0 <= found.share <= 1


def test_share_of_nothing_is_zero() -> None:
    assert Acceptance(0, 0).share == 0
    assert Acceptance(8, 6).share == 0.75


def test_a_dense_draft_block_gets_the_trunks_ratio_in_a_copy(tmp_path: Path) -> None:
    path = _model(tmp_path)
    before = path.read_bytes()
    copy = draftable(path, tmp_path / "copy.gguf")
    assert GGUFReader(copy).fields[RATIOS].contents() == [0, 4, 0, 4]
    assert path.read_bytes() == before
    changed = [
        i for i, pair in enumerate(zip(before, copy.read_bytes(), strict=True)) if len({*pair}) > 1
    ]
    assert len(changed) == 1


def test_a_selecting_draft_block_and_other_families_stay_as_they_are(tmp_path: Path) -> None:
    for changes in ({"draft_ratio": 4}, {"family": "qwen35moe"}):
        path = _model(tmp_path, **changes)
        assert draftable(path, tmp_path / "copy.gguf") == path


def test_a_file_llamacpp_cannot_load(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(PeerFailedError, match="broken"):
        decode_speed(path, IDS, 4, 1)


def test_a_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert not available()
    with pytest.raises(PeerMissingError) as caught:
        decode_speed(Path("model.gguf"), IDS, 4, 1)
    assert "pip install xllamacpp" in caught.value.hint
