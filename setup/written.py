"""From the rules' choice to what setup writes: only what this version's engine can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.capabilities import Capabilities
from engine.config import KV_FORMATS
from engine.hardware import Gpu, Hardware
from setup.asked import SAMPLING, Asked
from setup.models.catalogue import ModelRow
from setup.rule_choice import RuleChoice
from setup.rules.extras import VISION_RESERVE_MIB, ple_io
from setup.rules.workers import pool_workers


@dataclass(frozen=True, slots=True)
class Written:
    """Config keys, engine flags, and sentences about the rest.

    left_out: what this version cannot do. without_effect: what was asked for and has no use here.
    """

    config: Mapping[str, Any]
    args: tuple[str, ...]
    kv: str
    env: Mapping[str, str]
    left_out: tuple[str, ...]
    without_effect: tuple[str, ...]

    def flag(self, name: str) -> str | None:
        """The value of a flag that is written."""
        return self.args[self.args.index(name) + 1] if name in self.args else None


@dataclass(frozen=True, slots=True)
class _Wish:
    """Something a rule chose: the feature it needs, its flags or keys, and how to name it."""

    feature: str
    what: str
    args: tuple[str, ...] = ()
    config: tuple[tuple[str, Any], ...] = ()
    card: bool = False
    """Whether it is of use only where a card computes."""


def written(
    row: ModelRow,
    hardware: Hardware,
    choice: RuleChoice,
    asked: Asked,
    capabilities: Capabilities,
    card: Gpu | None = None,
    idle: str = "",
) -> Written:
    """Everything of `choice` that `capabilities` hold, and what they do not.

    `card`: the one that this version computes on where it uses no more; `None`: it computes on the
    processor, since `idle`.
    """
    kv, kv_note = _kv(choice.kv, capabilities)
    wishes = _wishes(row, hardware, choice, asked, card, capabilities)
    done = [wish for wish in wishes if capabilities.has(wish.feature) and not (wish.card and idle)]
    config: dict[str, Any] = dict(pair for wish in done for pair in wish.config)
    env: Mapping[str, str] = {}
    left = [
        f"{w.what}: {idle if w.card and idle else capabilities.missing(w.feature)}"
        for w in wishes
        if w not in done
    ]
    args = tuple(word for wish in done for word in wish.args)
    if choice.fill is not None and choice.profile is not None:
        missing = choice.profile.missing(capabilities)
        if missing:
            left.append(f"profile {choice.profile.name}: {missing}")
        else:
            config = {**choice.fill.config, **config}
            env, args = choice.fill.env, (*args, *choice.fill.args)
    if asked.sampling is not None:
        config["sampling"] = SAMPLING[asked.sampling]
    if asked.open_browser is not None:
        config["open_browser"] = asked.open_browser
    no_use = _without_effect(row, choice, asked)
    return Written(config, args, kv, env, (*kv_note, *left), no_use)


def _without_effect(row: ModelRow, choice: RuleChoice, asked: Asked) -> tuple[str, ...]:
    """What was asked for and no rule has a use for, so that no wish was made of it."""
    cards = len(choice.cards)
    budget = "is spread over cards without a budget" if row.budget else "has no budget of memory"
    off = (reason for reason in choice.reasons if reason.startswith("kv streaming off: "))
    low = asked.low_ram if asked.low_ram in ("on", "resident", "mmap") else None
    streaming = asked.kv_streaming if asked.kv_streaming == "on" else None
    said: tuple[tuple[str, object, bool, str], ...] = (
        (
            "--resident-budget-gib",
            asked.resident_budget_gib,
            choice.resident_budget_gib is not None,
            f"{row.key} {budget}",
        ),
        (
            "--low-ram",
            low,
            cards > 0 and choice.low_ram.mode is not None,
            choice.low_ram.reason if cards else "it is about experts beside those on a card",
        ),
        (
            "--kv-streaming",
            streaming,
            cards > 0 and choice.streaming,
            next(off, "").removeprefix("kv streaming off: ") if cards else "no card is used",
        ),
        ("--layer-split", asked.layer_split, cards > 1, "it takes two cards or more"),
    )
    return tuple(
        f"{flag} {value}: {why}"
        for flag, value, used, why in said
        if value is not None and not used
    )


def _kv(kv: str, capabilities: Capabilities) -> tuple[str, tuple[str, ...]]:
    if kv in KV_FORMATS or capabilities.has(f"kv_{kv}"):
        return kv, ()
    return "int8", (f"kv {kv}: {capabilities.missing(f'kv_{kv}')}; int8 is written",)


def _wishes(
    row: ModelRow,
    hardware: Hardware,
    choice: RuleChoice,
    asked: Asked,
    card: Gpu | None,
    capabilities: Capabilities,
) -> tuple[_Wish, ...]:
    """In the order in which the flags are written."""
    several = len(choice.cards) > 1 and not capabilities.has("layer_split")
    one = card if several else None
    found = (
        *_card_wishes(choice, one),
        _rope(choice),
        _low_ram(choice),
        _table(row, hardware),
        _streaming(choice),
        _number("resident_budget", "--resident-budget-gib", choice.resident_budget_gib),
        _vision(asked),
        _number("vram_reserve", "--vram-reserve-mib", asked.vram_reserve_mib, card=True),
        _workers(hardware, asked),
        _draft_vocab(asked),
    )
    return tuple(wish for wish in found if wish is not None)


def _card_wishes(choice: RuleChoice, one: Gpu | None) -> tuple[_Wish | None, ...]:
    """`one`: the only card that is used of several."""
    if not choice.cards:
        return ()
    counts = Counter(card.name for card in choice.cards)
    names = " and ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items())
    numbers = [card.index for card in (choice.cards if one is None else (one,))]
    backend = choice.cards[0].backend
    gpu = numbers[0] if len(numbers) == 1 else numbers
    old_cards = (("cuda", 12),) if choice.cuda12 else ()
    use = _Wish(
        backend,
        f"the model on {names}",
        (),
        (("backend", backend), ("gpu", gpu), *old_cards),
        card=True,
    )
    cache = _Wish(
        "expert_cache",
        "as many experts as fit on the card",
        ("--expert-cache", "auto"),
        card=True,
    )
    if choice.layer_split is None:
        return (use, cache)
    # `auto` places layers after it has seen what the cards hold.
    trim = () if choice.layer_split == "auto" else ("--trim-stage-weights",)
    what = f"layer split {choice.layer_split}"
    return (
        use,
        cache,
        _Wish("layer_split", what, trim, (("layer_split", choice.layer_split),)),
    )


def _rope(choice: RuleChoice) -> _Wish | None:
    if choice.rope is None:
        return None
    method, factor = choice.rope.method, f"{choice.rope.factor:g}"
    words = ("--rope-scaling", method, "--rope-scale", factor)
    return _Wish("rope_scaling", f"context {choice.context}", words)


def _low_ram(choice: RuleChoice) -> _Wish | None:
    mode = choice.low_ram.mode
    if mode is None or not choice.cards:
        return None
    return _Wish("low_ram", f"low memory, {mode}", (f"--{mode}-experts",))


def _table(row: ModelRow, hardware: Hardware) -> _Wish | None:
    place, reason = ple_io(row, hardware.ram_gib, hardware.disk_rotational)
    return _Wish("table_place", reason, ("--ple-io", place), card=True) if place else None


def _streaming(choice: RuleChoice) -> _Wish | None:
    if choice.kv_resident is None or not choice.cards:
        return None
    count = str(choice.kv_resident)
    return _Wish("kv_streaming", f"kv-resident {count}", ("--kv-resident", count))


def _vision(asked: Asked) -> _Wish | None:
    if asked.vision is None:
        return None
    reserve = ("--vram-reserve-mib", str(VISION_RESERVE_MIB))
    words = ("--vision", *(reserve if asked.vram_reserve_mib is None else ()))
    return _Wish("vision", f"images by {asked.vision}", words)


def _workers(hardware: Hardware, asked: Asked) -> _Wish | None:
    found = pool_workers(hardware.cpu)
    count = asked.pool_workers if asked.pool_workers is not None else found and found[0]
    return _number("workers", "--pool-workers", count)


def _draft_vocab(asked: Asked) -> _Wish | None:
    if asked.draft_vocab is None:
        return None
    keys = (("draft_vocab", asked.draft_vocab),)
    return _Wish("draft_vocab", f"draft vocabulary {asked.draft_vocab}", (), keys)


def _number(feature: str, flag: str, value: int | None, *, card: bool = False) -> _Wish | None:
    if value is None:
        return None
    return _Wish(feature, f"{flag} {value}", (flag, str(value)), card=card)
