"""The engine process counts conversations that lost their slot."""

from engine.messages import Done, Gen, Info
from tests.engine.engine_child import Child
from tests.engine.test_process import expected


def test_it_tells_of_conversations_that_lost_their_slot() -> None:
    child = Child("parks").started()
    first = (1, 1, 1, 2)
    again = (*first, *expected([*first], 3))
    for prompt in (first, (2, 2, 2, 1), (5, 5, 5, 2), again):
        child.say(Gen(3, prompt))
        child.hear(lambda event: isinstance(event, Done))
    parked = 0
    while parked < 2:
        counts = child.hear(lambda event: isinstance(event, Info))[-1]
        assert isinstance(counts, Info)
        parked = counts.values["conversations_parked"]
    assert counts.values["conversations_restored"] == 1
    assert counts.values["conversations_dropped"] == 0
    child.close()
