"""The path of graphs, with a recorder that runs instead of replaying: the same bits and drafts."""

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import engine
from engine.engine import Engine, EngineOptions
from engine.kernels import compile_ahead
from engine.logits import WIDE, whole_rows
from engine.models import graph_drafting, graph_runner
from engine.models import pipeline as pipelines
from engine.models.graph_drafting import GraphDrafting
from engine.models.graph_runner import GraphRunner
from engine.models.graphs import Tensors
from engine.models.pipeline import DevicePipeline
from engine.pipeline import DraftAsk
from engine.request import Request
from engine.sampler import _largest, _weights
from engine.sampling import Sampling
from engine.window import Span, Verdict, Window
from tests.engine.engine_driver import run

DRAFTS = 3


class Again:
    """A graph that is its launches."""

    def __init__(self, run: Callable[[], Tensors], left: Tensors) -> None:
        self._run = run
        self._left = left

    def replay(self) -> None:
        """Writes what it leaves into the same memory."""
        for tensor, again in zip(self._left, self._run(), strict=True):
            tensor.copy_(again)


class Rerunner:
    """A recorder for the CPU."""

    def __init__(self, device: str) -> None:
        self.device = device

    def record(self, run: Callable[[], Tensors]) -> tuple[Again, Tensors]:
        """Like `Recorder.record`."""
        left = run()
        return Again(run, left), left

    def lend(self, tensor: torch.Tensor) -> torch.Tensor:
        """Like `Recorder.lend`."""
        return tensor

    def give_back(self) -> None:
        """Nothing."""

    def wait(self) -> None:
        """Everything is done at once."""


class HostChooser:
    """`Chooser` without kernels, which have their own tests: interpreted ones are slow."""

    def __init__(self, rows: int, columns: int, device: str) -> None:
        self.found = torch.zeros(rows, dtype=torch.int32)
        self.ids = torch.zeros(rows, WIDE, dtype=torch.int32)
        self.values = torch.zeros(rows, WIDE)
        self.drawn = torch.zeros(rows, 2, dtype=torch.int64)

    def find_best(self, logits: torch.Tensor) -> None:
        """Like `Chooser.find_best`."""
        self.found[: len(logits)] = logits.argmax(dim=1)

    def ask(self, logits: torch.Tensor, words: Sequence[Sequence[int]], most: int) -> None:
        """Like `Chooser.ask`."""
        for number, (row, bits, least, u) in enumerate(words):
            logit = logits[row].numpy()
            ids = _largest(logit, most)
            self.ids[number, :most] = torch.from_numpy(ids)
            self.values[number, :most] = torch.from_numpy(logit[ids])
            if bits:
                (temperature,) = struct.unpack("<d", struct.pack("<q", bits))
                weights = _weights(logit, temperature)
                sums = np.cumsum(np.where(weights >= least, weights, 0))
                target = int(sums[-1]) * u >> 32
                self.drawn[number, 0] = int(np.searchsorted(sums, target, side="right"))
                self.drawn[number, 1] = int(sums[-1])

    def likeliest(self, logits: torch.Tensor, tokens: torch.Tensor, told: torch.Tensor) -> None:
        """Like `Chooser.likeliest`."""
        tokens[:] = told[:, 0] = logits.argmax(dim=1)
        told[:, 1] = torch.tensor([int(_weights(row.numpy(), 1.0).sum()) for row in logits])


@pytest.fixture(scope="module", params=["qwen4exp-q8", "qwen35moe-q8"])
def models(
    request: pytest.FixtureRequest,
    draft_files: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[DevicePipeline, DevicePipeline]]:
    """Of the same file: operator by operator, and as on a GPU. One of the files drafts from a part
    of its tokens."""
    options: dict[str, object] = {"slots": 3, "max_context": 96, "spec": DRAFTS + 1}
    if request.param == "qwen35moe-q8":
        ids = np.arange(0, 500, 3, dtype="<i4")
        part = tmp_path_factory.mktemp("ids") / "draft_vocab.bin"
        part.write_bytes(ids.tobytes())
        options["draft_vocab"] = str(part)
    plain = engine.load(draft_files[request.param], **options).pipeline
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines, "recorder_for", Rerunner)
        patch.setattr(compile_ahead, "compile_ahead", lambda run, progress: 0)
        for module, part in ((graph_runner, GraphRunner), (graph_drafting, GraphDrafting)):
            patch.setattr(part, "prepare", lambda self: None)
            patch.setattr(module, "Chooser", HostChooser)
        yield plain, engine.load(draft_files[request.param], **options).pipeline


@pytest.fixture
def pair(models: tuple[DevicePipeline, DevicePipeline]) -> tuple[DevicePipeline, DevicePipeline]:
    for pipeline in models:
        for slot in range(3):
            pipeline.clear(slot)
    return models


def test_windows_and_drafts(pair: tuple[DevicePipeline, DevicePipeline]) -> None:
    """Random spans of three texts: the same logits of rows that stay, the same drafts."""
    random = np.random.default_rng(3)
    texts = [tuple(random.integers(0, 500, 90).tolist()) for _ in range(3)]
    done = [0, 0, 0]
    offered = 0
    for number in range(12):
        spans, verdicts = [], []
        for slot in range(3):
            start, text = done[slot], texts[slot]
            if random.random() < 0.2 or start > 75:
                continue
            rows = int(random.integers(1, 70 if number == 2 else 5))
            rows = min(rows, 80 - start)
            wrong = int(random.integers(0, 3)) if rows > 1 else 0
            tokens = text[start : start + rows - wrong] + tuple(
                (token + 1) % 500 for token in text[start + rows - wrong : start + rows]
            )
            certain = rows if not wrong else 1
            spans.append(Span(slot, start, tokens, certain, certain - 1))
            kept = max(certain, rows - wrong)
            done[slot] = start + kept
            following = None if random.random() < 0.1 else text[done[slot]]
            verdicts.append(Verdict(kept, following))
        window = Window(tuple(spans))
        asks = [
            DraftAsk(span.slot, int(random.integers(1, DRAFTS + 1)), p)
            for span, verdict in zip(spans, verdicts, strict=True)
            for p in (0.0, 0.003)
            if verdict.next_token is not None and (p > 0) == (number % 2 > 0)
        ]
        rows, drafts = [], []
        for pipeline in pair:
            rows.append(_kept(whole_rows(pipeline.forward(window)()), spans, verdicts))
            pipeline.commit(window, verdicts)
            drafts.append(pipeline.draft(asks)() if asks else [])
        assert np.array_equal(*rows)
        assert drafts[0] == drafts[1]
        offered += sum(map(len, drafts[0]))
    assert offered > 20


def test_a_short_prompt_beside_drafts(pair: tuple[DevicePipeline, DevicePipeline]) -> None:
    """In a graph that computes the logits of some rows: those who draft, and the prompt's last."""
    text = tuple(np.random.default_rng(7).integers(0, 500, 90).tolist())
    wrong = (*text[4:6], 499 - text[6])
    asks = [DraftAsk(slot, DRAFTS, 0.0) for slot in range(3)]
    found: list[object] = []
    for pipeline in pair:
        begun = Window((Span(0, 0, text[:4], 4, 4), Span(2, 0, text[:9], 9, 9)))
        pipeline.forward(begun)
        pipeline.commit(begun, [Verdict(4, text[4]), Verdict(9, text[9])])
        spans = [Span(0, 4, wrong, 1, 0), Span(1, 0, text[:70], 70, 69), Span(2, 9, (3,), 1, 0)]
        window, verdicts = Window(tuple(spans)), [Verdict(2, 8), Verdict(70, 9), Verdict(1, 10)]
        rows = _kept(whole_rows(pipeline.forward(window)()), spans, verdicts)
        pipeline.commit(window, verdicts)
        drafts = pipeline.draft(asks)()
        spans = [Span(slot, at, (7,), 1, 0) for slot, at in ((0, 6), (1, 70), (2, 10))]
        after = whole_rows(pipeline.forward(Window(tuple(spans)))())
        found.append((rows.tobytes(), drafts, after.tobytes()))
    assert found[0] == found[1]
    runner = pair[1]._runner
    assert isinstance(runner, GraphRunner)
    assert 96 in {left.words.count for left in runner.captured() if left.words}


def _kept(logits: np.ndarray, spans: list[Span], verdicts: list[Verdict]) -> np.ndarray:
    found, row = [], 0
    for span, verdict in zip(spans, verdicts, strict=True):
        found.append(logits[row : row + verdict.kept - span.logits_from])
        row += span.wanted
    return np.concatenate(found)


def test_checkpoints(pair: tuple[DevicePipeline, DevicePipeline]) -> None:
    """In the slot that they are of, and in another one that was given its cells."""
    text = tuple(np.random.default_rng(5).integers(0, 500, 60).tolist())
    found = []
    for pipeline in pair:
        window = Window((Span(1, 0, text[:20], 20, 20),))
        pipeline.forward(window)
        pipeline.commit(window, [Verdict(20, text[20])])
        checkpoint, cells = pipeline.save(1), pipeline.take_out(1, 20)
        other = Window((Span(1, 20, text[40:44], 1, 0),))
        pipeline.forward(other)
        pipeline.commit(other, [Verdict(3, 5)])
        pipeline.put_in(2, cells, 20)
        for slot in (1, 2):
            pipeline.restore(slot, checkpoint)
            window = Window((Span(slot, 20, text[20:30], 10, 0),))
            rows = whole_rows(pipeline.forward(window)())
            pipeline.commit(window, [Verdict(10, text[30])])
            found.append((rows.tobytes(), pipeline.draft([DraftAsk(slot, 3, 0.0)])()))
    assert found == [found[0]] * 4


def test_answers(pair: tuple[DevicePipeline, DevicePipeline]) -> None:
    """Of greedy, sampled and penalised requests, told more or less, with drafts and without."""
    ways = (
        Sampling(),
        Sampling(temperature=0.8, seed=5),
        Sampling(temperature=1.0, top_k=20, top_p=0.9, seed=6),
        Sampling(temperature=1.0, top_p=0.5, seed=6),
        Sampling(temperature=1.0, min_p=0.01, seed=7),
        Sampling(penalty_repeat=1.3, penalty_last_n=6),
        Sampling(temperature=0.6, top_k=5, seed=9, penalty_freq=0.4, penalty_present=-0.7),
        Sampling(temperature=0.6, seed=9, logit_bias=((30, 9.0), (31, 8.0), (32, -100.0))),
    )
    for first in (0, 2, 5):
        answers = []
        for pipeline, spec, told in ((pair[0], 1, False), (pair[1], 4, first == 2)):
            requests = [
                Request(
                    id=str(index),
                    tokens=tuple(range(index + 4, index + 12)),
                    max_new=12,
                    sampling=sampling,
                    logprobs=2 if told else None,
                    hashes=told,
                )
                for index, sampling in enumerate(ways[first : first + 3])
            ]
            found = run(Engine(pipeline, EngineOptions(spec=spec, chunk=16)), *requests)
            answers.append([found[request.id].tokens for request in requests])
            for slot in range(3):
                pipeline.clear(slot)
        assert answers[0] == answers[1]
