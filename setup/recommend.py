"""What setup writes: pure rules from a model and a machine to a config with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import Decision, RunConfig
from engine.hardware import Hardware
from engine.memory import MemoryPlan
from engine.model_info import ModelInfo
from engine.resolve import make_plan
from setup.models import model_tag


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers that flags gave; `None` means: choose."""

    context: int | None = None
    kv: str | None = None
    parallel: int | None = None
    host: str | None = None
    port: int | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A config (the keys that setup owns), why, and what it weighs."""

    config: Mapping[str, Any]
    context: int
    kv: str
    parallel: int
    reasons: tuple[str, ...]
    memory: MemoryPlan


def recommend(
    info: ModelInfo, hardware: Hardware, asked: Asked, config_folder: Path
) -> Recommendation:
    """What this version runs best: what the engine would choose, written down."""
    run = RunConfig(model=info.path, max_context=asked.context, kv=asked.kv, slots=asked.parallel)
    plan = make_plan(run, info, hardware)
    chosen = plan.config
    config: dict[str, Any] = {
        "model": _portable(info.path, config_folder),
        "model_name": model_tag(info.path),
        "backend": chosen.device,
        "args": ["--max-context", str(chosen.max_context), "--kv", chosen.kv],
        "host": asked.host or "127.0.0.1",
        "port": 8080 if asked.port is None else asked.port,
    }
    if asked.parallel is not None:
        config["parallel"] = asked.parallel
    if asked.api_key is not None:
        config["api_key"] = asked.api_key
    return Recommendation(
        config=config,
        context=chosen.max_context,
        kv=chosen.kv,
        parallel=chosen.slots,
        reasons=tuple(_sentence(d) for d in plan.decisions if d.setting in _TOLD),
        memory=plan.memory,
    )


_TOLD = ("device", "max_context", "slots", "kv", "mtp")


def _sentence(decision: Decision) -> str:
    value = "none" if decision.value is None else decision.value
    return f"{decision.setting} {value}: {decision.reason}"


def _portable(model: Path, folder: Path) -> str:
    """Relative when the model lies below the config's folder, so that the folder may be moved."""
    model, folder = model.resolve(), folder.resolve()
    return str(model.relative_to(folder)) if model.is_relative_to(folder) else str(model)
