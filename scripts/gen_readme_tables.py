"""Writes the number tables of README.md from bench/results, so that nobody types a number."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from marked_part import ROOT, finish, replace_part

from bench.records import newest

DOCUMENT = "README.md"
MODEL = "strata-tiny.gguf"


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


def _speed(record: dict[str, object] | None) -> str:
    return "" if record is None else f"{float(str(record['value'])):.0f}"


def _accepted(record: dict[str, object] | None) -> str:
    if record is None or not record.get("drafts_offered"):
        return ""
    share = int(str(record["drafts_accepted"])) / int(str(record["drafts_offered"]))
    return f"{100 * share:.0f}%"


if __name__ == "__main__":
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8")
    finish(DOCUMENT, replace_part(text, "decode table", decode_table()))
