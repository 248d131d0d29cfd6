"""The cost model of `auto`: its sums by hand, the placements it picks, and its bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.layer_split import parse_layer_split
from setup.rules.auto_split import AutoSplit, auto_split

GB = 10**9
IQ3_S = 2_047_000  # bytes of an expert
ALL = 100 * GB  # room for every expert


def mass(*ranks: int) -> float:
    """Routed work of these ranks, the most popular is 0."""
    return sum((rank + 1) ** -1.2 for rank in ranks)


def test_the_sums_by_hand() -> None:
    # Four layers of one expert, popularity in the order of the layers; room for 1 and 2 experts.
    # Every placement: first card 2 or 3 layers. Layers cost 1 ms and 2 ms.
    # K=2: card 0 holds rank 0 of (0, 1), card 1 both of (2, 3): 2*1 + 2*2 = 6 ms
    # K=3: card 0 holds rank 0 of (0, 1, 2), card 1 rank 3:      3*1 + 1*2 = 5 ms
    held_2 = mass(0, 2, 3) / mass(0, 1, 2, 3)
    held_3 = mass(0, 3) / mass(0, 1, 2, 3)
    assert 6 + 190 * (1 - held_2) < 5 + 190 * (1 - held_3)
    found = auto_split(4, 1, 10, [19, 20], [1.0, 2.0])
    assert found == AutoSplit((2,), pytest.approx(6 + 190 * (1 - held_2)), 3, 4, held_2)


def test_speed_decides_when_everything_is_held() -> None:
    # 48 layers: K on the first card of 0.25 ms, the rest of 0.5 ms; all held, so the slow card
    # keeps what the first must leave: 1 layer. 47 * 0.25 + 0.5 = 12.25 ms
    found = auto_split(48, 512, IQ3_S, [ALL, ALL], [0.25, 0.5])
    assert found.first_layers == (47,)
    assert found.predicted_ms == pytest.approx(12.25)
    assert (found.held_pairs, found.pairs, found.held_mass) == (24_576, 24_576, 1.0)


@pytest.mark.parametrize(("cards", "split"), [(2, (24,)), (3, (16, 32)), (4, (12, 24, 36))])
def test_equal_cards_share_equally(cards: int, split: tuple[int, ...]) -> None:
    # Every placement of equal cards that hold all costs the same: the balanced start stays.
    found = auto_split(48, 512, IQ3_S, [ALL] * cards, [0.4] * cards)
    assert found.first_layers == split
    assert found.predicted_ms == pytest.approx(48 * 0.4)


def test_a_bigger_card_takes_more_layers() -> None:
    # 24 + 12 GB with 5 GB of fixed costs each, cards of equal speed: 19 and 7 GB for experts.
    found = auto_split(48, 512, IQ3_S, [19 * GB, 7 * GB], [0.4, 0.4])
    assert 28 < found.first_layers[0] < 44


def test_a_slow_third_card_gets_one_layer() -> None:
    # Measured by the original: a card of 3.1 ms a layer beside 0.33 and 0.5 ms keeps one layer.
    found = auto_split(48, 512, IQ3_S, [11 * GB, 19 * GB, 6 * GB], [0.33, 0.5, 3.1])
    assert found.first_layers[-1] == 47


def test_no_room_at_all() -> None:
    found = auto_split(48, 512, IQ3_S, [0, -5 * GB], [0.4, 0.4])
    assert (found.held_pairs, found.held_mass) == (0, 0.0)
    assert found.predicted_ms == pytest.approx(48 * 0.4 + 190)


def test_one_card_has_nothing_to_place() -> None:
    found = auto_split(48, 512, IQ3_S, [11 * GB], [0.4])
    assert found.first_layers == ()
    assert found.held_pairs == 11 * GB // IQ3_S


def test_the_session_of_a_range_takes_its_room() -> None:
    # 10 layers of 4 experts of 10 bytes, 60 bytes of session a layer. K=5: the first card holds
    # (400 - 300) / 10 = 10 of 20 experts, the second all 20. K=4: (400 - 240) / 10 = all 16, and
    # (550 - 360) / 10 = 19 of 24.
    found = auto_split(10, 4, 10, [400, 550], [1.0, 1.0], layer_bytes=60)
    assert (found.first_layers, found.held_pairs) == ((4,), 35)
    without = auto_split(10, 4, 10, [400, 550], [1.0, 1.0])
    assert (without.first_layers, without.held_pairs) == ((5,), 40)


def test_a_profile_says_which_layers_are_popular() -> None:
    # 8 layers of one expert, 4 + 2 places. All alike: K=4 holds layers 0-3, 4 and 5. With the last
    # three layers popular K=6 holds 5, 0, 1, 2, and 6 and 7: the two least popular are missing.
    assert auto_split(8, 1, 1, [4, 2], [1.0, 1.0]).first_layers == (4,)
    found = auto_split(8, 1, 1, [4, 2], [1.0, 1.0], profile=[7, 6, 5, 0, 1, 2, 3, 4])
    assert found.first_layers == (6,)
    assert found.held_mass == pytest.approx(1 - mass(6, 7) / mass(*range(8)))
    with pytest.raises(ValueError, match="layers 0 to 7"):
        auto_split(8, 1, 1, [6, 2], [1.0, 1.0], profile=[8])


def test_more_than_three_cards_start_from_their_speed() -> None:
    # Speeds 1/0.2, 1/0.4, 1/0.4, 1/0.4 = 5, 2.5, 2.5, 2.5 of 12.5: 19.2, 28.8, 38.4 of 48 layers.
    # Each boundary moves at most once a pass, and only the fast first card gains: 4 layers more.
    found = auto_split(48, 512, IQ3_S, [ALL] * 4, [0.2, 0.4, 0.4, 0.4])
    assert found.first_layers == (23, 29, 38)
    assert found.predicted_ms == pytest.approx(23 * 0.2 + 25 * 0.4)


def test_more_than_three_cards_move_towards_room() -> None:
    # The last card has no room: its 12 layers shrink by one a pass.
    found = auto_split(48, 512, IQ3_S, [ALL, ALL, ALL, 0], [0.4] * 4)
    assert found.first_layers[-1] == 40


def test_the_sentence_has_the_numbers() -> None:
    found = AutoSplit((22,), 19.66, 12_250, 12_288, 0.9971)
    assert found.sentence == (
        "layer split auto: 22 - predicted 19.7 ms per decode window; "
        "the cards hold 12250 of 12288 experts (~99.7% of the routed work)"
    )


@pytest.mark.parametrize(
    ("rooms", "times"), [([], []), ([1], []), ([1, 2], [0.4, 0.0]), ([1, 2], [0.4, -1.0])]
)
def test_arguments_that_do_not_go_together(rooms: list[int], times: list[float]) -> None:
    with pytest.raises(ValueError, match="auto_split needs"):
        auto_split(48, 512, IQ3_S, rooms, times)


def test_more_cards_than_layers() -> None:
    with pytest.raises(ConfigError, match="4 layers cannot be split over 5 cards"):
        auto_split(4, 8, 10, [100] * 5, [0.4] * 5)


@settings(max_examples=60, deadline=None)
@given(
    layers=st.integers(7, 20),
    experts=st.integers(1, 8),
    cards=st.lists(st.tuples(st.integers(-50, 900), st.floats(0.05, 5)), min_size=1, max_size=6),
    layer_bytes=st.integers(0, 20),
)
def test_every_placement_is_a_valid_split(
    layers: int, experts: int, cards: list[tuple[int, float]], layer_bytes: int
) -> None:
    rooms, times = [room for room, _ in cards], [ms for _, ms in cards]
    found = auto_split(layers, experts, 10, rooms, times, layer_bytes)
    taken = parse_layer_split(list(found.first_layers), len(cards), layers)
    assert taken == (found.first_layers or None)
    assert 0 <= found.held_mass <= 1 + 1e-9
    assert found.held_pairs <= sum(max(0, room) // 10 for room in rooms)
    assert found.predicted_ms >= layers * min(times) - 1e-6


@settings(max_examples=40, deadline=None)
@given(
    experts=st.integers(1, 6),
    rooms=st.tuples(st.integers(0, 500), st.integers(0, 500)),
    times=st.tuples(st.floats(0.1, 4), st.floats(0.1, 4)),
)
def test_two_cards_get_the_best_placement(
    experts: int, rooms: tuple[int, int], times: tuple[float, float]
) -> None:
    """Against the plain walk through the profile, pair after pair."""
    layers = 10
    found = auto_split(layers, experts, 10, rooms, times)
    every = [_walked(layers, experts, 10, rooms, times, k) for k in range(2, layers)]
    assert found.predicted_ms == pytest.approx(every[found.first_layers[0] - 2])
    assert found.predicted_ms * 0.999 <= min(every) + 1e-9


def _walked(
    layers: int,
    experts: int,
    expert_bytes: int,
    rooms: tuple[int, int],
    times: tuple[float, float],
    boundary: int,
) -> float:
    left, held = list(rooms), 0.0
    for rank in range(layers * experts):
        card = int(rank % layers >= boundary)
        if left[card] >= expert_bytes:
            left[card] -= expert_bytes
            held += mass(rank)
    missed = 1 - held / mass(*range(layers * experts))
    return boundary * times[0] + (layers - boundary) * times[1] + 190 * missed
