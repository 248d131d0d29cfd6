"""Context, slots and checkpoints that fit together in what a machine, or a card, can give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.config import Decision, RunConfig
from engine.memory import MemoryPlan
from engine.model_info import ModelInfo

DEFAULT_SLOTS = 4
DEFAULT_CONTEXT = 32_768
DEFAULT_PROMPT_CACHE = 6
SMALLEST_CONTEXT = 512
USEFUL_CONTEXT = 8192
"""A card that leaves less to a conversation is not worth it, unless it was asked for."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What takes memory beside the weights. `prompt_cache`: checkpoints a slot."""

    slots: int
    max_context: int
    prompt_cache: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """Sizes with their memory plan and decisions; `smallest` is the plan of the least engine."""

    sizes: Sizes
    memory: MemoryPlan
    decisions: tuple[Decision, ...]
    smallest: MemoryPlan

    def useful(self, asked_context: int | None) -> bool:
        """Whether it fits with a context to talk in."""
        least = min(USEFUL_CONTEXT, asked_context or USEFUL_CONTEXT)
        return self.memory.fits and self.sizes.max_context >= least


def fit_sizes(
    run: RunConfig,
    info: ModelInfo,
    plan: Callable[[Sizes], MemoryPlan],
    what: str,
    slots_by_default: tuple[int, str] = (DEFAULT_SLOTS, "the default"),
) -> Fitted:
    """As much of what is wanted as fits. `what` names the memory in reasons; the slots that nobody
    asked for come with theirs.

    A model that does not fit at all keeps what was asked: less of it would not help.
    """
    wanted, why = _wanted(run, info, *slots_by_default)
    least = Sizes(1, min(wanted.max_context, SMALLEST_CONTEXT), min(wanted.prompt_cache, 1))
    smallest = plan(least)
    size = _shrink(wanted, plan) if smallest.fits else wanted
    memory = plan(size)
    room = f"{memory.available_bytes / 1e9:.1f} GB of {what} may be used"
    reasons = {
        name: why[name]
        if getattr(size, name) == getattr(wanted, name)
        else f"as much as fits: {room}"
        for name in ("max_context", "slots", "prompt_cache")
    }
    if not smallest.fits:
        reasons["max_context"] += f", but the model does not fit: {shortage(smallest, what)}"
    decisions = tuple(
        Decision(name, getattr(run, name), getattr(size, name), reason)
        for name, reason in reasons.items()
    )
    return Fitted(size, memory, decisions, smallest)


def shortage(plan: MemoryPlan, what: str, *, least: bool = True) -> str:
    """What an engine takes that does not fit: on the card, or in the machine's memory. `least`: it
    is the smallest that there could be."""
    card = plan.card
    if card is not None and plan.total_bytes <= plan.available_bytes:
        needed, there, what = card.host_bytes, card.host_available_bytes, "memory beside the card"
    else:
        needed, there = plan.total_bytes, plan.available_bytes
    words = " at the least" if least else ""
    return f"{needed / 1e9:.1f} GB{words}, {there / 1e9:.1f} GB of {what} may be used"


def _shrink(size: Sizes, plan: Callable[[Sizes], MemoryPlan]) -> Sizes:
    """Checkpoints go first (they only save time), then slots, then context; what a shorter context
    leaves is for slots, then for checkpoints."""
    wanted = size
    size = replace(size, prompt_cache=min(size.prompt_cache, 1))
    while not plan(replace(size, slots=1)).fits and size.max_context > SMALLEST_CONTEXT:
        size = replace(size, max_context=max(SMALLEST_CONTEXT, size.max_context // 2))
    size = replace(size, slots=max(1, min(wanted.slots, plan(size).slots_that_fit)))
    while size.prompt_cache < wanted.prompt_cache:
        more = replace(size, prompt_cache=size.prompt_cache + 1)
        if not plan(more).fits:
            break
        size = more
    return size


def _wanted(
    run: RunConfig, info: ModelInfo, default_slots: int, why_slots: str
) -> tuple[Sizes, dict[str, str]]:
    context = run.max_context or min(DEFAULT_CONTEXT, info.train_context)
    why = {"max_context": "as asked" if run.max_context else "the default"}
    if context > info.train_context:
        context = info.train_context
        why["max_context"] = f"the longest that the model allows is {info.train_context}"
    elif not run.max_context and context == info.train_context:
        why["max_context"] = "the longest that the model allows"
    slots = default_slots if run.slots is None else max(1, run.slots)
    why["slots"] = why_slots if run.slots is None else "as asked"
    if run.slots == 0:
        why["slots"] = "0 means one conversation at a time"
    cache = DEFAULT_PROMPT_CACHE if run.prompt_cache is None else run.prompt_cache
    why["prompt_cache"] = (
        "the default, checkpoints a slot" if run.prompt_cache is None else "as asked"
    )
    return Sizes(slots, context, cache), why
