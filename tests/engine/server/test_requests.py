"""Bodies, limits, keys and the endpoints that tell about the server."""

import json
import socket
from functools import partial

import pytest

from tests.engine.server.harness import HANG_GUARD_S, Running, error_of, running, script

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server():
    with running({"context": 200}, model_name="tiny", aliases=("gpt",), max_body_bytes=5000) as run:
        yield run


@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow_says_the_numbers(server: Running, stream: bool) -> None:
    error = error_of(server.chat("x" * 300, stream=stream), 400)
    assert error["code"] == "context_length_exceeded"
    assert "307 tokens" in error["message"]
    assert "192" in error["message"]
    error = error_of(server.chat("x", max_tokens=500, stream=stream), 400)
    assert error["param"] == "max_tokens"
    assert "500" in error["message"]


def test_no_limit_is_the_rest_of_the_context(server: Running) -> None:
    for limit in ({}, {"max_tokens": None}):
        line = server.order_of(partial(server.chat, "abc", **limit)).split()
        assert int(line[3]) == 200 - 8 - len("user: abc\n")


def test_other_kinds_of_bodies(server: Running) -> None:
    big = b"{" + b" " * 6000
    headers = {"content-type": "application/json"}
    error_of(server.http.post("/tokenize", content=big, headers=headers), 413)
    error_of(server.http.post("/tokenize", content=iter([big, big]), headers=headers), 413)
    headers = {"content-type": "text/html"}
    error_of(server.http.post("/tokenize", content=b"{}", headers=headers), 415)
    form = {"content-type": "application/x-www-form-urlencoded"}  # what curl -d sends
    text = b'{"content": "ab"}'
    assert server.http.post("/tokenize", content=text, headers=form).json()["tokens"] == [97, 98]


def test_unknown_paths_and_methods(server: Running) -> None:
    error_of(server.http.get("/v1/nothing"), 404)
    error_of(server.http.get("/v1/chat/completions"), 405)
    assert server.http.get("/v1/models/?beta=true").status_code == 200


def test_models_health_status_and_page(server: Running) -> None:
    models = server.client().models.list().data
    assert [model.id for model in models] == ["tiny", "gpt"]
    assert models[0].meta["n_ctx"] == 200
    for model in models:
        assert server.client().models.retrieve(model.id) == model
    error = error_of(server.http.get("/v1/models/some/other"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "'some/other' does not exist" in error["message"]
    health = server.http.get("/health").json()
    assert (health["status"], health["max_context"], health["api_key"]) == ("ok", 200, False)
    status = server.http.get("/v1/status").json()
    assert status["concurrency"]["serving"] == 4
    assert status["engine"] == "scripted"
    assert "Strata" in server.http.get("/").text


def test_tokenize_and_back(server: Running) -> None:
    tokens = server.http.post("/tokenize", json={"content": "hé"}).json()
    assert tokens == {"tokens": [104, 195, 169], "count": 3, "max_model_len": 200}
    back = server.http.post("/detokenize", json={"tokens": tokens["tokens"]}).json()
    assert back["content"] == "hé"
    error = error_of(server.http.post("/detokenize", json={"tokens": [1, 999]}), 400)
    assert "[1] is 999" in error["message"]


def test_completions(server: Running) -> None:
    create = server.client().completions.create
    answer = create(model="m", prompt=script(say="abc"))
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("abc", "stop")
    assert answer.usage.completion_tokens == 4
    answer = create(model="m", prompt=list(script(say="ids").encode()))
    assert answer.choices[0].text == "ids"
    many = create(model="m", prompt=[script(say="one"), script(say="two")], max_tokens=2)
    assert [(c.index, c.text, c.finish_reason) for c in many.choices] == [
        (0, "on", "length"),
        (1, "tw", "length"),
    ]
    assert many.usage.completion_tokens == 4
    chunks = list(create(model="m", prompt=script(say="a<b>c"), stop="<b>", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "a"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 4
    answer = create(model="m", prompt=script(say="xy"), logprobs=1)
    assert answer.choices[0].logprobs.tokens == ["x", "y"]
    assert answer.choices[0].logprobs.text_offset == [0, 1]
    assert answer.choices[0].logprobs.top_logprobs == [{"a": -1.0}, {"a": -1.0}]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("echo", True),
        ("suffix", "x"),
        ("best_of", 2),
        ("prompt", ""),
        ("prompt", []),
        ("prompt", [1, "a"]),
        ("prompt", [5000]),
        ("prompt", {"a": 1}),
        ("logprobs", 9),
    ],
)
def test_bad_completions(server: Running, field: str, value: object) -> None:
    body = {"prompt": "x", field: value}
    error = error_of(server.http.post("/v1/completions", json=body), 400)
    assert field in error["param"]


def test_metrics_in_both_forms(server: Running) -> None:
    before = server.http.get("/metrics").json()["totals"]
    server.chat(script(say="abc", reuse=5))
    document = server.http.get("/metrics").json()
    row = document["requests"][0]
    assert (row["output_tokens"], row["reused"], row["finish"]) == (4, 5, "stop")
    assert document["totals"]["requests"] == before["requests"] + 1
    assert [slot["state"] for slot in document["live"]["slots"]] == ["idle"] * 4
    by_query = server.http.get("/metrics?format=prometheus").text
    by_accept = server.http.get("/metrics", headers={"accept": "text/plain"}).text
    for page in (by_query, by_accept):
        lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
        label = '{model_name="tiny"}'
        assert float(lines[f"vllm:generation_tokens_total{label}"]) >= 4
        assert lines[f"vllm:num_requests_running{label}"] == "0"
        assert lines['strata:live_slots{model_name="tiny",state="idle"}'] == "4"
        count = lines[f"vllm:time_to_first_token_seconds_count{label}"]
        assert (
            lines['vllm:time_to_first_token_seconds_bucket{model_name="tiny",le="+Inf"}'] == count
        )


def test_props_and_slots_in_llama_cpp_s_words(server: Running) -> None:
    props = server.http.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 200
    assert (props["total_slots"], props["model_alias"]) == (4, "tiny")
    assert props["chat_template"] == "{{ messages }}"
    with running({"slots": 2}) as run:
        body = {"prompt": script(say="abc", hold=1), "stream": True}
        with run.http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            while "text" not in next(lines):
                pass
            slots = run.http.get("/slots").json()
            assert [slot["is_processing"] for slot in slots] == [True, False]
            assert slots[0]["n_prompt_tokens"] == len(body["prompt"])
            assert slots[0]["n_decoded"] >= 1
            run.control.send("release")


def test_metrics_tell_where_experts_were_found(server: Running) -> None:
    assert server.http.get("/metrics").json()["experts"] is None
    with running({"facts": {"expert_hits": 9, "expert_fetches": 3}}) as run:
        assert run.http.get("/metrics").json()["experts"]["hit_rate"] == 0.75
        page = run.http.get("/metrics?format=prometheus").text
        assert 'strata:expert_cache_queries_total{model_name="strata"} 12' in page
        assert 'strata:expert_cache_hits_total{model_name="strata"} 9' in page


def test_metrics_tell_of_conversations_that_lost_their_slot(server: Running) -> None:
    assert server.http.get("/metrics").json()["conversation_cache"] is None
    with running({"facts": {"conversation_cache_mib": 64, "conversations_parked": 5}}) as run:
        told = run.http.get("/metrics").json()["conversation_cache"]
        assert told == {"parked": 5, "restored": 0, "dropped": 0}
        page = run.http.get("/metrics?format=prometheus").text
        assert 'strata:conversations_parked_total{model_name="strata"} 5' in page
        assert 'strata:conversations_dropped_total{model_name="strata"} 0' in page


def test_a_half_sent_body_ends_after_its_time() -> None:
    with running(body_timeout_s=0.2) as run:
        for head in (b"Content-Length: 50\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
            with socket.create_connection(("127.0.0.1", run.server.port), HANG_GUARD_S) as wire:
                wire.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + head)
                assert b" 408 " in wire.recv(4096)
        assert run.chat("x").status_code == 200


def test_a_limit_that_does_not_fit_is_fitted_if_wanted() -> None:
    with running({"context": 100}, fit_max_tokens=True) as run:
        assert run.chat(script(say="x"), max_tokens=5000).status_code == 200


def test_defaults_come_from_the_configuration() -> None:
    from engine.server.sampling import SamplingFields

    with running(sampling=SamplingFields(temperature=0.6, top_k=20, seed=3)) as run:
        run.chat(script(say="x"), top_k=5)
        assert "temperature=0.6,top_k=5,seed=3" in run.control.wait_for("bgen")[-1]
        assert json.loads(run.http.get("/metrics").text)["totals"]["requests"] == 1
