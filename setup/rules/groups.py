"""Groups of slots that travel a pipeline of cards, and what goes with them.

Rules of the original's 0.2.7: the pipeline is the default on every split, drafts leave it unless
STRATA_PIPED_MTP brings them in, and a flag wins over an environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from engine.errors import ConfigError
from engine.switches import Value, read_switches

SERIAL_DEFAULTS = "026"
"""The value of STRATA_DEFAULTS that brings the one group of two NVIDIA cards back."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How the slots travel. `groups` 1 is serial: one window goes through card after card."""

    groups: int
    batch_mtp: bool
    adapt_async: bool
    notes: tuple[str, ...]
    piped_drafts: int = 0
    """Drafts of a slot in a pipelined group's window (STRATA_PIPED_MTP)."""


def batch_groups(slots: int, stages: int) -> int:
    """The most groups that divide `slots` and are no more than `stages`: what `auto` means."""
    return _divisor(slots, stages)


def plan_groups(
    *,
    slots: int,
    stages: int,
    asked: int | Literal["auto"] | None,
    batch_mtp: bool,
    adapt_async: bool,
    nvidia: bool,
    environment: Mapping[str, str],
    spec: int | None = None,
    window_rows: int | None = None,
) -> GroupPlan:
    """The groups of `slots` over `stages` cards, one stage each.

    `asked` is `--batch-groups`, `None` when the flag was not given. `nvidia`: all cards are
    NVIDIA's. `spec` is the most rows of a slot in a window, `window_rows` the most rows of a window
    (`None`: no limit). Raises `ConfigError` for a number below 1 or a bad environment variable.
    """
    _check(asked)
    switches = _switches(environment)
    batch_mtp = batch_mtp or bool(switches.get("BATCH_MTP"))
    if stages < 2 or slots < 2:
        return _unsplit(slots, asked, batch_mtp, adapt_async, switches)
    if asked is None:
        groups, notes = _default(slots, stages, batch_mtp, adapt_async, nvidia, switches)
    else:
        groups, notes = _as_asked(slots, stages, asked)
    plan = GroupPlan(groups, batch_mtp, adapt_async, notes)
    if groups == 1:
        return replace(plan, notes=(*notes, *_unpiped(switches)))
    return _pipelined(plan, slots // groups, switches, spec, window_rows)


def groups_tip(slots: int, stages: int, all_resident: bool) -> str | None:
    """What was measured for drafts in the slots of a split; `None` where nothing was."""
    if stages < 2 or slots < 2:
        return None
    if all_resident:
        return (
            "all experts are in the cards' memory: leave --batch-mtp off (on 2x R9700 it cost "
            "21.9%), or set STRATA_PIPED_MTP=1 with it (on 2x A6000 +16% at 2 and +10% at 4 "
            "requests)"
        )
    if slots <= 2:
        return (
            "not all experts are in the cards' memory: --batch-mtp with --batch-groups 1 gave "
            "+15% at 2 requests (2x RTX 3080 20 GB), with STRATA_PIPED_MTP=1 in the pipeline "
            "+18 to 20% (2x A4000)"
        )
    return (
        "--batch-mtp with STRATA_PIPED_MTP=1 gave +18 to 20% at 2 and +6 to 8% at 4 requests "
        "(2x A4000, not all experts in the cards' memory)"
    )


def _divisor(slots: int, most: int) -> int:
    top = max(1, min(slots, most))
    return next(groups for groups in range(top, 0, -1) if slots % groups == 0)


def _check(asked: object) -> None:
    whole = isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1
    if asked is not None and asked != "auto" and not whole:
        raise ConfigError(
            f"--batch-groups is {asked!r}, allowed is auto or a whole number from 1",
            "leave it out, or write --batch-groups auto",
        )


def _switches(environment: Mapping[str, str]) -> dict[str, Value]:
    return {switch.name: value for switch, value in read_switches(environment).items()}


def _unsplit(
    slots: int,
    asked: object,
    batch_mtp: bool,
    adapt_async: bool,
    switches: Mapping[str, Value],
) -> GroupPlan:
    """One card or one slot: there is nothing to pipeline."""
    notes = []
    if asked not in (None, "auto", 1):
        reason = "one slot" if slots < 2 else "no layer split"
        notes.append(f"--batch-groups {asked}: {reason}, so there is one group")
    if batch_mtp and slots < 2:
        notes.append("--batch-mtp is off: it needs two slots or more, a lone request drafts anyway")
    return GroupPlan(1, batch_mtp and slots >= 2, adapt_async, (*notes, *_unpiped(switches)))


def _unpiped(switches: Mapping[str, Value]) -> tuple[str, ...]:
    wanted = switches.get("PIPED_MTP")
    return (f"STRATA_PIPED_MTP={wanted}: it needs two groups or more",) if wanted else ()


def _default(
    slots: int,
    stages: int,
    batch_mtp: bool,
    adapt_async: bool,
    nvidia: bool,
    switches: Mapping[str, Value],
) -> tuple[int, tuple[str, ...]]:
    """The groups without `--batch-groups`, and why when they are not the pipeline's."""
    if adapt_async:
        note = "1 group: --adapt-async 1 does not work in pipelined groups"
    elif batch_mtp and switches.get("BATCH_MTP_SERIAL"):
        note = "1 group: STRATA_BATCH_MTP_SERIAL=1 keeps --batch-mtp in serial windows"
    elif nvidia and stages == 2 and (cause := _serial_cause(switches)):
        note = f"1 group: {cause} asks for serial windows on two NVIDIA cards"
    else:
        return _auto(slots, stages)
    return 1, (f"{note}; --batch-groups auto pipelines",)


def _serial_cause(switches: Mapping[str, Value]) -> str:
    """The variable that asks for serial windows; its own switch wins over the older defaults."""
    own = switches.get("BATCH_GROUPS_NV_SERIAL")
    if own is not None:
        return "STRATA_BATCH_GROUPS_NV_SERIAL=1" if own else ""
    return f"STRATA_DEFAULTS={SERIAL_DEFAULTS}" if _is_026(switches) else ""


def _is_026(switches: Mapping[str, Value]) -> bool:
    return str(switches.get("DEFAULTS", "")).strip() == SERIAL_DEFAULTS


def _auto(slots: int, stages: int) -> tuple[int, tuple[str, ...]]:
    groups = batch_groups(slots, stages)
    if groups == 1:
        return 1, (f"1 group: no number up to {stages} cards divides {slots} slots",)
    note = f"{groups} groups of {slots // groups}, the most of {stages} cards that divide {slots}"
    return groups, (f"{note} slots",)


def _as_asked(slots: int, stages: int, asked: int | Literal["auto"]) -> tuple[int, tuple[str, ...]]:
    if asked == "auto":
        return _auto(slots, stages)
    if slots % asked == 0:
        return asked, ()
    groups = _divisor(slots, asked)
    return groups, (
        f"--batch-groups {asked} does not divide {slots} slots: {groups} group"
        f"{'s' * (groups > 1)} instead",
    )


def _pipelined(
    plan: GroupPlan,
    slots_per_group: int,
    switches: Mapping[str, Value],
    spec: int | None,
    window_rows: int | None,
) -> GroupPlan:
    """What a pipeline of two or more groups leaves of drafts and of the asynchronous tier."""
    notes = list(plan.notes)
    drafts, fault = _piped_drafts(plan, slots_per_group, switches, spec, window_rows)
    if fault:
        notes.append(fault)
    if plan.batch_mtp and not drafts:
        notes.append(
            "--batch-mtp is off: pipelined groups run no drafts; --batch-groups 1 or "
            "STRATA_BATCH_MTP_SERIAL=1 keeps it, STRATA_PIPED_MTP=1 drafts in the groups"
        )
    if plan.adapt_async:
        notes.append(
            "--adapt-async is off: pipelined groups do not adapt; --batch-groups 1 keeps it"
        )
    return replace(
        plan,
        batch_mtp=plan.batch_mtp and drafts > 0,
        adapt_async=False,
        notes=tuple(notes),
        piped_drafts=drafts,
    )


def _piped_drafts(
    plan: GroupPlan,
    slots_per_group: int,
    switches: Mapping[str, Value],
    spec: int | None,
    window_rows: int | None,
) -> tuple[int, str]:
    """Drafts of a slot in the pipeline, and what is wrong or changed when anything is."""
    wanted = int(switches.get("PIPED_MTP", 0))
    where = f"STRATA_PIPED_MTP={wanted}"
    if wanted == 0:
        return 0, ""
    if not plan.batch_mtp:
        return 0, f"{where}: no drafts in the groups without --batch-mtp"
    if switches.get("BATCH_SELF_COMMIT"):
        return 0, f"{where}: no drafts in the groups beside STRATA_BATCH_SELF_COMMIT=1"
    drafts = wanted if spec is None else min(wanted, max(0, spec - 1))
    rows = slots_per_group * (1 + drafts)
    if window_rows is not None and rows > window_rows:
        return 0, (
            f"{where}: no drafts in the groups, {slots_per_group} slots with {drafts} drafts are "
            f"{rows} rows and --window-rows is {window_rows}"
        )
    if drafts < wanted:
        return drafts, f"{where}: {drafts} drafts a slot, --spec {spec} allows no more"
    return drafts, ""
