"""Writes the number tables of README.md from bench/results, so that nobody types a number."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from marked_part import ROOT, finish, replace_part

from bench.records import newest

DOCUMENT = "README.md"
MODEL = "strata-tiny.gguf"
CARD = "NVIDIA H200"
ON_A_CARD = {
    "Qwen3.8-Flash-Next, IQ3_S": "qwen3.8-flash-next:iq3_s:synthetic",
    "Qwen3.6-35B-A3B, UD-IQ4_XS": "qwen3.6-35b-a3b:ud-iq4_xs:synthetic",
}


def decode_table() -> str:
    """Decode speed by streams: without drafts, with drafts, llama.cpp."""
    records = newest("decode", MODEL)
    if not records:
        return "Nothing was measured yet: `strata bench decode --save` measures this machine."
    counts = sorted({int(record["streams"]) for record in records.values()})
    lines = [
        "| conversations | tok/s | tok/s with drafts | drafts accepted | llama.cpp, tok/s |",
        "|---:|---:|---:|---:|---:|",
    ]
    for count in counts:
        plain = records.get(f"decode.streams{count}.tok_s")
        drafts = records.get(f"decode.streams{count}.drafts.tok_s")
        peer = records.get(f"decode.streams{count}.llamacpp.tok_s")
        cells = [_speed(plain), _speed(drafts), _accepted(drafts), _speed(peer)]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    one = next(iter(records.values()))
    lines.append(
        f"\n{one['model']}, {one['machine']['cores']} cores of {one['machine']['cpu']}, "
        f"{one['date'][:10]}, commit {one['commit']}: `{one['command']}`"
    )
    return "\n".join(lines)


def card_table() -> str:
    """Speeds of whole models of random weights on one card, with the share of the floor."""
    lines = ["| model | measured | value | of the floor | commit |", "|---|---|---:|---:|---|"]
    commands: dict[str, None] = {}
    for name, model in ON_A_CARD.items():
        for suite in ("decode", "prefill"):
            for metric, record in newest(suite, model, CARD).items():
                cells = (name, _words(metric), _value(record), _share(record), record["commit"])
                lines.append(f"| {' | '.join(cells)} |")
                commands[record["command"]] = None
    if not commands:
        return "Nothing was measured yet."
    return "\n".join([*lines, f"\nOne {CARD}:", *(f"`{command}`" for command in commands)])


def _words(metric: str) -> str:
    """`decode.streams8.tok_s` and the like for readers."""
    suite, what, more, *_ = metric.split(".")
    if suite == "decode":
        said = f"answers, conversations: {what.removeprefix('streams')}"
        return said + f", {more[7:]}% of the experts on the card" * more.startswith("experts")
    if suite == "verify":
        return f"a window of {what.removeprefix('rows')} rows that verifies drafts"
    return f"a prompt of {what} tokens"


def _value(record: dict[str, Any]) -> str:
    value, unit = float(record["value"]), str(record["unit"])
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:#.3g} {unit}"


def _share(record: dict[str, Any]) -> str:
    value = float(record["value"])
    if record.get("floor_tok_s"):
        return f"{100 * value / float(record['floor_tok_s']):.0f}%"
    return f"{100 * float(record['floor_ms']) / value:.0f}%" if record.get("floor_ms") else ""


def _speed(record: dict[str, object] | None) -> str:
    return "" if record is None else f"{float(str(record['value'])):.0f}"


def _accepted(record: dict[str, object] | None) -> str:
    if record is None or not record.get("drafts_offered"):
        return ""
    share = int(str(record["drafts_accepted"])) / int(str(record["drafts_offered"]))
    return f"{100 * share:.0f}%"


if __name__ == "__main__":
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8")
    text = replace_part(text, "decode table", decode_table())
    finish(DOCUMENT, replace_part(text, "card table", card_table()))
