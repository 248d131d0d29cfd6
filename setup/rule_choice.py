"""What setup's rules choose for one model on one machine, whatever this version's engine can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.hardware import Gpu, Hardware
from engine.layer_split import parse_layer_split
from engine.memory import GIB
from setup.asked import Asked
from setup.config.keys import OWNED
from setup.models.catalogue import ModelRow, catalogue
from setup.profile_file import Profile
from setup.profiles import ProfileFill, load_profiles, matching_profile, profile_fills
from setup.rules.budget import budget_split, resident_budget_gib
from setup.rules.card_speed import auto_order
from setup.rules.card_verdict import read_opt_ins, sizing_gib
from setup.rules.cards import CardChoice, choose_cards
from setup.rules.context import Rope, long_context_note, recommend_context, rope
from setup.rules.groups import plan_groups
from setup.rules.kv import kv_ram_gb, kv_streaming, recommend_kv
from setup.rules.low_ram import LowRam, low_ram, paging_risk, slow_share
from setup.rules.size import below_floor
from setup.rules.slots import parallel_reason, recommend_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChoice:
    """The rules' answers. `parallel` is what they recommend, also where the person said another."""

    cards: tuple[Gpu, ...]
    stages: tuple[Gpu, ...]
    """The cards in the order of the layers: as chosen, but the fastest last under `auto`."""
    cuda12: bool
    context: int
    kv: str
    kv_resident: int | None
    parallel: int
    layer_split: str | None
    low_ram: LowRam
    resident_budget_gib: int | None
    rope: Rope | None
    profile: Profile | None
    fill: ProfileFill | None
    """What of the profile may be filled in."""
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def streaming(self) -> bool:
        """Whether most keys and values lie outside the card."""
        return self.kv_resident is not None

    def document(self) -> dict[str, Any]:
        """The part `recommendation` of what `--json` prints."""
        return {
            "parallel": self.parallel,
            "layer_split": self.layer_split,
            "context": self.context,
            "kv": self.kv,
            "kv_resident": self.kv_resident,
            "low_ram": self.low_ram.mode,
            "profile": self.profile.name if self.profile else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the rules look at."""

    row: ModelRow
    layers: int
    hardware: Hardware
    asked: Asked
    old: Mapping[str, Any]
    """The config that is there."""
    environment: Mapping[str, str]
    """`STRATA_*` of the process and, over them, of that config."""
    stays: frozenset[str] = frozenset()
    """Fields of `asked` that this run did not say: they come from that config."""


def choose(case: Case) -> RuleChoice:
    """The rules, one after another. Raises what a rule refuses."""
    chosen, cards, card_reasons = _cards(case)
    memory = _memory(case, cards)
    spread = _spread(case, cards, memory)
    return RuleChoice(
        cards=cards,
        stages=_stages(case, cards, spread.layer_split),
        cuda12=chosen.cuda12,
        context=memory.context,
        kv=memory.kv,
        kv_resident=memory.kv_resident,
        parallel=spread.parallel,
        layer_split=spread.layer_split,
        low_ram=memory.low_ram,
        resident_budget_gib=memory.budget,
        rope=memory.rope,
        profile=spread.profile,
        fill=spread.fill,
        reasons=(*card_reasons, *memory.reasons, *spread.reasons),
        warnings=(*chosen.warnings, *memory.warnings),
    )


def _cards(case: Case) -> tuple[CardChoice, tuple[Gpu, ...], tuple[str, ...]]:
    """A model with a budget is split only where memory holds all of it, or by the person's word."""
    asked = case.asked
    opt_ins = read_opt_ins(case.environment, case.old.get("cuda"))
    chosen = choose_cards(case.hardware, case.row, asked.gpus, asked.backend, opt_ins)
    if not case.row.budget or len(chosen.cards) < 2:
        return chosen, chosen.cards, chosen.reasons
    allowed, reason = budget_split(case.row, case.hardware.ram_gib)
    cards = chosen.cards if allowed or asked.gpus is not None else chosen.cards[:1]
    return chosen, cards, (*chosen.reasons, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """What lies where."""

    context: int
    kv: str
    kv_resident: int | None
    low_ram: LowRam
    budget: int | None
    rope: Rope | None
    sizes: tuple[float, ...]
    """GiB of the cards, as contexts and slots count them."""
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def _memory(case: Case, cards: tuple[Gpu, ...]) -> _Memory:
    row, asked, ram = case.row, case.asked, case.hardware.ram_gib
    sizes = tuple(sizing_gib(card, case.hardware) for card in cards)
    images, low = asked.vision is not None, asked.low_ram or "auto"
    # An integrated GPU's borrowed memory is the machine's own: only its carve-out holds experts.
    owned = tuple(card.vram_gib for card in cards)
    needed = low_ram(row, ram, owned, 0, "int8", low, images=images).needed
    context, context_reason = _context(case, sizes, needed)
    kv, kv_reason = recommend_kv(context, asked.kv)
    if "kv" in case.stays:
        kv_reason = kv_reason.replace("as asked", "as it was set before")
    scaling = rope(context, row.train_context, asked.rope_scaling, asked.rope_scale)
    mode = low_ram(row, ram, owned, context, kv, low, images=images)
    resident, streaming_reason = kv_streaming(
        row,
        ram,
        context,
        kv,
        wsl=case.hardware.wsl,
        asked=asked.kv_streaming,
        free_vram_gib=min((card.vram_free_bytes / GIB for card in cards), default=None),
    )
    streamed = kv_ram_gb(row, context, kv) if resident is not None else 0.0
    budget, budget_reason = _budget(case, cards, streamed)
    reasons = (
        mode.reason if cards or mode.needed else None,
        context_reason,
        scaling.reason if scaling else None,
        kv_reason,
        streaming_reason if cards else None,
        budget_reason,
    )
    warnings = (
        slow_share(row, mode) if cards else None,
        paging_risk(row, ram, low),
        long_context_note(row, ram, context, mode.needed),
        _floor(row, ram, owned),
    )
    return _Memory(
        context=context,
        kv=kv,
        kv_resident=resident,
        low_ram=mode,
        budget=budget,
        rope=scaling,
        sizes=sizes,
        reasons=tuple(reason for reason in reasons if reason),
        warnings=tuple(warning for warning in warnings if warning),
    )


def _floor(row: ModelRow, ram: float, cards: tuple[float, ...]) -> str | None:
    """What a machine risks on which no size of the model's family fits."""
    family = [other for other in catalogue() if other.family == row.family]
    return below_floor(family, ram, cards) if family else None


def _context(case: Case, sizes: tuple[float, ...], low: bool) -> tuple[int, str]:
    found, reason = recommend_context(case.row, case.hardware.ram_gib, sizes, low)
    asked = case.asked.context
    if asked is None or asked == found:
        return found, reason
    why = "as it was set before" if "context" in case.stays else "as asked"
    return asked, f"context {asked}: {why}; recommended is {reason.removeprefix('context ')}"


def _budget(
    case: Case, cards: tuple[Gpu, ...], streamed_gb: float
) -> tuple[int | None, str | None]:
    if not case.row.budget or len(cards) > 1:
        return None, None
    asked = case.asked.resident_budget_gib
    return resident_budget_gib(case.row, case.hardware.ram_gib, streamed_gb, asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """How many conversations, and how the layers are spread."""

    parallel: int
    layer_split: str | None
    profile: Profile | None
    fill: ProfileFill | None
    reasons: tuple[str, ...]


def _spread(case: Case, cards: tuple[Gpu, ...], memory: _Memory) -> _Spread:
    profile = matching_profile(load_profiles(), cards, case.row.key)
    # What setup itself wrote is not the person's word.
    own = {name: value for name, value in case.old.items() if name not in OWNED}
    fill = profile_fills(profile, own, case.environment, _said(case.asked)) if profile else None
    facts = (case.row, memory.sizes, memory.context, memory.kv, memory.kv_resident is not None)
    parallel, reason = recommend_parallel(*facts), parallel_reason(*facts)
    if fill and "parallel" in fill.config:
        parallel = int(fill.config["parallel"])
        reason = f"parallel {parallel}: profile {fill.name}"
    split = _layer_split(case, cards, fill)
    return _Spread(
        parallel=parallel,
        layer_split=split,
        profile=profile,
        fill=fill,
        reasons=(
            *([f"layer split {split}: {len(cards)} cards"] if split not in (None, "auto") else []),
            *([reason] if cards else []),
            *_groups(case, cards, parallel),
            *([fill.text] if fill and fill.text else []),
            *(fill.left if fill else ()),
        ),
    )


def _layer_split(case: Case, cards: tuple[Gpu, ...], fill: ProfileFill | None) -> str | None:
    if len(cards) < 2:
        return None
    wanted = case.asked.layer_split
    if wanted is None and fill is not None:
        wanted = fill.config.get("layer_split")
    points = parse_layer_split(wanted, len(cards), case.layers)
    return "auto" if points is None else ",".join(map(str, points))


def _stages(case: Case, cards: tuple[Gpu, ...], split: str | None) -> tuple[Gpu, ...]:
    """The first named card runs layer 0, unless `auto` may choose the order, too."""
    given = case.old.get("gpu_order") == "as_given"
    return auto_order(cards) if split == "auto" and not given else cards


def _groups(case: Case, cards: tuple[Gpu, ...], parallel: int) -> tuple[str, ...]:
    """How the slots of a split travel from card to card."""
    slots = parallel if case.asked.parallel is None else case.asked.parallel
    if len(cards) < 2 or slots < 2:
        return ()
    found = plan_groups(
        slots=slots,
        stages=len(cards),
        asked=None,
        batch_mtp=False,
        adapt_async=False,
        nvidia=cards[0].vendor == "nvidia",
        environment=case.environment,
    )
    return tuple(f"batch groups: {note}" for note in found.notes)


def _said(asked: Asked) -> frozenset[str]:
    """The config keys that the person's answers set."""
    return frozenset(
        name for name in ("parallel", "layer_split") if getattr(asked, name) is not None
    )
