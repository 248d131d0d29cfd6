"""The interview: one question after another until nothing is left to ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.errors import ConfigError
from setup.wizard.question import Asking, Option, Question, put
from setup.wizard.questions import QUESTIONS
from setup.wizard.situation import Situation

Ask = Callable[[Asking], Option]


def interview(
    situation: Situation, ask: Ask, questions: Sequence[Question] = QUESTIONS
) -> Situation:
    """Asks the questions in their order and returns the situation with all answers.

    An answer may open a question again (a size that does not fit), so the first open one is asked
    each time. Raises what `ask` raises.
    """
    while True:
        asking = _next(situation, questions)
        if asking is None:
            return situation
        if asking.settled:
            situation = _answered(asking, asking.situation, recommended(asking))
        else:
            situation = settle(asking, ask(asking))


def settle(asking: Asking, option: Option) -> Situation:
    """The situation after a person's answer."""
    count = asking.situation.questions_put + 1
    return _answered(asking, replace(asking.situation, questions_put=count), option)


def _answered(asking: Asking, situation: Situation, option: Option) -> Situation:
    question = asking.question
    taken = option == recommended(asking)
    if question.settle is not None:
        return question.settle(situation, option.value, taken)
    return situation.with_answer(question.key, option.value, taken=taken)


def recommended(asking: Asking) -> Option:
    """Answers as `--yes` does."""
    return asking.options[asking.recommended]


def nobody(asking: Asking) -> Option:
    """Answers where nobody can: always a `ConfigError` that says which flag decides."""
    raise ConfigError(
        f"setup would ask: {asking.question.title}",
        f"there is no terminal to ask on. {asking.question.flag} decides it; --yes takes every "
        "recommended answer, and --dry-run only prints what they are",
    )


def _next(situation: Situation, questions: Sequence[Question]) -> Asking | None:
    askings = (put(question, situation) for question in questions)
    return next((asking for asking in askings if asking is not None), None)
