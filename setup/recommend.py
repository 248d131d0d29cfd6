"""What setup recommends and writes for one model on one machine, with every reason."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.capabilities import THIS_VERSION, Capabilities
from engine.card_memory import CardPlan
from engine.config import Decision, RunConfig
from engine.devices import card_fault
from engine.hardware import Gpu, Hardware
from engine.memory import WEIGHTS_IN_MEMORY, MemoryPlan
from engine.model_info import ModelInfo
from engine.resolve import Plan, make_plan
from engine.sizes import USEFUL_CONTEXT, shortage
from setup.asked import Asked
from setup.card_plans import place
from setup.config.earlier import Earlier, read_earlier
from setup.config.keys import DEFAULT_HOST, DEFAULT_PORT
from setup.config.sound import sound_values
from setup.earlier_answers import stays, within
from setup.models.catalogue import ModelRow
from setup.rule_choice import Case, RuleChoice, choose
from setup.tips import tips
from setup.user_settings import Calibration
from setup.written import Written, written


@dataclass(frozen=True, slots=True)
class Subject:
    """A model: its row of the catalogue, its sizes, and its file (`None`: not on this disk)."""

    row: ModelRow
    info: ModelInfo
    path: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The config to write, what the rules chose, why, and what it weighs."""

    config: Mapping[str, Any]
    rule: RuleChoice
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    memory: MemoryPlan
    """Of this version's engine with that config."""
    run: RunConfig
    """What that config asks of this version's engine, as far as it decides about memory."""
    cards: tuple[CardPlan, ...]
    """What the rules would put on each card."""
    unheeded: tuple[str, ...] = ()
    """The notes that say where what was asked for is not what is written."""

    def document(self) -> dict[str, Any]:
        """What `strata setup --json` prints."""
        return {
            "config": dict(self.config),
            "recommendation": self.rule.document(),
            "reasons": list(self.reasons),
            "notes": list(self.notes),
        }


def recommend(
    subject: Subject,
    hardware: Hardware,
    asked: Asked,
    folder: Path,
    *,
    old: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    calibration: Calibration | None = None,
    capabilities: Capabilities = THIS_VERSION,
) -> Recommendation:
    """Pure: the same facts and answers give the same recommendation.

    `folder` is where the config will lie, `old` the config that is there, `calibration` what was
    measured here. Raises `ConfigError` for an answer that cannot work.
    """
    old, environment = sound_values(old or {}, "the config").values, environment or {}
    earlier = read_earlier(old)
    asked, kept = stays(asked, earlier)
    case = Case(
        row=subject.row,
        layers=subject.info.layers,
        hardware=hardware,
        asked=asked,
        old=old,
        environment={**environment, **(old.get("env") or {})},
        stays=kept,
    )
    rule = choose(case)
    asked, capped = within(subject.info, asked, capabilities)
    # What is written follows the context that this version serves.
    choice = choose(replace(case, asked=asked)) if capped else rule
    taken, run, plan = _engine(subject, hardware, choice, asked, old, earlier, capabilities)
    config = _config(subject, asked, old, choice, taken, plan, folder, capabilities)
    config["args"] += _more_flags(config["args"], earlier, asked.parallel is not None, calibration)
    placed = place(subject.info, hardware, choice, asked)
    return Recommendation(
        config=config,
        rule=rule,
        reasons=(
            *choice.reasons,
            *((placed.auto.sentence,) if placed.auto else ()),
            *_unused_cards(choice, taken),
            *_engine_reasons(plan),
            *_calibrated(calibration),
        ),
        notes=(
            *capped,
            *choice.warnings,
            *(f"left out: {sentence}" for sentence in taken.left_out),
            *(f"without effect: {sentence}" for sentence in taken.without_effect),
            *_memory_notes(plan),
            *tips(subject.row, hardware, choice, asked, placed.plans, capabilities),
        ),
        memory=plan.memory,
        run=run,
        cards=placed.plans,
        unheeded=capped,
    )


def _more_flags(
    args: Sequence[str], earlier: Earlier, parallel: bool, calibration: Calibration | None
) -> list[str]:
    """What the earlier config and a calibration add. What was measured in this run comes first;
    beside an older measurement the config has the word."""
    found = calibration or Calibration((), "")
    words = {one.args[0]: one.args for one in found.gained}
    if found.measured_now:
        measured = [word for pair in words.values() for word in pair]
        return [*measured, *earlier.flags(*args, *measured, parallel=parallel)]
    kept = earlier.flags(*args, parallel=parallel)
    return [*kept, *(w for name, pair in words.items() if name not in kept for w in pair)]


def _slots(asked: Asked, taken: Written, old: Mapping[str, Any], earlier: Earlier) -> int | None:
    """Conversations at once: as asked, as it stands in the config, where a flag wins over the
    key, or by a profile."""
    said = (asked.parallel, earlier.said.slots, old.get("parallel"), taken.config.get("parallel"))
    for value in said:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _engine(
    subject: Subject,
    hardware: Hardware,
    choice: RuleChoice,
    asked: Asked,
    old: Mapping[str, Any],
    earlier: Earlier,
    capabilities: Capabilities,
) -> tuple[Written, RunConfig, Plan]:
    """What is written, what that asks of the engine, and what the engine makes of it, so that setup
    writes nothing that would be cut: the largest of the chosen cards that can hold the model, else
    the processor."""
    row = subject.row

    def tried(card: Gpu | None, idle: str = "") -> tuple[Written, RunConfig, Plan]:
        taken = written(row, hardware, choice, asked, capabilities, card, idle)
        run = RunConfig(
            max_context=choice.context,
            kv=taken.kv,
            draft_vocab=asked.draft_vocab if capabilities.has("draft_vocab") else None,
            slots=_slots(asked, taken, old, earlier),
            device="cpu" if card is None else f"{card.backend}:{card.index}",
            vram_reserve_mib=None if card is None else asked.vram_reserve_mib,
            table_place=None if card is None else taken.flag("--ple-io"),
        )
        return taken, run, make_plan(run, subject.info, hardware, capabilities)

    if capabilities.follow_the_rules:
        return tried(None)
    faults = {}
    for card in sorted(choice.cards, key=lambda card: -card.vram_bytes):
        fault = card_fault(card, hardware, capabilities)
        if not fault:
            found = tried(card)
            plan = found[2]
            if plan.memory.fits and plan.config.max_context >= min(USEFUL_CONTEXT, choice.context):
                return found
            fault = f"the model needs {shortage(plan.memory, 'its memory', least=False)}"
        faults[fault] = card
    return tried(None, "; ".join(faults) or "no card is used")


def _config(
    subject: Subject,
    asked: Asked,
    old: Mapping[str, Any],
    choice: RuleChoice,
    taken: Written,
    plan: Plan,
    folder: Path,
    capabilities: Capabilities,
) -> dict[str, Any]:
    """The keys that setup owns. What was asked for is written as asked, and what setup chose as it
    fits: the engine changes neither."""
    on_cards = "backend" in taken.config
    # An engine that streams keys and values serves what the rules chose.
    streams = on_cards and capabilities.has("kv_streaming")
    context = choice.context if streams or asked.context else plan.config.max_context
    config: dict[str, Any] = {
        "model": _portable(subject, folder),
        "model_name": old.get("model_name", subject.row.tag),
        "backend": "cpu",
        **taken.config,
        "args": ["--max-context", str(context), "--kv", taken.kv, *taken.args],
        "host": asked.host or old.get("host") or DEFAULT_HOST,
        "port": next((p for p in (asked.port, old.get("port")) if p is not None), DEFAULT_PORT),
    }
    if asked.parallel is not None:
        config["parallel"] = max(1, asked.parallel)
    elif "parallel" in taken.config and not on_cards:
        config["parallel"] = plan.config.slots
    api_key = asked.api_key if asked.api_key is not None else old.get("api_key")
    if api_key is not None:
        config["api_key"] = api_key
    if taken.env:
        config["env"] = dict(taken.env)
    return config


def _portable(subject: Subject, folder: Path) -> str:
    """Relative when the model lies below the config's folder, so that the folder may be moved."""
    if subject.path is None:
        files = subject.row.files
        return str(Path("models") / Path(files[0].path).name) if files else "models"
    # `Path.resolve` raises for a link to itself.
    model, folder = (Path(os.path.realpath(path)) for path in (subject.path, folder))
    return str(model.relative_to(folder)) if model.is_relative_to(folder) else str(model)


def _unused_cards(choice: RuleChoice, taken: Written) -> tuple[str, ...]:
    """Rules count with cards that this version does not use: their sums say so."""
    if not choice.cards or "backend" in taken.config:
        return ()
    names = " and ".join(dict.fromkeys(card.name for card in choice.cards))
    return (f"cards: the rules above count with {names}, which this version does not use here",)


_TOLD = ("device", "max_context", "slots", "mtp")


def _engine_reasons(plan: Plan) -> tuple[str, ...]:
    """What this version's engine adds: what it only repeats is left out."""
    return tuple(
        f"engine: {_sentence(decision)}"
        for decision in plan.decisions
        if decision.setting in _TOLD and not decision.reason.startswith("as asked")
    )


def _sentence(decision: Decision) -> str:
    if decision.setting == "mtp":
        return f"drafts: {decision.reason}"
    return f"{decision.setting} {decision.value}: {decision.reason}"


def _calibrated(found: Calibration | None) -> tuple[str, ...]:
    if found is None:
        return ()
    return tuple(f"{gained.told}: measured here on {found.date}" for gained in found.gained)


def _memory_notes(plan: Plan) -> tuple[str, ...]:
    needed, there = plan.memory.total_bytes / 1e9, plan.memory.available_bytes / 1e9
    if not plan.memory.fits:
        return (
            f"the model would need {needed:.1f} GB, and {there:.1f} GB may be used: "
            f"{WEIGHTS_IN_MEMORY}",
        )
    return tuple(
        f"{name} {d.asked} is kept, the engine serves {d.value}: {d.reason}"
        for d in plan.decisions
        for name in [{"slots": "parallel", "max_context": "context"}.get(d.setting)]
        if name and d.changed
    )
