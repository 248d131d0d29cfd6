"""Collects the training text as one JSON line a document.

How to get the sources (Debian 12; nothing is installed):

    mkdir debs root && cd debs
    apt-get download python3.11-doc sqlite3-doc postgresql-doc-15 python-django-doc nodejs-doc \\
        libpython3.11-minimal libpython3.11-stdlib libpython3.11-testsuite python-sqlalchemy-doc \\
        python-jinja2-doc python-flask-doc python-requests-doc python-click-doc \\
        python-werkzeug-doc python-aiohttp-doc python-attr-doc
    for deb in *.deb; do dpkg -x "$deb" ../root; done
    python -m scripts.train.corpus ../root corpus.jsonl

Licences: Python PSF-2.0, SQLite public domain, PostgreSQL, Django/Flask/Click/Werkzeug/Jinja2
BSD-3-Clause, Node.js/SQLAlchemy/attrs MIT, Requests/aiohttp Apache-2.0.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.train.chat import Exchange, conversation, seed_conversations, tool_conversations
from scripts.train.exchanges import from_command, from_markdown, from_page, from_source
from scripts.train.html_text import page_text, tidy

PAGES = (
    "python3.11/html",
    "sqlite3",
    "postgresql-doc-15/html",
    "python-django-doc/html",
    "python-sqlalchemy-doc/html",
    "python-jinja2-doc/html",
    "python-flask-doc/html",
    "python-requests-doc/html",
    "python-click-doc/html",
    "python-werkzeug-doc/html",
    "python-aiohttp-doc/html",
    "python-attr-doc/html",
)
UNWANTED = re.compile(
    r"genindex|py-modindex|search\.html|whatsnew/changelog|_modules|contents\.html|bookindex"
    r"|/test/(test_email/data|cjkencodings|decimaltestdata)|pydoc_data|encodings/(cp|mac|iso|koi)"
    r"|lib2to3/tests/data|copyright\.html|license\.html|session/|matrix/"
)
ASCII = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "--",
        "\u2026": "...",
        "\u2022": "*",
    }
)


def documents(root: Path, draw: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text) of every document below the unpacked packages; kind is docs, code or chat."""
    share = root / "usr/share/doc"
    for folder in PAGES:
        for path in sorted((share / folder).rglob("*.html")):
            yield from _page(path, draw)
    for path in sorted((share / "nodejs/api").glob("*.md.gz")):
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        text = tidy(re.sub(r"(?m)^\[[^\]]+\]: .*$|<!--.*?-->", "", text, flags=re.S))
        yield "docs", text
        yield from _chats(from_markdown(text, draw), draw)
    for path in sorted((root / "usr/lib/python3.11").rglob("*.py")):
        if UNWANTED.search(str(path)):
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        yield "code", source.strip()
        if "/test" not in str(path):
            yield from _chats(from_source(source, draw), draw)


def _page(path: Path, draw: random.Random) -> Iterator[tuple[str, str]]:
    if UNWANTED.search(str(path)):
        return
    html = path.read_text(encoding="utf-8", errors="replace").translate(ASCII)
    text = re.sub(r"(?m)^[a-z-]+:\n\n", "", page_text(html))
    if len(text) < 200:
        return
    yield "docs", text
    yield from _chats(from_page(html, text, draw), draw)
    if path.name.startswith("sql-"):
        yield from _chats(from_command(text, "PostgreSQL"), draw)


def _chats(exchanges: Iterator[Exchange], draw: random.Random) -> Iterator[tuple[str, str]]:
    """Conversations of one to three of the exchanges."""
    found = list(exchanges)
    draw.shuffle(found)
    while found:
        count = min(len(found), draw.choice([1, 1, 1, 2, 3]))
        yield "chat", conversation(found[:count], draw)
        del found[:count]


def distinct(found: Iterator[tuple[str, str]], longest: int = 60_000) -> Iterator[tuple[str, str]]:
    """Drops paragraphs of docs and code that were seen before, and what is left too short."""
    seen: set[bytes] = set()
    for kind, text in found:
        if kind == "chat":
            yield kind, text
            continue
        kept = []
        for part in text.split("\n\n"):
            digest = hashlib.blake2b(part.encode(), digest_size=8).digest()
            if len(part) < 60 or digest not in seen:
                kept.append(part)
                seen.add(digest)
        body = "\n\n".join(kept)
        for start in range(0, len(body), longest):
            if len(body) - start > 200:
                yield kind, body[start : start + longest]


def held_out(text: str) -> bool:
    """One document in 100, by its hash."""
    return hashlib.blake2b(text.encode(), digest_size=2).digest()[0] * 100 < 256


def main() -> None:
    """Writes the corpus and prints its sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seed-copies", type=int, default=14)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    found = list(distinct(documents(arguments.root, draw)))
    found += [("seed", text) for text in seed_conversations(draw, arguments.seed_copies)]
    found += [("seed", text) for text in tool_conversations(draw, 1500)]
    draw.shuffle(found)
    sizes: dict[str, int] = {}
    with arguments.out.open("w", encoding="utf-8") as file:
        for kind, text in found:
            test = kind != "seed" and held_out(text)
            label = f"{kind} {'held out' if test else 'train'}"
            sizes[label] = sizes.get(label, 0) + len(text.encode())
            file.write(json.dumps({"kind": kind, "test": test, "text": text}) + "\n")
    for label, size in sorted(sizes.items()):
        print(f"{label}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
