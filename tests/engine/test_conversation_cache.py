"""What parked conversations get of the machine's memory."""

import pytest

from engine.config import RunConfig
from engine.memory import MIB
from engine.resolve import Plan, make_plan
from tests.machines import CARD, flash_next_sizes, machine


def plan(asked: int | None, *, card: bool = False, free_gb: float = 40.0) -> Plan:
    run = RunConfig(device="cuda" if card else "cpu", conversation_cache_mib=asked)
    gpus = (CARD,) if card else ()
    return make_plan(run, flash_next_sizes(), machine(free_gb=free_gb, gpus=gpus))


def decision(of: Plan) -> tuple[object, str]:
    found = next(one for one in of.decisions if one.setting == "conversation_cache_mib")
    return found.value, found.reason


def test_nothing_is_parked_unless_somebody_asks() -> None:
    value, reason = decision(plan(None))
    assert value == 0
    # 32,768 tokens of 15,264 bytes, 118 MB of state and six checkpoints of it.
    assert reason == (
        "the default: a conversation that loses its slot is read again; one that fills its context"
        " takes up to 1.33 GB"
    )
    assert decision(plan(0))[1].startswith("as asked: a conversation that loses its slot is read")
    assert plan(None).memory == plan(0).memory


@pytest.mark.parametrize("card", [False, True])
def test_what_was_asked_is_counted(card: bool) -> None:
    without, with_it = plan(None, card=card), plan(2048, card=card)
    assert with_it.config.conversation_cache_mib == 2048
    assert with_it.config.slots == without.config.slots
    assert with_it.memory.host_left_bytes == without.memory.host_left_bytes - 2048 * MIB
    rows = dict(with_it.memory.rows())
    assert rows["of that, parked conversations" if card else "parked conversations"] == 2048 * MIB
    assert decision(with_it)[1].startswith("as asked, for conversations that lose their slot")


def test_it_takes_no_more_than_is_left() -> None:
    much = plan(10**6)
    left = plan(None).memory.host_left_bytes // MIB
    assert much.config.conversation_cache_mib == left
    assert much.memory.fits
    assert decision(much)[1].startswith("as much as is left beside all else")
