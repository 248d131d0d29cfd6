"""`python -m engine --serve FLAGS`: the engine process of the server."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from engine.cuda_process import used_bytes
from engine.errors import StrataError
from engine.memory import MIB
from engine.process import Loaded, run_process
from engine.resolve import Plan
from engine.startup import engine_for, load_planned, plan_from_args, read_once
from engine.switches import switch_decisions, this_environment, traces, yield_chunks

_SERVE = "--serve"


def main(args: Sequence[str]) -> int:
    """Serves the line protocol on stdin and stdout; the exit code (2: wrong usage)."""
    if _SERVE not in args:
        print("usage: python -m engine --serve --model FILE.gguf [FLAGS]", file=sys.stderr)
        return 2
    flags = [arg for arg in args if arg != _SERVE]
    return run_process(lambda: _load(flags))


def _load(flags: Sequence[str]) -> Loaded:
    environment = this_environment()
    for one in switch_decisions(environment):
        print(f"{one.setting}={one.asked}: {one.reason}", file=sys.stderr)
    plan = plan_from_args(flags)
    config = plan.config
    print(f"loading {config.synthetic or config.model}", file=sys.stderr)
    model = load_planned(config)
    if config.card is not None:
        read_once(model, config.prefill)
    info: dict[str, int | str] = {
        "device": config.device,
        "kv": config.kv,
        "spec_min_p": str(config.spec_min_p),
        "mtp": int(model.pipeline.can_draft),
        **_card_facts(plan, model.pipeline.device),
    }
    engine = engine_for(model, config, yield_chunks(environment))
    if engine.constraints is not None:
        engine.constraints.prepare()
    return Loaded(
        engine,
        config.max_context,
        info,
        traces(environment),
        None if model.stores is None else model.stores.counts,
    )


def _card_facts(plan: Plan, device: str) -> dict[str, int | str]:
    """How much of the card was planned and is taken; nothing on the processor."""
    if plan.config.card is None:
        return {}
    taken = used_bytes(device)
    print(
        f"card memory: {plan.memory.total_bytes / 1e9:.2f} GB planned, {taken / 1e9:.2f} GB taken",
        file=sys.stderr,
    )
    return {
        "vram_planned_mib": plan.memory.total_bytes // MIB,
        "vram_taken_mib": taken // MIB,
        "expert_cache_mib": plan.config.card.expert_cache_bytes // MIB,
        "resident_experts": plan.config.card.resident_experts,
        "table_place": plan.config.card.table_place,
    }


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except StrataError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        code = 1
    sys.exit(code)
