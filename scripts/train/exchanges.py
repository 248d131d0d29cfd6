"""Questions and answers made from documentation pages and Python sources."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator

from scripts.train.chat import Exchange
from scripts.train.html_text import plain

SIGNATURE = re.compile(
    r'<dt class="sig sig-object[^"]*" id="([\w.\-]+)">(.*?)</dt>\s*<dd>\s*<p>(.*?)</p>', re.S
)
TERM = re.compile(r'<dt id="term-[^"]*">(.*?)</dt>\s*<dd>\s*<p>(.*?)</p>', re.S)
NODE = re.compile(r"(?m)^#{2,4} `(?:new )?([\w.]+)\(([^`\n]*)\)`\n(.*?)(?=^#{1,4} )", re.S)
ABOUT = (
    "What does {} do?",
    "What is {}?",
    "Explain {}.",
    "What is {} for?",
    "How does {} work?",
    "Tell me about {}.",
    "What can you tell me about {}?",
)
SHORTEST, LONGEST = 40, 700


def from_page(html: str, text: str, draw: random.Random) -> Iterator[Exchange]:
    """Signatures, glossary terms, modules and sections of one HTML page."""
    for name, signature, body in SIGNATURE.findall(html):
        yield from _about(name, plain(signature), plain(body), draw)
    for term, body in TERM.findall(html):
        yield from _about(f"{plain(term)} in Python", "", plain(body), draw)
    yield from _sections(text, draw)


def from_command(text: str, product: str) -> Iterator[Exchange]:
    """What an SQL command does, and its syntax."""
    found = re.match(r"## ([A-Z][A-Z ]+)\n", text)
    if not found:
        return
    command = found.group(1)
    description = re.search(r"## Description\n\n(.+)", text)
    if description:
        question = f"What does {command} do in {product}?"
        yield from _clean(question, description.group(1))
        yield from _clean(f"What is {command} in SQL?", description.group(1))
    syntax = re.search(r"## Synopsis\n(```\n.*?\n```)", text, re.S)
    if syntax:
        answer = f"The syntax of {command} is:\n\n" + syntax.group(1).replace(
            "```\n", "```sql\n", 1
        )
        yield Exchange(f"Show me the syntax of {command}.", answer[: LONGEST + 300])


def from_markdown(text: str, draw: random.Random) -> Iterator[Exchange]:
    """Functions of a Node.js API page."""
    for name, arguments, body in NODE.findall(text + "\n# "):
        paragraphs = [p for p in re.split(r"\n\s*\n", body) if re.match(r"[A-Z`]", p)]
        if paragraphs:
            answer = re.sub(r"\s+", " ", re.sub(r"\[([^\]]*)\]\[[^\]]*\]", r"\1", paragraphs[0]))
            yield from _about(f"{name} in Node.js", f"{name}({arguments})", answer, draw)


def from_source(source: str, draw: random.Random) -> Iterator[Exchange]:
    """Short functions with a docstring: write this function."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    lines = source.splitlines()
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.end_lineno is None:
            continue
        document = ast.get_docstring(node)
        if not document or node.end_lineno - node.lineno > 24 or node.name.startswith("_"):
            continue
        code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        summary = re.sub(r"\s+", " ", document.split("\n\n")[0])
        question = draw.choice(
            [
                "Write a Python function named {}. {}",
                "Show me the function {}. {}",
                "Write the function {} in Python. {}",
            ]
        ).format(node.name, summary)
        if SHORTEST < len(code) < 1200 and len(question) < 250:
            yield Exchange(question, f"```python\n{code}\n```")


def _about(name: str, signature: str, body: str, draw: random.Random) -> Iterator[Exchange]:
    for question in draw.sample(ABOUT, 2):
        for exchange in _clean(question.format(name), body):
            usage = signature.partition(" ->")[0].removesuffix("[source]")
            if usage.endswith(")") and len(usage) < 120 and draw.random() < 0.4:
                usage = f"```python\n{usage}\n```\n\n"
                exchange = Exchange(exchange.question, usage + exchange.answer)
            yield exchange


def _sections(text: str, draw: random.Random) -> Iterator[Exchange]:
    """Headings with the paragraph under them."""
    for heading, body in re.findall(r"(?m)^#{1,4} ([A-Z][^\n]{3,60})\n\n([A-Z][^\n]+)$", text):
        topic = re.sub(r"^[\d.]+ *|[.:]$", "", heading)
        question = draw.choice(("Tell me about {}.", "Explain {}.", "What should I know about {}?"))
        yield from _clean(question.format(topic), body)


def _clean(question: str, body: str) -> Iterator[Exchange]:
    """The exchange if the text reads as a whole answer, cut at a sentence end."""
    body = body.strip()
    if len(body) > LONGEST:
        body = body[: body.rfind(". ", 0, LONGEST) + 1]
    if len(body) >= SHORTEST and body[0].isupper() and body.endswith((".", "!", ")")):
        yield Exchange(question, body)
