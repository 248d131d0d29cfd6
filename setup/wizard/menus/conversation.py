"""A conversation: how long it may be, and how its keys and values are kept."""

from __future__ import annotations

from engine.engine_flag import read_tokens
from engine.errors import ConfigError
from engine.flags import LEAST_CONTEXT
from setup.recommend import Recommendation
from setup.rules.context import CONTEXTS
from setup.rules.kv import FP16_MOST_CONTEXT, STREAM_LEAST_CONTEXT
from setup.wizard.question import Menu, Option
from setup.wizard.situation import Situation


def contexts(s: Situation) -> Menu:
    """The usual lengths that can be run here, with what each risks."""
    plan = s.planned()
    best = _written(plan)
    lengths = {best, *(c for c in (*CONTEXTS, s.row.train_context) if c <= _longest(s))}
    options = []
    for length in sorted(lengths):
        trial = plan if length == best else s.planned(context=length)
        if _written(trial) == length:
            reason = _reason(plan, best)
            why = reason + _unused(s, plan, reason) if length == best else _risk(plan, trial)
            options.append(_context(length, why))
    return Menu(tuple(options), [option.value for option in options].index(best))


def _longest(s: Situation) -> int:
    beyond = s.capabilities.has("rope_scaling")
    return max(CONTEXTS[-1], s.row.train_context) if beyond else s.row.train_context


def _written(plan: Recommendation) -> int:
    """The context in the config: what the rules chose, unless this version had to cut it."""
    args = plan.config["args"]
    return int(args[args.index("--max-context") + 1])


def _reason(plan: Recommendation, context: int) -> str:
    prefix = "context " if plan.rule.context == context else "engine: max_context "
    return next((r.partition(": ")[2] for r in plan.reasons if r.startswith(prefix)), "")


def _unused(s: Situation, plan: Recommendation, reason: str) -> str:
    """A length that a card decides says so where no card is used."""
    used = s.rules_hold or plan.memory.card is not None
    if used or not reason.startswith("the smallest card"):
        return ""
    return "; this version does not use the card, and serves as much as memory holds"


def _risk(plan: Recommendation, trial: Recommendation) -> str:
    """The first warning that only the other context gives."""
    return next((w for w in trial.rule.warnings if w not in plan.rule.warnings), "")


def _context(length: int, why: str = "") -> Option:
    short = f"{length // 1024}k"
    label = f"{length} tokens" if length % 1024 else f"{length} tokens ({short.upper()})"
    return Option(length, label, why, () if length % 1024 else (short,))


def read_context(s: Situation, text: str) -> Option:
    """A typed number of tokens, `24k` or `24576`; `ConfigError` names the range."""
    length = read_tokens(text) or 0
    if not LEAST_CONTEXT <= length <= _longest(s):
        raise ConfigError(
            f"{text!r} is not a context: it goes from {LEAST_CONTEXT} to {_longest(s)} tokens",
            "type a number of an answer, or of tokens, such as 24k",
        )
    return _context(length)


def beyond_training(s: Situation) -> bool:
    """Whether the context is longer than the model was trained with."""
    return s.subject is not None and _length(s) > s.row.train_context


def why_rope(s: Situation) -> str:
    """The factor."""
    length, trained = _length(s), s.row.train_context
    factor = f"{length / trained:g}"
    return f"{length} tokens are {factor} times {trained}, the longest that the model allows."


def ropes(s: Situation) -> Menu:
    """YaRN, or linear."""
    return Menu(
        (
            Option("yarn", "YaRN", "Keeps more of the quality.", ("yarn",)),
            Option("linear", "linear", "", ("linear",)),
        )
    )


def long_enough_for_int8(s: Situation) -> bool:
    """Short contexts keep fp16."""
    return s.subject is not None and _length(s) > FP16_MOST_CONTEXT


def kv_formats(s: Situation) -> Menu:
    """The formats, smallest loss last; the recommended one is what setup would write."""
    args = s.planned().config["args"]
    best = args[args.index("--kv") + 1]
    options = (
        Option("int8", "int8: 8 bits", "Close to fp16 in half the memory.", ("int8",)),
        Option("k8v4", "k8v4: keys in 8 bits, values in 4", "", ("k8v4",), "kv_k8v4"),
        Option("q4_0", "q4_0: 4 bits", "Long conversations lose detail.", ("q4_0",), "kv_q4_0"),
        Option("fp16", "fp16: 16 bits", "No loss, twice the memory of int8.", ("fp16",)),
    )
    return Menu(options, [option.value for option in options].index(best))


def may_stream(s: Situation) -> bool:
    """Streaming is only asked where it is slow and not needed: attention that reads every token."""
    if s.subject is None or not s.row.attends_all or s.hardware.wsl:
        return False
    return _length(s) >= STREAM_LEAST_CONTEXT and s.planned().rule.kv_resident is None


def streaming(s: Situation) -> Menu:
    """No, or yes."""
    return Menu(
        (
            Option("auto", "no", "They fit on the card.", ("no", "n")),
            Option("on", "yes", "Slower in long conversations.", ("yes", "y")),
        )
    )


def images(s: Situation) -> Menu:
    """No, on the card, or on the processor."""
    return Menu(
        (
            Option("no", "no", "", ("no", "n")),
            Option("gpu", "yes, on the card", "", ("yes", "y", "gpu")),
            Option("cpu", "yes, on the processor", "", ("cpu",)),
        )
    )


def _length(s: Situation) -> int:
    return s.answers.context or s.planned().rule.context
