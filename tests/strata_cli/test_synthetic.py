"""Random weights in place of a file, and cards that are asked for on a machine without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.gguf.reader import open_gguf
from tests.machines import SMALL_MODEL
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]

TINY = "qwen3.6-35b-a3b:ud-iq4_xs,small,layers=2,experts=4,vocabulary=512"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_plan_of_the_real_sizes(capsys: Capture) -> None:
    ran = strata(
        capsys, "run", "--plan", "--json", "--synthetic", "qwen3.8-flash-next:iq3_s", "--device",
        "cpu",
    )  # fmt: skip
    assert ran.document["config"]["synthetic"] == "qwen3.8-flash-next:iq3_s"
    # Some 130 G weights in 8 bits and their scales.
    assert 170e9 < ran.document["memory"]["weight_bytes"] < 190e9


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--synthetic", "qwen3.8:iq3_s"], "'qwen3.8' is not a family", "qwen3.8-flash-next or"),
        (["--synthetic", "qwen3.8-flash-next:x"], "'x' is not a mix", "iq3_s, q2_0, q4_k"),
        (["--synthetic", "iq3_s"], "'iq3_s' is not FAMILY:MIX", ""),
        (["--synthetic", TINY, "--model", str(SMALL_MODEL)], "both given", "leave one of them"),
        (["--synthetic", TINY, "--device", "cuda:0"], "no NVIDIA card", "--device cpu"),
        (["--synthetic", TINY, "--device", "gpu"], "'gpu' is not auto, cpu", ""),
    ],
)
@pytest.mark.parametrize("command", [["run", "--plan"], ["bench", "decode"], ["check-exactness"]])
def test_what_cannot_be_made_is_told(
    capsys: Capture, command: list[str], words: list[str], message: str, hint: str
) -> None:
    ran = strata(capsys, *command, *words)
    assert ran.code == 1
    assert message in ran.err
    assert hint in ran.err


def test_a_file_for_another_program(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    assert strata(capsys, "bench", "--synthetic", TINY, "--write-gguf", str(path)).code == 0
    with open_gguf(path) as gguf:
        assert gguf.metadata["general.architecture"] == "qwen35moe"
    again = strata(capsys, "bench", "--synthetic", TINY, "--write-gguf", str(path))
    assert (again.code, "is there already" in again.err) == (1, True)
    nothing = strata(capsys, "bench", "--write-gguf", str(tmp_path / "x.gguf"))
    assert (nothing.code, "--synthetic names none" in nothing.err) == (1, True)


def test_an_answer_and_a_measurement(capsys: Capture) -> None:
    ran = strata(
        capsys, "run", "--synthetic", TINY, "--prompt", "hi", "--max-tokens", "3", "--context",
        "128",
    )  # fmt: skip
    assert ran.code == 0
    measured = strata(
        capsys, "bench", "decode", "--synthetic", TINY, "--streams", "2", "--tokens", "4",
        "--repeat", "1", "--acceptance", "1", "--verify", "4",
        "--engine-args", "--max-context 512", "--json",
    )  # fmt: skip
    records = {record["metric"]: record for record in measured.document["records"]}
    assert list(records) == [
        "decode.streams2.tok_s",
        "decode.streams2.drafts.tok_s",
        "decode.streams2.accept100.tok_s",
        "verify.rows4.ms",
    ]
    injected = records["decode.streams2.accept100.tok_s"]
    assert injected["drafts_accepted"] == injected["drafts_offered"] > 0
    model, options = injected["model"].split(",", 1)
    assert model == "qwen3.6-35b-a3b:ud-iq4_xs:synthetic"
    assert options.startswith("small")
