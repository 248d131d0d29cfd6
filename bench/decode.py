"""Decode speed: tokens per second of several conversations together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench import peers
from bench.pipelines import InjectedDrafts, MeasuredPipeline, clear_all, pretend
from bench.records import Measurement
from bench.texts import Encode, long_prompt, pieces
from engine.engine import Engine, EngineOptions
from engine.pipeline import Pipeline
from engine.request import Finished, Produced, Request

if TYPE_CHECKING:
    from engine.models.residency import Stores

Ids = tuple[int, ...]
PROMPT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: tokens behind each stream's first one, the time they took, windows and drafts.

    `written` has what each stream wrote, in the order of the prompts.
    """

    tokens: int
    seconds: float
    windows: int
    accepted: int
    offered: int
    written: tuple[Ids, ...]

    @property
    def tok_s(self) -> float:
        """Tokens per second of all streams together."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Point:
    """What to measure: conversations, tokens before each (0: a short prompt), and drafts.

    drafts: none, those of the draft layer, or (a share from 0 to 1) so many that are accepted.
    """

    streams: int
    depth: int = 0
    drafts: bool | float = False

    @property
    def metric(self) -> str:
        """`decode.streams8.depth32768.drafts.tok_s`, without what is not said."""
        parts = ["decode", f"streams{self.streams}"]
        if self.depth:
            parts.append(f"depth{self.depth}")
        if self.drafts is True:
            parts.append("drafts")
        elif self.drafts is not False:
            parts.append(f"accept{round(100 * self.drafts)}")
        return ".".join([*parts, "tok_s"])


def decode_prompts(encode: Encode, streams: int, depth: int = 0) -> list[Ids]:
    """A prompt for each stream: 64 tokens of the workloads from a place of its own, behind what
    makes it `depth` tokens where that is more.

    No two are alike: conversations that write the same words choose the same experts, which are
    then read once for all of them.
    """
    before = long_prompt(encode, max(0, depth - PROMPT_TOKENS))
    return [before + piece for piece in pieces(encode, streams, PROMPT_TOKENS)]


def decode_once(
    pipeline: Pipeline,
    options: EngineOptions,
    prompts: Sequence[Ids],
    tokens: int,
    *,
    read: int = 0,
) -> Sample:
    """Greedy decoding of `tokens` tokens behind each prompt, end tokens ignored.

    The clock runs from the window in which the last stream got its first token. Of each prompt the
    first `read` tokens are only pretended to have been read.
    """
    clear_all(pipeline)
    engine = Engine(pipeline, replace(options, eos_ids=frozenset(), checkpoints=0))
    for index, prompt in enumerate(prompts):
        if read:
            pretend(engine, pipeline, index, prompt[:read])
        engine.submit(Request(id=str(index), tokens=prompt, max_new=tokens, slot=index))
    written: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    start, produced, windows, accepted, offered = 0.0, 0, 0, 0, 0
    while engine.busy:
        events = engine.step()
        running = all(written.values())
        for event in events:
            if isinstance(event, Produced):
                written[event.id].append(event.choice.token)
                produced += running
            elif isinstance(event, Finished):
                accepted += event.accepted
                offered += event.offered
        windows += running
        if not running and all(written.values()):
            start = time.perf_counter()
    seconds = time.perf_counter() - start
    texts = tuple(tuple(ids) for ids in written.values())
    return Sample(produced, seconds, windows, accepted, offered, texts)


def measure(
    pipeline: MeasuredPipeline,
    encode: Encode,
    options: EngineOptions,
    points: Sequence[Point],
    *,
    tokens: int,
    repeat: int,
    progress: Callable[[str], None],
    floor: Callable[[int, int, int], float] | None = None,
    stores: Stores | None = None,
) -> Iterator[Measurement]:
    """Every point, as soon as it is measured; `floor` gives the least seconds of a window by its
    conversations, rows and tokens before them, `stores` count where experts were found: then a
    metric names the share of experts on the card, `decode.streams1.experts25.tok_s`.

    Drafts of the draft layer follow `options.spec_min_p`; of accepted ones as many are offered as
    `options.spec` allows.
    """
    pipeline.pause_drafts(True)
    decode_once(pipeline, replace(options, spec=1), decode_prompts(encode, 1), 4)
    for point in points:
        before = stores.use() if stores else None
        found = _measured(pipeline, encode, options, point, tokens, repeat, floor)
        if stores and before:
            hits = stores.use().since(before).hit_rate
            name = f"experts{round(100 * stores.resident_share)}.tok_s"
            metric = found.metric.replace("tok_s", name)
            details = {**found.details, "expert_hit_rate": hits}
            found = replace(found, metric=metric, details=details)
        beside = found.details.get("floor_tok_s")
        share = f", {found.value / beside:.0%} of the floor's {beside:.0f}" if beside else ""
        progress(f"{found.metric}: {found.value:.1f} tok/s{share}")
        yield found


def _measured(
    pipeline: MeasuredPipeline,
    encode: Encode,
    options: EngineOptions,
    point: Point,
    tokens: int,
    repeat: int,
    floor: Callable[[int, int, int], float] | None,
) -> Measurement:
    ids = decode_prompts(encode, point.streams, point.depth)
    read = max(0, point.depth - PROMPT_TOKENS)
    without = replace(options, spec=1)
    measured: Pipeline = pipeline
    if point.drafts is False:
        options = without
    elif point.drafts is not True:
        pipeline.pause_drafts(True)
        plain = decode_once(pipeline, without, ids, tokens, read=read)
        known = {slot: ids[slot] + text for slot, text in enumerate(plain.written)}
        measured = InjectedDrafts(pipeline, known, point.drafts)
    clear_all(pipeline)
    pipeline.pause_drafts(point.drafts is False)
    if isinstance(measured, InjectedDrafts):
        measured.can_draft = pipeline.can_draft
    runs = [decode_once(measured, options, ids, tokens, read=read) for _ in range(repeat)]
    first = runs[0]
    details: dict[str, float] = {
        "streams": point.streams,
        "depth": point.depth,
        "tokens": tokens,
        "windows": first.windows,
        "drafts_offered": first.offered,
        "drafts_accepted": first.accepted,
    }
    if floor is not None:
        rows = point.streams * options.spec
        depth = len(ids[0]) + tokens // 2
        least = floor(point.streams, rows, depth)
        details["floor_tok_s"] = first.tokens / first.windows / least
        details["floor_window_ms"] = 1e3 * least
        details["window_ms"] = 1e3 * first.seconds / first.windows
    return Measurement(
        metric=point.metric,
        unit="tok/s",
        samples=tuple(run.tok_s for run in runs),
        details=details,
    )


def measure_peer(
    model: Path, encode: Encode, *, tokens: int, threads: int, repeat: int
) -> list[Measurement]:
    """llama.cpp on the same file: one stream, greedy. Empty without the xllamacpp wheel."""
    if not peers.available():
        return []
    prompt = decode_prompts(encode, 1)[0]
    # More threads are not always faster, least of all beside other programs: the best count.
    tries = {
        count: tuple(peers.decode_speed(model, prompt, tokens, count) for _ in range(repeat))
        for count in sorted({1, threads})
    }
    best = max(tries, key=lambda count: max(tries[count]))
    return [
        Measurement(
            metric="decode.streams1.llamacpp.tok_s",
            unit="tok/s",
            samples=tries[best],
            details={
                "streams": 1,
                "tokens": tokens,
                "threads": best,
                "peer": f"xllamacpp {peers.version()}",
            },
        )
    ]
