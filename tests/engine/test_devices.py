"""Which device a model runs on, and what is said about those it does not run on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.capabilities import Capabilities
from engine.devices import card_fault, choose_device
from engine.errors import ConfigError
from engine.torch_build import built_for_cuda
from tests.machines import CARD, machine

CUDA = Capabilities(frozenset({"cuda"}))
OLD = replace(CARD, index=1, name="Quadro RTX 4000", arch="7.5")
SECOND = replace(CARD, index=2, name="NVIDIA H200", arch="9.0", vram_bytes=150_754_820_096)
RADEON = replace(CARD, vendor="amd", name="Radeon AI PRO R9700", arch="gfx1201")


@pytest.mark.parametrize("asked", [None, "auto"])
def test_the_first_usable_card_is_taken(asked: str | None) -> None:
    found = choose_device(asked, machine(gpus=(OLD, CARD, SECOND)), CUDA)
    assert (found.name, found.card) == ("cuda:0", CARD)
    assert found.reason == (
        "GPU 0 (NVIDIA GeForce RTX 5070, 11.9 GiB), the first of 2 usable cards"
    )


def test_a_card_by_its_number() -> None:
    found = choose_device("cuda:2", machine(gpus=(CARD, SECOND)), CUDA)
    assert (found.name, found.card, found.reason) == ("cuda:2", SECOND, "as asked")
    assert choose_device("cuda", machine(gpus=(RADEON, SECOND)), CUDA).card == SECOND


@pytest.mark.parametrize(
    ("card", "torch_cuda", "capabilities", "fault"),
    [
        (OLD, True, CUDA, "compute capability 7.5, this version needs 8.0"),
        (replace(CARD, arch="8.0"), True, CUDA, ""),
        (replace(CARD, arch="86"), True, CUDA, ""),
        (replace(CARD, arch="new"), True, CUDA, "its compute capability is 'new'"),
        (replace(CARD, vram_bytes=0), True, CUDA, "its memory is not known"),
        (CARD, False, CUDA, "PyTorch is installed here without CUDA"),
        (CARD, True, Capabilities(frozenset()), "this version cannot compute on NVIDIA cards"),
        (RADEON, True, CUDA, "this version cannot compute on AMD cards"),
        (replace(CARD, vendor="intel"), True, CUDA, "a card of intel"),
    ],
)
def test_why_a_card_is_of_no_use(
    card: object, torch_cuda: bool, capabilities: Capabilities, fault: str
) -> None:
    hardware = replace(machine(gpus=(card,)), torch_cuda=torch_cuda)  # type: ignore[arg-type]
    found = card_fault(hardware.gpus[0], hardware, capabilities)
    assert found.startswith(fault) if fault else found == ""
    choice = choose_device(None, hardware, capabilities)
    assert (choice.name == "cpu") == bool(fault)
    assert fault in choice.reason


def test_a_machine_without_cards_says_nothing_of_cards() -> None:
    assert choose_device(None, machine(), CUDA).reason == "A CPU"
    assert choose_device("cpu", machine(), CUDA).reason == "as asked"
    assert choose_device("cpu", machine(gpus=(CARD,)), CUDA).reason == "as asked; 1 GPU stays idle"


@pytest.mark.parametrize(
    ("asked", "cards", "torch_cuda", "said", "hint"),
    [
        ("cuda:3", (CARD, SECOND), True, "this machine has 2 NVIDIA cards", "cuda:2 = NVIDIA H200"),
        ("cuda:1", (CARD,), True, "this machine has 1 NVIDIA card", "there is cuda:0 = NVIDIA"),
        ("cuda:0", (), True, "this machine has no NVIDIA card", "--device cpu"),
        ("cuda", (RADEON,), True, "cannot compute on AMD cards", "--device cpu"),
        ("cuda", (CARD,), False, "PyTorch is installed here without CUDA", "install PyTorch for"),
        ("cuda:1", (CARD, OLD), True, "compute capability 7.5", "--device cpu"),
        ("cuda", (), True, "no NVIDIA card", "--device cpu"),
    ],
)
def test_a_card_that_is_asked_for_and_cannot_be_had(
    asked: str, cards: tuple[object, ...], torch_cuda: bool, said: str, hint: str
) -> None:
    hardware = replace(machine(gpus=cards), torch_cuda=torch_cuda)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        choose_device(asked, hardware, CUDA)
    assert said in caught.value.message
    assert asked in caught.value.message
    assert hint in caught.value.hint


def test_amd_by_the_config_is_the_processor_in_this_version() -> None:
    found = choose_device("hip", machine(gpus=(RADEON,)), CUDA)
    assert (found.name, found.reason) == ("cpu", "this version cannot compute on AMD cards")


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", False),
        ("__version__ = '2.11.0'\ncuda: Optional[str] = '12.8'\nhip = None\n", True),
        ("cuda = '13.0'\n", True),
        ("hip: Optional[str] = '7.0'\ncuda: Optional[str] = None\n", False),
        ("", False),
    ],
)
def test_what_torch_was_built_for(tmp_path: Path, text: str, cuda: bool) -> None:
    file = tmp_path / "version.py"
    file.write_text(text)
    assert built_for_cuda(file) is cuda
    assert not built_for_cuda(tmp_path / "missing.py")
