"""Interviews on recorded machines, for tests."""

from __future__ import annotations

from pathlib import Path

from engine.capabilities import EVERYTHING, Capabilities
from engine.hardware import Hardware
from setup.asked import Asked
from setup.models.bundled import bundled_model
from setup.models.catalogue import catalogue
from setup.models.on_disk import FoundModel
from setup.wizard.answers import Answers, answers_of
from setup.wizard.interview import interview
from setup.wizard.question import Asking, Option
from setup.wizard.situation import Situation
from setup.wizard.subjects import Models


def situation(
    hardware: Hardware,
    capabilities: Capabilities = EVERYTHING,
    flags: Asked | None = None,
    found: tuple[FoundModel, ...] = (),
    answers: Answers | None = None,
) -> Situation:
    """Before the first question, in folders that do not exist."""
    flags = flags or Asked()
    return Situation(
        hardware=hardware,
        capabilities=capabilities,
        models=Models(catalogue(), found, bundled_model()),
        flags=flags,
        answers=answers or answers_of(flags),
        folder=Path("/nowhere"),
        models_folder=Path("/nowhere/models"),
    )


class Person:
    """Types the texts that it has for a question, one each time, and Enter after that."""

    def __init__(self, **texts: str) -> None:
        self.texts = {key: list(text.split("|")) for key, text in texts.items()}
        self.seen: list[Asking] = []

    def __call__(self, asking: Asking) -> Option:
        assert len(self.seen) < 40, "an interview that does not end"
        self.seen.append(asking)
        left = self.texts.get(asking.question.key)
        return asking.choose(left.pop(0) if left else "")

    @property
    def keys(self) -> list[str]:
        """What was asked, in order."""
        return [asking.question.key for asking in self.seen]

    def asking(self, key: str) -> Asking:
        """The last question with that key."""
        return next(asking for asking in reversed(self.seen) if asking.question.key == key)


def ask(start: Situation, **texts: str) -> tuple[Situation, Person]:
    """A whole interview, and the person who answered; "a|b" types b the second time."""
    person = Person(**texts)
    return interview(start, person), person
