"""`strata setup` for recorded machines: what is kept as asked, what fits, and what is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.machines import SMALL_MODEL, machine
from tests.setup.expected.case import MACHINES
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))


def recorded(name: str) -> list[str]:
    """The flag for a recorded machine."""
    return ["--probe", str(MACHINES / f"{name}.json")]


DRY = ["--yes", "--json", "--dry-run"]


def test_the_documented_command(capsys: Capture) -> None:
    words = [*recorded("rtx5090-64gb"), "--model", "IQ3_S", "--context", "32768", *DRY]
    ran = strata(capsys, "setup", *words)
    assert ran.code == 0
    # 31.8 - 5 = 26.8 GB for experts; 2 slots of 0.585 take 1.17, at most 0.2 * 26.8 = 5.4, and
    # leave 25.7, at least 25.15; 3 leave 25.09.
    assert ran.document["recommendation"] == {
        "parallel": 2,
        "layer_split": None,
        "context": 32_768,
        "kv": "int8",
        "kv_resident": None,
        "low_ram": None,
        "profile": None,
    }
    assert strata(capsys, "setup", *words).out == ran.out


def test_a_command_for_one_machine_writes_nothing_without_consent(
    capsys: Capture, tmp_path: Path
) -> None:
    words = [*recorded("rtx5090-64gb"), "--model", "IQ3_S", "--context", "32768", "--kv", "int8"]
    ran = strata(capsys, "setup", *words, "--no-download")
    assert ran.code == 1
    assert "Write this?" in ran.err
    assert list(tmp_path.iterdir()) == []
    ran = strata(capsys, "setup", *words, "--no-download", "--yes")
    assert (ran.code, ran.out) == (0, "strata-iq3_s.json\n")
    assert "the model is not there yet: models/" in ran.err
    fetch = "strata setup --family qwen --model IQ3_S --download"
    assert f"written; fetch it with: {fetch}" in ran.err


def test_flags_are_kept_and_told(capsys: Capture) -> None:
    flags = [
        *["--model", "Q2_0", "--gpus", "1,0", "--layer-split", "20", "--context", "65536"],
        *["--kv", "q4_0", "--kv-streaming", "off", "--parallel", "3", "--low-ram", "resident"],
        *["--vram-reserve-mib", "1500", "--draft-vocab", "en", "--vision", "gpu"],
        *["--pool-workers", "7", "--instruct", "--no-browser", "--host", "::1", "--port", "1234"],
        *["--api-key", "secret", "--backend", "cuda"],
    ]
    document = strata(capsys, "setup", *recorded("2x3090-32gb"), *flags, *DRY).document
    recommendation = document["recommendation"]
    assert recommendation["layer_split"] == "20"
    assert recommendation["kv"] == "q4_0"
    assert recommendation["kv_resident"] is None
    assert recommendation["low_ram"] == "resident"
    config = document["config"]
    assert (config["host"], config["port"]) == ("::1", 1234)
    # What is printed has no secrets.
    assert config["api_key"] == "(not shown)"
    assert config["parallel"] == 3
    assert config["open_browser"] is False
    assert config["sampling"]["temperature"] == 0.7
    # This version cannot do any of these: they are told, and not written.
    told = "\n".join(document["notes"])
    for what in ("layer split 20", "kv q4_0", "images by gpu", "--pool-workers 7"):
        assert what in told
    assert not {"layer_split", "gpu"} & set(config)
    assert config["draft_vocab"] == "en"
    assert "--vision" not in config["args"]


@pytest.mark.parametrize(
    ("words", "gpus"),
    [([], [0, 1]), (["--gpu", "1"], [1]), (["--gpu", "0,1"], [0, 1]), (["--gpus", "all"], [0, 1])],
)
def test_cards_by_flag(capsys: Capture, words: list[str], gpus: list[int]) -> None:
    ran = strata(capsys, "setup", *recorded("2x3090-32gb"), "--model", "Q2_0", *words, *DRY)
    assert all(f"GPU {gpu} " in ran.document["reasons"][0] for gpu in gpus)
    assert (ran.document["recommendation"]["layer_split"] is None) is (len(gpus) == 1)


def test_flags_that_contradict_each_other_are_told(capsys: Capture) -> None:
    words = [*recorded("2x3090-32gb"), "--gpus", "0,1"]
    ran = strata(capsys, "setup", *words, "--model", "Qwen3.6-UD-IQ3_S", "--yes", "--dry-run")
    assert ran.code == 1
    assert "runs on one card, 2 were named" in ran.err
    # A table of all models is still a table; a card of 24 GB holds Qwen3.6.
    table = strata(capsys, "setup", *words, "--check").out
    assert "Qwen3.6-UD-IQ3_S" in table
    assert "nothing of what was asked about fits" not in table


def test_a_family_alone_takes_its_recommended_size(capsys: Capture) -> None:
    words = [*recorded("rtx5090-64gb"), "--family", "swift", *DRY]
    document = strata(capsys, "setup", *words).document
    # 62 GiB or so reach the line of 60, of IQ3_XXS, but this version keeps more beside the card.
    assert document["path"] == "strata-swift-q2_0.json"


def test_check_lists_what_fits(capsys: Capture) -> None:
    ran = strata(capsys, "setup", *recorded("rtx5090-64gb"), "--check", "--json")
    # Qwen3.6 needs 57 GB, and 90% of what is free may be used.
    assert ran.code == (0 if ran.document["fits"] else 1)
    assert ran.document["fits"] is any(
        one["this_version"]["fits"] for one in ran.document["models"][1:]
    )
    verdicts = {one["model"]: one["verdict"] for one in ran.document["models"]}
    # 62.7 GiB: the lines are 62 and 60.
    assert verdicts["IQ3_S"] == "fits"
    assert verdicts["IQ3_XXS"] == "fits"
    row = next(one for one in ran.document["models"] if one["model"] == "IQ3_S")
    assert row["this_version"]["fits"] is False
    table = strata(capsys, "setup", *recorded("rtx5090-64gb"), "--check").out
    assert "IQ3_S" in table
    heading, small, *_ = table.splitlines()
    assert "download, GB" in heading
    assert "RAM, GiB" in heading
    assert small.split()[:2] == ["bundled", "strata-tiny"]
    assert sum("GB may be used" in line or "fits" in line for line in table.splitlines()) >= len(
        ran.document["models"]
    )


def test_check_fails_when_nothing_fits(capsys: Capture, tmp_path: Path) -> None:
    small = {**machine(free_gb=3.0).to_json(), "ram_bytes": 4 * 2**30}
    (tmp_path / "small.json").write_text(json.dumps(small))
    words = ["setup", "--probe", "small.json", "--check"]
    ran = strata(capsys, *words)
    assert ran.code == 1
    assert "nothing of what was asked about fits this version" in ran.out
    assert "strata-tiny, which comes with Strata, does" in ran.out
    assert "8-bit integer" in ran.err
    assert strata(capsys, *words, "--json").document["fits"] is False


@pytest.mark.parametrize(
    ("name", "size", "verdict", "code"),
    [
        # 31.9 GiB, 16 GiB: IQ1_M 31.9 - 6 + 11 = 36.9 of 23.4; IQ3_S 36.9 of 50.3.
        ("rtx4080-32gb", "IQ1_M", "tight", 1),
        ("rtx4080-32gb", "IQ3_S", "does not fit", 1),
        # 24 GB of the card, and 117 GB that may be used beside it.
        ("rtx4090-128gb", "IQ1_M", "fits", 0),
        ("rtx4090-128gb", "IQ3_S", "fits", 0),
    ],
)
def test_check_of_one_size_is_about_this_version(
    capsys: Capture, name: str, size: str, verdict: str, code: int
) -> None:
    ran = strata(capsys, "setup", *recorded(name), "--model", size, "--check", "--json")
    assert ran.code == code
    assert ran.document["fits"] is (code == 0)
    small, one = ran.document["models"]
    assert (small["family"], small["model"]) == ("bundled", "strata-tiny")
    assert (one["model"], one["verdict"]) == (size, verdict)
    # The small model does not count for the exit code unless it is named.
    assert small["this_version"]["fits"]


def test_check_counts_what_was_asked_for(capsys: Capture) -> None:
    words = ["setup", *recorded("rtx4090-128gb"), "--check"]
    assert strata(capsys, *words).code == 0
    ran = strata(capsys, *words, "--slots", "9000")
    assert ran.code == 1
    assert "slots fit in memory" in ran.out
    assert "of 9000 slots" not in ran.out.splitlines()[1]


@pytest.mark.parametrize("name", ["strata-tiny", "strata-tiny.gguf"])
def test_check_of_the_small_model_says_what_is_cut(capsys: Capture, name: str) -> None:
    words = ["setup", *recorded("rtx4090-128gb"), "--model", name, "--check"]
    ran = strata(capsys, *words)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "fits")
    ran = strata(capsys, *words, "--slots", "100000")
    assert ran.code == 1
    assert "of 100000 slots fit in memory" in ran.out
    assert ran.out.endswith("does not fit\n")
    assert strata(capsys, *words, "--slots", "100000", "--json").document["fits"] is False
    ran = strata(capsys, *words, "--context", "16k")
    assert ran.code == 0
    assert "context 16384: the model allows 4096" in ran.out


@pytest.mark.parametrize("flags", [["--rope-scale", "4"], ["--layer-split", "99"]])
def test_a_table_is_not_refused_for_one_model(capsys: Capture, flags: list[str]) -> None:
    assert strata(capsys, "setup", *recorded("rtx4090-128gb"), "--check", *flags).code == 0


def test_a_scale_is_told_with_the_length_of_the_model_that_is_set_up(capsys: Capture) -> None:
    words = [*recorded("no-gpu-16gb"), "--yes", "--dry-run", "--rope-scale", "4"]
    ran = strata(capsys, "setup", *words)
    assert ran.code == 1
    assert "context 4096 is within the 4096 tokens that the model allows" in ran.err


def test_check_of_a_file_is_this_versions_memory(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text(json.dumps(machine(free_gb=0.5).to_json()))
    words = ["setup", "--probe", "small.json", "--model", str(SMALL_MODEL), "--check"]
    ran = strata(capsys, *words)
    assert ran.code == 1
    assert ran.out.endswith("does not fit\n")
    assert strata(capsys, *words, "--json").document["fits"] is False


def test_fit_says_the_largest_context_and_most_slots(capsys: Capture) -> None:
    words = ["setup", *recorded("rtx4090-32gb"), "--model", "Q2_0", "--fit"]
    found = strata(capsys, *words, "--json").document["fit"]
    assert found[0]["where"] == "this version's engine"
    # 32 GB of memory, and the weights alone take more.
    assert (found[0]["context"], found[0]["slots"]) == (0, 0)
    assert found[1]["context"] > 0
    ran = strata(capsys, *words)
    assert ran.code == 0
    assert ran.out.startswith("Q2_0\n")
    assert "largest context" in ran.out
    assert "Q2_0 does not fit this version on this machine: it needs" in ran.out
    file = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--fit", "--json").document["fit"]
    assert file[0]["context"] == 4096
    assert file[0]["slots"] > 1


def test_fit_says_for_which_model_and_nothing_of_speed(capsys: Capture) -> None:
    ran = strata(capsys, "setup", *recorded("no-gpu-256gb"), "--fit")
    assert ran.code == 0
    assert ran.out.startswith("strata-tiny, which is recommended here; --model names another\n")
    assert "says nothing of speed" in ran.err
    document = strata(capsys, "setup", *recorded("no-gpu-256gb"), "--fit", "--json").document
    assert document["model"] == "strata-tiny"
    ran = strata(capsys, "setup", *recorded("no-gpu-16gb"), "--fit", "--model", "IQ3_S")
    assert ran.code == 1
    assert "IQ3_S does not fit this version" in ran.out
    assert "`strata setup --check` lists what fits" in ran.err


def test_explain_has_a_table_for_each_card(capsys: Capture) -> None:
    words = [*recorded("2x3090-32gb"), "--model", "Q2_0", "--explain", "--yes", "--dry-run"]
    err = strata(capsys, "setup", *words).err
    assert err.count("by the rules") == 2
    for what in (
        "dense weights",
        "experts, ",
        "keys and values",
        "draft layer",
        "buffers",
        "reserve",
        "free",
    ):
        assert err.count(what) >= 2
    assert "because: low memory, resident" in err
