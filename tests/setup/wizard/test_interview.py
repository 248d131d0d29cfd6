"""The interview: any sequence of answers ends, in order, with something that can be set up."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.capabilities import EVERYTHING, THIS_VERSION, Capabilities
from engine.errors import ConfigError
from setup.asked import Asked
from setup.wizard.interview import interview, nobody, recommended, settle
from setup.wizard.question import Asking, Option
from setup.wizard.questions import QUESTIONS
from tests.setup.expected.case import machine, machine_names
from tests.setup.situations import ask, situation
from tests.setup.wizard.test_questions import VARIED

CAPABILITIES = (THIS_VERSION, EVERYTHING)
_PLACES = {question.key: place for place, question in enumerate(QUESTIONS)}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(machine_names()),
    capabilities=st.sampled_from(CAPABILITIES),
    numbers=st.lists(st.integers(0, 11), min_size=24, max_size=24),
)
def test_any_answers_can_be_set_up(
    name: str, capabilities: Capabilities, numbers: list[int]
) -> None:
    seen: list[Asking] = []

    def person(asking: Asking) -> Option:
        seen.append(asking)
        if len(seen) > len(numbers):
            # Keeps what it has by now: "choose another" may be answered for ever.
            return asking.options[-1] if asking.question.key == "keep" else recommended(asking)
        return asking.options[numbers[len(seen) - 1] % len(asking.options)]

    end = interview(situation(machine(name), capabilities), person)
    found = end.planned()
    assert set(found.document()) == {"config", "recommendation", "reasons", "notes"}
    keys = [asking.question.key for asking in seen]
    again = [i for i, key in enumerate(keys) if key == "keep"]
    last = keys[again[-1] + 1 :] if again else keys
    places = [_PLACES[key] for key in last]
    assert places == sorted(places)
    assert [asking.number for asking in seen] == list(range(1, len(seen) + 1))


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("capabilities", CAPABILITIES, ids=["this version", "all"])
def test_enter_everywhere_leaves_everything_to_the_rules(
    name: str, capabilities: Capabilities
) -> None:
    end, _ = ask(situation(machine(name), capabilities))
    assert end.asked == Asked()


@pytest.mark.parametrize("name", VARIED)
def test_what_is_recommended_is_what_the_rules_choose(name: str) -> None:
    """Saying the recommended answers gives the config that saying nothing gives."""
    end, person = ask(situation(machine(name)))
    said = end.answers
    for asking in person.seen:
        if asking.question.key in ("cards", "context", "kv"):
            value = recommended(asking).value
            said = said.answered(asking.question.key, value, taken=False)
    asked = said.asked(Asked())
    assert asked.context is not None
    config = end.planned(context=asked.context, kv=asked.kv, gpus=asked.gpus).config
    assert config == end.planned().config


def test_flags_stay_what_they_are() -> None:
    flags = Asked(port=9, host="::1", parallel=3, low_ram="mmap", kv="q4_0")
    end, person = ask(situation(machine("rtx4090-32gb"), flags=flags), context="65536")
    assert "kv" not in person.keys
    assert end.asked.context == 65_536
    assert end.asked.kv == "q4_0"
    assert (end.asked.port, end.asked.host, end.asked.parallel) == (9, "::1", 3)


def test_nobody_names_the_flag_that_decides() -> None:
    with pytest.raises(ConfigError, match=r"would ask: Which model\?") as raised:
        interview(situation(machine("rtx4090-32gb")), nobody)
    assert "--model" in raised.value.hint
    assert "--yes" in raised.value.hint


def test_nothing_to_ask_asks_nothing() -> None:
    start = situation(machine("rtx4090-32gb"))
    end, _ = ask(start)
    assert interview(end, nobody) == end


def test_the_answer_of_another_asks_again() -> None:
    start = situation(machine("rtx4060-16gb"))
    _, person = ask(start, family="qwen", keep="1|2|3")
    assert person.keys[:7] == ["family", "size", "keep", "size", "keep", "family", "size"]


def test_an_answer_that_was_said_is_told_from_one_that_was_taken() -> None:
    start = situation(machine("rtx4090-32gb"))
    _, person = ask(start)
    asking = person.asking("context")
    taken = settle(asking, recommended(asking)).answers
    other = next(option for option in asking.options if option != recommended(asking))
    said = settle(asking, other).answers
    assert "context" in taken.taken
    assert "context" not in said.taken
    assert said.asked(Asked()).context == other.value
    assert taken.asked(Asked()).context is None
