"""Whatever the engine does with slots, chunks, drafts and checkpoints, answers stay the same."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.engine import Engine, EngineOptions
from engine.errors import RequestError
from engine.request import Produced, Request, Started
from engine.sampling import Sampling
from tests.engine.engine_driver import Answer, collect, plain_answer, run
from tests.engine.toy_pipeline import VOCAB, ToyPipeline

TURN = 3
EOS = frozenset({11, 29, 47})
CONTEXT = 96

samplings = st.sampled_from(
    [
        Sampling(),
        Sampling(temperature=0.8, seed=5),
        Sampling(temperature=1.2, top_p=0.8, top_k=20, min_p=0.01, seed=2**40),
        Sampling(penalty_repeat=1.3, penalty_last_n=6),
        Sampling(logit_bias=((5, 3.0), (7, -100.0)), penalty_freq=0.5),
        Sampling(temperature=0.9, seed=4, logit_bias=((9, 4.5),)),
        Sampling(temperature=0.6, seed=9, penalty_freq=0.4, penalty_present=0.7),
    ]
)
options = st.builds(
    EngineOptions,
    eos_ids=st.sampled_from([EOS, frozenset[int]()]),
    turn_ids=st.just(frozenset({TURN})),
    chunk=st.integers(1, 12),
    spec=st.integers(1, 5),
    spec_min_p=st.sampled_from([0.0, 0.5]),
    window_rows=st.sampled_from([None, 3, 8]),
    slot_drafts=st.sampled_from([None, True, False]),
    checkpoints=st.integers(0, 4),
    checkpoint_every=st.sampled_from([0, 4, 7]),
)


@dataclass(frozen=True)
class Turn:
    """One act of a client: ask something, wait some windows, perhaps walk away.

    The prompt is the first `keep` tokens of what conversation `of` held, then `new` tokens.
    """

    of: int
    keep: float
    new: list[int]
    max_new: int
    sampling: Sampling
    steps: int
    walks_away: bool


turns = st.builds(
    Turn,
    of=st.integers(0, 3),
    keep=st.sampled_from([0.0, 0.5, 0.8, 1.0, 1.0]),
    new=st.lists(st.integers(0, TURN), min_size=1, max_size=9),
    max_new=st.integers(1, 14),
    sampling=samplings,
    steps=st.integers(0, 9),
    walks_away=st.sampled_from([False, False, True]),
)


@settings(max_examples=250, deadline=None)
@given(options, st.integers(1, 3), st.booleans(), st.lists(turns, min_size=1, max_size=9))
def test_answers_equal_those_of_a_model_with_nothing_cached(
    setting: EngineOptions, slots: int, runs_ahead: bool, acts: list[Turn]
) -> None:
    engine = Engine(ToyPipeline(slots, CONTEXT, runs_ahead=runs_ahead), setting)
    histories: list[list[int]] = [[], [1, 2], [1, 2, 3], [0]]
    asked: dict[str, Request] = {}
    answers: dict[str, Answer] = {}
    for number, act in enumerate(acts):
        while all(slot.run for slot in engine.slots):
            collect(engine.step(), answers)
        history = histories[act.of]
        prompt = [*history[: round(act.keep * len(history))], *act.new][-CONTEXT // 2 :]
        request = Request(
            id=str(number),
            tokens=tuple(prompt),
            max_new=act.max_new,
            sampling=act.sampling,
            hashes=True,
        )
        asked[request.id] = request
        collect([engine.submit(request)], answers)
        for _ in range(act.steps):
            collect(engine.step(), answers)
        if act.walks_away:
            collect(engine.settle(), answers)
            if end := engine.cancel(request.id):
                collect([end], answers)
        histories[act.of] = prompt + answers[request.id].tokens
    while engine.busy:
        collect(engine.step(), answers)
    for name, request in asked.items():
        check(request, answers[name], setting)


def check(request: Request, answer: Answer, setting: EngineOptions) -> None:
    tokens, hashes = plain_answer(
        request.tokens, request.max_new, request.sampling, setting.eos_ids
    )
    assert answer.end is not None
    count = len(answer.tokens) if answer.end.finish == "cancel" else len(tokens)
    assert answer.tokens == tokens[:count]
    assert answer.hashes == hashes[:count]
    assert answer.end.generated == count
    if answer.end.finish != "cancel":
        assert answer.end.finish == ("stop" if tokens[-1] in setting.eos_ids else "length")


def ask(tokens: list[int], max_new: int = 6, name: str = "r", **more: object) -> Request:
    return Request(id=name, tokens=tuple(tokens), max_new=max_new, **more)


def reused(engine: Engine, tokens: list[int], max_new: int = 1) -> int:
    started = engine.submit(ask(tokens, max_new))
    while engine.busy:
        engine.step()
    return started.reused


def test_the_next_turn_computes_only_what_is_new() -> None:
    pipeline = ToyPipeline(1)
    engine = Engine(pipeline, EngineOptions())
    answer = run(engine, ask([1, 2, 4]))["r"]
    before = sum(window.rows for window in pipeline.windows)
    assert reused(engine, [1, 2, 4, *answer.tokens, 5, 6]) == 3 + 5
    # Its last token was produced and never computed.
    assert sum(window.rows for window in pipeline.windows) - before == 3


def test_a_turn_without_the_answers_thinking_starts_at_the_turn_checkpoint() -> None:
    engine = Engine(ToyPipeline(1), EngineOptions(turn_ids=frozenset({TURN})))
    run(engine, ask([1, 2, TURN, 4, 4, TURN, 5]))
    assert reused(engine, [1, 2, TURN, 4, 4, TURN, 9, 9, 9]) == 5
    # That question overwrote what lay behind it; its own turn mark is older still.
    assert reused(engine, [1, 2, TURN, 4, 4, TURN, 5, 8, 8]) == 5


def test_the_same_prompt_again_starts_before_its_last_turn() -> None:
    engine = Engine(ToyPipeline(1), EngineOptions(turn_ids=frozenset({TURN})))
    prompt = [1, 2, TURN, 4, 4]
    first = run(engine, ask(prompt))["r"].tokens
    started = engine.submit(ask(prompt))
    assert started.reused == 2
    answers: dict[str, Answer] = {}
    while engine.busy:
        collect(engine.step(), answers)
    assert answers["r"].tokens == first


def test_a_cancelled_prompt_goes_on_where_it_was() -> None:
    engine = Engine(ToyPipeline(2), EngineOptions(chunk=4, checkpoints=0))
    engine.submit(ask([1] * 20))
    engine.step()
    engine.step()
    end = engine.cancel("r")
    assert end is not None
    assert (end.finish, end.held, end.generated) == ("cancel", 8, 0)
    assert engine.cancel("r") is None
    assert reused(engine, [1] * 20) == 8


@pytest.mark.parametrize("checkpoints", [0, 1, 6])
@pytest.mark.parametrize("every", [0, 7])
def test_a_lone_request_that_another_joins_is_not_read_again(checkpoints: int, every: int) -> None:
    """There is no hand-over, whatever is kept: every token is computed once."""
    pipeline = ToyPipeline(2)
    options = EngineOptions(chunk=8, checkpoints=checkpoints, checkpoint_every=every)
    engine = Engine(pipeline, options)
    answers: dict[str, Answer] = {}
    collect([engine.submit(ask([1] * 40, 20, "lone"))], answers)
    for _ in range(12):
        collect(engine.step(), answers)
    collect([engine.submit(ask([2] * 30, 5, "joins"))], answers)
    while engine.busy:
        collect(engine.step(), answers)
    assert sum(window.rows for window in pipeline.windows) == 40 + 19 + 30 + 4
    assert answers["lone"].tokens == plain_answer([1] * 40, 20, Sampling(), ())[0]


def test_an_end_token_inside_accepted_drafts_drops_the_rows_behind_it() -> None:
    tokens, _ = plain_answer([7], 12, Sampling(), ())
    end = next(i for i, token in enumerate(tokens) if token not in tokens[:i] and i > 1)
    pipeline = ToyPipeline(1, accuracy=1.0)
    engine = Engine(pipeline, EngineOptions(spec=8, eos_ids=frozenset({tokens[end]})))
    answer = run(engine, ask([7], max_new=30))["r"]
    assert answer.tokens == tokens[: end + 1]
    assert answer.end is not None
    assert answer.end.finish == "stop"
    assert answer.end.held == 1 + end
    assert pipeline.windows[-1].spans[0].drafts > answer.end.accepted


def test_perfect_drafts_save_windows_and_never_pass_max_new() -> None:
    pipeline = ToyPipeline(1, accuracy=1.0)
    answer = run(Engine(pipeline, EngineOptions(spec=4)), ask([7], max_new=10))["r"]
    assert [window.rows for window in pipeline.windows] == [1, 4, 4, 1]
    assert answer.tokens == plain_answer([7], 10, Sampling(), ())[0]
    assert answer.end is not None
    assert (answer.end.accepted, answer.end.offered) == (6, 6)


def test_a_request_may_ask_for_surer_drafts() -> None:
    pipeline = ToyPipeline(1, accuracy=0.5)
    run(Engine(pipeline, EngineOptions(spec=6)), ask([7], max_new=30, spec_min_p=1.0))
    assert max(window.rows for window in pipeline.windows) == 2


def test_the_context_may_be_filled_to_its_end() -> None:
    engine = Engine(ToyPipeline(1, max_context=16, accuracy=1.0), EngineOptions(spec=5))
    assert len(run(engine, ask([1] * 4, max_new=12))["r"].tokens) == 12
    with pytest.raises(RequestError, match="4 prompt tokens and 13 new ones are more than"):
        engine.submit(ask([1] * 4, max_new=13))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask([]), "the prompt has no tokens"),
        (ask([1, VOCAB]), f"token id {VOCAB} is not in the vocabulary of {VOCAB} tokens"),
        (ask([-1]), "token id -1"),
        (ask([1], max_new=0), "max_new is 0"),
        (ask([1], logprobs=21), "logprobs is 21, allowed is 0 to 20"),
        (ask([1], slot=7), "slot is 7, allowed is 0 to 0"),
        (ask([1], sampling=Sampling(logit_bias=((VOCAB, 1.0),))), f"logit_bias .* {VOCAB}"),
    ],
)
def test_a_bad_request_is_refused_and_changes_nothing(request_: Request, words: str) -> None:
    engine = Engine(ToyPipeline(1), EngineOptions())
    with pytest.raises(RequestError, match=words):
        engine.submit(request_)
    assert not engine.busy
    assert reused(engine, [1, 2]) == 0


def test_a_failing_row_ends_its_request_only() -> None:
    pipeline = ToyPipeline(2, fail_on=50)
    engine = Engine(pipeline, EngineOptions())
    answers = run(engine, ask([1, 50], name="bad"), ask([1, 2], name="good"))
    bad, good = answers["bad"], answers["good"]
    assert bad.end is not None
    assert (bad.end.finish, bad.tokens, bad.end.held) == ("error", [], 0)
    assert "position 2" in bad.end.error
    assert good.tokens == plain_answer([1, 2], 6, Sampling(), ())[0]
    assert reused(engine, [1, 50, 3]) == 0


def test_a_request_without_a_seed_gets_one_of_its_own() -> None:
    engine = Engine(ToyPipeline(2), EngineOptions())
    warm = Sampling(temperature=2.0)
    answers = run(engine, *(ask([1], 20, name, sampling=warm) for name in "ab"))
    assert answers["a"].tokens != answers["b"].tokens


def test_what_was_asked_to_be_reported_is_reported() -> None:
    engine = Engine(ToyPipeline(1), EngineOptions())
    assert isinstance(engine.submit(ask([1], max_new=1, logprobs=3, hashes=True)), Started)
    choice = next(e for e in engine.step() if isinstance(e, Produced)).choice
    assert choice.top[0] == (choice.token, choice.logprob)
    assert len(choice.top) == 3
    assert len(choice.row_hash or "") == 16


def test_any_exception_of_the_model_reaches_the_caller() -> None:
    class Broken(ToyPipeline):
        def forward(self, window: object) -> None:
            raise RuntimeError("layer 3 timed out")

    engine = Engine(Broken(1), EngineOptions())
    engine.submit(ask([1]))
    with pytest.raises(RuntimeError, match="layer 3 timed out"):
        engine.step()
