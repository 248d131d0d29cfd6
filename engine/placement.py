"""On which device a model runs, and what of it lies where."""

from __future__ import annotations

from dataclasses import dataclass

from engine.capabilities import Capabilities
from engine.card_settings import CARD_FIELDS, card_config, card_decisions, card_room
from engine.config import Activations, CardConfig, Decision, KvFormat, RunConfig
from engine.device_memory import plan_on_card
from engine.devices import DeviceChoice, choose_device
from engine.hardware import Gpu, Hardware
from engine.memory import MemoryPlan, plan_memory
from engine.model_info import ModelInfo
from engine.sizes import Fitted, Sizes, fit_sizes, shortage

DEFAULT_PREFILL = 256
LARGE_PREFILL = ((100 * 10**9, 4096), (64 * 10**9, 2048), (40 * 10**9, 1024))
"""Cards with so many bytes read so long pieces of a prompt at once: the buffers are small beside
what else lies there, and experts are read less often."""
# Room left to the rest of the machine: a tenth of what is free.
_RAM_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Ask:
    """What decides how much memory a model takes, beside its sizes."""

    kv: KvFormat
    activations: Activations
    spec: int
    prefill: int | None
    """Prompt rows of a window; `None` or 0: as suits the device."""
    draft_rows: int = 0
    """Rows of an output matrix that drafts have for themselves."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The device with the sizes that fit there; `card` is `None` on the processor."""

    device: str
    card: CardConfig | None
    fitted: Fitted
    decisions: tuple[Decision, ...]
    prefill: int
    """Prompt rows of a window."""


def place(
    run: RunConfig, info: ModelInfo, hardware: Hardware, ask: Ask, capabilities: Capabilities
) -> Placement:
    """The device that was asked for. Unless one was named, a card that cannot hold the model leaves
    it to the processor.

    Raises `ConfigError` for a card that is asked for by name and is missing or of no use.
    """
    choice = choose_device(run.device, hardware, capabilities)
    if choice.card is None:
        return _on_processor(run, info, hardware, ask, choice.reason)
    placed = _on_card(run, info, hardware, ask, choice, choice.card, capabilities)
    useful = placed.fitted.useful(min(run.max_context or info.train_context, info.train_context))
    if useful or run.device not in (None, "auto"):
        return placed
    lacks = shortage(placed.fitted.smallest, f"{choice.card.name}'s memory")
    reason = f"{hardware.cpu.name}; {choice.card.name} cannot hold the model: {lacks}"
    return _on_processor(run, info, hardware, ask, reason)


def _on_processor(
    run: RunConfig, info: ModelInfo, hardware: Hardware, ask: Ask, reason: str
) -> Placement:
    def plan(size: Sizes) -> MemoryPlan:
        return plan_memory(
            info,
            kv=ask.kv,
            activations=ask.activations,
            slots=size.slots,
            max_context=size.max_context,
            prompt_cache=size.prompt_cache,
            available_bytes=_host_bytes(hardware),
            draft_rows=ask.draft_rows,
        )

    asked = None if run.device in (None, "auto") else run.device
    unused = tuple(
        Decision(name, getattr(run, name), None, "the model runs on the processor")
        for name in CARD_FIELDS
        if getattr(run, name) is not None
    )
    fitted = fit_sizes(run, info, plan, "memory")
    return Placement(
        "cpu",
        None,
        fitted,
        (Decision("device", asked, "cpu", reason), *unused),
        ask.prefill or DEFAULT_PREFILL,
    )


def _on_card(
    run: RunConfig,
    info: ModelInfo,
    hardware: Hardware,
    ask: Ask,
    choice: DeviceChoice,
    card: Gpu,
    capabilities: Capabilities,
) -> Placement:
    room = card_room(run, card, _host_bytes(hardware), capabilities)
    fitting = (rows for least, rows in LARGE_PREFILL if room.limit_bytes >= least)
    prefill = ask.prefill or next(fitting, DEFAULT_PREFILL)

    def plan(size: Sizes) -> MemoryPlan:
        return plan_on_card(
            info,
            room,
            kv=ask.kv,
            slots=size.slots,
            max_context=size.max_context,
            prompt_cache=size.prompt_cache,
            prefill=min(prefill, size.max_context),
            spec=ask.spec,
            draft_rows=ask.draft_rows,
        )

    what = f"{card.name}'s memory"
    fitted = fit_sizes(run, info, plan, what)
    if run.slots is None and not _all_experts(fitted.memory):
        one = 1, "the default where experts lie beside the card: slots would take their room"
        fitted = fit_sizes(run, info, plan, what, one)
    share = fitted.memory.card
    assert share is not None
    config = card_config(run, card, room, share)
    asked = None if run.device in (None, "auto") else run.device
    # A card's number says which one "cuda" is: nobody is told that it was changed.
    device = Decision("device", choice.name if asked else None, choice.name, choice.reason)
    more = card_decisions(run, card, config, share, capabilities)
    return Placement(choice.name, config, fitted, (device, *more), prefill)


def _all_experts(memory: MemoryPlan) -> bool:
    card = memory.card
    return card is None or card.resident_experts == card.layer_experts


def _host_bytes(hardware: Hardware) -> int:
    return int(hardware.ram_available_bytes * _RAM_SHARE)
