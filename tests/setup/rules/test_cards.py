"""The cards that are used: the user's, checked, or the recommended ones."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ConfigError
from engine.hardware import Gpu
from setup.models.catalogue import find_row
from setup.rules.card_verdict import OptIns
from setup.rules.cards import CardChoice, choose_cards
from tests.setup.rules.cards_of import amd, indices, nvidia, pc

IQ3_S = find_row("IQ3_S", "qwen")
TWO = (nvidia(0, 16), nvidia(1, 24))
MIXED = (nvidia(0, 16), amd(0, 24), amd(1, 24))


def choose(cards: tuple[Gpu, ...], gpus: Any = None, backend: str | None = None) -> CardChoice:
    return choose_cards(pc(*cards), IQ3_S, gpus, backend)


def test_recommended() -> None:
    found = choose(TWO)
    assert indices(found.cards) == [1, 0]
    assert found.reasons == (
        "GPU 1 (RTX 1, 24.0 GiB) + GPU 0 (RTX 0, 16.0 GiB) together, 40.0 GiB: "
        "each holds the experts of its own layers",
    )
    assert found.warnings == ()
    assert not found.cuda12


@pytest.mark.parametrize("gpus", [(0,), (1,), (0, 1), (1, 0)])
def test_the_users_cards_in_the_users_order(gpus: tuple[int, ...]) -> None:
    found = choose(TWO, gpus)
    assert indices(found.cards) == list(gpus)
    assert found.reasons[0].endswith(": as asked")


def test_all() -> None:
    found = choose((*TWO, nvidia(2, 6), nvidia(3, 8)), "all")
    assert indices(found.cards) == [1, 0, 3]  # 6 GB is too small to share


@pytest.mark.parametrize("cards", [(), TWO[:1], (nvidia(0, 16), amd(0, 16))])
def test_all_of_fewer_than_two(cards: tuple[Gpu, ...]) -> None:
    with pytest.raises(ConfigError, match="--gpus all: this machine does not have two cards"):
        choose(cards, "all")


def test_no_card() -> None:
    assert choose(()) == CardChoice((), ("no card was found",), ())
    old = choose((nvidia(0, 16, driver="550.54"),))
    assert (old.cards, old.reasons) == ((), ("no card: none of this machine is usable",))
    assert old.warnings == (
        "GPU 0 (RTX 0, 16.0 GiB) is not used: driver 550.54 is too old, CUDA 13 needs 580 or "
        "newer: update the NVIDIA driver",
    )


def test_an_integrated_gpu_is_no_warning() -> None:
    found = choose((nvidia(0, 16), amd(0, 0.5, "gfx1036", integrated=True)))
    assert found.warnings == ()
    assert found.reasons[0] == "GPU 0 (RTX 0, 16.0 GiB) alone: the only usable NVIDIA card"
    assert found.reasons[1].startswith(
        "GPU 0 (Radeon 0, integrated, 0.5 GiB of its own) is not used: an integrated GPU, gfx1036"
    )


def test_the_cpu_was_asked_for() -> None:
    assert choose(TWO, backend="cpu").cards == ()


@pytest.mark.parametrize(
    ("gpus", "message", "hint"),
    [
        ((), "--gpus names no card", "use together --gpus 1,0, or one card: --gpu 1 or --gpu 0"),
        ((2,), "there is no GPU 2; this machine has: 0 = RTX 0, 1 = RTX 1", "--gpus 1,0"),
        ((0, 7), "there is no GPU 7", "--gpu 1 or --gpu 0"),
        ((-1,), "there is no GPU -1", "--gpu"),
        ((0, 0), "--gpus 0,0 names a card twice", "--gpus 1,0"),
        ((1, 0, 1), "--gpus 1,0,1 names a card twice", "--gpus 1,0"),
    ],
)
def test_refused(gpus: tuple[int, ...], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        choose(TWO, gpus)
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_one_card_under_two_numbers() -> None:
    with pytest.raises(ConfigError, match="--gpus 0,1 names a card twice"):
        choose((nvidia(0, 16), nvidia(1, 16, uuid="GPU-0")), (0, 1))


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (nvidia(1, 24, "5.2"), "compute capability 5.2, needed is 7.5"),
        (nvidia(1, 24, driver="470.1"), "driver 470.1 is too old"),
        (nvidia(1, 24, vendor="intel"), "NVIDIA and AMD cards are supported"),
    ],
)
def test_a_card_of_no_use(card: Gpu, words: str) -> None:
    with pytest.raises(ConfigError, match=r"GPU 1 \(RTX 1, 24.0 GiB\) cannot be used") as refused:
        choose((nvidia(0, 16), card), (1,))
    assert words in refused.value.message
    assert refused.value.hint == "use one card: --gpu 0"


def test_nothing_works() -> None:
    with pytest.raises(ConfigError) as refused:
        choose((nvidia(0, 16, "5.2"),), (0,))
    assert "RTX 20 series or newer" in refused.value.hint


def test_an_old_card_is_kept_when_named() -> None:
    cards = (nvidia(0, 16, "12.0"), nvidia(1, 16, "7.0"))
    assert indices(choose(cards).cards) == [0]
    assert "GPU 1 (RTX 1, 16.0 GiB) is not used" in choose(cards).warnings[0]
    found = choose(cards, (0, 1))
    assert indices(found.cards) == [0, 1]
    assert found.cuda12
    assert found.warnings == (
        "GPU 1 (RTX 1, 16.0 GiB): Pascal and Volta cards need a build for CUDA 12, which is "
        "experimental",
    )


def test_an_opt_in_brings_old_cards_into_the_menu() -> None:
    machine = pc(nvidia(0, 16, "12.0"), nvidia(1, 16, "7.0"))
    found = choose_cards(machine, IQ3_S, None, opt_ins=OptIns(cuda12=True))
    assert indices(found.cards) == [0, 1]
    assert found.cuda12


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (nvidia(1, 6), "should have 8 GB or more"),
        (nvidia(1, 4), "less than 6 GB of memory"),
        (nvidia(1, 24, integrated=True), "an integrated GPU works at the speed"),
        (nvidia(1, 24, compute_mode="Exclusive_Process"), "compute mode is Exclusive_Process"),
    ],
)
def test_doubts_do_not_refuse(card: Gpu, words: str) -> None:
    found = choose((nvidia(0, 16), card), (0, 1))
    assert indices(found.cards) == [0, 1]
    assert any(words in warning and warning.startswith("GPU 1") for warning in found.warnings)


@pytest.mark.parametrize("mode", ["", "Default"])
def test_the_usual_compute_mode_is_no_doubt(mode: str) -> None:
    assert choose((nvidia(0, 16, compute_mode=mode),)).warnings == ()


# -- two makers -----------------------------------------------------------------------------------


def test_nvidia_is_recommended() -> None:
    found = choose(MIXED)
    assert [gpu.vendor for gpu in found.cards] == ["nvidia"]
    assert "--backend cuda or --backend hip" in found.reasons[1]


def test_a_backend_picks_the_maker() -> None:
    assert [gpu.vendor for gpu in choose(MIXED, backend="hip").cards] == ["amd"]
    assert choose(MIXED, (0,), "hip").cards == (MIXED[1],)
    assert choose(MIXED, "all", "hip").cards == MIXED[1:]
    assert len(choose(MIXED, backend="hip").reasons) == 1
    with pytest.raises(ConfigError, match="no GPU 1 of the backend cuda"):
        choose(MIXED, (1,), "cuda")


def test_a_number_of_both_makers_is_the_recommended_ones() -> None:
    assert choose(MIXED, (0,)).cards == MIXED[:1]
    assert choose(MIXED, (1,)).cards == MIXED[2:]  # only AMD has a number 1
    with pytest.raises(ConfigError, match="cards of two makers cannot share a model"):
        choose(MIXED, (0, 1))


def test_a_backend_without_a_card() -> None:
    with pytest.raises(ConfigError, match="--backend hip: this machine has no usable card"):
        choose(TWO, backend="hip")


def test_several_amd_cards() -> None:
    cards = (amd(0, 16), amd(1, 32))
    assert indices(choose(cards).cards) == [1]
    assert indices(choose(cards, (0, 1)).cards) == [0, 1]
    with pytest.raises(ConfigError, match="on Linux only, this is windows"):
        choose_cards(pc(*cards, os="windows"), IQ3_S, (0, 1))


# -- models ---------------------------------------------------------------------------------------


def test_a_model_for_one_card() -> None:
    with pytest.raises(ConfigError, match="runs on one card, 2 were named") as refused:
        choose_cards(pc(*TWO), find_row("Qwen3.6-UD-IQ3_S"), (0, 1))
    assert refused.value.hint == "name one: --gpu 0 or --gpu 1"


def test_a_model_for_nvidia() -> None:
    row = find_row("UD-Q4_K_XL", "unsloth")
    with pytest.raises(ConfigError, match="runs on NVIDIA cards only"):
        choose_cards(pc(amd(0, 32)), row, (0,))
    found = choose_cards(pc(amd(0, 32)), row, None)
    assert found.cards == ()
    assert found.reasons[0].startswith("no card: UD-Q4_K_XL runs on NVIDIA cards only")
