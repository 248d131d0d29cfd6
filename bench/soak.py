"""A random load for a while: nothing is lost, nothing leaks, and every answer is the one that the
same request gets alone.

Each client draws, by the seed, what it does next: a short question, a long prompt, the next turn of
a conversation that somebody had, or a question whose answer it leaves. Afterwards some of the
requests are asked again, alone, and must give the same text.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import httpx
import psutil

from bench.client import Heard, Message, ask, faults_told, fresh_text, percentile, words_for
from bench.records import Measurement
from bench.watch import GPU_EVERY_S, Watch, gpu_of
from engine.errors import StrataError

KINDS = ("question", "follow-up", "long", "leaves")
SHARES = (35, 45, 8, 12)
_REMEMBERED = 64
"""Conversations that may be gone on with."""
_COUNTED = ("conversations_parked", "conversations_restored", "conversations_dropped", "cache_hits")
"""Counters of `/metrics`, where a server has them, that tell how full it was."""
_AFTER_FAULT_S = 0.1
"""A server that is gone must not be asked a million times."""
_MEMORY_EVERY_S = 1.0
_SETTLED = 0.3
"""The share of the time after which memory should not grow any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`long`: tokens of the longest prompt; `turns`: a conversation ends after so many."""

    clients: int
    seconds: float
    long: int
    answer: int
    turns: int
    again: int
    seed: int


@dataclass(frozen=True, slots=True)
class Done:
    """One request and its answer."""

    kind: str
    messages: tuple[Message, ...]
    tokens: int
    heard: Heard


@dataclass(slots=True)
class Record:
    """What the clients share."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: list[Done] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    conversations: list[tuple[Message, ...]] = field(default_factory=list)


def soak(
    http: httpx.Client, model: str, plan: Plan, progress: Callable[[str], None]
) -> tuple[list[Measurement], list[str]]:
    """The numbers, and what went wrong: failed requests, and answers that differ.

    Raises `ConfigError` when the server cannot be reached at the start.
    """
    words = words_for(http, model)
    record, memory = Record(), Watch(_children_bytes, _MEMORY_EVERY_S)
    gpu = Watch(gpu_of(http, progress), GPU_EVERY_S)
    before = _counters(http)
    end = time.monotonic() + plan.seconds
    with memory, gpu, ThreadPoolExecutor(plan.clients) as clients:
        playing = [
            clients.submit(_client, http, model, plan, words, record, number, end)
            for number in range(plan.clients)
        ]
        while (left := end - time.monotonic()) > 0:
            threading.Event().wait(min(left, plan.seconds / 10))
            progress(f"{len(record.done)} answers, {len(record.faults)} faults, {left:.0f} s left")
        for client in playing:
            client.result()
    counters = _counters(http)
    counted = {name: value - before.get(name, 0.0) for name, value in counters.items()}
    again = [one for one in record.done if not one.heard.left]
    Random(plan.seed).shuffle(again)
    with faults_told(http):
        different = list(_different(http, model, again[: plan.again], progress))
    found = _measurements(plan, record, len(different), memory.found, gpu.mean, counted)
    return found, [*record.faults, *different]


def _client(
    http: httpx.Client,
    model: str,
    plan: Plan,
    words: Callable[[int], int],
    record: Record,
    number: int,
    end: float,
) -> None:
    random = Random(f"{plan.seed} {number}")
    count = 0
    while time.monotonic() < end:
        count += 1
        kind = random.choices(KINDS, SHARES)[0]
        messages = _messages(kind, random, plan, words, record, f"{plan.seed} {number} {count}")
        tokens = random.randint(2, plan.answer)
        stays = random.randint(1, tokens) if kind == "leaves" else tokens + 1

        def leaves(moments: list[float], most: int = stays) -> bool:
            return len(moments) >= most

        try:
            heard = ask(http, model, messages, tokens, thinks=False, leaves=leaves)
        except (httpx.HTTPError, StrataError) as error:
            with record.lock:
                record.faults.append(f"{kind} of client {number}: {type(error).__name__}: {error}")
            threading.Event().wait(_AFTER_FAULT_S)
            continue
        with record.lock:
            record.done.append(Done(kind, messages, tokens, heard))
            if not heard.left and len(messages) < 2 * plan.turns - 1:
                said = {"role": "assistant", "content": heard.text}
                record.conversations.append((*messages, said))
                del record.conversations[:-_REMEMBERED]


def _messages(
    kind: str,
    random: Random,
    plan: Plan,
    words: Callable[[int], int],
    record: Record,
    seed: str,
) -> tuple[Message, ...]:
    longest = {"long": plan.long, "follow-up": 24}.get(kind, max(8, plan.long // 32))
    text = fresh_text(seed, words(random.randint(longest // 2, longest)))
    before: tuple[Message, ...] = ()
    if kind == "follow-up":
        with record.lock:
            before = random.choice(record.conversations) if record.conversations else ()
    return (*before, {"role": "user", "content": text})


def _different(
    http: httpx.Client, model: str, again: list[Done], progress: Callable[[str], None]
) -> Iterator[str]:
    """A sentence for each answer that differs from what the request gives alone."""
    for number, one in enumerate(again):
        alone = ask(http, model, one.messages, one.tokens, thinks=False)
        if alone.text != one.heard.text:
            turns = (len(one.messages) + 1) // 2
            yield (
                f"a {one.kind} in turn {turns} with {one.heard.prompt} tokens gave "
                f"{one.heard.text[:80]!r}, alone {alone.text[:80]!r}"
            )
        if (number + 1) % 10 == 0:
            progress(f"{number + 1} of {len(again)} asked again, alone")


def _counters(http: httpx.Client) -> dict[str, float]:
    """Of a server with Prometheus metrics; of another, none."""
    try:
        answer = http.get("/metrics", headers={"Accept": "text/plain"})
        lines = answer.text.splitlines() if answer.is_success else []
    except httpx.HTTPError:
        return {}
    found: dict[str, float] = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        for counted in _COUNTED:
            if counted in name and not line.startswith("#") and "_created" not in name:
                found[counted] = found.get(counted, 0.0) + float(value)
    return found


def _children_bytes() -> float:
    """Of this process's children: a server that was started for this."""
    total = 0
    for child in psutil.Process().children(recursive=True):
        try:
            total += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def _growth_bytes(found: Sequence[float]) -> float | None:
    """Between a settled server and the end; `None` where no server is a child."""
    settled = found[int(len(found) * _SETTLED) :]
    if len(settled) < 2 or not settled[0]:
        return None
    few = max(1, len(settled) // 10)
    return sorted(settled[-few:])[few // 2] - sorted(settled[:few])[few // 2]


def _measurements(
    plan: Plan,
    record: Record,
    different: int,
    memory: Sequence[float],
    gpu_share: float | None,
    counted: Mapping[str, float],
) -> list[Measurement]:
    kinds = Counter(one.kind for one in record.done)
    turns = sum(len(one.messages) > 1 for one in record.done)
    gaps = [b - a for one in record.done for a, b in pairwise(one.heard.moments)]
    tokens = sum(one.heard.tokens for one in record.done)
    details = {
        "clients": plan.clients,
        "seconds": plan.seconds,
        "seed": plan.seed,
        "requests": dict(kinds),
        "asked_again": min(plan.again, sum(not one.heard.left for one in record.done)),
    }

    def of(metric: str, unit: str, value: float) -> Measurement:
        return Measurement(metric=f"soak.{metric}", unit=unit, samples=(value,), details=details)

    found = [
        of("answers", "requests", len(record.done)),
        of("faults", "requests", len(record.faults)),
        of("different", "answers", different),
        of("later_turns", "share", turns / max(1, len(record.done))),
        of("tok_s", "tok/s", tokens / plan.seconds),
        of("longest_gap_ms", "ms", 1e3 * max(gaps, default=0.0)),
        of("gap_p90_ms", "ms", 1e3 * percentile(gaps or [0.0], 90)),
    ]
    for kind in KINDS:
        if times := [one.heard.ttft_ms for one in record.done if one.kind == kind]:
            found.append(of(f"{kind.replace('-', '')}_ttft_p50_ms", "ms", percentile(times, 50)))
    found += [of(name, "events", value) for name, value in counted.items()]
    if gpu_share is not None:
        found.append(of("gpu_share", "share", gpu_share))
    growth = _growth_bytes(memory)
    if growth is not None:
        found.append(of("memory_growth_mib", "MiB", growth / 2**20))
    return found
