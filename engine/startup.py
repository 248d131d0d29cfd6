"""From engine flags to a running engine: what `python -m engine` and the commands share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.engine import Engine, EngineOptions
from engine.errors import ConfigError
from engine.flags import parse_engine_args
from engine.hardware import local_hardware
from engine.model_info import read_model_info
from engine.resolve import Plan, make_plan

if TYPE_CHECKING:
    from engine.api import Model

_TURN = "<|im_start|>"


def plan_from_args(args: Sequence[str]) -> Plan:
    """The plan that engine flags ask for on this machine; `--model` must be among them."""
    run = parse_engine_args(args)
    if run.model is None:
        raise ConfigError("no model is named", "give --model FILE.gguf")
    return make_plan(run, read_model_info(run.model, run.mtp), local_hardware(Path.cwd()))


def load_planned(
    config: EngineConfig, *, slots: int | None = None, spec: int | None = None
) -> Model:
    """The model of a plan, with other `slots` and `spec` where they are said."""
    from engine.api import load
    from engine.reference.compiled import compiled_before

    if not compiled_before():
        print("first start here: compiling the CPU operators takes a minute", file=sys.stderr)
    return load(
        config.model,
        device=config.device,
        mtp=config.mtp,
        activations=config.activations,
        kv=config.kv,
        slots=slots or config.slots,
        max_context=config.max_context,
        spec=spec or config.spec,
        pooled_norm=config.mtp_hnorm == "pooled",
    )


def engine_for(model: Model, config: EngineConfig) -> Engine:
    """An engine of this plan on a model whose slots are empty."""
    turn = model.tokenizer.special.get(_TURN)
    return Engine(
        model.pipeline,
        replace(
            options_of(config),
            eos_ids=model.tokenizer.eos_ids,
            turn_ids=frozenset() if turn is None else frozenset({turn}),
        ),
    )


def options_of(config: EngineConfig) -> EngineOptions:
    """The engine's part of a plan, with no token that ends an answer."""
    return EngineOptions(
        chunk=config.prefill,
        spec=config.spec,
        spec_min_p=config.spec_min_p,
        window_rows=config.window_rows,
        checkpoints=config.prompt_cache,
        checkpoint_every=config.prompt_cache_every,
    )
