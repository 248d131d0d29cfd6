"""What the server counts: requests that are over, and what runs now."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from engine.server.bridge import Bridge
from engine.server.histogram import Histogram
from engine.server.options import ServerOptions
from engine.server.ticket import Ticket

PARKING = ("parked", "restored", "dropped")
KEPT_REQUESTS = 500
SHOWN_REQUESTS = 12
_TOTALS = (
    "requests",
    "failed",
    "prompt_tokens",
    "reused",
    "output_tokens",
    "prompt_ms",
    "decode_ms",
    "drafts_offered",
    "drafts_accepted",
)


class Metrics:
    """Fed by the bridge with every request that is over. Times are seconds unless named `_ms`."""

    def __init__(self, options: ServerOptions, bridge: Bridge) -> None:
        self._options = options
        self._bridge = bridge
        self.since = time.time()
        self.totals: dict[str, float] = dict.fromkeys(_TOTALS, 0)
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "cancel": 0}
        self.requests: deque[dict[str, Any]] = deque(maxlen=KEPT_REQUESTS)
        self.ttft = Histogram()
        self.inter_token = Histogram()
        self.e2e = Histogram()
        bridge.on_over = self.over

    def over(self, ticket: Ticket) -> None:
        """Count a request. Its time to the first token includes its wait in the queue."""
        row = _row(ticket)
        self.requests.appendleft(row)
        self.totals["requests"] += 1
        if row["error"] is None:
            self.finished[row["finish"]] += 1
        else:
            self.totals["failed"] += 1
        for name in _TOTALS[2:]:
            self.totals[name] += row[name]
        if ticket.first_token is not None:
            self.ttft.observe(ticket.first_token - ticket.created)
        for gap in ticket.gaps:
            self.inter_token.observe(gap)
        self.e2e.observe(row["duration_s"])

    def live(self) -> dict[str, Any]:
        """What happens now."""
        bridge = self._bridge
        running = list(bridge.running.values())
        state = bridge.lives.state
        if state == "ready":
            decoding = any(ticket.phase == "decoding" for ticket in running)
            state_now = "generating" if decoding else "reading" if running else "idle"
        else:
            state_now = state
        slots = self.slots()
        return {
            "state": state_now,
            "parallel": len(bridge.slots),
            "running": len(running),
            "queued": len(bridge.queue),
            "waiting": len(bridge.queue),
            "tok_s": sum(slot.get("tok_s", 0.0) for slot in slots),
            "slots": slots,
        }

    def slots(self) -> list[dict[str, Any]]:
        """One entry a slot."""
        now = time.monotonic()
        entries: list[dict[str, Any]] = []
        for slot in self._bridge.slots.slots:
            ticket = self._bridge.running.get(slot.rid)
            if ticket is None:
                held = len(slot.held)
                entries.append({"slot": slot.number, "state": "idle", "held_tokens": held})
                continue
            generated = len(ticket.generated)
            elapsed = now - (ticket.first_token or now)
            entry: dict[str, Any] = {
                "slot": slot.number,
                "state": ticket.phase,
                "prompt_tokens": len(ticket.prompt),
                "prompt_read": ticket.read,
                "generated": generated,
                "max_tokens": ticket.max_new,
                "elapsed_s": now - (ticket.sent or now),
                "tok_s": generated / elapsed if elapsed > 0 else 0.0,
            }
            entries.append(entry)
        return entries

    def experts(self) -> dict[str, float] | None:
        """Where the engine found routed experts since its start, by its last line about it; `None`:
        they all lie in one place."""
        hits, fetches = (self._bridge.info.get(f"expert_{name}") for name in ("hits", "fetches"))
        if not isinstance(hits, int) or not isinstance(fetches, int):
            return None
        rate = hits / (hits + fetches) if hits + fetches else 1.0
        return {"hits": hits, "fetches": fetches, "hit_rate": rate}

    @property
    def preempted(self) -> int:
        """Reads that gave their slot to a shorter prompt."""
        return self._bridge.preempted

    def conversation_cache(self) -> dict[str, int] | None:
        """Conversations that lost their slot, since the engine's start, by its last line about
        them; `None`: it keeps none."""
        info = self._bridge.info
        if not info.get("conversation_cache_mib"):
            return None
        counts = ((name, info.get(f"conversations_{name}", 0)) for name in PARKING)
        return {name: count for name, count in counts if isinstance(count, int)}

    def document(self, all_requests: bool = False) -> dict[str, Any]:
        """The JSON of /metrics."""
        bridge = self._bridge
        kept = list(self.requests)
        engine = {
            "model": self._options.model_name,
            "max_context": bridge.max_context,
            "lives": bridge.lives.started,
            "deaths": bridge.lives.deaths,
            "last_death": bridge.lives.last_death,
            **bridge.info,
        }
        return {
            "engine": engine,
            "live": self.live(),
            "experts": self.experts(),
            "conversation_cache": self.conversation_cache(),
            "requests": kept if all_requests else kept[:SHOWN_REQUESTS],
            "requests_kept": len(kept),
            "totals": {"since": self.since, **self.totals},
            "time": time.time(),
        }


def _row(ticket: Ticket) -> dict[str, Any]:
    """One request that is over, as /metrics shows it."""
    over = ticket.over or time.monotonic()
    done, slot_done = ticket.done, ticket.slot_done
    offered, accepted = ticket.drafts()
    decode_ms = slot_done.ms if slot_done else done.decode_ms if done else 0.0
    output = len(ticket.generated)
    assert ticket.ended is not None
    return {
        "time": time.time(),
        "duration_s": over - ticket.created,
        "queued_s": (ticket.sent or over) - ticket.created,
        "finish": "error" if ticket.ended.error else ticket.ended.finish,
        "error": ticket.ended.error.message if ticket.ended.error else None,
        "prompt_tokens": len(ticket.prompt),
        "reused": ticket.reused,
        "output_tokens": output,
        "prompt_ms": done.prompt_ms if done else 0.0,
        "decode_ms": decode_ms,
        "decode_tok_s": 1000 * output / decode_ms if decode_ms else 0.0,
        "drafts_offered": offered,
        "drafts_accepted": accepted,
    }
