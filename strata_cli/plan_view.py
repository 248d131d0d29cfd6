"""Shows a plan: every decision with its reason, and a memory table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.memory import MemoryPlan
    from engine.resolve import Plan
    from strata_cli.console import Console


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values."""
    config = asdict(plan.config)
    config.update(model=str(plan.config.model), mtp=plan.config.mtp and str(plan.config.mtp))
    return {
        "config": config,
        "decisions": [asdict(decision) for decision in plan.decisions],
        "memory": memory_document(plan.memory),
    }


def memory_document(memory: MemoryPlan) -> dict[str, Any]:
    """The memory table as JSON values, in bytes."""
    return {**asdict(memory), "total_bytes": memory.total_bytes, "fits": memory.fits}


def show_plan(plan: Plan, console: Console, *, result: bool) -> None:
    """Prints decisions and memory; to stdout when they are the result."""
    console.table(
        ("setting", "asked", "value", "why"),
        [(d.setting, _cell(d.asked), _cell(d.value), d.reason) for d in plan.decisions],
        result=result,
    )
    show_memory(plan.memory, console, result=result)
    if not plan.memory.fits:
        console.warn("this needs more memory than is free; it may be slow or fail")


def show_memory(memory: MemoryPlan, console: Console, *, result: bool) -> None:
    """Prints the memory table."""
    rows = [(what, f"{count / 1e9:.3f} GB") for what, count in memory.rows()]
    console.table(("memory", "bytes"), rows, result=result)


def _cell(value: str | int | float | None) -> str:
    return "-" if value is None else str(value)
