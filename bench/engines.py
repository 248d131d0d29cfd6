"""Engines in this process, for measuring, checking and answering once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.engine import Engine, EngineOptions
from engine.pipeline import Pipeline

if TYPE_CHECKING:
    from engine.api import Model

_TURN = "<|im_start|>"


def load_model(config: EngineConfig, *, slots: int | None = None, spec: int | None = None) -> Model:
    """The model of a plan, with other `slots` and `spec` where they are said."""
    from engine.api import load

    return load(
        config.model,
        device=config.device,
        mtp=config.mtp,
        activations=config.activations,
        kv=config.kv,
        slots=slots or config.slots,
        max_context=config.max_context,
        spec=spec or config.spec,
    )


def make_engine(model: Model, config: EngineConfig) -> Engine:
    """An engine as the server runs it, on a model whose slots are empty."""
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


def clear_all(pipeline: Pipeline) -> None:
    """Empty every slot, so that a new engine may take the pipeline over."""
    for slot in range(pipeline.slots):
        pipeline.clear(slot)
