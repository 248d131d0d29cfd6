"""One answer on stdout, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.errors import ConfigError, RequestError
from strata_cli.console import Console

if TYPE_CHECKING:
    from engine.api import Model
    from engine.request import Finished, Request


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt's token ids; `thinking`: they end inside the model's reasoning."""

    ids: tuple[int, ...]
    thinking: bool


def answer_once(
    config: EngineConfig,
    text: str,
    max_tokens: int,
    temperature: float,
    seed: int | None,
    console: Console,
) -> int:
    """Streams the model's answer to `text` (one user message) to stdout, its reasoning with -v to
    stderr. Raises `ConfigError` when the prompt does not fit."""
    from engine.output_events import ContentText, ReasoningText
    from engine.output_parser import OutputParser
    from engine.request import Request
    from engine.sampling import Sampling
    from engine.startup import load_planned

    model = load_planned(config, slots=1)
    prompt = _prompt(config, model, text)
    room = model.pipeline.max_context - len(prompt.ids)
    if room < 1:
        raise ConfigError(
            f"--prompt has {len(prompt.ids)} tokens, the context is {model.pipeline.max_context}",
            "shorten it, or raise --context",
        )
    request = Request(
        id="answer",
        tokens=prompt.ids,
        max_new=min(max_tokens, room),
        sampling=Sampling(temperature=temperature, seed=seed or 0),
    )
    parser = OutputParser(thinking=prompt.thinking)
    content, reasoning = [], []
    finished: Finished | None = None
    for piece in _pieces(model, config, request):
        if not isinstance(piece, str):
            finished = piece
        for event in parser.push(piece) if isinstance(piece, str) else parser.finish():
            if isinstance(event, ContentText):
                content.append(event.text)
                console.result(event.text, end="")
            elif isinstance(event, ReasoningText):
                reasoning.append(event.text)
                console.detail(event.text, end="")
    console.result()
    assert finished is not None
    if finished.finish == "length" and not "".join(content).strip():
        console.warn(_no_answer(request.max_new, room, thought=bool(reasoning)))
    if finished.error:
        raise RequestError(finished.error)
    if console.json:
        console.document(
            {
                "text": "".join(content),
                "reasoning": "".join(reasoning),
                "finish": finished.finish,
                "prompt_tokens": len(prompt.ids),
                "completion_tokens": finished.generated,
            }
        )
    return 0


def _no_answer(tokens: int, room: int, *, thought: bool) -> str:
    """Why nothing was printed, and what helps."""
    what = "the thinking took all" if thought else "there is no text in the"
    more = "raise --max-tokens" if tokens < room else "raise --context"
    shows = "; -v shows the thinking" if thought else ""
    return f"no answer: {what} {tokens} tokens, {more}{shows}"


def _pieces(model: Model, config: EngineConfig, request: Request) -> Iterator[str | Finished]:
    """The answer's text in pieces, and at last how it ended."""
    from engine.request import Finished, Produced
    from engine.startup import engine_for

    engine = engine_for(model, config)
    decoder = model.tokenizer.stream(skip_special=True)
    engine.submit(request)
    while engine.busy:
        for event in engine.step():
            if isinstance(event, Produced):
                yield decoder.push(event.choice.token)
            elif isinstance(event, Finished):
                yield decoder.finish()
                yield event


def _prompt(config: EngineConfig, model: Model, text: str) -> Prompt:
    """The text as a chat when the model has a template, else as it is."""
    from engine.gguf.chat_template import ChatTemplate
    from engine.model_source import open_model
    from engine.output_parser import THINK

    with open_model(config.model, config.synthetic) as gguf:
        if "tokenizer.chat_template" not in gguf.metadata:
            return Prompt(tuple(model.tokenizer.encode(text)), False)
        template = ChatTemplate.from_metadata(gguf.metadata)
    chat = template.render([{"role": "user", "content": text}])
    ids = model.tokenizer.encode(chat, parse_special=True)
    return Prompt(tuple(ids), chat.rstrip().endswith(THINK))
