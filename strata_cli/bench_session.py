"""What the suites of `strata bench` share: the plan, one loaded model, its floor, the records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConfigError

if TYPE_CHECKING:
    from bench.records import Circumstances, Measurement
    from engine.api import Model
    from engine.config import RunConfig
    from engine.ops import Ops
    from engine.resolve import Plan
    from strata_cli.bench_options import Wanted

Repeat = Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each.")]
MOST_CLIENTS = 1024
MOST_STREAMS = 4096
MOST_TOKENS = 1 << 20
Floor = Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class BenchSession:
    """A planned model on this machine."""

    plan: Plan
    wanted: Wanted

    @classmethod
    def begin(cls, wanted: Wanted, flags: RunConfig) -> BenchSession:
        """Reads and plans; `ConfigError` for a model that does not fit."""
        from strata_cli.chosen import choose
        from strata_cli.plan_view import show_plan

        chosen = choose(wanted.config, flags, wanted.console)
        chosen.check_room()
        if wanted.verbose:
            show_plan(chosen.plan, wanted.console, result=False)
        return cls(chosen.plan, wanted)

    def load(self, with_ops: Callable[[Ops], Ops] | None = None) -> Model:
        """The model, telling how long that took."""
        import time

        from engine.startup import load_planned

        start = time.perf_counter()
        loaded = load_planned(self.plan.config, with_ops=with_ops)
        name = self.plan.config.synthetic or self.plan.config.model.name
        self.wanted.console.note(f"{name} loaded in {time.perf_counter() - start:.1f} s")
        return loaded

    def floor(self, loaded: Model) -> Floor | None:
        """The least seconds of a window by conversations, rows and depth: the time in which the
        card copies as many bytes. `None` on the processor."""
        if self.plan.config.card is None:
            return None
        from bench.floor import Traffic, copy_bytes_per_s
        from engine.model_info import named_model_info

        info = named_model_info(self._run())
        traffic = Traffic(info, loaded.config, self.plan.config.kv)
        speed = copy_bytes_per_s(loaded.pipeline.device)
        self.wanted.console.note(f"the card copies {speed / 1e12:.2f} TB/s")
        return lambda slots, rows, depth: traffic.window_bytes(slots, rows, depth) / speed

    def finish(self, suite: str, found: Sequence[Measurement]) -> int:
        """Prints the measurements, and keeps them where that is asked for."""
        return publish(suite, found, self._circumstances(), self.wanted)

    def _circumstances(self) -> Circumstances:
        from bench import records
        from setup.probe import ThisMachine, probe
        from strata_cli.plan_view import plan_document

        config = self.plan.config
        card = self.plan.memory.card
        model = _model_name(config.synthetic) or config.model.name
        return records.circumstances(
            ["strata", *sys.argv[1:]],
            probe(ThisMachine(Path.cwd())),
            model,
            {**plan_document(self.plan)["config"], "model": model},
            None if card is None else card.name,
        )

    def _run(self) -> RunConfig:
        from engine.config import RunConfig

        config = self.plan.config
        model = None if config.synthetic else config.model
        return RunConfig(model=model, synthetic=config.synthetic, mtp=config.mtp)


def publish(
    suite: str,
    measured: Sequence[Measurement],
    where: Circumstances,
    wanted: Wanted,
) -> int:
    """Prints measurements made under these circumstances, keeps them as records, and draws them."""
    from bench import records, tables
    from strata_cli.bench_plot import draw

    console = wanted.console
    lines = [records.as_record(one, where) for one in measured]
    if wanted.save:
        console.note(f"saved to {records.save(suite, lines)}")
    if console.json:
        console.document({"records": lines})
    known = {line["metric"]: line for line in lines}
    console.table(*tables.table(suite, known), result=True)
    if not draw(known, wanted):
        console.warn("nothing of this can be drawn")
    return 0


def numbers(text: str, flag: str, least: int, most: int) -> list[int]:
    """Whole numbers with commas between them, such as 1,8 or 4k,32k."""
    from engine.engine_flag import read_tokens

    found = [read_tokens(word) for word in text.split(",")]
    if not all(number is not None and least <= number <= most for number in found):
        raise ConfigError(
            f"{flag}: {text!r} is not whole numbers from {least} to {most}, as in 1,4,8"
        )
    return [number for number in found if number is not None]


def shares(text: str | None, flag: str) -> list[float]:
    """Shares from 0 to 1, as in 0.6,0.8."""
    if text is None:
        return []
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= share <= 1 for share in found):
        raise ConfigError(f"{flag}: {text!r} is not shares from 0 to 1, as in 0.6,0.8")
    return found


def _model_name(synthetic: str | None) -> str | None:
    """`qwen3.8-flash-next:iq3_s:synthetic`, with its options where it is not as published."""
    if synthetic is None:
        return None
    name, _, options = synthetic.partition(",")
    return f"{name}:synthetic" + (f",{options}" if options else "")
