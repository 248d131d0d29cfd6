"""Messages to the text a model continues, by the Jinja template of its GGUF."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2

from engine.errors import StrataError, TemplateError, UnsupportedModelError
from engine.gguf.template_limits import Limits
from engine.gguf.template_sandbox import TemplateEnvironment

_KEY = "tokenizer.chat_template"
# Metadata key -> the variable that templates know the token by.
_TOKEN_VARIABLES = {
    "tokenizer.ggml.bos_token_id": "bos_token",
    "tokenizer.ggml.eos_token_id": "eos_token",
    "tokenizer.ggml.padding_token_id": "pad_token",
    "tokenizer.ggml.unknown_token_id": "unk_token",
}
# For models that know the turn tokens but bring no template.
CHATML = """\
{%- if tools %}{{ raise_exception('This model has no chat template, so it cannot be given tools.') }}{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content or [] %}{{- part.text }}{% endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""  # noqa: E501


class ChatTemplate:
    """A compiled template. Immutable and safe to use from several threads.

    `source` is its text; `variables` are given to every rendering (names of special tokens);
    `now` is the clock for templates that print the date.
    """

    def __init__(
        self,
        source: str,
        variables: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Raises TemplateError for a template that Jinja cannot read."""
        self.source = source
        self._variables = dict(variables or {})
        self._limits = limits or Limits()
        try:
            self._template = TemplateEnvironment(self._limits, now).compile_template(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"the chat template is not valid Jinja: line {error.lineno}: {error.message}",
                hint="Use a model file whose template is sound.",
            ) from error
        except (jinja2.TemplateError, RecursionError) as error:
            raise TemplateError(f"the chat template cannot be compiled: {error}") from error

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> ChatTemplate:
        """The template of a GGUF, or plain ChatML where there is none and the vocabulary has the
        tokens for it.

        Raises UnsupportedModelError where it has not, TemplateError for a template that Jinja
        cannot read.
        """
        tokens = metadata.get("tokenizer.ggml.tokens", [])
        variables = {
            variable: tokens[metadata[key]]
            for key, variable in _TOKEN_VARIABLES.items()
            if key in metadata and 0 <= metadata[key] < len(tokens)
        }
        source = metadata.get(_KEY)
        if isinstance(source, str) and source:
            return cls(source, variables)
        if {"<|im_start|>", "<|im_end|>"} <= set(tokens):
            return cls(CHATML, variables)
        raise UnsupportedModelError(
            f"the model file has no chat template ({_KEY})",
            hint="It is a base model: use completions, or a file of the chat model.",
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        enable_thinking: bool = True,
        reasoning_effort: str | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt for `messages` and `tools` in the shapes of the OpenAI API.

        Keys of a message whose value is None are left out, and arguments of tool calls that are
        the text of a JSON object become that object, as templates expect. `reasoning_effort` is
        set only when given; `kwargs` are further variables of the template.

        Raises TemplateError: with the template's own message where it refuses the messages, and
        for everything that goes wrong in it or takes too much time or memory.
        """
        variables = {
            **self._variables,
            "messages": [_message(message) for message in messages],
            "tools": None if tools is None else _plain(tools),
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "enable_thinking": enable_thinking,
            **{name: _plain(value) for name, value in kwargs.items()},
        }
        if reasoning_effort is not None:
            variables["reasoning_effort"] = reasoning_effort
        try:
            text = self._template.render(variables)
        except StrataError:
            raise
        except Exception as error:  # A template can raise what any operator can.
            raise TemplateError(
                f"the chat template failed: {error or type(error).__name__}",
                hint="The messages may have a shape that this model's template does not know.",
            ) from error
        self._limits.check(len(text))
        return text


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: _plain(value) for key, value in message.items() if value is not None}
    calls = plain.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            _open_arguments(call)
            _open_arguments(call.get("function"))
    return plain


def _open_arguments(call: Any) -> None:
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), str):
        return
    try:
        arguments = json.loads(call["arguments"] or "{}")
    except ValueError:
        # The template decides what to do with a text.
        return
    if isinstance(arguments, dict):
        call["arguments"] = arguments


def _plain(value: Any) -> Any:
    """A copy of plain JSON types: objects with methods of their own would be a way out of the
    sandbox."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise TemplateError(f"a chat message holds a {type(value).__name__}, which is not JSON")
