"""The questions as data: their order, when each is asked, and what it recommends."""

from __future__ import annotations

import pytest

from engine.capabilities import EVERYTHING, FEATURES, THIS_VERSION, Capabilities
from engine.errors import ConfigError
from setup.asked import Asked
from setup.wizard.question import Question
from setup.wizard.questions import QUESTIONS, WRITE
from tests.setup.expected.case import machine, machine_names
from tests.setup.situations import ask, situation

VARIED = (
    "2x3090-32gb",
    "2xr9700-128gb",
    "4x5090-256gb",
    "5070ti-and-9070xt-64gb",
    "5090-and-3080-64gb",
    "container-16gb",
    "laptop-3050-16gb",
    "rtx4090-32gb",
    "strix-halo-128gb",
    "wsl-4090-96gb",
)

# The order of the original's setup 0.1.40: cards, family, size, questions of low memory and budget,
# context, rope method, keys and values, images; streaming of Qwen3.6 and the download are later
# additions, which stand where what they depend on is known.
ORDER = [
    "vendor",
    "cards",
    "family",
    "size",
    "keep",
    "spread",
    "single",
    "context",
    "rope",
    "kv",
    "kv_streaming",
    "images",
    "download",
]


def test_the_order_is_the_documented_one() -> None:
    assert [question.key for question in QUESTIONS] == ORDER


@pytest.mark.parametrize("question", [*QUESTIONS, WRITE], ids=lambda q: q.key)
def test_every_question_says_what_it_is_about(question: Question) -> None:
    features = {feature.name for feature in FEATURES}
    assert set(question.needs) <= features
    assert question.title.endswith("?")
    assert question.flag.startswith("--")
    assert len(question.more) > 20


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("capabilities", [THIS_VERSION, EVERYTHING], ids=["this version", "all"])
def test_every_menu_is_sound(name: str, capabilities: Capabilities) -> None:
    _, person = ask(situation(machine(name), capabilities))
    for asking in person.seen:
        assert 0 <= asking.recommended < len(asking.options)
        assert len({option.label for option in asking.options}) == len(asking.options)
        assert all(option.needs in ("", *capabilities.names) for option in asking.options)
        words = [word.casefold() for option in asking.options for word in option.words]
        assert len(words) == len(set(words))
        for number, option in enumerate(asking.options, 1):
            assert asking.choose(f" {number} ") == option
            assert all(asking.choose(word.upper()) == option for word in option.words)


@pytest.mark.parametrize("name", machine_names())
def test_this_version_does_not_ask_for_what_it_cannot_do(name: str) -> None:
    _, person = ask(situation(machine(name), THIS_VERSION), family="qwen36", size="2", keep="3")
    asked = [key for key in person.keys if key != "cards"]
    assert asked in (
        ["family", "size", "context", "kv", "download"],
        ["family", "size", "keep", "context", "kv", "download"],
        # A card under 5.5 GiB: a context of 8192, which keeps fp16.
        ["family", "size", "keep", "context", "download"],
    )
    several = [gpu for gpu in machine(name).gpus if gpu.vendor == "nvidia"]
    assert "cards" not in person.keys or len(several) > 1


@pytest.mark.parametrize(
    ("name", "cards"),
    [
        ("2x3090-32gb", (0, 1)),
        # 32 GB and 10 GB: the second is under 12 GB and would slow prompts down.
        ("5090-and-3080-64gb", (0,)),
        # The best two of four.
        ("4xa4000-128gb", (0, 1)),
    ],
)
def test_cards(name: str, cards: tuple[int, ...]) -> None:
    _, person = ask(situation(machine(name)))
    asking = person.asking("cards")
    assert asking.options[asking.recommended].value == cards


def test_one_card_is_no_question() -> None:
    _, person = ask(situation(machine("rtx4090-32gb")))
    assert person.keys == ["family", "size", "context", "kv", "images", "download"]


def test_the_makers_are_asked_first_and_decide_the_cards() -> None:
    start = situation(machine("5070ti-and-9070xt-64gb"))
    end, person = ask(start)
    assert person.keys[0] == "vendor"
    assert [card.vendor for card in end.cards_for(end.row)] == ["nvidia"]
    end, person = ask(start, vendor="amd")
    assert [card.vendor for card in end.cards_for(end.row)] == ["amd"]
    assert end.asked.backend == "hip"


def test_a_budget_and_several_cards() -> None:
    # 96 GB of RAM, less than the 93.7 GB of UD-IQ4_XS and 24 for the rest.
    start = situation(machine("2x4090-128gb"), flags=Asked(gpus=(0, 1)))
    _, person = ask(start, family="unsloth", size="UD-Q4_K_XL")
    assert "spread" in person.keys
    for text, cards in (("1", (0,)), ("2", (0, 1))):
        end, _ = ask(start, family="unsloth", size="UD-Q4_K_XL", spread=text)
        assert end.asked.gpus == cards
        assert tuple(card.index for card in end.planned().rule.cards) == cards


def test_a_budget_and_the_recommended_cards() -> None:
    end, person = ask(situation(machine("2x4090-128gb")), family="unsloth", size="UD-Q4_K_XL")
    # 111.3 + 24 = 135.3 of 125.7 GiB.
    labels = [option.label for option in person.asking("spread").options]
    assert labels[1].count("RTX 4090") == 2
    assert end.asked == Asked()
    assert len(end.planned().rule.cards) == 1


def test_several_cards_for_a_model_of_one() -> None:
    start = situation(machine("4x5090-256gb"))
    end, person = ask(start, cards="2", family="qwen36", single="3")
    assert person.keys[:4] == ["cards", "family", "size", "single"]
    assert end.asked.gpus == (2,)
    assert [card.index for card in end.planned().rule.cards] == [2]


@pytest.mark.parametrize(("text", "scaling"), [("", None), ("linear", "linear")])
def test_beyond_the_trained_length_the_method_is_asked(text: str, scaling: str | None) -> None:
    end, person = ask(situation(machine("rtx4090-128gb")), context="524288", rope=text)
    # 524288 / 262144 = 2.
    assert person.asking("rope").why.startswith("524288 tokens are 2 times")
    assert end.asked.rope_scaling == scaling
    rope = end.planned().rule.rope
    assert rope is not None
    assert (rope.method, rope.factor) == (scaling or "yarn", 2)


def test_within_the_trained_length_it_is_not() -> None:
    _, person = ask(situation(machine("rtx4090-128gb")), context="262144")
    assert "rope" not in person.keys


def test_a_short_context_keeps_fp16_and_asks_no_format() -> None:
    end, person = ask(situation(machine("rtx4090-128gb")), context="8k")
    assert "kv" not in person.keys
    assert end.planned().rule.kv == "fp16"


@pytest.mark.parametrize(
    ("context", "asked"),
    # It begins at 65536 tokens.
    [("32768", False), ("65536", True), ("131072", True)],
)
def test_streaming_of_qwen36_is_asked(context: str, asked: bool) -> None:
    texts = {"family": "qwen36", "keep": "3", "context": context}
    _, person = ask(situation(machine("rtx4090-128gb")), **texts)
    assert ("kv_streaming" in person.keys) is asked


def test_streaming_is_not_asked_where_it_is_needed() -> None:
    # 131072 tokens and less than 9 GiB free on the card: the rules stream anyway.
    texts = {"family": "qwen36", "keep": "3", "context": "131072"}
    end, person = ask(situation(machine("laptop-4060-32gb")), **texts)
    assert "kv_streaming" not in person.keys
    assert end.planned().rule.kv_resident == 32_768


def test_flags_are_not_asked_again() -> None:
    flags = Asked(gpus=(0,), context=32_768, kv="int8", vision="cpu", backend="cuda")
    end, person = ask(situation(machine("2x3090-32gb"), flags=flags))
    assert person.keys == ["family", "size", "download"]
    assert end.asked == flags


@pytest.mark.parametrize(
    ("text", "value"), [("24k", 24_576), ("100000", 100_000), ("3", 65_536), ("512", 512)]
)
def test_a_context_may_be_typed(text: str, value: int) -> None:
    end, _ = ask(situation(machine("rtx4090-128gb")), context=text)
    assert end.answers.context == value


@pytest.mark.parametrize("text", ["15", "0", "-1", "9999999999", "1e5", "300000000", "12 k k"])
def test_a_context_of_no_use_is_explained(text: str) -> None:
    _, person = ask(situation(machine("rtx4090-128gb"), THIS_VERSION), family="qwen36", keep="3")
    with pytest.raises(ConfigError, match="is not a context: it goes from 16 to 262144"):
        person.asking("context").choose(text)
