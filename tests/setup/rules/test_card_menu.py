"""Who may share a model, the menu, and the recommended line of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.hardware import Gpu, Hardware
from setup.models.catalogue import ModelRow, catalogue, find_row
from setup.rules.card_menu import card_options, pick, singles, together, vendor_of, vendors
from tests.setup.rules.cards_of import GIB, amd, indices, nvidia, pc

IQ3_S = find_row("IQ3_S", "qwen")
APU = amd(1, 4, "gfx1151", integrated=True, shared_bytes=62 * GIB)


@pytest.mark.parametrize(
    ("cards", "shared"),
    [
        ([nvidia(0, 16), nvidia(1, 16)], [0, 1]),
        ([nvidia(0, 16), nvidia(1, 24)], [1, 0]),  # one generation: the most memory first
        ([nvidia(0, 16, "12.0"), nvidia(1, 24, "8.6")], [0, 1]),  # the newest generation first
        ([nvidia(0, 24, "8.6"), nvidia(1, 16, "12.0")], [1, 0]),
        ([nvidia(0, 24, "8.6"), nvidia(1, 24, "10.0")], [1, 0]),  # 10 is newer than 8, as numbers
        ([nvidia(0, 15.7), nvidia(1, 15.9)], [0, 1]),  # both round to 16: the lower index first
        ([nvidia(0, 16), nvidia(1, 7.5)], [0, 1]),  # "8 GB"
        ([nvidia(0, 16), nvidia(1, 7.49)], []),
        ([nvidia(0, 16)], []),
        ([], []),
        ([nvidia(0, 16), nvidia(1, 16, "6.1")], []),  # an old card has to be named
        ([nvidia(0, 16, "6.1"), nvidia(1, 16, "6.1")], [0, 1]),  # unless there is nothing newer
        ([nvidia(0, 16), nvidia(1, 24, integrated=True)], []),
        ([nvidia(0, 16), amd(0, 16)], []),  # two makers never
        ([amd(0, 16), amd(1, 32, "gfx1100")], [1, 0]),  # any supported architectures
        ([amd(0, 16), APU], []),
        ([nvidia(0, 16), nvidia(1, 16, uuid="GPU-0")], []),  # one card, listed twice
    ],
)
def test_together(cards: list[Gpu], shared: list[int]) -> None:
    assert indices(together(pc(*cards))) == shared


def test_several_amd_cards_are_for_linux() -> None:
    cards = (amd(0, 32), amd(1, 32))
    assert together(pc(*cards, os="windows")) == ()
    assert indices(together(pc(nvidia(0, 16), nvidia(1, 16), os="windows"))) == [0, 1]


@pytest.mark.parametrize(
    ("cards", "order"),
    [
        ([nvidia(0, 12), nvidia(1, 24), nvidia(2, 16)], [1, 2, 0]),
        ([nvidia(0, 11.6), nvidia(1, 12)], [0, 1]),  # both 12 in whole GiB: the lower index
        ([nvidia(0, 4), nvidia(1, 96, integrated=True)], [0, 1]),
        ([APU, amd(2, 8)], [2, 1]),  # shared memory, and even a carve-out, never wins
        ([amd(1, 96, "gfx1151", integrated=True), amd(2, 8)], [2, 1]),
        ([amd(0, 0.5, "gfx1036", integrated=True), nvidia(0, 8)], [0]),
    ],
)
def test_one_card(cards: list[Gpu], order: list[int]) -> None:
    assert indices(singles(pc(*cards))) == order


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        ([], ()),
        ([nvidia(0, 8)], ("nvidia",)),
        ([amd(0, 24), nvidia(0, 8)], ("nvidia", "amd")),  # NVIDIA is recommended
        ([APU, nvidia(0, 8)], ("nvidia", "amd")),
        ([amd(0, 8), nvidia(0, 0, "12.1", integrated=True)], ("amd", "nvidia")),
        ([amd(0, 24), nvidia(0, 8, driver="550.1")], ("amd",)),
        ([amd(0, 24), nvidia(0, 8, "5.2")], ("amd",)),
        ([nvidia(0, 8, vendor="intel")], ()),
    ],
)
def test_vendors(cards: list[Gpu], expected: tuple[str, ...]) -> None:
    assert vendors(pc(*cards)) == expected


@pytest.mark.parametrize(
    ("cards", "menu", "recommended"),
    [
        ([], [], None),
        ([nvidia(0, 4, "5.2")], [], None),
        ([nvidia(0, 12)], [[0]], [0]),
        ([nvidia(0, 12), nvidia(1, 6)], [[0], [1]], [0]),
        # 5080 + 3090: the pair, then each by memory
        ([nvidia(0, 16, "12.0"), nvidia(2, 24, "8.6")], [[0, 2], [2], [0]], [0, 2]),
        ([nvidia(i, 16) for i in range(4)], [[0, 1], [0, 1, 2, 3], [0], [1], [2], [3]], [0, 1]),
        # 32 GB + 10 GB: the second is below 12 GB, the first is not
        ([nvidia(0, 31.8, "12.0"), nvidia(1, 10, "8.6")], [[0, 1], [0], [1]], [0]),
        ([nvidia(0, 24), nvidia(1, 10)], [[0, 1], [0], [1]], [0]),
        ([nvidia(0, 11.5), nvidia(1, 11.49)], [[0, 1], [0], [1]], [0]),
        ([nvidia(0, 11.5), nvidia(1, 11.5)], [[0, 1], [0], [1]], [0, 1]),
        ([nvidia(0, 8), nvidia(1, 8)], [[0, 1], [0], [1]], [0, 1]),  # two 8 GB cards: fine
        # the newer card leads the pair, so it is the one that is kept
        ([nvidia(0, 10, "8.6"), nvidia(1, 16, "12.0")], [[1, 0], [1], [0]], [1]),
        ([nvidia(0, 24, "8.6"), nvidia(1, 10, "12.0")], [[1, 0], [0], [1]], [1, 0]),
        # only the pair's second card counts
        ([nvidia(0, 24), nvidia(1, 24), nvidia(2, 8)], [[0, 1], [0, 1, 2], [0], [1], [2]], [0, 1]),
        # AMD: one card, and sharing is offered
        ([amd(0, 16), amd(1, 32)], [[1, 0], [1], [0]], [1]),
        ([APU, amd(0, 16)], [[0], [1]], [0]),
        ([APU], [[1]], [1]),
    ],
)
def test_menu(cards: list[Gpu], menu: list[list[int]], recommended: list[int] | None) -> None:
    options = card_options(pc(*cards), find_row("IQ2_XS", "qwen"))
    assert [indices(option.cards) for option in options] == menu
    chosen = [indices(option.cards) for option in options if option.recommended]
    assert chosen == ([] if recommended is None else [recommended])


def test_the_menu_of_the_other_maker() -> None:
    machine = pc(nvidia(0, 16), nvidia(1, 16), amd(0, 24))
    assert [o.text for o in card_options(machine, IQ3_S, "hip")] == [
        "GPU 0 (Radeon 0, 24.0 GiB) alone"
    ]
    assert card_options(machine, IQ3_S, "cuda") == card_options(machine, IQ3_S)


def test_models_that_take_one_card() -> None:
    options = card_options(pc(nvidia(0, 16), nvidia(1, 24)), find_row("Qwen3.6-UD-IQ3_S"))
    assert [indices(option.cards) for option in options] == [[1], [0]]
    assert options[0].recommended


def test_models_for_nvidia() -> None:
    row = find_row("UD-Q4_K_XL", "unsloth")
    assert row.nvidia_only
    assert card_options(pc(amd(0, 32)), row) == ()
    assert indices(pick(pc(amd(0, 32), nvidia(0, 24)), row).cards) == [0]


@pytest.mark.parametrize(
    ("name", "ram", "cards"),
    [
        # a split needs download + 24: 111.3 + 24 = 135.3 and 93.7 + 24 = 117.7
        ("UD-Q4_K_XL", 135.2, 1),
        ("UD-Q4_K_XL", 135.4, 2),
        ("UD-IQ4_XS", 117.6, 1),
        ("UD-IQ4_XS", 117.8, 2),
    ],
)
def test_a_budget_model_is_split_where_memory_holds_it(name: str, ram: float, cards: int) -> None:
    machine = pc(nvidia(0, 24), nvidia(1, 24), ram_gib=ram)
    row = find_row(name, "unsloth")
    assert len(pick(machine, row).cards) == cards
    assert len(card_options(machine, row)) == 3  # sharing is offered all the same


R9700 = [amd(i, 31.9, name="AMD Radeon AI PRO R9700") for i in range(5)]


@pytest.mark.parametrize(
    ("cards", "row", "recommended"),
    [
        (R9700[:4], IQ3_S, [0, 1, 2, 3]),  # the profile's four cards and model
        (R9700[:4], find_row("IQ3_XXS", "qwen"), [0]),
        (R9700[:3], IQ3_S, [0]),
        (R9700, IQ3_S, [0]),
        ([*R9700[:3], amd(3, 31.9)], IQ3_S, [0]),
    ],
)
def test_cards_of_a_profile_are_recommended_together(
    cards: list[Gpu], row: ModelRow, recommended: list[int]
) -> None:
    machine = pc(*cards)
    assert indices(pick(machine, row).cards) == recommended
    chosen = [indices(o.cards) for o in card_options(machine, row) if o.recommended]
    assert chosen == [recommended]


def test_reasons_have_the_numbers() -> None:
    big = pick(pc(nvidia(0, 31.8, "12.0"), nvidia(1, 10, "8.6")), IQ3_S).reason
    assert "GPU 1 with 10.0 GiB, less than 12 GB" in big
    pair = pick(pc(nvidia(0, 16), nvidia(1, 16), nvidia(2, 16)), IQ3_S).reason
    assert "together, 32.0 GiB, the best two of 3" in pair
    one = pick(pc(nvidia(0, 16), nvidia(1, 6)), IQ3_S).reason
    assert one == "GPU 0 (RTX 0, 16.0 GiB) alone: the most memory of 2 usable NVIDIA cards"


@pytest.mark.parametrize("word", ["sycl", "vulkan", "", "cud"])
def test_a_backend_for_no_card(word: str) -> None:
    with pytest.raises(ConfigError, match=f"backend is {word!r}"):
        vendor_of(word)


def test_backends() -> None:
    assert [vendor_of(b) for b in (None, "auto", "cuda", "cuda:1", "hip")] == [
        None,
        None,
        "nvidia",
        "nvidia",
        "amd",
    ]


CARDS = st.builds(
    lambda index, gib, arch, integrated, vendor, same: replace(
        nvidia(index, gib, arch if vendor == "nvidia" else "gfx1201", vendor=vendor),
        integrated=integrated,
        uuid="GPU-same" if same else f"{vendor}-{index}",
    ),
    st.integers(0, 5),
    st.floats(0, 100),
    st.sampled_from(["12.0", "8.6", "7.5", "6.1", "5.2", ""]),
    st.booleans(),
    st.sampled_from(["nvidia", "amd", "intel"]),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(CARDS, max_size=6),
    st.sampled_from(catalogue()),
    st.sampled_from(["linux", "windows"]),
    st.floats(4, 256),
)
def test_every_menu_holds_its_recommendation(
    cards: list[Gpu], row: ModelRow, system: str, ram: float
) -> None:
    machine: Hardware = pc(*cards, os=system, ram_gib=ram)
    options = card_options(machine, row)
    assert sum(option.recommended for option in options) == (1 if options else 0)
    for option in options:
        assert len({gpu.vendor for gpu in option.cards}) == 1
        assert len({gpu.uuid for gpu in option.cards}) == len(option.cards)
        assert option.text
    best = next((option.cards[0] for option in options if option.recommended), None)
    if best is not None and best.integrated:  # nothing but integrated GPUs of any maker
        assert all(gpu.integrated for option in options for gpu in option.cards)
