"""/metrics in the text format of Prometheus, under vLLM's names and a few of our own."""

from __future__ import annotations

from collections.abc import Mapping

from engine.server.histogram import Histogram
from engine.server.metrics import Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]
_STATES = ("loading", "restarting", "failed", "stopped", "idle", "reading", "generating")
_SLOT_STATES = ("idle", "reading", "decoding")


def exposition(metrics: Metrics, model: str) -> str:
    """All metrics, with the label `model_name`."""
    live, totals = metrics.live(), metrics.totals
    page = _Page(model)
    page.gauge("vllm:num_requests_running", "Requests with the engine", live["running"])
    page.gauge("vllm:num_requests_waiting", "Requests waiting for a slot", live["waiting"])
    page.gauge("vllm:kv_cache_usage_perc", "Share of the slots in use", _usage(live))
    page.counter("vllm:prompt_tokens_total", "Prompt tokens", totals["prompt_tokens"])
    page.counter("vllm:generation_tokens_total", "Tokens generated", totals["output_tokens"])
    finished: dict[Labels, float] = {
        (("finished_reason", k),): n for k, n in metrics.finished.items()
    }
    page.add("vllm:request_success_total", "counter", "Requests answered", finished)
    asked, hits = totals["prompt_tokens"], totals["reused"]
    page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up", asked)
    page.counter("vllm:prefix_cache_hits_total", "Prompt tokens reused", hits)
    offered, accepted = totals["drafts_offered"], totals["drafts_accepted"]
    page.counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens offered", offered)
    page.counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted", accepted)
    experts = metrics.experts()
    if experts is not None:
        hits, fetches = experts["hits"], experts["fetches"]
        page.counter("strata:expert_cache_queries_total", "Experts looked up", hits + fetches)
        page.counter("strata:expert_cache_hits_total", "Experts found in VRAM", hits)
        page.counter("strata:expert_cache_fetches_total", "Experts that came by wire", fetches)
    for name, count in (metrics.conversation_cache() or {}).items():
        page.counter(
            f"strata:conversations_{name}_total", f"Conversations without a slot, {name}", count
        )
    page.counter("vllm:num_preemptions_total", "Reads that gave their slot away", metrics.preempted)
    page.histogram("vllm:time_to_first_token_seconds", "Arrival to first token", metrics.ttft)
    page.histogram("vllm:inter_token_latency_seconds", "Between tokens", metrics.inter_token)
    page.histogram("vllm:e2e_request_latency_seconds", "Arrival to end", metrics.e2e)
    states: dict[Labels, float] = {
        (("state", state),): int(live["state"] == state) for state in _STATES
    }
    page.add("strata:live_state", "gauge", "1 for the present state", states)
    slots = [slot["state"] for slot in live["slots"]]
    counts: dict[Labels, float] = {
        (("state", state),): slots.count(state) for state in _SLOT_STATES
    }
    page.add("strata:live_slots", "gauge", "Slots by state", counts)
    page.gauge("strata:live_tok_s", "Tokens a second of all slots", live["tok_s"])
    page.counter("strata:requests_failed_total", "Requests that failed", totals["failed"])
    return page.text()


class _Page:
    def __init__(self, model: str) -> None:
        self._model = (("model_name", model),)
        self._lines: list[str] = []

    def gauge(self, name: str, help: str, value: float) -> None:
        self.add(name, "gauge", help, {(): value})

    def counter(self, name: str, help: str, value: float) -> None:
        self.add(name, "counter", help, {(): value})

    def add(self, name: str, kind: str, help: str, values: Mapping[Labels, float]) -> None:
        self._lines += [f"# HELP {name} {help}.", f"# TYPE {name} {kind}"]
        self._lines += [self._line(name, labels, value) for labels, value in values.items()]

    def histogram(self, name: str, help: str, histogram: Histogram) -> None:
        self._lines += [f"# HELP {name} {help}, in seconds.", f"# TYPE {name} histogram"]
        for bound, count in histogram.cumulative():
            self._lines.append(self._line(f"{name}_bucket", (("le", bound),), count))
        self._lines.append(self._line(f"{name}_sum", (), histogram.sum_s))
        self._lines.append(self._line(f"{name}_count", (), histogram.count))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _line(self, name: str, labels: Labels, value: float) -> str:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in (*self._model, *labels))
        return f"{name}{{{pairs}}} {value}"


def _usage(live: Mapping[str, int]) -> float:
    return live["running"] / live["parallel"] if live["parallel"] else 0.0


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
