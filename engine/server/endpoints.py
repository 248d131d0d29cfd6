"""The endpoints that answer with text or tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.errors import RequestError
from engine.messages import Keys
from engine.output_parser import OutputParser
from engine.server import responses_body
from engine.server.anthropic_body import CountBody, MessagesBody, chat_of
from engine.server.anthropic_format import AnthropicFormat
from engine.server.bodies import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    GenerationBody,
    TokenizeBody,
    answer_limit,
    check_common,
    read_body,
    stops_of,
)
from engine.server.bridge import Bridge
from engine.server.chat_format import ChatFormat
from engine.server.chat_prompt import ChatPrompt, chat_prompt
from engine.server.completion_format import CompletionFormat
from engine.server.exchange import EventStream, whole_answer
from engine.server.format import Format
from engine.server.generation import Generation
from engine.server.http_errors import ApiError, bad_field
from engine.server.options import ServerOptions
from engine.server.responses_format import ResponsesFormat
from engine.server.sampling import keys_of, keys_of_choice
from engine.server.text_model import TextModel
from engine.server.unsupported import CHAT, check_supported

MOST_PROMPTS = 64


class Endpoints:
    """Handlers that share the bridge and the model's text side."""

    def __init__(self, options: ServerOptions, text: TextModel, bridge: Bridge) -> None:
        self._options = options
        self._text = text
        self._bridge = bridge
        self._unasked = False if options.anthropic_thinking == "on_request" else None

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await read_body(request, self._options, ChatBody)

        def format(prompt: ChatPrompt) -> Format:
            return ChatFormat(
                self._options.model_name,
                self._text,
                choices=body.n or 1,
                stream=bool(body.stream),
                logprobs=bool(body.logprobs),
                openai_usage=_wants_usage(body),
            )

        return await self._chat(request, body, format)

    async def messages(self, request: Request) -> Response:
        """POST /v1/messages, Anthropic's form of a chat."""
        body = await read_body(request, self._options, MessagesBody)
        name = body.model or self._options.model_name

        def format(prompt: ChatPrompt) -> Format:
            return AnthropicFormat(name, len(prompt.ids))

        chat = await run_in_threadpool(chat_of, body, self._unasked)
        return await self._chat(request, chat, format)

    async def responses(self, request: Request) -> Response:
        """POST /v1/responses, OpenAI's newer form of a chat."""
        body = await read_body(request, self._options, responses_body.ResponsesBody)

        def format(prompt: ChatPrompt) -> Format:
            return ResponsesFormat(body, self._options.model_name)

        chat = await run_in_threadpool(responses_body.chat_of, body)
        return await self._chat(request, chat, format)

    async def count_tokens(self, request: Request) -> Response:
        """POST /v1/messages/count_tokens: the tokens of the prompt that /v1/messages would read."""
        body = await read_body(request, self._options, CountBody)
        chat = await run_in_threadpool(chat_of, body, self._unasked)
        prompt = await run_in_threadpool(chat_prompt, chat, self._text)
        return JSONResponse({"input_tokens": len(prompt.ids)})

    async def _chat(
        self, request: Request, body: ChatBody, format: Callable[[ChatPrompt], Format]
    ) -> Response:
        self._bridge.check_open()
        check_common(body)
        _check_chat(body)
        check_supported(body, CHAT)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        self._check_logprobs(logprobs, "logprobs")
        most = self._options.reasoning_budget_tokens
        prompt = await run_in_threadpool(chat_prompt, body, self._text, most)
        keys = self._keys(body, logprobs)
        if prompt.form:
            if not self._bridge.info.get("grammars"):
                raise bad_field(prompt.form.field, "this engine holds answers to no form")
            keys = prompt.form.keys(keys, thinking=prompt.thinking)
        generations = self._generate(body, [prompt.ids], keys, prompt)
        return await self._answer(request, body, generations, format(prompt))

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        body = await read_body(request, self._options, CompletionBody)
        self._bridge.check_open()
        check_common(body)
        _check_completion(body)
        self._check_logprobs(body.logprobs, "logprobs")
        prompts = await run_in_threadpool(self._prompts, body)
        generations = self._generate(body, prompts, self._keys(body, body.logprobs))
        format = CompletionFormat(
            self._options.model_name,
            self._text,
            choices=len(generations),
            logprobs=body.logprobs is not None,
            openai_usage=_wants_usage(body),
        )
        return await self._answer(request, body, generations, format)

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: `content` (or `prompt`, or the `messages` of a chat) to `tokens`."""
        body = await read_body(request, self._options, TokenizeBody)
        text = body.content if body.content is not None else body.prompt
        if text is None and body.messages is None:
            raise bad_field("content", "is missing")
        if text is None:
            chat = ChatBody(messages=body.messages or [])
            ids = (await run_in_threadpool(chat_prompt, chat, self._text)).ids
        else:
            ids = tuple(await run_in_threadpool(self._encode, text, body.parse_special, "content"))
        limits = {"count": len(ids), "max_model_len": self._bridge.max_context}
        return JSONResponse({"tokens": ids, **limits})

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize: `tokens` to text, as `content` and as `prompt`."""
        body = await read_body(request, self._options, DetokenizeBody)
        ids = self._checked(body.tokens, "tokens")
        text = await run_in_threadpool(self._text.decode, ids)
        return JSONResponse({"content": text, "prompt": text})

    async def _answer(
        self,
        request: Request,
        body: GenerationBody,
        generations: Sequence[Generation],
        format: Format,
    ) -> Response:
        if not body.stream:
            return await whole_answer(request, generations, format)
        progress = bool(body.return_progress)
        return EventStream(generations, format, self._options.keepalive_s, progress)

    def _generate(
        self,
        body: GenerationBody,
        prompts: Sequence[Sequence[int]],
        keys: Keys,
        chat: ChatPrompt | None = None,
    ) -> list[Generation]:
        """As many answers as are asked for to each prompt, in the order of the prompts."""
        generations: list[Generation] = []
        try:
            for ids in prompts:
                for number in range(body.n or 1):
                    one = self._one(body, ids, keys_of_choice(keys, number), chat)
                    one.further = number > 0
                    generations.append(one)
        except ApiError:
            for generation in generations:
                generation.close()
            raise
        return generations

    def _one(
        self, body: GenerationBody, ids: Sequence[int], keys: Keys, chat: ChatPrompt | None
    ) -> Generation:
        context = self._bridge.max_context
        field = "prompt" if chat is None else "messages"
        limit = answer_limit(body, len(ids), context, self._options.fit_max_tokens, field)
        stops = stops_of(body)
        ticket = self._bridge.submit(ids, limit, keys)
        if chat is None:
            return Generation(self._bridge, ticket, self._text, stops)
        form, choice = chat.form, chat.choice
        tools = form.tools if form and form.tools else choice.callable
        one = Generation(self._bridge, ticket, self._text, stops)
        one.parser = OutputParser(thinking=chat.thinking, tools=tools)
        one.single_call = choice.single
        one.form_field = form.field if form else ""
        return one

    def _keys(self, body: GenerationBody, logprobs: int | None) -> Keys:
        keys = keys_of(body, self._options.sampling, logprobs)
        if not body.logit_bias:
            return keys
        self._checked([*body.logit_bias], "logit_bias")
        return msgspec.structs.replace(keys, logit_bias=tuple(body.logit_bias.items()))

    def _prompts(self, body: CompletionBody) -> list[list[int]]:
        prompt = body.prompt
        if isinstance(prompt, str):
            many: Sequence[str | int | list[int]] = [prompt]
        elif prompt and all(isinstance(one, int) for one in prompt):
            many = [[one for one in prompt if isinstance(one, int)]]
        else:
            many = prompt
        if not 0 < len(many) <= MOST_PROMPTS:
            raise bad_field("prompt", f"{len(many)} prompts, 1 to {MOST_PROMPTS} are allowed")
        return [self._ids(one, f"prompt[{n}]") for n, one in enumerate(many)]

    def _ids(self, prompt: str | int | list[int], field: str) -> list[int]:
        if isinstance(prompt, int):
            raise bad_field(field, "token ids and texts are mixed")
        if isinstance(prompt, str):
            ids = self._encode(prompt, True, "prompt")
        else:
            ids = self._checked(prompt, "prompt")
        if not ids:
            raise bad_field("prompt", "is empty")
        return ids

    def _encode(self, text: str, special: bool, field: str) -> list[int]:
        try:
            return self._text.encode(text, parse_special=special)
        except RequestError as error:
            raise bad_field(field, error.message) from None

    def _checked(self, ids: list[int], field: str) -> list[int]:
        size = self._text.vocab_size
        for at, token in enumerate(ids):
            if not 0 <= token < size:
                raise bad_field(field, f"[{at}] is {token}, token ids are 0 to {size - 1}")
        return ids

    def _check_logprobs(self, asked: int | None, field: str) -> None:
        if asked is None:
            return
        most = self._bridge.info.get("logprobs")
        if not isinstance(most, int):
            raise bad_field(field, "this engine does not report them")
        if asked > most:
            raise bad_field("top_logprobs", f"{asked} is more than the {most} of this engine")


def _check_chat(body: ChatBody) -> None:
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_field("top_logprobs", "needs logprobs to be true")


def _check_completion(body: CompletionBody) -> None:
    if body.echo:
        raise bad_field("echo", "is not supported")
    if body.suffix:
        raise bad_field("suffix", "is not supported")
    if body.best_of not in (None, 1):
        raise bad_field("best_of", f"{body.best_of} was asked for, only 1 is possible")


def _wants_usage(body: GenerationBody) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage
