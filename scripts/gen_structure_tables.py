"""Writes the tables of docs/structure.md: the first sentence of every module's docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from marked_part import ROOT, finish, replace_part

DOCUMENT = "docs/structure.md"
PACKAGES = ("strata_cli", "setup", "bench", "engine", "profiles")


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not doc:
        raise SystemExit(f"{path} has no docstring")
    line = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", line)[0].replace("|", "\\|")


def tables() -> str:
    """One table a folder."""
    parts = []
    for package in PACKAGES:
        folders = sorted({path.parent for path in (ROOT / package).rglob("*.py")})
        for folder in folders:
            modules = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
            if not modules:
                continue
            parts.append(f"### `{folder.relative_to(ROOT)}/`\n\n| module | what it is |\n|---|---|")
            parts[-1] += "".join(
                f"\n| `{path.relative_to(ROOT)}` | {first_sentence(path)} |" for path in modules
            )
    return "\n\n".join(parts)


if __name__ == "__main__":
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8")
    finish(DOCUMENT, replace_part(text, "modules", tables()))
