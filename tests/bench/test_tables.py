"""Tables say what was measured, in the words of their readers."""

from __future__ import annotations

from typing import Any

from bench.compare import compare
from bench.tables import change_table, table

SIZES = {"long_tokens": 65536, "second_tokens": 32768, "history_tokens": 20480}


def record(*samples: float, unit: str = "ms", **more: Any) -> dict[str, Any]:
    median = sorted(samples)[len(samples) // 2]
    return {"value": median, "unit": unit, "samples": list(samples), **more}


def serve(*, gpu: bool) -> dict[str, dict[str, Any]]:
    found = {}
    for clients in (1, 16):
        start = f"serve.clients{clients}"
        found[f"{start}.tok_s"] = record(90.0 * clients, 100.0 * clients, 110.0 * clients)
        for kind, share, value in (
            *(("ttft", share, 30.0 + share) for share in (50, 90, 99)),
            *(("tpot", share, 8.0 + share / 50) for share in (90, 99)),
        ):
            found[f"{start}.{kind}_p{share}_ms"] = record(value)
        found[f"{start}.tpot_p50_ms"] = record(8.0)
        if gpu:
            found[f"{start}.gpu_share"] = record(0.75, 0.8, 0.86, unit="share")
    return found


def test_a_line_for_each_number_of_clients() -> None:
    titles, rows = table("serve", serve(gpu=True))
    assert titles == (
        *("clients", "rounds", "tok/s", "a client"),
        *("TTFT p50 / p90 / p99, ms", "TPOT p50 / p90 / p99, ms", "GPU"),
    )
    assert rows[0] == (
        *("1", "3", "100.0 (90.0 to 110.0)", "125.0"),
        *("80.0 / 120.0 / 129.0", "8.0 / 9.8 / 10.0", "80% (75% to 86%)"),
    )
    assert [row[0] for row in rows] == ["1", "16"]
    titles, rows = table("serve", serve(gpu=False))
    assert "GPU" not in titles
    assert {len(row) for row in rows} == {len(titles)}


def test_what_joining_costs_in_sentences() -> None:
    more = {"streams": 4, "crowd": 16, **SIZES}
    records = {
        "join.two_joiners.long_ttft_ms": record(8100, 8200, 8150, **more),
        "join.two_joiners.second_ttft_ms": record(8200, **more),
        "join.two_joiners.longest_stop_s": record(0.77, 0.84, 0.8, unit="s", **more),
        "join.two_joiners.streams_meanwhile_pieces": record(1411, 1679, 1500, **more),
        "join.two_joiners.gpu_share": record(0.85, 0.91, 0.9, **more),
        "join.followup.question_ttft_ms": record(900, **more),
        "join.next_turn.behind_crowd_ttft_ms": record(60, **more),
    }
    _, rows = table("join", records)
    assert rows == (
        (
            "prompts of 64K and 32K beside 4 streams: longest stop of a stream",
            "0.80 s (0.77 s to 0.84 s)",
        ),
        ("... the streams' tokens meanwhile", "1,500 (1,411 to 1,679)"),
        ("... the first prompt's TTFT", "8.15 s (8.10 s to 8.20 s)"),
        ("... the second prompt's TTFT", "8.20 s"),
        ("... GPU utilisation while prompts are read", "90% (85% to 91%)"),
        ("a short question 1 s into the read of 64K: its TTFT", "900 ms"),
        ("a question behind 20K of conversation: TTFT after 16 others took its slot", "60 ms"),
    )


def test_pairs_are_told_as_a_change_with_its_interval() -> None:
    before = {"a": record(100, 100, 100, unit="tok/s"), "b.gpu_share": record(0.5)}
    after = {"a": record(110, 120, 90, unit="tok/s"), "b.gpu_share": record(0.9)}
    (change,) = compare(before, after)
    titles, rows = change_table([change])
    assert rows == (("a", "100", "110", "tok/s", "+10.0%", "-10.0% to +20.0%", "2 of 3"),)
    assert len(titles) == len(rows[0])


def test_another_suite_has_a_line_for_each_metric() -> None:
    one = record(50.0, unit="tok/s", floor_tok_s=200.0, expert_hit_rate=0.9)
    _, rows = table("decode", {"decode.streams1.tok_s": one, "x": record(3.0)})
    assert rows == (
        ("decode.streams1.tok_s", "50", "tok/s", "25% of 200, 90% of experts on the card", "50"),
        ("x", "3", "ms", "-", "3"),
    )
