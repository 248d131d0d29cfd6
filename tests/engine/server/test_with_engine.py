"""The server before the real engine process, on the toy model."""

import json
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import httpx
import pytest
from pydantic import BaseModel

from engine.engine import EngineOptions
from engine.generation import generate
from tests.engine.server.byte_text import ByteText
from tests.engine.server.harness import Running, error_of, running
from tests.engine.toy_engine import EOS
from tests.engine.toy_pipeline import ToyPipeline
from tests.engine.toy_words import ToyWords


class ToyText(ByteText):
    eos_ids = frozenset([EOS])


def toy(*moods: str) -> dict:
    return {"command": (sys.executable, "-m", "tests.engine.toy_engine", *moods), "text": ToyText()}


class JsonDecoder:
    def push(self, id: int) -> str:
        return ToyWords.texts[id] if id < len(ToyWords.texts) else ""

    def finish(self) -> str:
        return ""


class JsonText(ToyWords):
    """`ToyWords` as a server's text model; a prompt is read letter by letter."""

    chat_template = ""

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        return [ord(char) % 30 for char in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self.stream().push, ids))

    def stream(self) -> JsonDecoder:
        return JsonDecoder()

    def render(self, messages: Sequence[Any], tools: object, settings: object) -> str:
        return str(messages[-1]["content"])


def ask(run: Running, ids: list[int], **more: object) -> httpx.Response:
    return run.http.post("/v1/completions", json={"prompt": ids, **more})


def alone(ids: list[int], max_new: int) -> str:
    """The greedy text of the toy model without a server and a process."""
    options = EngineOptions(eos_ids=frozenset({EOS}))
    tokens = generate(ToyPipeline(slots=1, max_context=400), options, ids, max_new)
    return "".join(chr(token) for token in tokens if token != EOS)


def prompts(count: int) -> list[list[int]]:
    chance = random.Random(5)
    return [[chance.randrange(57) for _ in range(chance.randrange(1, 60))] for _ in range(count)]


def test_sixty_clients_get_what_they_get_alone() -> None:
    asked = prompts(60)
    with running(**toy("ends")) as run:
        with ThreadPoolExecutor(60) as clients:
            answers = list(clients.map(lambda ids: ask(run, ids, max_tokens=20).json(), asked))
        texts = [answer["choices"][0]["text"] for answer in answers]
        assert texts == [alone(ids, 20) for ids in asked]
        run.until(lambda s: s.bridge.slots.busy == 0)
        assert run.http.get("/metrics").json()["totals"]["failed"] == 0


def test_a_next_turn_is_not_read_again() -> None:
    (ids,) = prompts(1)
    with running(**toy()) as run:
        first = ask(run, ids, max_tokens=6).json()
        answer = [ord(letter) for letter in first["choices"][0]["text"]]
        second = ask(run, [*ids, *answer, 5, 6], max_tokens=6).json()
        reused = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert reused >= len(ids) + len(answer) - 1
        assert second["choices"][0]["text"] == alone([*ids, *answer, 5, 6], 6)


def test_sampled_answers_depend_on_their_seed_only() -> None:
    (ids,) = prompts(1)
    with running(**toy()) as run:
        texts = [
            ask(run, ids, max_tokens=12, temperature=1.0, seed=seed).json()["choices"][0]["text"]
            for seed in (1, 2, 1)
        ]
        assert texts[0] == texts[2] != texts[1]


def test_a_bias_forbids_a_token_and_forces_another() -> None:
    (ids,) = prompts(1)
    with running(**toy()) as run:
        free = ask(run, ids, max_tokens=12).json()["choices"][0]["text"]
        most = max(free, key=free.count)
        without = ask(run, ids, max_tokens=12, logit_bias={str(ord(most)): -100}).json()
        assert most not in without["choices"][0]["text"]
        forced = ask(run, ids, max_tokens=12, logit_bias={"9": 100}, temperature=1.0).json()
        assert forced["choices"][0]["text"] == chr(9) * 12


def test_each_of_several_answers_has_a_seed_of_its_own() -> None:
    first, second = prompts(2)
    with running(**toy()) as run:
        more = {"max_tokens": 12, "temperature": 1.0}
        body = {"prompt": [first, second], "n": 3, "seed": 8, **more}
        answer = run.http.post("/v1/completions", json=body).json()
        texts = [choice["text"] for choice in answer["choices"]]
        single = [
            ask(run, ids, seed=seed, **more).json()["choices"][0]["text"]
            for ids in (first, second)
            for seed in (8, 9, 10)
        ]
        assert texts == single
        assert len(set(texts)) > 3
        assert answer["usage"]["prompt_tokens"] == len(first) + len(second)


class Weather(BaseModel):
    city: Literal["rome", "oslo"]
    rain: bool


def test_an_answer_of_a_given_form() -> None:
    """By the client's own parser, alone and beside others."""
    with running(**{**toy("ends", "words"), "text": JsonText()}) as run:
        parse = run.client().chat.completions.parse

        def asked(number: int) -> Weather | None:
            messages: Any = [{"role": "user", "content": f"city {number}"}]
            more = {"temperature": 1.0, "seed": 5, "max_tokens": 80}
            answer = parse(model="toy", messages=messages, response_format=Weather, **more)
            assert answer.choices[0].finish_reason == "stop"
            return answer.choices[0].message.parsed

        with ThreadPoolExecutor(8) as clients:
            together = list(clients.map(asked, range(8)))
        assert together[:2] == [asked(0), asked(1)]
        assert len({str(one) for one in together}) > 1
        messages: Any = [{"role": "user", "content": "city 0"}]
        more = {"temperature": 1.0, "seed": 5, "max_tokens": 80}
        with run.client().chat.completions.stream(
            model="toy", messages=messages, response_format=Weather, **more
        ) as events:
            assert sum(event.type == "content.delta" for event in events) > 5
            assert events.get_final_completion().choices[0].message.parsed == together[0]
        more = {"temperature": 1.0, "max_output_tokens": 80, "extra_body": {"seed": 5}}
        respond = run.client().responses.parse
        response = respond(model="toy", input="city 0", text_format=Weather, **more)
        assert response.output_parsed == together[0]
        free = run.chat("x", max_tokens=200, response_format={"type": "json_object"}, seed=1).json()
        if free["choices"][0]["finish_reason"] == "stop":
            assert isinstance(json.loads(free["choices"][0]["message"]["content"]), dict)


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"const": "ab" * 100_000}])
def test_a_schema_without_an_answer_is_refused_before_the_engine_sees_it(schema: Any) -> None:
    """Nobody's windows wait for it."""
    with running(**{**toy("ends", "words"), "text": JsonText()}) as run:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        error = error_of(run.chat("city 0", response_format=form, max_tokens=60), 400)
        assert error["param"] == "response_format.json_schema.schema"
        assert len(error["message"]) < 300
        assert run.http.get("/metrics").json()["totals"]["requests"] == 0


def test_a_window_that_breaks_is_named_and_the_next_request_works() -> None:
    with running(**toy("broken")) as run:
        failed = ask(run, [1, 2, 60, 3], max_tokens=3)
        assert failed.status_code == 503
        assert "layer 3 timed out" in failed.json()["error"]["message"]
        assert ask(run, [1, 2, 3], max_tokens=3).status_code == 200


def test_clients_that_leave_free_their_slots() -> None:
    with running(**toy()) as run:
        for _ in range(6):
            body = {"prompt": [1, 2, 3], "stream": True}
            with run.http.stream("POST", "/v1/completions", json=body) as response:
                next(response.iter_lines())
        run.until(lambda s: not s.bridge.running and s.bridge.slots.busy == 0)
        assert ask(run, [4, 5], max_tokens=3).status_code == 200
