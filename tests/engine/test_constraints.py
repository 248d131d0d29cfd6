"""Answers that keep to a schema: the same ones with drafts, in slots and alone."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from engine import constraints as constraints_module
from engine import messages
from engine.constraints import Constraints, Form
from engine.desk import Desk
from engine.engine import Engine, EngineOptions
from engine.errors import RequestError
from engine.request import Request
from engine.sampler import choose
from engine.sampling import Sampling
from engine.schemas import grammar_of
from tests.engine.engine_driver import Answer, run
from tests.engine.toy_pipeline import VOCAB, ToyPipeline, toy_logits
from tests.engine.toy_words import EOS, ToyWords

THOUGHT = 59
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 0, "maximum": 999},
            "b": {"type": "array", "items": {"enum": ["x", "yy"]}, "maxItems": 3},
            "c": {"type": "boolean"},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }
)
GRAMMAR = grammar_of(SCHEMA)
WAYS = (
    Sampling(),
    Sampling(penalty_repeat=1.2),
    Sampling(temperature=0.9, seed=7),
    Sampling(temperature=1.1, top_k=6, top_p=0.9, seed=3),
)


def constraints() -> Constraints:
    return Constraints(ToyWords(), VOCAB)


def engine(ahead: bool = False, **options: Any) -> Engine:
    pipeline = ToyPipeline(slots=4, max_context=300, accuracy=0.8, runs_ahead=ahead)
    eos = frozenset({EOS})
    return Engine(pipeline, EngineOptions(eos_ids=eos, chunk=16, **options), constraints())


def by_definition(prompt: tuple[int, ...], form: Form, sampling: Sampling) -> list[int]:
    """One row after another: what is forbidden is left out, the others are chosen from as ever."""
    tokens, constraint = list(prompt), constraints().make(form)
    while tokens[-1] != EOS:
        allowed = constraint.allowed()
        tokens.append(choose(toy_logits(tokens), tokens, len(tokens), sampling, allowed))
        constraint.take(tokens[-1])
    return tokens[len(prompt) :]


def text_of(tokens: list[int]) -> str:
    return "".join(ToyWords.texts[token] for token in tokens if token < len(ToyWords.texts))


@pytest.mark.parametrize(("spec", "ahead"), [(1, False), (4, False), (4, True)])
def test_answers_fit_and_do_not_depend_on_drafts_or_neighbours(spec: int, ahead: bool) -> None:
    prompts = [(1 + number, 9, 4) for number in range(len(WAYS))]
    form = Form(GRAMMAR)
    free = Request(id="free", tokens=(5, 6), max_new=30)
    requests = [
        Request(id=str(index), tokens=prompt, max_new=150, sampling=way, form=form)
        for index, (prompt, way) in enumerate(zip(prompts, WAYS, strict=True))
    ]
    found = run(engine(ahead, spec=spec), *requests[:3], free)
    found |= run(engine(ahead, spec=spec), *requests[3:])
    for request in requests:
        answer = found[request.id]
        assert answer.tokens == by_definition(request.tokens, form, request.sampling)
        assert answer.tokens[-1] == EOS
        value = json.loads(text_of(answer.tokens))
        assert 0 <= value["a"] <= 999
        assert set(value["b"]) <= {"x", "yy"}
    assert found["free"].tokens == run(engine(), free)["free"].tokens
    if spec > 1:
        assert sum(_offered(answer) for answer in found.values()) > 20


def _offered(answer: Answer) -> int:
    assert answer.end is not None
    return answer.end.offered


def test_a_model_that_thinks_first_is_free_until_it_is_done() -> None:
    form = Form(GRAMMAR, THOUGHT)
    sampling = Sampling(temperature=2.0, seed=3)
    request = Request(id="r", tokens=(3, 3), max_new=280, sampling=sampling, form=form)
    tokens = run(engine(), request)["r"].tokens
    assert tokens == by_definition((3, 3), form, sampling)
    end = tokens.index(THOUGHT)
    assert end > 0
    json.loads(text_of(tokens[end + 1 :]))


@pytest.mark.parametrize("spec", [1, 4])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, seed=3)])
def test_thoughts_have_a_limit(sampling: Sampling, spec: int) -> None:
    """Behind it the model goes on as it would behind a `think_end` of its own."""
    free = Request(id="free", tokens=(8, 2), max_new=12, sampling=sampling)
    thoughts = run(engine(spec=spec), free)["free"].tokens[:5]
    assert EOS not in thoughts
    assert THOUGHT not in thoughts
    for grammar in (None, GRAMMAR):
        form = Form(grammar, THOUGHT, 5)
        request = Request(id="r", tokens=(8, 2), max_new=200, sampling=sampling, form=form)
        answer = run(engine(spec=spec), request)["r"].tokens
        assert answer[:6] == [*thoughts, THOUGHT]
        rest = Request(id="x", tokens=(8, 2, *answer[:6]), max_new=194, sampling=sampling)
        if grammar is None:
            assert answer[6:] == run(engine(), rest)["x"].tokens
        else:
            json.loads(text_of(answer[6:]))


def test_nothing_allowed_is_an_error_of_that_request() -> None:
    with pytest.raises(RequestError, match="no token may stand at position 4"):
        choose(np.zeros(VOCAB, np.float32), [1], 4, Sampling(), np.zeros(VOCAB, bool))


MANY = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(300)}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "objekt"}, "Invalid type: objekt"),
        ({"$ref": "#"}, "nothing follow, and the answer is not whole"),
        ({"type": "string", "pattern": "^a{400000}$"}, "too complex: lexer error"),
        ({"anyOf": [MANY] * 3}, "too complex: Parser Error"),
    ],
)
def test_a_schema_that_fails_late_ends_its_request_alone(schema: dict[str, Any], why: str) -> None:
    """Such an answer never ends as a whole one does, and never tells of the grammar's inside."""
    bad = Request(id="bad", tokens=(1,), max_new=9, form=Form(grammar_of(json.dumps(schema))))
    good = Request(id="good", tokens=(2,), max_new=9)
    found = run(engine(), bad, good)
    assert found["bad"].end is not None
    assert (found["bad"].end.finish, found["bad"].tokens) == ("error", [])
    assert found["bad"].end.error.startswith("grammar: ")
    assert why in found["bad"].end.error
    assert len(found["bad"].end.error) < 300
    assert len(found["good"].tokens) > 0


def test_what_all_schemas_share_is_made_before_the_first_one() -> None:
    words = ToyWords()
    asked: list[int] = []
    words.token_bytes = lambda id: asked.append(id) or ToyWords.token_bytes(words, id)
    one = Constraints(words, VOCAB)
    one.prepare().result()
    assert len(asked) == words.vocab_size
    assert one.make(Form(GRAMMAR)).allowed() is not None
    assert len(asked) == words.vocab_size


def test_answers_with_one_schema_share_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    by_hand = constraints_module.matcher_of
    monkeypatch.setattr(
        constraints_module,
        "matcher_of",
        lambda grammar, tokenizer: compiled.append(grammar) or by_hand(grammar, tokenizer),
    )
    one = engine()
    asked = [Request(id=str(n), tokens=(n, 9), max_new=150, form=Form(GRAMMAR)) for n in range(3)]
    found = run(one, *asked)
    assert compiled == [GRAMMAR]
    for request in asked:
        tokens = by_definition(request.tokens, Form(GRAMMAR), Sampling())
        assert found[request.id].tokens == tokens
    assert one.constraints is not None
    for number in range(20):
        one.constraints.make(Form(grammar_of(json.dumps({"const": number}))))
    one.constraints.make(Form(GRAMMAR)).allowed()
    assert compiled.count(GRAMMAR) == 3 + 2, "those of `by_definition`, and once more"


def test_the_schema_of_a_line() -> None:
    lines: list[messages.Event] = []
    one = engine()
    desk = Desk(one, lines.append, lambda: 0.0)
    word = base64.urlsafe_b64encode(GRAMMAR.encode()).decode()
    desk.handle(messages.Gen(150, (1, 9, 4), messages.Keys(grammar=word), "r"))
    while one.busy:
        desk.tell(one.step())
    tokens = [line.id for line in lines if isinstance(line, messages.Token)]
    assert tokens == by_definition((1, 9, 4), Form(GRAMMAR), Sampling())
    desk.handle(messages.Gen(5, (1, 9, 4), messages.Keys(think_most=4), "r"))
    assert isinstance(lines[-1], messages.Failed)
    one.constraints = None
    desk.handle(messages.Gen(5, (1, 9, 4), messages.Keys(grammar=word), "r"))
    assert isinstance(lines[-1], messages.Failed)
