"""Experts in host memory: the same bits wherever they lie, and which of them change places."""

import pytest
import torch

from engine.kernels import experts as kernels
from engine.kernels.expert_store import ExpertStore, Policy, Staging
from engine.kernels.experts_blocks import Blocks
from tests.engine.kernels.mixtures import (
    FLOATS,
    INTEGERS,
    WIDTH,
    encoded,
    mixture,
    residuals,
    stored,
)
from tests.engine.kernels.packing import activations
from tests.engine.reference.checks import same_bits

NEVER = Policy(every=0)


@pytest.mark.parametrize("crowded", [16, 0])
@pytest.mark.parametrize("resident", [0, 4])
def test_the_same_bits_for_any_budget(
    resident: int, crowded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few pairs are read where their experts lie; windows of many that need more experts than
    staging holds take several rounds."""
    monkeypatch.setattr(kernels, "_CROWDED", crowded)
    both = mixture()
    changed, store = stored(both, resident, 2, Policy(every=2, swaps=1, min_gain=0))
    for rows in (1, 5):
        x = activations(rows, WIDTH, seed=rows)
        residual, shares = residuals(rows, 2)
        wanted = both.expected(residual, shares, x)
        assert same_bits(changed.got(residual, shares, x), wanted)
    windows, found, fetched, _ = store.tally.tolist()
    assert windows == 2
    assert (found > 0, fetched > 0) == (resident > 0, True)


def test_float_experts_are_all_there_in_one_round() -> None:
    both = mixture(FLOATS, INTEGERS)
    changed, store = stored(both, 3, 1, NEVER)
    x = activations(2, WIDTH)
    residual, shares = residuals(2, 1)
    assert store.rounds_for(8) == 1
    assert same_bits(changed.got(residual, shares, x), both.expected(residual, shares, x))


class Windows:
    """A store of 4 experts, 2 of them resident, and windows that only say what they use."""

    def __init__(self, policy: Policy) -> None:
        both = mixture()
        encode = encoded(both.packed)
        self.store = ExpertStore(
            4, encode, 2, Staging(4, torch.device("cpu")), policy, (3, 1, 0, 2)
        )
        self._gate = both.packed.ffn_gate_exps.record

    def uses(self, *counts: int) -> list[int]:
        """Runs a window in which experts have so many pairs; all needed ones are where the table
        says. Gives the experts on the device afterwards."""
        nothing = torch.empty(0, dtype=torch.int32)
        self.store.begin(Blocks(nothing, nothing, torch.tensor(counts, dtype=torch.int32), 8))
        self.store.fetch(0)
        for expert, count in enumerate(counts):
            if count:
                self._check(expert)
        return [e for e, place in enumerate(self.store.places.tolist()) if place >= 0]

    def _check(self, expert: int) -> None:
        import ctypes

        wanted = self._gate[expert].numpy().tobytes()
        assert ctypes.string_at(int(self.store.gate.addresses[expert]), len(wanted)) == wanted


def test_the_order_says_who_begins_on_the_device() -> None:
    assert Windows(NEVER).uses(1, 1, 1, 1) == [1, 3]


def test_a_used_expert_takes_the_place_of_one_that_is_not() -> None:
    windows = Windows(Policy(every=1, swaps=1, min_gain=1.5, decay=1.0))
    assert windows.uses(0, 0, 2, 1) == [2, 3]  # 1 was never used
    assert windows.uses(2, 0, 1, 0) == [0, 2]  # 2 against 1 of expert 3, which is idle
    assert windows.uses(0, 2, 0, 0) == [0, 2]  # 2 against 2 of expert 0
    assert windows.store.tally.tolist() == [3, 2, 3, 2]


def test_places_change_only_in_windows_that_are_due() -> None:
    windows = Windows(Policy(every=3, swaps=2, min_gain=1.0, decay=0.5))
    assert windows.uses(4, 0, 4, 0) == [1, 3]
    assert windows.uses(4, 0, 4, 0) == [1, 3]
    assert windows.uses(4, 0, 4, 0) == [0, 2]
    assert windows.store.uses.tolist() == [6.0, 0.0, 6.0, 0.0]


def test_a_gain_must_be_reached() -> None:
    windows = Windows(Policy(every=1, swaps=2, min_gain=2.0, decay=1.0))
    assert windows.uses(0, 1, 0, 1) == [1, 3]
    assert windows.uses(2, 0, 0, 0) == [1, 3]  # 2 is not more than 2 * 1
    assert windows.uses(1, 0, 0, 0) == [0, 3]
