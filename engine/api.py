"""Load a model into this process: for the engine process, tests, notebooks and measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from engine.config import TablePlace
from engine.draft_vocabulary import draft_ids
from engine.engine import EngineOptions
from engine.errors import ConfigError, RequestError
from engine.generation import generate
from engine.gguf.reader import open_gguf
from engine.gguf.tokenizer import Tokenizer
from engine.logits import whole_rows
from engine.model_source import open_model
from engine.models.config import ModelConfig
from engine.models.loader import load_weights
from engine.models.pipeline import LONGEST, DevicePipeline
from engine.models.residency import Residency, Stores
from engine.models.state import StateShape
from engine.ops import Ops, ops_for
from engine.rows import rows_of
from engine.sampling import Sampling
from engine.sizes import DEFAULT_CONTEXT
from engine.window import Span, Verdict, Window


class Model:
    """A loaded model. Not for several threads at once."""

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: Tokenizer,
        pipeline: DevicePipeline,
        spec: int,
        stores: Stores | None = None,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.pipeline = pipeline
        self.stores = stores
        """Where routed experts lie; `None`: all of them on the device."""
        self._spec = spec

    def logits(self, ids: Sequence[int], *, chunks: Sequence[int] = ()) -> npt.NDArray[np.float32]:
        """Logits after every token, float32 [T, vocab], read in windows of `chunks` rows.

        Uses slot 0. What the chunks do not cover is one last window; the bits do not depend on it.
        """
        self._check(ids)
        pipeline = self.pipeline
        pipeline.clear(0)
        parts, start = [], 0
        for size in [*chunks, len(ids)]:
            tokens = tuple(ids[start : start + size])
            if not tokens:
                break
            window = Window((Span(0, start, tokens, len(tokens), 0),))
            parts.append(whole_rows(pipeline.forward(window)()))
            start += len(tokens)
            following = ids[start] if start < len(ids) else None
            pipeline.commit(window, [Verdict(len(tokens), following)])
        return np.concatenate(parts)

    def generate(
        self,
        ids: Sequence[int],
        max_new: int,
        sampling: Sampling | None = None,
        *,
        ignore_end: bool = False,
    ) -> list[int]:
        """Up to `max_new` tokens after `ids`, greedy by default, with drafts when it has them.

        An end token is the last one, unless `ignore_end`. Forgets what the slots held.
        """
        ends: frozenset[int] = frozenset() if ignore_end else self.tokenizer.eos_ids
        options = EngineOptions(eos_ids=ends, spec=self._spec)
        return generate(self.pipeline, options, ids, max_new, sampling)

    def draft_logits(
        self, ids: Sequence[int], chain: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """The draft layer: first drafts [T-1, V] and a chain [chain, V], of V drafted tokens.

        Row i of the first pairs token i's residual with token i+1 and predicts token i+2. The chain
        begins with the last of them and goes on with the best token of each step.
        """
        drafter = self.pipeline.drafter
        if drafter is None:
            raise ConfigError(
                "the model was loaded without a draft layer", hint="Pass mtp or spec."
            )
        self._check(ids)
        self.pipeline.clear(0)
        count, device = len(ids), self.pipeline.device
        tokens = torch.tensor(ids, device=device)
        residual = self.pipeline.trunk.forward(tokens, rows_of([(0, 0, count, count)], device))
        if not self.config.hyper_streams:
            residual = self.pipeline.trunk.hidden(residual)
        pairs = rows_of([(0, 0, count - 1, count - 1)], device)
        after, hidden = drafter.forward(residual[:-1], tokens[1:], pairs)
        first = drafter.logits(hidden)
        steps = [first[-1]]
        after = after[-1:]
        for position in range(count - 1, count - 2 + chain):
            token = drafter.tokens(steps[-1].argmax()[None])
            after, hidden = drafter.forward(after, token, rows_of([(0, position, 1, 1)], device))
            steps.append(drafter.logits(hidden)[0])
        return first.cpu().numpy(), torch.stack(steps).cpu().numpy()

    def _check(self, ids: Sequence[int]) -> None:
        if not 0 < len(ids) <= self.pipeline.max_context:
            raise RequestError(
                f"{len(ids)} tokens, allowed are 1 to {self.pipeline.max_context}",
                hint="Load the model with a larger max_context, or pass fewer tokens.",
            )
        if min(ids) < 0 or max(ids) >= self.config.vocab_size:
            raise RequestError(
                f"token {max(ids)} is outside the vocabulary of {self.config.vocab_size}"
            )


def load(
    path: str | Path,
    device: str = "cpu",
    *,
    synthetic: str | None = None,
    mtp: str | Path | None = None,
    draft_vocab: str | None = None,
    activations: Literal["int8", "float"] = "int8",
    kv: Literal["int8", "fp16", "f32"] = "int8",
    slots: int = 4,
    max_context: int | None = None,
    spec: int = 4,
    checkpoints: int = 0,
    card_checkpoints: int = 0,
    longest: int = LONGEST,
    pooled_norm: bool = False,
    table_place: TablePlace = "vram",
    residency: Residency | None = None,
    ops: Ops | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    kernels: Callable[[int, int], None] = lambda done, of: None,
) -> Model:
    """Loads a GGUF (any shard of it) and the draft layer that lies in it or in `mtp`, or the model
    of random weights that `synthetic` names.

    `draft_vocab`: which tokens may be drafted, a name or a file (`engine/draft_vocabulary.py`).
    `spec`: most rows of one slot in a decode window, its token and drafts; 1 leaves the draft layer
    out. `longest`: most rows of a window, as far as a GPU's kernels are compiled here. The first
    load on a machine compiles the operators, which takes about a minute; later ones find them in
    `__pycache__`. `residency` leaves routed experts in host memory. `ops` replaces the
    device's operators (for tests). `progress` hears of every block that is loaded, `kernels` of
    every kernel that is compiled for a GPU, and of how many. Raises StrataError with a hint.
    """
    ops = ops or ops_for(device)
    stores = None if residency is None else Stores(residency, ops.device)
    with ExitStack() as files:
        gguf = files.enter_context(open_model(path, synthetic))
        config = ModelConfig.from_gguf(gguf)
        draft_from = None
        if mtp is not None and Path(mtp) != Path(path):
            second = files.enter_context(open_gguf(mtp))
            draft_from = second, ModelConfig.from_gguf(second)
            _same_model(config, draft_from[1], second.path)
        tokenizer = Tokenizer.from_metadata(gguf.metadata)
        ids = None
        if draft_vocab is not None:
            ids = draft_ids(draft_vocab, tokenizer, config.vocab_size)
        weights = load_weights(
            gguf,
            config,
            ops,
            float_activations=activations == "float",
            drafts=spec > 1,
            draft_from=draft_from,
            draft_ids=ids,
            table_place=table_place,
            stores=stores,
            progress=progress,
        )
    shape = StateShape(
        slots,
        min(max_context or DEFAULT_CONTEXT, config.context_length),
        kv,
        max(0, spec - 1),
        checkpoints,
        card_checkpoints,
    )
    draft_config = draft_from[1] if draft_from else config
    pipeline = DevicePipeline(
        weights,
        config,
        draft_config,
        shape,
        ops,
        pooled_norm=pooled_norm,
        longest=longest,
        prompt_graphs=residency is None,
    )
    pipeline.warm_up(kernels)
    return Model(config, tokenizer, pipeline, spec, stores)


def _same_model(trunk: ModelConfig, draft: ModelConfig, path: Path) -> None:
    for name in ("architecture", "width", "hyper_streams", "vocab_size", "attention"):
        own, other = getattr(trunk, name), getattr(draft, name)
        if own != other:
            raise ConfigError(
                f"{path}: the draft layer's {name} is {other}, the model's is {own}",
                hint="Name the MTP file of this very model, or leave --mtp out.",
            )
