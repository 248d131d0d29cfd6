"""llama.cpp beside transformers and the engine, on the same files.

llama.cpp rounds activations and K/V in its own way, so tokens are compared where the margin between
the two best is clear, and a continuation is followed along llama.cpp's own tokens.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import engine
from tests.oracles.convert import write_model
from tests.oracles.draft import DRAFTS, draft_logits, residuals
from tests.oracles.draft_weights import draft_tensors
from tests.oracles.llamacpp import CANDIDATES, draft_acceptance, draft_candidates, generate
from tests.oracles.margins import choose_lowest_first
from tests.oracles.shape import Shape, build, logits
from tests.oracles.weights import Weights

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests/fixtures"
STRATA_TINY = ROOT / "profiles/models/strata-tiny.gguf"

PROMPT = "The list of values is sorted in place, and the function returns"

CLEAR = 0.1
"""Margin of two logits above which float32 and fp16 K/V choose alike."""

CLEAR_INTEGER = 1.0
"""The same where both sides quantise activations, each in its own way."""

POINTS = 0.05
"""Allowed difference between llama.cpp's draft acceptance and ours."""

CONVERTED = [
    Shape("converted", seed=40, layers="gggda", ple_block=1, eos_at=(30,)),
    Shape(
        "converted-f16",
        seed=41,
        layers="gaga",
        streams=2,
        value_heads=6,
        kv_heads=1,
        ple_block=0,
        heads_per_ngram=8,
        ngram_size=2,
        eos_at=(0, 5, 6, 20),
        storage="f16",
        budget=8,
        ratios=(2,),
    ),
    Shape(
        "converted-35",
        family="qwen35moe",
        seed=42,
        layers="agdga".replace("d", "a"),
        tied=True,
        gate_shape="D",
        storage="bf16",
        value_heads=6,
    ),
]


def _agree(ours: np.ndarray, theirs: list[int], clear: float) -> int:
    """Assert equal choices where ours are clear; the number of steps that were."""
    best = np.sort(ours, axis=1)[:, -2:]
    sure = best[:, 1] - best[:, 0] > clear
    np.testing.assert_array_equal(ours.argmax(axis=1)[sure], np.array(theirs)[sure])
    return int(sure.sum())


@pytest.mark.parametrize("shape", CONVERTED, ids=lambda shape: shape.name)
def test_converted_models_mean_the_same_to_llamacpp(shape: Shape, tmp_path: Path) -> None:
    """Checks the converter of these tests, not the engine: transformers against llama.cpp."""
    model = build(shape)
    ids = shape.text()
    path = write_model(tmp_path / "model.gguf", shape, model)
    tokens = list(generate(path, ids, 12, past_end=True).tokens)
    with torch.no_grad(), choose_lowest_first():
        steps = logits(model, ids + tokens)[len(ids) - 1 : -1].numpy()
    for end in (507, 509):
        steps[:, end] = -np.inf
    assert _agree(steps, tokens, CLEAR / 5) >= 6


DRAFTING = [
    Shape("drafts", seed=44, layers="gagag", budget=256, ple_block=2, tokens=40),
    Shape("drafts-35", family="qwen35moe", seed=44, layers="gga", tokens=40),
]


@pytest.mark.parametrize("shape", DRAFTING, ids=lambda shape: shape.name)
def test_draft_modules_draft_like_llamacpp(shape: Shape, tmp_path: Path) -> None:
    """Checks the draft modules of these tests: best tokens and probabilities, a chain of three."""
    model = build(shape)
    ids = shape.text()
    path = write_model(tmp_path / "model.gguf", shape, model, draft_tensors(shape))
    theirs = draft_candidates(path, ids, DRAFTS, tmp_path)

    text = [*ids, theirs.sampled]
    with torch.no_grad(), choose_lowest_first():
        rows = residuals(model, text)
        _, chain = draft_logits(Weights(path), rows, text, hnorm="stream")
    assert len(theirs.steps) == DRAFTS
    for step, candidates in zip(chain, theirs.steps, strict=True):
        best = step.topk(CANDIDATES)
        chances = dict(
            zip(best.indices.tolist(), torch.softmax(best.values, 0).tolist(), strict=True)
        )
        for token, chance in candidates:
            assert chances[token] == pytest.approx(chance, abs=0.01)


@pytest.mark.parametrize("family", ["q4exp-a", "q35moe-a"])
def test_fixtures_give_the_same_greedy_tokens(family: str) -> None:
    path = FIXTURES / f"{family}-f16.gguf"
    model = engine.load(path, activations="float", kv="f32", slots=1, max_context=512)
    clear_steps = 0
    for case in json.loads((FIXTURES / f"{family}-oracle.json").read_text()).values():
        tokens = list(generate(path, case["ids"], 24).tokens)
        steps = model.logits(case["ids"] + tokens)[len(case["ids"]) - 1 : -1]
        clear_steps += _agree(steps, tokens, CLEAR)
    assert clear_steps >= 30


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("q*-a-[iq]*.gguf")), ids=lambda path: path.stem
)
def test_quantised_fixtures_begin_alike(path: Path) -> None:
    """The first token of the stored llama.cpp runs, where it was whole text.

    Log-probabilities within 0.3 for qwen4exp. On the qwen35moe fixture llama.cpp itself is 0.9 away
    from float activations on the same weights, so there only the ranks are compared.
    """
    family, kind = path.stem.rsplit("-", 1)
    model = engine.load(path, slots=1, max_context=512)
    stored = json.loads((FIXTURES / f"{family}-llamacpp.json").read_text())[kind]
    compared = 0
    for name, case in json.loads((FIXTURES / f"{family}-oracle.json").read_text()).items():
        theirs = dict(map(tuple, stored[name]["first_top5"]))
        if stored[name]["tokens"][0] not in theirs:
            continue
        last = torch.from_numpy(model.logits(case["ids"])[-1])
        assert int(last.argmax()) in theirs, name
        assert stored[name]["tokens"][0] in last.topk(5).indices.tolist(), name
        if family == "q4exp-a":
            chances = torch.log_softmax(last, 0)
            for token, chance in theirs.items():
                assert float(chances[token]) == pytest.approx(chance, abs=0.3), (name, token)
        compared += 1
    assert compared >= 2


def test_strata_tiny_gives_the_same_greedy_tokens() -> None:
    model = engine.load(STRATA_TINY, slots=1, max_context=512)
    ids = model.tokenizer.encode(PROMPT)
    tokens = list(generate(STRATA_TINY, ids, 48).tokens)
    steps = model.logits(ids + tokens)[len(ids) - 1 : -1]
    assert _agree(steps, tokens, CLEAR_INTEGER) >= 8


def test_strata_tiny_accepts_as_many_drafts() -> None:
    """One draft a step over llama.cpp's own continuation."""
    theirs = draft_acceptance(STRATA_TINY, _prompt_ids(), 200, 1)
    ids = _prompt_ids()
    text = ids + list(generate(STRATA_TINY, ids, 200, past_end=True).tokens)
    model = engine.load(STRATA_TINY, slots=1, max_context=512)
    first, _ = model.draft_logits(text, chain=1)
    assert _accepted_share(first.argmax(axis=1).tolist(), text, len(ids)) == pytest.approx(
        theirs.share, abs=POINTS
    )


def _prompt_ids() -> list[int]:
    return engine.load(STRATA_TINY, slots=1, max_context=64).tokenizer.encode(PROMPT)


def _accepted_share(drafts: list[int], text: list[int], start: int) -> float:
    """Share of right drafts when a right one saves its step: drafts[i] stands for text[i + 2]."""
    offered = right = 0
    pair = start - 1
    while pair + 2 < len(text):
        hit = drafts[pair] == text[pair + 2]
        offered, right = offered + 1, right + hit
        pair += 1 + hit
    return right / offered
