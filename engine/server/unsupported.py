"""Fields of the APIs that would change an answer, and that are not done here.

A field is refused by its name where it says something; what changes nothing is taken, so that
clients which always send it work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from engine.server.http_errors import bad_field

_PLAIN = "is not supported"
_UNKEPT = "nothing is kept here; leave it out"
_WHOLE = "is not kept here: send the whole conversation as input"
_NO_SOUND = "answers are text only"

GRAMMARS = dict.fromkeys(
    (
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("structured_outputs", "grammar", "json_schema"),
    ),
    "is not supported: use response_format of /v1/chat/completions",
)
"""Other servers' fields for answers of a given form."""
CHAT = {
    "functions": "is not supported: use tools",
    "function_call": "is not supported: use tool_choice",
    "modalities": _NO_SOUND,
    "audio": _NO_SOUND,
    "web_search_options": "this server does not search the web",
    "store": _UNKEPT,
    "verbosity": _PLAIN,
}
RESPONSES = {
    "previous_response_id": _WHOLE,
    "conversation": _WHOLE,
    "prompt": "no prompts are kept here: send instructions and input",
    "include": _PLAIN,
    "background": _PLAIN,
    "top_logprobs": _PLAIN,
    "store": _UNKEPT,
    "truncation": _PLAIN,
    "context_management": _PLAIN,
}
MESSAGES = {
    "container": _PLAIN,
    "context_management": _PLAIN,
    "mcp_servers": "this server does not call them",
    "output_format": "is not supported: use output_config.format",
}
_UNSAID: Sequence[Any] = (None, False, 0, "", [], {})
_HARMLESS: Mapping[str, Sequence[Any]] = {
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "truncation": ("disabled",),
    # The thoughts themselves are in the answer.
    "include": (["reasoning.encrypted_content"],),
}
"""Values that ask for nothing else than what is done anyway."""


def check_supported(body: Struct, fields: Mapping[str, str]) -> None:
    """Raise `ApiError` 400 for the first of `fields` by which `body` asks for something; its value
    says why."""
    for name, why in fields.items():
        value = getattr(body, name)
        unsaid = value in _UNSAID and (name, value) != ("web_search_options", {})
        if not unsaid and value not in _HARMLESS.get(name, ()) and not _drops_thoughts(value):
            raise bad_field(name, why)


def _drops_thoughts(value: Any) -> bool:
    """Whether it is a `context_management` of earlier thoughts alone: the model's template says
    which of them stay."""
    edits = value.get("edits") if isinstance(value, dict) else None
    if not isinstance(edits, list):
        return False
    kinds = [edit.get("type") if isinstance(edit, dict) else None for edit in edits]
    return all(str(kind).startswith("clear_thinking") for kind in kinds)
