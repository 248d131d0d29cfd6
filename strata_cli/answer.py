"""One answer on stdout, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.errors import ConfigError
from strata_cli.console import Console

if TYPE_CHECKING:
    from engine.gguf.tokenizer import Tokenizer


def answer_once(
    config: EngineConfig,
    prompt: str,
    max_tokens: int,
    temperature: float,
    seed: int | None,
    console: Console,
) -> int:
    """Streams the model's answer to `prompt` (one user message) to stdout, without its thinking."""
    from engine.output_events import ContentText, OutputEvent, collect
    from engine.output_parser import OutputParser
    from engine.request import Finished, Produced, Request
    from engine.sampling import Sampling
    from engine.startup import engine_for, load_planned

    model = load_planned(config, slots=1)
    ids = _prompt_ids(config, model.tokenizer, prompt)
    room = model.pipeline.max_context - len(ids)
    if room < 1:
        raise ConfigError(
            f"--prompt has {len(ids)} tokens, the context is {model.pipeline.max_context}",
            "shorten it, or raise --context",
        )
    engine = engine_for(model, config)
    decoder = model.tokenizer.stream(skip_special=True)
    sampling = Sampling(temperature=temperature, seed=seed or 0)
    request = Request(
        id="answer", tokens=tuple(ids), max_new=min(max_tokens, room), sampling=sampling
    )
    engine.submit(request)
    parser = OutputParser(thinking=_opens_thinking(model.tokenizer, ids))
    said: list[OutputEvent] = []
    finish, count = "", 0
    while engine.busy:
        for event in engine.step():
            events: list[OutputEvent] = []
            if isinstance(event, Produced):
                count += 1
                events = parser.push(decoder.push(event.choice.token))
            elif isinstance(event, Finished):
                finish = event.finish
                events = [*parser.push(decoder.finish()), *parser.finish()]
            for part in events:
                if isinstance(part, ContentText):
                    console.result(part.text, end="")
            said += events
    console.result()
    parsed = collect(said)
    if parsed.reasoning and not parsed.content:
        console.note(f"the model was still thinking after {count} tokens: raise --max-tokens")
    if console.json:
        console.document(
            {
                "text": parsed.content,
                "reasoning": parsed.reasoning,
                "finish": finish,
                "prompt_tokens": len(ids),
                "completion_tokens": count,
            }
        )
    return 0


def _prompt_ids(config: EngineConfig, tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The prompt as a chat when the model has a template, else as plain text."""
    from engine.gguf.chat_template import ChatTemplate
    from engine.gguf.reader import open_gguf

    with open_gguf(config.model) as gguf:
        if "tokenizer.chat_template" not in gguf.metadata:
            return tokenizer.encode(prompt)
        template = ChatTemplate.from_metadata(gguf.metadata)
    text = template.render([{"role": "user", "content": prompt}])
    return tokenizer.encode(text, parse_special=True)


def _opens_thinking(tokenizer: Tokenizer, ids: list[int]) -> bool:
    """True when the prompt ends inside the model's thinking."""
    tail = tokenizer.decode(ids[-8:])
    return tail.rstrip().endswith("<think>")
