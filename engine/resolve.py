"""From what was asked to what runs, with a reason for every setting.

Pure: the same three inputs give the same answer. Nothing is refused for its size; what does not
fit is made smaller, and the decision says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.capabilities import THIS_VERSION, feature_of_flag
from engine.config import (
    Activations,
    Decision,
    EngineConfig,
    KvFormat,
    MtpHnorm,
    RunConfig,
    Value,
)
from engine.errors import ConfigError
from engine.hardware import Hardware
from engine.memory import MemoryPlan, plan_memory
from engine.model_info import ModelInfo

DEFAULT_SLOTS = 4
DEFAULT_CONTEXT = 32_768
DEFAULT_SPEC = 4
DEFAULT_SPEC_MIN_P = 0.5
DEFAULT_PREFILL = 256
DEFAULT_WINDOW_ROWS = 16
DEFAULT_PROMPT_CACHE = 6
DEFAULT_PROMPT_CACHE_EVERY = 2_048
SMALLEST_CONTEXT = 512

# Room left to the rest of the machine: a tenth of what is free.
_RAM_SHARE = 0.9


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


def make_plan(run: RunConfig, info: ModelInfo, hardware: Hardware) -> Plan:
    """`resolve` with the memory table that it decided on."""
    kv, kv_decision = _kv(run)
    activations, activations_decision = _activations(run)
    fitted, memory, size_decisions = _sizes(run, info, hardware, kv, activations)
    device = _device(run, hardware)
    mtp, draft_decisions, spec, spec_min_p = _drafts(run, info)
    hnorm, hnorm_decision = _hnorm(run)
    rows, rows_decision = _window_rows(run, fitted.slots)
    prefill, prefill_decision = _prefill(run, fitted.max_context)
    every = _plain(
        "prompt_cache_every", run.prompt_cache_every, DEFAULT_PROMPT_CACHE_EVERY, "tokens"
    )
    config = EngineConfig(
        model=info.path,
        mtp=mtp,
        mtp_hnorm=hnorm,
        device="cpu",
        slots=fitted.slots,
        max_context=fitted.max_context,
        kv=kv,
        activations=activations,
        spec=spec,
        spec_min_p=spec_min_p,
        prefill=prefill,
        window_rows=rows,
        prompt_cache=fitted.prompt_cache,
        prompt_cache_every=int(every.value or 0),
    )
    decisions = (
        Decision("model", _text(run.model), str(info.path), f"{info.architecture}, {info.name}"),
        device,
        *size_decisions,
        kv_decision,
        activations_decision,
        *draft_decisions,
        hnorm_decision,
        prefill_decision,
        rows_decision,
        every,
        *(_unused(name, value) for name, value in run.unused),
    )
    return Plan(config, decisions, memory)


@dataclass(frozen=True, slots=True)
class _Sizes:
    slots: int
    max_context: int
    prompt_cache: int


def _sizes(
    run: RunConfig, info: ModelInfo, hardware: Hardware, kv: KvFormat, activations: Activations
) -> tuple[_Sizes, MemoryPlan, tuple[Decision, ...]]:
    """Context, slots and checkpoints that fit together in free memory.

    A model that does not fit at all keeps what was asked: less of it would not help.
    """
    available = int(hardware.ram_available_bytes * _RAM_SHARE)
    wanted, why = _wanted(run, info)
    size = wanted

    def plan(size: _Sizes) -> MemoryPlan:
        return plan_memory(
            info,
            kv=kv,
            activations=activations,
            slots=size.slots,
            max_context=size.max_context,
            prompt_cache=size.prompt_cache,
            available_bytes=available,
        )

    smallest = plan(
        _Sizes(1, min(wanted.max_context, SMALLEST_CONTEXT), min(wanted.prompt_cache, 1))
    )
    if smallest.fits:
        size = _shrink(wanted, plan)
    memory = plan(size)
    room = f"{available / 1e9:.1f} GB of memory may be used"
    reasons = {
        name: why[name]
        if getattr(size, name) == getattr(wanted, name)
        else f"as much as fits: {room}"
        for name in ("max_context", "slots", "prompt_cache")
    }
    if not smallest.fits:
        needed = f"{smallest.total_bytes / 1e9:.1f} GB at the least"
        reasons["max_context"] += f", but the model does not fit: {needed}, {room}"
    decisions = tuple(
        Decision(name, getattr(run, name), getattr(size, name), reason)
        for name, reason in reasons.items()
    )
    return size, memory, decisions


def _shrink(size: _Sizes, plan: Callable[[_Sizes], MemoryPlan]) -> _Sizes:
    """Checkpoints go first (they only save time), then slots, then context."""
    while not plan(size).fits and size.prompt_cache > 1:
        size = replace(size, prompt_cache=size.prompt_cache - 1)
    size = replace(size, slots=max(1, min(size.slots, plan(size).slots_that_fit)))
    while not plan(size).fits and size.max_context > SMALLEST_CONTEXT:
        size = replace(size, max_context=max(SMALLEST_CONTEXT, size.max_context // 2))
    return size


def _wanted(run: RunConfig, info: ModelInfo) -> tuple[_Sizes, dict[str, str]]:
    context = run.max_context or min(DEFAULT_CONTEXT, info.train_context)
    why = {"max_context": "as asked" if run.max_context else "the default"}
    if context > info.train_context:
        context = info.train_context
        why["max_context"] = f"the longest that the model allows is {info.train_context}"
    elif not run.max_context and context == info.train_context:
        why["max_context"] = "the longest that the model allows"
    slots = DEFAULT_SLOTS if run.slots is None else max(1, run.slots)
    why["slots"] = "the default" if run.slots is None else "as asked"
    if run.slots == 0:
        why["slots"] = "0 means one conversation at a time"
    cache = DEFAULT_PROMPT_CACHE if run.prompt_cache is None else run.prompt_cache
    why["prompt_cache"] = (
        "the default, checkpoints a slot" if run.prompt_cache is None else "as asked"
    )
    return _Sizes(slots, context, cache), why


def _device(run: RunConfig, hardware: Hardware) -> Decision:
    if run.device in (None, "auto", "cpu"):
        spare = f"; {len(hardware.gpus)} GPU(s) stay idle in this version" if hardware.gpus else ""
        asked = run.device if run.device == "cpu" else None
        return Decision("device", asked, "cpu", f"{hardware.cpu.name}{spare}")
    return Decision("device", run.device, "cpu", "this version computes on the CPU only")


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


def _hnorm(run: RunConfig) -> tuple[MtpHnorm, Decision]:
    match run.mtp_hnorm:
        case None:
            return "stream", Decision("mtp_hnorm", None, "stream", "the default: as in llama.cpp")
        case "stream" | "pooled":
            return run.mtp_hnorm, Decision("mtp_hnorm", run.mtp_hnorm, run.mtp_hnorm, "as asked")
        case _:
            raise ConfigError(f"mtp_hnorm: {run.mtp_hnorm!r} is not stream or pooled")


def _prefill(run: RunConfig, max_context: int) -> tuple[int, Decision]:
    asked = run.prefill or None
    rows = min(asked or DEFAULT_PREFILL, max_context)
    reason = "as asked" if asked == rows else "no more than the context" if asked else "auto"
    return rows, Decision("prefill", asked, rows, f"{reason}: prompt rows of one window")


def _window_rows(run: RunConfig, slots: int) -> tuple[int, Decision]:
    asked = run.window_rows
    rows = max(asked or DEFAULT_WINDOW_ROWS, slots)
    reason = "as asked" if asked == rows else f"at least one row for each of {slots} slots"
    return rows, Decision("window_rows", asked, rows, reason if asked else "the default")


def _plain(setting: str, asked: Value, default: Value, what: str) -> Decision:
    if asked is None:
        return Decision(setting, None, default, f"the default: {what}")
    return Decision(setting, asked, asked, f"as asked: {what}")


def _unused(flag: str, value: str) -> Decision:
    feature = feature_of_flag(flag)
    assert feature is not None, flag
    return Decision(flag, value or "on", "off", THIS_VERSION.missing(feature.name))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
