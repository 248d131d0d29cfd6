"""From what was asked to what runs, with a reason for every setting.

Pure: the same three inputs give the same answer. Nothing is refused for its size; what does not
fit is made smaller, and the decision says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.capabilities import THIS_VERSION, Capabilities, feature_of_flag
from engine.config import (
    Activations,
    BatchMtp,
    Decision,
    EngineConfig,
    KvFormat,
    MtpHnorm,
    RunConfig,
    Value,
)
from engine.conversation_cache import conversation_cache
from engine.draft_vocabulary import most_ids
from engine.errors import ConfigError
from engine.hardware import Hardware
from engine.memory import MemoryPlan
from engine.model_info import ModelInfo
from engine.placement import Ask, place

DEFAULT_SPEC = 4
DEFAULT_SPEC_MIN_P = 0.5
DEFAULT_WINDOW_ROWS = 64
DEFAULT_PROMPT_CACHE_EVERY = 2_048
DEFAULT_PROMPT_CACHE_ROOT = 2_048


@dataclass(frozen=True, slots=True)
class Plan:
    """What the engine runs, why, and what it weighs."""

    config: EngineConfig
    decisions: tuple[Decision, ...]
    memory: MemoryPlan


def resolve(
    run: RunConfig, info: ModelInfo, hardware: Hardware
) -> tuple[EngineConfig, tuple[Decision, ...]]:
    """Every setting concrete, with the decisions that made it so."""
    plan = make_plan(run, info, hardware)
    return plan.config, plan.decisions


def make_plan(
    run: RunConfig,
    info: ModelInfo,
    hardware: Hardware,
    capabilities: Capabilities = THIS_VERSION,
) -> Plan:
    """`resolve` with the memory table that it decided on.

    Raises `ConfigError` for a value that stands for nothing, and for a card that is asked for by
    name and is missing or of no use.
    """
    kv, kv_decision = _kv(run)
    activations, activations_decision = _activations(run)
    mtp, draft_decisions, spec, spec_min_p = _drafts(run, info)
    draft_vocab, vocab_decision, draft_rows = _draft_vocab(run, info, spec)
    ask = Ask(kv, activations, spec, run.prefill, draft_rows)
    placed = place(run, info, hardware, ask, capabilities)
    sizes = placed.fitted.sizes
    hnorm, hnorm_decision = _hnorm(run)
    rows, rows_decision = _window_rows(run, sizes.slots)
    slot_drafts, slot_drafts_decision = _slot_drafts(run, spec, sizes.slots)
    prefill, prefill_decision = _prefill(run, sizes.max_context, placed.prefill)
    # A window ends where a state is saved: more often than prompts are read makes windows short.
    often = max(DEFAULT_PROMPT_CACHE_EVERY, prefill)
    every = _plain("prompt_cache_every", run.prompt_cache_every, often, "tokens")
    root = _plain(
        "prompt_cache_root",
        run.prompt_cache_root,
        DEFAULT_PROMPT_CACHE_ROOT,
        "a beginning of so many tokens is kept for other conversations",
    )
    parking = conversation_cache(run, placed.fitted.memory)
    config = EngineConfig(
        model=info.path,
        synthetic=run.synthetic,
        mtp=mtp,
        mtp_hnorm=hnorm,
        draft_vocab=draft_vocab,
        device=placed.device,
        slots=sizes.slots,
        max_context=sizes.max_context,
        kv=kv,
        activations=activations,
        spec=spec,
        spec_min_p=spec_min_p,
        batch_mtp=slot_drafts,
        prefill=prefill,
        window_rows=rows,
        prompt_cache=sizes.prompt_cache,
        prompt_cache_every=int(every.value or 0),
        prompt_cache_root=int(root.value or 0),
        conversation_cache_mib=parking.size_mib,
        conversation_cache_slots=parking.conversations,
        conversation_cache_min_free_mib=parking.min_free_mib,
        card=placed.card,
    )
    decisions = (
        _model(run, info),
        *placed.decisions,
        *placed.fitted.decisions,
        kv_decision,
        activations_decision,
        *draft_decisions,
        slot_drafts_decision,
        hnorm_decision,
        vocab_decision,
        prefill_decision,
        rows_decision,
        every,
        root,
        *parking.decisions,
        *(_unused(name, value, capabilities) for name, value in run.unused),
    )
    return Plan(config, decisions, parking.memory)


def _model(run: RunConfig, info: ModelInfo) -> Decision:
    what = f"{info.architecture}, {info.name}"
    if run.synthetic is not None:
        return Decision("synthetic", run.synthetic, run.synthetic, f"random weights: {what}")
    return Decision("model", _text(run.model), str(info.path), what)


def _kv(run: RunConfig) -> tuple[KvFormat, Decision]:
    match run.kv:
        case None:
            return "int8", Decision("kv", None, "int8", "the default: half the memory of fp16")
        case "int8" | "fp16" | "f32":
            return run.kv, Decision("kv", run.kv, run.kv, "as asked")
        case _:
            reason = f"{run.kv} is not in this version; int8 is the nearest"
            return "int8", Decision("kv", run.kv, "int8", reason)


def _activations(run: RunConfig) -> tuple[Activations, Decision]:
    match run.activations:
        case None | "int8":
            reason = "as asked" if run.activations else "the arithmetic that exactness stands on"
            return "int8", Decision("activations", run.activations, "int8", reason)
        case "float":
            reason = "as asked: for comparing with other programs"
            return "float", Decision("activations", "float", "float", reason)
        case _:
            raise ConfigError(f"activations: {run.activations!r} is not int8 or float")


def _drafts(
    run: RunConfig, info: ModelInfo
) -> tuple[Path | None, tuple[Decision, ...], int, float]:
    """The draft layer's file, decisions, rows of a slot in a window, and least probability."""
    spec = max(1, DEFAULT_SPEC if run.spec is None else run.spec)
    reason = "the default: a token and 3 drafts" if run.spec is None else "as asked"
    if run.spec == 0:
        reason = "0 means no drafts"
    if not info.has_drafts and run.mtp is None:
        spec, reason = 1, "the model has no draft layer"
    probability = DEFAULT_SPEC_MIN_P if run.spec_min_p is None else run.spec_min_p
    where = "lies in the model file" if info.has_drafts else "is missing: no drafts"
    if run.mtp:
        where = "comes from that file, as asked"
    decisions = (
        Decision("mtp", _text(run.mtp), _text(run.mtp), f"the draft layer {where}"),
        Decision("spec", run.spec, spec, reason),
        _plain("spec_min_p", run.spec_min_p, DEFAULT_SPEC_MIN_P, "draft on above it"),
    )
    return run.mtp, decisions, spec, probability


def _slot_drafts(run: RunConfig, spec: int, slots: int) -> tuple[BatchMtp, Decision]:
    """Drafts of slots that write together: a lone conversation has all of `spec` in any case."""
    value: BatchMtp = "off"
    if spec < 2:
        reason = "no drafts are made"
    elif slots < 2:
        reason = "one slot: it has all drafts for itself"
    elif run.batch_mtp == "on":
        value, reason = "on", f"as asked: up to {spec - 1} drafts for each slot"
    elif run.batch_mtp == "off":
        reason = "as asked: only a lone slot drafts"
    else:
        value = "measured"
        reason = (
            "each slot gets the drafts that give most tokens a second, by the time of windows and"
            f" the share of right drafts, both measured; a lone one gets {spec - 1}"
        )
    return value, Decision("batch_mtp", run.batch_mtp, value, reason)


def _hnorm(run: RunConfig) -> tuple[MtpHnorm, Decision]:
    match run.mtp_hnorm:
        case None:
            return "stream", Decision("mtp_hnorm", None, "stream", "the default: as in llama.cpp")
        case "stream" | "pooled":
            return run.mtp_hnorm, Decision("mtp_hnorm", run.mtp_hnorm, run.mtp_hnorm, "as asked")
        case _:
            raise ConfigError(f"mtp_hnorm: {run.mtp_hnorm!r} is not stream or pooled")


def _draft_vocab(run: RunConfig, info: ModelInfo, spec: int) -> tuple[str | None, Decision, int]:
    """The vocabulary of drafts, the decision, and the rows of the head that it needs."""
    asked = run.draft_vocab
    if asked is None:
        return None, Decision("draft_vocab", None, None, "any token may be drafted"), 0
    if spec < 2:
        return None, Decision("draft_vocab", asked, asked, "no drafts are made: no effect"), 0
    rows = most_ids(asked, info.vocab_size)
    reason = f"as asked: at most {rows} of {info.vocab_size} tokens are drafted"
    return asked, Decision("draft_vocab", asked, asked, reason), rows


def _prefill(run: RunConfig, max_context: int, rows: int) -> tuple[int, Decision]:
    asked = run.prefill or None
    rows = min(asked or rows, max_context)
    reason = "as asked" if asked == rows else "no more than the context" if asked else "auto"
    return rows, Decision("prefill", asked, rows, f"{reason}: prompt rows of one window")


def _window_rows(run: RunConfig, slots: int) -> tuple[int, Decision]:
    asked = run.window_rows
    rows = max(asked or DEFAULT_WINDOW_ROWS, slots)
    reason = "as asked" if asked == rows else f"at least one row for each of {slots} slots"
    default = "the default: windows of more rows are prompts"
    return rows, Decision("window_rows", asked, rows, reason if asked else default)


def _plain(setting: str, asked: Value, default: Value, what: str) -> Decision:
    if asked is None:
        return Decision(setting, None, default, f"the default: {what}")
    return Decision(setting, asked, asked, f"as asked: {what}")


def _unused(flag: str, value: str, capabilities: Capabilities) -> Decision:
    feature = feature_of_flag(flag)
    assert feature is not None, flag
    return Decision(flag, value or "on", "off", capabilities.missing(feature.name))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
