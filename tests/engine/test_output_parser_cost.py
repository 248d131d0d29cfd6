"""Parsing costs the same for every token."""

import time

from engine.output_parser import OutputParser

SCHEMA = {"type": "object", "properties": {"list": {"type": "array"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def test_cost_does_not_grow_with_the_text() -> None:
    parser = OutputParser(thinking=True, tools=TOOLS)
    begin_s = time.process_time()
    for opening in ("", "</think>", "<tool_call><function=f><parameter=list>"):
        parser.push(opening)
        for _ in range(50_000):
            parser.push("word\n")
    assert time.process_time() - begin_s < 15
