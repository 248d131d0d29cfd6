"""The input of a window's graph says what `rows_of` says, and rows it lacks change nothing."""

from pathlib import Path

import pytest
import torch

import engine
from engine.models.runner import EagerRunner
from engine.models.words import SpanRows, Words
from engine.rows import rows_of

SPARE = 4
FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.mark.parametrize("more", [0, 1, 5])
@pytest.mark.parametrize(
    "spans",
    [
        [(0, 5, 1, 1)],
        [(3, 0, 7, 7)],
        [(2, 40, 3, 1), (0, 7, 2, 2), (1, 100_000, 4, 1)],
    ],
)
def test_a_graphs_input_is_the_windows_rows(spans: list[SpanRows], more: int) -> None:
    count = sum(rows for _, _, rows, _ in spans)
    tokens = [248_319 - i for i in range(count)]
    words = Words(count + more, SPARE, "cpu")
    words.write([1] * (count + more), [(9, 77, count + more, 1)])
    words.write(tokens, spans)
    words.send()
    padded = [*spans, *[(SPARE, 0, 1, 0)] * more]
    wanted = rows_of(padded)
    assert words.ids.tolist() == tokens + [0] * more
    assert torch.equal(words.rows.spans[: len(padded)], wanted.spans)
    assert not words.rows.spans[len(padded) :].any()
    assert torch.equal(words.rows.slots, wanted.slots)
    assert torch.equal(words.rows.positions, wanted.positions)


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_prompt_graphs_input_is_the_windows_rows(more: int) -> None:
    """What is lacking is one prompt, and the wanted rows go along."""
    spans: list[SpanRows] = [(2, 40, 3, 1), (0, 7, 2, 2), (1, 100_000, 4, 1), (3, 0, 1, 1)]
    count = sum(rows for _, _, rows, _ in spans)
    words = Words(count + more, SPARE, "cpu", wanted=6)
    words.write([1] * (count + more), [(3, 77, count + more, 1)], [5] * 6)
    words.write(list(range(9, 9 + count)), spans, [0, 4, 9])
    words.send()
    wanted = rows_of([*spans, (SPARE, 0, more, more)])
    assert words.ids.tolist() == [*range(9, 9 + count)] + [0] * more
    assert words.wanted is not None
    assert words.wanted.tolist() == [0, 4, 9, 0, 0, 0]
    assert torch.equal(words.rows.spans, wanted.spans)
    assert torch.equal(words.rows.slots, wanted.slots)
    assert torch.equal(words.rows.positions, wanted.positions)


@pytest.mark.parametrize("wanted", [0, 4])
def test_rows_that_a_window_lacks_change_nothing(wanted: int) -> None:
    """Beside a window of two slots; the last slot stays as it was cleared where it matters."""
    path = FIXTURES / "q4exp-a-q4k.gguf"
    plain, padded = (engine.load(path, slots=5, max_context=64).pipeline for _ in range(2))
    windows: list[list[SpanRows]] = [
        [(0, 0, 5, 5), (1, 0, 3, 3)],
        [(1, 3, 4, 1), (0, 5, 1, 1)],
        [(0, 6, 2, 2)],
    ]
    for spans in windows:
        count = sum(rows for _, _, rows, _ in spans)
        tokens = list(range(7, 7 + count))
        words = Words(12, SPARE, "cpu", wanted)
        last = [count - 1, 0]
        words.write(tokens, spans, last if wanted else ())
        words.send()
        runner = EagerRunner(padded.trunk, "cpu", hyper=True, drafts=False)
        residual, hidden = runner.compute(words.ids, words.rows, words.wanted)
        expected = plain.trunk.forward(torch.tensor(tokens), rows_of(spans))
        assert torch.equal(residual[:count], expected)
        logits = plain.trunk.logits(plain.trunk.hidden(expected))
        rows = last if wanted else list(range(count))
        assert torch.equal(padded.trunk.logits(hidden)[: len(rows)], logits[rows])
    for one, other in zip(plain.trunk.state, padded.trunk.state, strict=True):
        assert torch.equal(one[:SPARE], other[:SPARE])


def test_rows_say_whether_a_draft_may_be_among_them() -> None:
    assert rows_of([(0, 0, 5, 5), (1, 0, 3, 1)]).drafts
    assert not rows_of([(0, 0, 5, 5), (1, 0, 1, 1)]).drafts
    assert Words(4, SPARE, "cpu").rows.drafts, "the host does not know"
