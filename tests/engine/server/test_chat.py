"""Chat answers, whole and streamed, through the real client."""

import json
from functools import partial

import pytest

from tests.engine.server.harness import Running, running, script


@pytest.fixture(scope="module")
def server():
    with running() as run:
        yield run


def ask(server: Running, content: str, **more):
    messages = [{"role": "user", "content": content}]
    return server.client().chat.completions.create(model="strata", messages=messages, **more)


def test_a_whole_answer(server: Running) -> None:
    answer = ask(server, script(say="Hello, wörld 🌍", reuse=10))
    choice = answer.choices[0]
    assert choice.message.content == "Hello, wörld 🌍"
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert answer.usage.completion_tokens == len("Hello, wörld 🌍".encode()) + 1
    assert answer.usage.prompt_tokens_details.cached_tokens == 10
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.timings["draft_n"] == 4
    assert answer.timings["cache_n"] == 10


def test_a_streamed_answer_in_order(server: Running) -> None:
    chunks = list(ask(server, script(say="Héllo"), stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Héllo"
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    last = chunks[-1]
    assert last.choices[0].finish_reason == "stop"
    assert last.usage.completion_tokens == 7
    assert last.timings["predicted_n"] == 7
    assert len({c.id for c in chunks}) == 1


def test_usage_in_openai_form(server: Running) -> None:
    more = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(ask(server, script(say="ab"), **more))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 3
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_several_answers_to_one_prompt(server: Running) -> None:
    said = script(say="abc", reuse=2)
    alone, answer = ask(server, said), ask(server, said, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"abc"}
    assert answer.usage.prompt_tokens == alone.usage.prompt_tokens
    assert answer.usage.completion_tokens == 3 * alone.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    chunks = list(ask(server, said, n=3, stream=True, logprobs=True))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    for index in range(3):
        own = [choice for choice in choices if choice.index == index]
        assert own[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in own) == "abc"
        assert own[-1].finish_reason == "stop"
        assert sum(len(c.logprobs.content) for c in own if c.logprobs) >= 3
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_answers_to_one_prompt_come_side_by_side(server: Running) -> None:
    stream = ask(server, script(say="abcdef", hold=3), n=2, stream=True)
    seen = {0: "", 1: ""}
    for chunk in stream:
        for choice in chunk.choices:
            seen[choice.index] += choice.delta.content or ""
        if set(seen.values()) == {"abc"}:
            server.control.send("release")
    assert seen == {0: "abcdef", 1: "abcdef"}


def test_the_raw_stream_is_server_sent_events(server: Running) -> None:
    response = server.chat(script(say="x"), stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    data = [event for event in events[:-2] if event != ": keep-alive"]
    assert {json.loads(event.removeprefix("data: "))["object"] for event in data} == {
        "chat.completion.chunk"
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_length_ends_an_answer(server: Running, stream: bool, field: str) -> None:
    for limit in (1, 3):
        answer = ask(server, script(say="abcdef"), stream=stream, **{field: limit})
        assert text_of(answer, stream) == ("abcdef"[:limit], "length")


def test_an_answer_that_ends_at_once(server: Running) -> None:
    answer = ask(server, script(say=""))
    assert answer.choices[0].message.content == ""
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_never_leaks_and_frees_the_slot(server: Running, stream: bool) -> None:
    said = script(say="one <stop> two" + "." * 3000, hold=12)
    answer = ask(server, said, stop=["<stop>", "zzz"], stream=stream)
    assert text_of(answer, stream) == ("one ", "stop")
    assert server.control.wait_for("bstop")
    server.until(lambda s: s.bridge.slots.busy == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_and_content_are_told_apart(server: Running, stream: bool) -> None:
    said = script(say="let me see STOP</think>\n\nfour STOP five")
    answer = ask(server, said, stream=stream, stop="STOP", reasoning_effort="high")
    if stream:
        deltas = [chunk.choices[0].delta for chunk in answer]
        reasoning = "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas)
        content = "".join(delta.content or "" for delta in deltas)
    else:
        message = answer.choices[0].message
        reasoning, content = message.reasoning_content, message.content
    assert reasoning == "let me see STOP"
    assert content == "four "


CALL = (
    "Sure.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            },
        },
    }
]


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls(server: Running, stream: bool) -> None:
    answer = ask(server, script(say=CALL), stream=stream, tools=TOOLS)
    if stream:
        chunks = [chunk.choices[0] for chunk in answer]
        calls = [call for c in chunks for call in c.delta.tool_calls or ()]
        assert (calls[0].function.name, calls[0].function.arguments) == ("weather", "")
        assert calls[0].id
        assert {call.index for call in calls} == {0}
        arguments, finish = "".join(c.function.arguments for c in calls), chunks[-1].finish_reason
    else:
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.name == "weather"
        arguments, finish = call.function.arguments, answer.choices[0].finish_reason
    assert json.loads(arguments) == {"city": "Paris", "days": 3}
    assert finish == "tool_calls"


def test_tools_may_be_hidden(server: Running) -> None:
    answer = ask(server, script(say=CALL), tools=TOOLS, tool_choice="none")
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content == CALL


def test_a_call_that_is_cut_off_is_not_a_call(server: Running) -> None:
    answer = ask(server, script(say=CALL), tools=TOOLS, max_tokens=50)
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(server: Running, stream: bool) -> None:
    answer = ask(server, script(say="hé"), logprobs=True, top_logprobs=2, stream=stream)
    if stream:
        choices = [chunk.choices[0] for chunk in answer]
        entries = [e for c in choices if c.logprobs for e in c.logprobs.content]
    else:
        entries = answer.choices[0].logprobs.content
    assert [bytes(e.bytes) for e in entries] == [b"h", b"\xc3", b"\xa9"]
    assert entries[0].logprob == -0.5
    assert [top.token for top in entries[0].top_logprobs] == ["a", "b"]


def test_sampling_reaches_the_engine(server: Running) -> None:
    more = {"top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "penalty_last_n": 5}
    send = partial(
        ask,
        server,
        script(say="keys"),
        temperature=0.7,
        top_p=0.9,
        seed=5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        extra_body=more,
    )
    line = server.order_of(send)
    keys = "temperature=0.7,top_p=0.9,top_k=7,min_p=0.1,seed=5,penalty_repeat=1.1"
    assert f"{keys},penalty_freq=-0.5,penalty_present=0.5,penalty_last_n=5" in line


def test_a_bias_reaches_the_engine(server: Running) -> None:
    send = partial(ask, server, script(say="x"), logit_bias={"97": -100, "5": 2.5})
    assert "logit_bias=((97, -100.0), (5, 2.5))" in server.order_of(send)
    assert "logit_bias" not in server.order_of(partial(ask, server, script(say="x"), logit_bias={}))


def test_equal_seeds_stay_equal_and_no_seed_is_a_new_one(server: Running) -> None:
    seeds = []
    for seed in (0, 0, 1, 2**63 - 2, -1, -1, None, None):
        said = {} if seed is None else {"seed": seed}
        send = partial(server.chat, script(say="x"), temperature=1, **said)
        seeds.append(_seeds(server.order_of(send)))
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 7
    assert all(0 < seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 4])
def test_answers_to_one_prompt_have_different_seeds(server: Running, seed: int) -> None:
    def asked(**more) -> list[int]:
        server.control.catch_up()
        before = len(server.control.starting("bgen"))
        server.chat(script(say="x"), temperature=1, **more)
        count = more.get("n", 1)
        return [*map(_seeds, server.control.wait_for("bgen", before + count)[before:])]

    several = asked(seed=seed, n=3)
    assert several == [one for more in range(3) for one in asked(seed=seed + more)]
    assert len(set(several)) == 3


def _seeds(line: str) -> int:
    return int(line.split()[4].partition("seed=")[2].partition(",")[0])


def test_system_turns_tools_results_and_parts(server: Running) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "system", "content": "late"},
    ]
    server.client().chat.completions.create(model="m", messages=messages)
    prompt = server.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    text = server.http.post("/detokenize", json={"tokens": prompt}).json()["content"]
    assert text == "system: be brief\nuser: ab\nassistant: \ntool: 42\nuser: late\n"


def test_progress_of_the_prompt_is_told_on_request(server: Running) -> None:
    chunks = list(
        ask(server, script(say="x") + "." * 150, stream=True, extra_body={"return_progress": True})
    )
    told = [chunk.prompt_progress for chunk in chunks if hasattr(chunk, "prompt_progress")]
    total = told[0]["total"]
    assert [progress["processed"] for progress in told] == [64, 128, total]


def test_the_same_token_for_ever_is_ended(server: Running) -> None:
    answer = ask(server, script(say="!" * 3000, hold=400))
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == "!" * 256


def text_of(answer, stream: bool) -> tuple[str, str]:
    if not stream:
        return answer.choices[0].message.content, answer.choices[0].finish_reason
    chunks = list(answer)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return text, chunks[-1].choices[0].finish_reason
