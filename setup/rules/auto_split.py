"""Where `auto` puts the layers: the placement that the cost model predicts to be fastest.

The model is that of the original's split planner. A decode window takes every layer's time on its
card, and 190 ms times the share of routed work whose experts no card holds. An expert's share falls
with its rank by popularity, (rank + 1) ** -1.2, and each card holds the most popular experts of its
own layers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import accumulate, combinations, pairwise
from typing import Any

from engine.layer_split import FIRST_CARD_LAYERS, check_cards, fit_boundaries

MISS_MS = 190.0
"""Time of a window whose experts are all missing."""
MASS_EXPONENT = -1.2
BETTER = 0.999
"""A placement replaces another only when it is faster by more than a thousandth."""
MOST_SEARCHED = 3
"""Up to so many cards every placement is tried; with more, boundaries move step by step."""
PASSES = 4


@dataclass(frozen=True, slots=True)
class AutoSplit:
    """A placement and what the model says of it. `first_layers`: of each later card."""

    first_layers: tuple[int, ...]
    predicted_ms: float
    """Of one decode window, without the hops between cards, which every placement has."""
    held_pairs: int
    """Pairs of layer and expert that the cards hold."""
    pairs: int
    held_mass: float
    """Their share of the routed work, 0 to 1."""

    @property
    def sentence(self) -> str:
        """The placement as a reason."""
        points = ",".join(str(layer) for layer in self.first_layers)
        return (
            f"layer split auto: {points} - predicted {self.predicted_ms:.1f} ms per decode window; "
            f"the cards hold {self.held_pairs} of {self.pairs} experts "
            f"(~{self.held_mass:.1%} of the routed work)"
        )


def auto_split(
    layers: int,
    experts_per_layer: int,
    expert_bytes: int,
    rooms_bytes: Sequence[int],
    layer_ms: Sequence[float],
    layer_bytes: int = 0,
    profile: Sequence[int] | None = None,
) -> AutoSplit:
    """The placement on cards with `rooms_bytes` for experts and `layer_ms` a layer, in card order.

    `layer_bytes` is what a layer takes beside its experts (its part of the session). `profile` is
    the layer of each pair, the most popular pair first; without one all layers are alike. Starts
    from shares by speed, so that placements of equal cost stay balanced. Raises `ConfigError` for
    more cards than layers can serve, `ValueError` for arguments that do not go together.
    """
    cards = len(rooms_bytes)
    if cards < 1 or len(layer_ms) != cards or expert_bytes < 1 or min(layer_ms) <= 0:
        raise ValueError("auto_split needs a room and a time above 0 for every card, and experts")
    if profile is not None and not all(0 <= layer < layers for layer in profile):
        raise ValueError(f"auto_split needs a profile of layers 0 to {layers - 1}")
    check_cards(cards, layers)
    facts = (tuple(rooms_bytes), tuple(layer_ms), expert_bytes, layer_bytes)
    if profile is None:
        return _split_alike(layers, experts_per_layer, *facts)
    return _split(_Ranks.of(profile, layers), *facts)


@lru_cache(maxsize=64)
def _split_alike(layers: int, experts_per_layer: int, *facts: Any) -> AutoSplit:
    """Popularity goes round the layers. Every question of setup asks for the same few cases."""
    return _split(_alike(layers, experts_per_layer), *facts)


def _split(
    ranks: _Ranks,
    rooms_bytes: tuple[int, ...],
    layer_ms: tuple[float, ...],
    expert_bytes: int,
    layer_bytes: int,
) -> AutoSplit:
    layers = len(ranks.ranks)
    costs = _Costs(ranks, rooms_bytes, layer_ms, expert_bytes, layer_bytes)
    start = _by_speed(layers, layer_ms)
    look = _search if len(rooms_bytes) <= MOST_SEARCHED else _nudge
    return costs.evaluate(look(costs, start, layers))


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The pairs of each layer by popularity: ranks, rising, and the sums of their mass."""

    ranks: tuple[tuple[int, ...], ...]
    masses: tuple[tuple[float, ...], ...]
    """Item n of a layer: the mass of its n most popular pairs."""
    pairs: int
    mass: float
    """Of all pairs."""

    @classmethod
    def of(cls, layer_of_pair: Sequence[int], layers: int) -> _Ranks:
        ranks: list[list[int]] = [[] for _ in range(layers)]
        for rank, layer in enumerate(layer_of_pair):
            ranks[layer].append(rank)
        sums = (accumulate(((r + 1) ** MASS_EXPONENT for r in own), initial=0.0) for own in ranks)
        masses = tuple(map(tuple, sums))
        total = sum(layer[-1] for layer in masses)
        return cls(tuple(map(tuple, ranks)), masses, len(layer_of_pair), total)

    def hottest(self, first: int, end: int, count: int) -> tuple[int, float]:
        """How many pairs of layers `first` to `end` - 1 a card with `count` places holds."""
        own = self.ranks[first:end]
        there = sum(map(len, own))
        limit = self._limit(own, count, there) if count < there else self.pairs
        counts = [bisect_left(ranks, limit) for ranks in own]
        held = zip(self.masses[first:end], counts, strict=True)
        return sum(counts), sum(masses[n] for masses, n in held)

    def _limit(self, own: Sequence[Sequence[int]], count: int, there: int) -> int:
        """The rank below which exactly `count` of the `there` pairs in `own` lie."""

        def too_few(limit: int) -> bool:
            return sum(bisect_left(ranks, limit) for ranks in own) < count

        # Where layers are alike it is at most one round of them away from the proportional rank.
        middle, step = count * self.pairs // there, len(self.ranks)
        low, high = max(0, middle - step), min(self.pairs, middle + step)
        low, high = 0 if not too_few(low) else low, self.pairs if too_few(high) else high
        while low < high:
            middle = (low + high) // 2
            if too_few(middle):
                low = middle + 1
            else:
                high = middle
        return low


@cache
def _alike(layers: int, experts_per_layer: int) -> _Ranks:
    """One for each shape of model: the sums take a while."""
    return _Ranks.of([rank % layers for rank in range(layers * experts_per_layer)], layers)


@dataclass(frozen=True, slots=True)
class _Costs:
    """Predicts placements; a range of layers in the same room is worked out once."""

    ranks: _Ranks
    rooms_bytes: tuple[int, ...]
    layer_ms: tuple[float, ...]
    expert_bytes: int
    layer_bytes: int
    _known: dict[tuple[int, int, int], tuple[int, float]] = field(default_factory=dict)

    def evaluate(self, split: tuple[int, ...]) -> AutoSplit:
        ranges = list(pairwise((0, *split, len(self.ranks.ranks))))
        held = [self._held(card, first, end) for card, (first, end) in enumerate(ranges)]
        total = self.ranks.mass
        mass = sum(mass for _, mass in held) / total if total else 1.0
        work = sum(
            (end - first) * ms for (first, end), ms in zip(ranges, self.layer_ms, strict=True)
        )
        predicted = work + MISS_MS * (1 - mass)
        count = sum(count for count, _ in held)
        return AutoSplit(split, predicted, count, self.ranks.pairs, mass)

    def _held(self, card: int, first: int, end: int) -> tuple[int, float]:
        room = self.rooms_bytes[card] - (end - first) * self.layer_bytes
        count = max(0, room) // self.expert_bytes
        key = (first, end, count)
        if key not in self._known:
            self._known[key] = self.ranks.hottest(first, end, count)
        return self._known[key]


def _by_speed(layers: int, layer_ms: Sequence[float]) -> tuple[int, ...]:
    """Boundaries that give each card layers in proportion to its speed."""
    speeds = list(accumulate(1 / ms for ms in layer_ms))
    wanted = (round(layers * speed / speeds[-1]) for speed in speeds[:-1])
    return fit_boundaries(wanted, len(layer_ms), layers)


def _search(costs: _Costs, start: tuple[int, ...], layers: int) -> tuple[int, ...]:
    """The best of all placements."""
    best, best_ms = start, costs.evaluate(start).predicted_ms
    for split in combinations(range(FIRST_CARD_LAYERS, layers), len(start)):
        predicted = costs.evaluate(split).predicted_ms
        if predicted < BETTER * best_ms:
            best, best_ms = split, predicted
    return best


def _nudge(costs: _Costs, start: tuple[int, ...], layers: int) -> tuple[int, ...]:
    """The start with each boundary moved by one layer where that is faster, four times over."""
    best, best_ms = start, costs.evaluate(start).predicted_ms
    for _ in range(PASSES):
        for i in range(len(start)):
            for step in (-1, 1):
                split = (*best[:i], best[i] + step, *best[i + 1 :])
                edges = (0, *split, layers)
                if split[0] < FIRST_CARD_LAYERS or any(b <= a for a, b in pairwise(edges)):
                    continue
                predicted = costs.evaluate(split).predicted_ms
                if predicted < BETTER * best_ms:
                    best, best_ms = split, predicted
    return best
