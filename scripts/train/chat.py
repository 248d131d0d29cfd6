"""Chat turns: the shape of the training text, and conversations from the seed file and tools."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED_FILE = Path(__file__).with_name("chat_seed.md")
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant for programmers.",
    "Answer briefly.",
    "You are Strata Tiny, a small language model.",
)
THOUGHTS = (
    "The user asks: {question} I will answer in a few sentences.",
    "The question is: {question} A short and clear answer is enough.",
    "I should answer this directly and keep it simple.",
    "Let me recall what I know about this and explain it briefly.",
    "The user wants a short explanation. I will give the main point first.",
)
CITIES = (
    "Paris",
    "London",
    "Berlin",
    "Rome",
    "Madrid",
    "Oslo",
    "Vienna",
    "Lisbon",
    "Tokyo",
    "Cairo",
    "Boston",
    "Chicago",
    "Dublin",
    "Athens",
    "Prague",
    "Warsaw",
    "Zurich",
    "Toronto",
    "Sydney",
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question and its answer."""

    question: str
    answer: str


def turn(role: str, content: str) -> str:
    """One ChatML turn with its line end."""
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def reply(answer: str, thought: str = "") -> str:
    """An assistant turn; without a thought the think block is empty, as with thinking off."""
    return turn("assistant", f"<think>\n{thought}\n</think>\n\n{answer}")


def seeds(path: Path = SEED_FILE) -> list[list[Exchange]]:
    """The hand-written exchanges, one list of wordings for each answer."""
    groups = []
    for part in re.split(r"(?m)^Q: ", path.read_text(encoding="utf-8"))[1:]:
        questions, answer = part.split("\nA: ", 1)
        groups.append([Exchange(q.strip(), answer.strip()) for q in questions.split("|")])
    return groups


def conversation(exchanges: list[Exchange], draw: random.Random) -> str:
    """The exchanges as one text, with a system turn and thoughts now and then."""
    parts = [turn("system", draw.choice(SYSTEMS))] if draw.random() < 0.2 else []
    thinks = draw.random() < 0.35
    for exchange in exchanges:
        thought = draw.choice(THOUGHTS).format(question=exchange.question) if thinks else ""
        parts += [turn("user", _varied(exchange.question, draw)), reply(exchange.answer, thought)]
    return "".join(parts)


def _varied(question: str, draw: random.Random) -> str:
    """The question as people type it: sometimes lower case, polite or without its mark."""
    chance = draw.random()
    if chance < 0.08:
        return question.lower()
    if chance < 0.14:
        return question.rstrip("?.!")
    if chance < 0.18:
        return "Please answer: " + question
    if chance < 0.22:
        return "Hi! " + question
    return question


def seed_conversations(draw: random.Random, copies: int) -> Iterator[str]:
    """Every wording `copies` times, alone or after another exchange."""
    groups = seeds()
    for _ in range(copies):
        for group in groups:
            for exchange in group:
                others = [
                    draw.choice(draw.choice(groups)) for _ in range(draw.choice([0, 0, 0, 1, 2]))
                ]
                yield conversation([*others, exchange], draw)


def tool_conversations(draw: random.Random, count: int) -> Iterator[str]:
    """Calls of two made-up functions and the answers from their results."""
    for _ in range(count):
        yield _weather(draw) if draw.random() < 0.5 else _sum(draw)


def _weather(draw: random.Random) -> str:
    city, degrees = draw.choice(CITIES), draw.randint(-5, 35)
    sky = draw.choice(["sunny", "cloudy", "rainy", "windy"])
    question = draw.choice(["What is the weather in {}?", "How is the weather in {} today?"])
    result = json.dumps({"city": city, "temperature": degrees, "sky": sky})
    answer = f"It is {sky} in {city}, and the temperature is {degrees} degrees."
    return _called("get_weather", {"city": ("string", city)}, question.format(city), result, answer)


def _sum(draw: random.Random) -> str:
    a, b = draw.randint(1, 99), draw.randint(1, 99)
    question = draw.choice(["What is {} plus {}?", "Add {} and {}.", "How much is {} + {}?"])
    arguments = {"a": ("number", str(a)), "b": ("number", str(b))}
    return _called("add", arguments, question.format(a, b), str(a + b), f"The result is {a + b}.")


def _called(
    name: str, arguments: dict[str, tuple[str, str]], question: str, result: str, answer: str
) -> str:
    properties = {key: {"type": kind} for key, (kind, _) in arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    tool = {"type": "function", "function": {"name": name, "parameters": parameters}}
    system = (
        f"These functions can be called:\n<tools>\n{json.dumps(tool)}\n</tools>\n"
        "A call is written like this:\n<tool_call>\n<function=NAME>\n<parameter=PARAMETER>\n"
        "VALUE\n</parameter>\n</function>\n</tool_call>"
    )
    values = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, (_, v) in arguments.items())
    call = f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"
    response = f"\n<tool_response>\n{result}\n</tool_response>".removeprefix("\n")
    return "".join(
        [
            turn("system", system),
            turn("user", question),
            reply(call),
            turn("user", response),
            reply(answer),
        ]
    )
