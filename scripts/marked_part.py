"""Documents with generated parts: what stands between two marker lines is replaced."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def replace_part(text: str, name: str, part: str) -> str:
    """`text` with `part` between `<!-- name -->` and `<!-- end name -->`."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"the document has no part {begin} ... {end}")
    return f"{before}{begin}\n{part.strip()}\n{end}{after}"


def finish(document: str, text: str) -> None:
    """Writes the document, or prints it with `--print`."""
    if "--print" in sys.argv[1:]:
        sys.stdout.write(text)
    else:
        (ROOT / document).write_text(text, encoding="utf-8")
