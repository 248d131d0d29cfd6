"""Request bodies, their checks, and the 400s that name a field."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import ClientDisconnect, Request

from engine.sampling import LARGEST_BIAS
from engine.server.http_errors import ApiError, bad_field
from engine.server.options import ServerOptions
from engine.server.sampling import SamplingFields
from engine.server.unsupported import GRAMMARS, check_supported

T = TypeVar("T")
MAX_STOPS, MAX_STOP_SEQUENCES = 4, 16
MOST_CHOICES = 64
MOST_BIASED = 1024
DRAIN_S = 5.0
_FORM = "application/x-www-form-urlencoded"  # what curl -d says of any body
_AT = re.compile(r"^(.*) - at `(?:key` in `)?\$\.?([^`]*)`$")
_FIELD = re.compile(r"(?:Object missing required field|Object contains unknown field) `(\w+)`")

TokenId = Annotated[int, Meta(ge=0)]
Bias = Annotated[float, Meta(ge=-LARGEST_BIAS, le=LARGEST_BIAS)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]


class StreamOptions(Struct, frozen=True):
    """`stream_options` of a request."""

    include_usage: bool = False


class GenerationBody(SamplingFields, frozen=True, kw_only=True):
    """What /v1/chat/completions and /v1/completions have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    stop_sequences: list[str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Meta(max_length=MOST_BIASED)] | None = None
    return_progress: bool | None = None
    # Refused where they say something: see `unsupported.py`.
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None
    grammar: Any = None
    json_schema: Any = None


class FunctionCall(Struct, frozen=True):
    """A call that an assistant turn made; `arguments` is JSON text or a mapping."""

    name: str
    arguments: str | dict[str, Any] = "{}"


class ToolCall(Struct, frozen=True):
    """One of the calls of an assistant turn."""

    function: FunctionCall
    id: str | None = None
    type: str = "function"


class Part(Struct, frozen=True):
    """A part of a message's content; only text is understood."""

    type: str
    text: str | None = None


class ChatMessage(Struct, frozen=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    function_call: Any = None
    audio: Any = None


class ChatBody(GenerationBody, frozen=True, kw_only=True):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning: dict[str, Any] | None = None
    reasoning_budget_tokens: Annotated[int, Meta(ge=0)] | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    # Refused where they say something: see `unsupported.py`.
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None
    store: Any = None
    verbosity: Any = None


class CompletionBody(GenerationBody, frozen=True, kw_only=True):
    """The body of /v1/completions. `prompt` is text, token ids, or a list of either."""

    prompt: str | list[str | int | list[int]]
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class TokenizeBody(Struct, frozen=True, kw_only=True):
    """The body of /tokenize: text, or the messages of a chat."""

    content: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    parse_special: bool = True
    add_special: bool = False


class DetokenizeBody(Struct, frozen=True):
    """The body of /detokenize."""

    tokens: list[int]


async def read_body(request: Request, options: ServerOptions, kind: type[T]) -> T:
    """The body as a `kind`. Raises `ApiError` 400, 408, 413 or 415."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    json = content_type.endswith(("/json", "+json"))
    if content_type and not json and content_type != _FORM:
        raise ApiError(415, f"content-type {content_type} is not application/json")
    raw = await _read(request, options)
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        _check_json(raw)  # the decoder stops at the first fault, of whatever kind
        raise _named(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from None


def stops_of(body: GenerationBody) -> tuple[str, ...]:
    """The stop strings of a request."""
    one = [body.stop] if isinstance(body.stop, str) else body.stop or []
    more = body.stop_sequences or []
    limits = (("stop", one, MAX_STOPS), ("stop_sequences", more, MAX_STOP_SEQUENCES))
    for field, stops, limit in limits:
        if len(stops) > limit:
            raise bad_field(field, f"{len(stops)} stop strings, at most {limit} are allowed")
        if "" in stops:
            raise bad_field(field, "an empty stop string would end every answer at once")
    return (*one, *more)


def check_common(body: GenerationBody) -> None:
    """Refuse what is asked for and not done here, rather than ignore it."""
    if body.stream_options is not None and not body.stream:
        raise bad_field("stream_options", "is only allowed with stream")
    check_supported(body, GRAMMARS)


def answer_limit(
    body: GenerationBody, prompt_tokens: int, context: int, fit: bool, prompt_field: str
) -> int:
    """How many tokens the answer may have; `context` is the engine's, in tokens. -1 is no limit, as
    for llama.cpp's server."""
    asked, field = body.max_completion_tokens, "max_completion_tokens"
    if asked is None:
        asked, field = body.max_tokens, "max_tokens"
    if asked == NO_LIMIT:
        asked = None
    if asked is not None and asked < 1:
        raise bad_field(field, f"{asked} is less than 1; leave it out for all of the context")
    room = context - CONTEXT_MARGIN - prompt_tokens
    if room < 1:
        raise _overflow(f"the prompt has {prompt_tokens} tokens", context, prompt_field)
    if asked is None:
        return room
    if asked > room and not fit:
        what = f"the prompt has {prompt_tokens} tokens and {field} is {asked}"
        raise _overflow(what, context, field)
    return min(asked, room)


NO_LIMIT = -1
CONTEXT_MARGIN = 8
"""Tokens of the context that an answer leaves free."""


def _overflow(what: str, context: int, param: str) -> ApiError:
    text = f"{what}; this model's context has room for {context - CONTEXT_MARGIN} together"
    return ApiError(400, text, param=param, code="context_length_exceeded")


async def _read(request: Request, options: ServerOptions) -> bytes:
    limit = options.max_body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        await _drain(request)
        raise ApiError(413, f"the body has {declared} bytes, at most {limit} are allowed")
    body = bytearray()
    try:
        stream = request.stream()
        while True:
            async with asyncio.timeout(options.body_timeout_s):
                chunk = await anext(stream, None)
            if chunk is None:
                return bytes(body)
            body += chunk
            if len(body) > limit:
                await _drain(request)
                raise ApiError(413, f"the body has more than the allowed {limit} bytes")
    except TimeoutError:
        why = f"the rest of the body did not come within {options.body_timeout_s:g} s"
        raise ApiError(408, why) from None
    except ClientDisconnect:
        raise ApiError(400, "the client left before its body was complete") from None


async def _drain(request: Request) -> None:
    """Read the rest and forget it: a client that still sends would not see the answer."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in request.stream():
                pass
    except (TimeoutError, ClientDisconnect, RuntimeError):
        return


def _check_json(raw: bytes) -> None:
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from None


def _no_json(error: Exception) -> ApiError:
    return ApiError(400, f"the body is not JSON: {error}", code="invalid_json")


def _named(message: str) -> ApiError:
    """A 400 from the decoder's message, which ends in the path of the value."""
    found = _AT.match(message)
    text, path = (found[1], found[2]) if found else (message, "")
    missing = _FIELD.match(text)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        text = "is missing" if "missing" in text else "is unknown"
    if not path:
        return ApiError(400, f"the body: {text}", code="invalid_value")
    return bad_field(path, text)
