"""From engine flags to a running engine: what `python -m engine` and the commands share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import CardConfig, EngineConfig
from engine.constraints import Constraints
from engine.cuda_process import local_cards, take_card
from engine.device_memory import STAGING_EXPERTS
from engine.engine import Engine, EngineOptions
from engine.flags import parse_engine_args
from engine.hardware import local_hardware
from engine.memory import MIB
from engine.model_info import named_model_info
from engine.ops import Ops, ops_for
from engine.parking import ParkingLimits, least_parked
from engine.resolve import Plan, make_plan
from engine.switches import run_of_switches, this_environment
from engine.torch_build import torch_has_cuda
from engine.window import Span, Verdict, Window

if TYPE_CHECKING:
    from engine.api import Model
    from engine.models.residency import Residency

_TELL_EVERY_S = 5.0
_TURN = "<|im_start|>"


def plan_from_args(args: Sequence[str]) -> Plan:
    """The plan that engine flags ask for on this machine; `--model` must be among them."""
    run = parse_engine_args(args).over(run_of_switches(this_environment()))
    hardware = local_hardware(Path.cwd())
    if run.device != "cpu" and torch_has_cuda():
        hardware = replace(hardware, gpus=local_cards())
    return make_plan(run, named_model_info(run), hardware)


def load_planned(
    config: EngineConfig,
    *,
    slots: int | None = None,
    spec: int | None = None,
    with_ops: Callable[[Ops], Ops] | None = None,
) -> Model:
    """The model of a plan, with other `slots` and `spec` where they are said. `with_ops` makes the
    operators of the device's own."""
    from engine.api import load

    device = "cpu" if config.card is None else take_card(config.card)
    if config.card is None:
        _tell_of_compiling()
    return load(
        config.model,
        device=device,
        synthetic=config.synthetic,
        ops=None if with_ops is None else with_ops(ops_for(device)),
        mtp=config.mtp,
        draft_vocab=config.draft_vocab,
        activations=config.activations,
        kv=config.kv,
        slots=slots or config.slots,
        max_context=config.max_context,
        spec=spec or config.spec,
        checkpoints=config.slots * config.prompt_cache,
        card_checkpoints=0 if config.card is None else config.card.checkpoints,
        longest=config.prefill,
        pooled_norm=config.mtp_hnorm == "pooled",
        table_place="ram" if config.card is None else config.card.table_place,
        residency=None if config.card is None else _residency(config.card),
        progress=_layers_told(time.monotonic),
        kernels=_tell_kernels,
    )


def read_once(model: Model, rows: int) -> None:
    """Reads the longest piece of a prompt, and forgets it: its kernels are compiled and its buffers
    are there before the first request comes."""
    pipeline = model.pipeline
    rows = min(rows, pipeline.max_context)
    window = Window((Span(0, 0, (0,) * rows, rows, rows - 1),))
    pipeline.forward(window)()
    pipeline.commit(window, [Verdict(rows, None)])
    pipeline.clear(0)


def _residency(card: CardConfig) -> Residency | None:
    """Which routed experts lie on the card; `None`: all of them."""
    from engine.models.residency import Residency

    if card.keeps_all_experts:
        return None
    return Residency(
        resident=card.resident_experts,
        staging=STAGING_EXPERTS,
        every=card.adapt_every,
        swaps=card.adapt_swaps,
        decay=card.adapt_decay,
    )


def _layers_told(clock: Callable[[], float]) -> Callable[[int, int], None]:
    """A line every few seconds for a model that takes longer."""
    told = clock()

    def tell(done: int, of: int) -> None:
        nonlocal told
        if clock() - told >= _TELL_EVERY_S:
            told = clock()
            print(f"loading: {done} of {of} layers", file=sys.stderr, flush=True)

    return tell


def _tell_kernels(done: int, of: int) -> None:
    """A line for every tenth of the kernels."""
    if done * 10 // of > (done - 1) * 10 // of:
        print(f"compiling GPU kernels: {done} of {of}", file=sys.stderr)


def _tell_of_compiling() -> None:
    from engine.reference.compiled import compiled_before

    if not compiled_before():
        print("first start here: compiling the CPU operators takes a minute", file=sys.stderr)


def engine_for(model: Model, config: EngineConfig, yield_chunks: int = 1) -> Engine:
    """An engine of this plan on a model whose slots are empty."""
    turn = model.tokenizer.special.get(_TURN)
    options = options_of(config)
    fast = config.card is not None and config.card.keeps_all_experts
    least = least_parked(model.pipeline.checkpoint_bytes, fast=fast)
    return Engine(
        model.pipeline,
        replace(
            options,
            parking=replace(options.parking, least_tokens=least),
            eos_ids=model.tokenizer.eos_ids,
            yield_chunks=yield_chunks,
            turn_ids=frozenset() if turn is None else frozenset({turn}),
        ),
        Constraints(model.tokenizer, model.pipeline.vocab_size),
    )


def options_of(config: EngineConfig) -> EngineOptions:
    """The engine's part of a plan, with no token that ends an answer."""
    return EngineOptions(
        chunk=config.prefill,
        spec=config.spec,
        spec_min_p=config.spec_min_p,
        window_rows=config.window_rows,
        slot_drafts={"measured": None, "on": True, "off": False}[config.batch_mtp],
        checkpoints=config.prompt_cache,
        checkpoint_every=config.prompt_cache_every,
        checkpoint_root=config.prompt_cache_root,
        parking=ParkingLimits(
            size_bytes=config.conversation_cache_mib * MIB,
            conversations=config.conversation_cache_slots,
            free_bytes=config.conversation_cache_min_free_mib * MIB,
        ),
    )
