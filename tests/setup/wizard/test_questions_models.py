"""Questions about models: families, sizes, files and the download."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.capabilities import THIS_VERSION
from engine.errors import ConfigError
from engine.hardware import Hardware
from setup.asked import Asked
from setup.models.on_disk import find_models
from setup.wizard.menus.models import why_family
from tests.machines import SMALL_MODEL
from tests.setup.expected.case import machine
from tests.setup.situations import ask, situation


def idle(name: str) -> Hardware:
    """A recorded machine whose PyTorch uses no card: the processor computes."""
    return replace(machine(name), torch_cuda=False)


def test_this_version_recommends_the_model_that_comes_along() -> None:
    end, person = ask(situation(idle("rtx4090-128gb"), THIS_VERSION))
    assert person.keys == ["family", "context"]
    assert end.answers.file == end.models.bundled
    # 128 GiB of RAM reach the line of 60: IQ3_XXS.
    assert "suits Qwen3.8-Flash-Next IQ3_XXS" in person.asking("family").why


def test_a_card_that_can_hold_the_model_with_experts_beside_it_is_recommended() -> None:
    end, person = ask(situation(machine("rtx4090-128gb"), THIS_VERSION))
    assert (end.answers.family, end.answers.size) == ("qwen", "IQ3_XXS")
    assert "fits" in person.asking("size").options[0].label
    assert "processor" not in person.asking("family").why
    assert "keep" not in person.keys


@pytest.mark.parametrize(
    ("name", "family", "size"),
    [
        # 31.9 GiB: 28 or more, so a Flash-Next; under 60, so its first size.
        ("2x3090-32gb", "qwen", "Q2_0"),
        # 63 GiB or so: 60 or more.
        ("rtx5090-64gb", "qwen", "IQ3_XXS"),
        # Under 28 (the smallest line 32, less 4): Qwen3.6, and 12.9 + 10 = 22.9 of 15.6 GiB for
        # neither size, so the smaller one.
        ("rtx4060-16gb", "qwen36", "Qwen3.6-UD-IQ3_S"),
    ],
)
def test_family_and_size(name: str, family: str, size: str) -> None:
    end, _ = ask(situation(machine(name)))
    assert (end.answers.family, end.answers.size) == (family, size)


def test_a_size_that_does_not_fit_is_asked_about_and_can_be_changed() -> None:
    # IQ3_S: 15.6 GiB are under 62 - 8, and 15.6 - 6 + (8 - 5) = 12.6 under its 50.3 GB.
    # Qwen3.6-UD-IQ3_S: 15.6 are under 24 - 8, and 12.6 under its 12.9.
    start = situation(machine("rtx4060-16gb"))
    end, person = ask(start, family="qwen|qwen36", size="IQ3_S", keep="2|3")
    assert person.keys[:6] == ["family", "size", "keep", "family", "size", "keep"]
    assert person.seen[2].why.startswith("IQ3_S wants 62 GiB of RAM, this machine has 15.")
    assert end.answers.size == "Qwen3.6-UD-IQ3_S"


def test_what_this_version_needs_is_a_doubt_of_its_own() -> None:
    # By RAM and card IQ3_XXS suits 64 GB; with all its weights as int8 in memory it does not.
    start = situation(idle("rtx5090-64gb"), THIS_VERSION)
    _, person = ask(start, family="qwen", size="IQ3_XXS", keep="keep")
    size = person.asking("size")
    assert "does not fit" in size.options[0].label
    # The reason stands once, not beside every size.
    assert size.why.count("8-bit integer") == 1
    assert not any("8-bit integer" in option.why for option in size.options)
    assert "keeps each weight in memory as an 8-bit integer" in person.asking("keep").why


def test_the_default_size_fits_this_version() -> None:
    # 60 GB or so for each size of Qwen3.6, of 117 that may be used.
    start = situation(idle("rtx4090-128gb"), THIS_VERSION)
    end, person = ask(start, family="qwen36")
    asking = person.asking("size")
    assert "does not fit" not in asking.options[asking.recommended].label
    assert end.answers.size == "Qwen3.6-UD-IQ4_XS"
    assert "keep" not in person.keys


def test_where_no_size_fits_the_default_is_the_model_that_comes_along() -> None:
    start = situation(idle("rtx4090-128gb"), THIS_VERSION)
    end, person = ask(start, family="qwen")
    asking = person.asking("size")
    best = asking.options[asking.recommended]
    assert best.label == "strata-tiny, comes with Strata"
    assert best.why.startswith("No size of Qwen3.8-Flash-Next fits this version")
    assert end.answers.file == end.models.bundled
    assert "keep" not in person.keys


def test_a_family_that_a_flag_names_keeps_its_size() -> None:
    start = situation(idle("rtx4090-128gb"), THIS_VERSION)
    named = replace(start, answers=replace(start.answers, family="qwen", keep="keep"))
    end, _ = ask(named)
    assert end.answers.size == "IQ3_XXS"


def test_what_does_fit_this_version_is_named_beside_what_does_not() -> None:
    _, person = ask(situation(idle("rtx4090-128gb"), THIS_VERSION))
    # 186 GB for Flash-Next, 103 for IQ1_M and 57 for Qwen3.6, of 117.
    why = person.asking("family").why
    assert "IQ3_XXS needs 186 GB of memory, and 117 GB may be used" in why
    assert "Of the families coder, qwen36, ornith and huihui fit it, and strata-tiny" in why
    _, person = ask(situation(machine("no-gpu-16gb"), THIS_VERSION))
    assert "No model of the catalogue fits it here; strata-tiny" in person.asking("family").why


def test_what_is_asked_of_one_model_is_not_counted_for_another() -> None:
    flags = Asked(context=4096, parallel=4096, rope_scale=4.0)
    start = situation(idle("rtx4090-128gb"), THIS_VERSION, flags)
    plain = situation(idle("rtx4090-128gb"), THIS_VERSION)
    assert why_family(start) == why_family(plain)


def test_a_card_that_is_not_used_is_said_to_be_so() -> None:
    _, person = ask(situation(machine("tesla-p40-64gb"), THIS_VERSION), family="qwen36")
    asking = person.asking("context")
    why = asking.options[asking.recommended].why
    assert why.startswith("the smallest card has 24")
    assert "this version does not use the card" in why
    _, person = ask(situation(idle("rtx4090-128gb"), THIS_VERSION))
    asking = person.asking("context")
    # No card decides that length.
    assert "card" not in asking.options[asking.recommended].why


def test_a_family_of_one_size_is_not_asked_for_it() -> None:
    end, person = ask(situation(machine("rtx4090-32gb")), family="coder")
    assert "size" not in person.keys
    assert end.answers.size == "IQ1_M"


def test_models_that_amd_cards_cannot_run_are_not_offered() -> None:
    start = situation(machine("5070ti-and-9070xt-64gb"))
    _, person = ask(start, vendor="amd")
    words = [word for option in person.asking("family").options for word in option.words]
    assert "qwen" in words
    assert "qwen36" not in words
    _, person = ask(start, vendor="amd", family="unsloth")
    assert "size" not in person.keys


def test_a_file_may_be_typed_and_is_the_whole_answer() -> None:
    end, person = ask(situation(machine("rtx4090-128gb"), THIS_VERSION), family=str(SMALL_MODEL))
    assert person.keys == ["family", "context"]
    assert end.subject is not None
    assert end.subject.path == SMALL_MODEL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("99", "there is no answer 99"),
        ("qwem", "neither a family nor the path"),
        ("/nowhere/a.gguf", "is not there"),
    ],
)
def test_what_is_no_model_is_explained(text: str, message: str) -> None:
    _, person = ask(situation(machine("rtx4090-128gb"), THIS_VERSION))
    with pytest.raises(ConfigError, match=message) as raised:
        person.asking("family").choose(text)
    assert raised.value.hint


def test_a_damaged_file_is_explained(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF\x03\x00\x00\x00")
    _, person = ask(situation(machine("rtx4090-128gb"), THIS_VERSION))
    with pytest.raises(ConfigError, match=r"damaged\.gguf"):
        person.asking("family").choose(str(damaged))


def test_a_download_is_never_the_recommended_answer() -> None:
    end, person = ask(situation(machine("rtx4090-128gb")))
    asking = person.asking("download")
    assert asking.options[asking.recommended].value is False
    assert end.answers.download is False
    # IQ3_XXS: 75,828,998,528 bytes of tensors and a header of 11 MB.
    assert asking.why.startswith("75.8 GB to /nowhere/models")


def test_files_on_the_disk_are_offered(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").symlink_to(SMALL_MODEL)
    (tmp_path / "half.gguf").write_bytes(b"GGUF")
    found = find_models([tmp_path])
    start = situation(machine("rtx4090-128gb"), THIS_VERSION, found=found)
    end, person = ask(start, family="small.gguf")
    labels = [option.label for option in person.asking("family").options]
    assert "small.gguf, on this disk" in labels
    assert not any("half" in label for label in labels)
    assert end.subject is not None
    assert end.subject.path == tmp_path / "small.gguf"


@pytest.mark.parametrize("name", ["gb10-128gb", "strix-halo-128gb"])
def test_an_integrated_gpu_is_not_small_where_the_machine_lends_it_memory(name: str) -> None:
    # 0.0 and 0.5 GiB of its own, but 113 and more to share: the larger size, 15.2 + 10 <= 119.7.
    row, reason = situation(machine(name)).suggested("qwen36")
    assert row.key == "Qwen3.6-UD-IQ4_XS"
    assert "the card has" not in reason
