"""What suites of `strata check-exactness` are made of: texts, ways to play them, what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bench.pipelines import clear_all
from bench.player import Row
from bench.texts import Text
from engine.engine import Engine, EngineOptions
from engine.pipeline import Pipeline
from engine.work import ExpertCounts


@dataclass(frozen=True, slots=True)
class Known:
    """What a text gave alone, token by token; `prompt_rows` has the prompt's tokens as rows."""

    text: Text
    rows: tuple[Row, ...]
    prompt_rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """What a suite saw: rows to compare with those of `known` from index `skip` on.

    `problem` says why the suite did not do what it is for; then nothing was compared.
    """

    known: Known
    rows: tuple[Row, ...]
    skip: int = 0
    problem: str = ""
    whole: bool = True
    """Whether the text was played to its end."""
    first: int | None = None
    """Where the first row stands in the conversation; `None`: behind the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What suites play. `longer` and `forked` are second turns, in the order of `firsts`:
    one goes on behind the first answer, one leaves the first prompt half-way."""

    pipeline: Pipeline
    options: EngineOptions
    firsts: tuple[Known, ...]
    longer: tuple[Known, ...]
    forked: tuple[Known, ...]
    seed: int
    drafts: int
    """Most draft rows that the pipeline takes of one slot."""
    experts: ExpertCounts | None = None
    """Of a model whose experts lie in two places."""

    def engine(self, **changes: object) -> Engine:
        """A new engine on empty slots, without drafts unless they are asked for; then whatever they
        cost."""
        clear_all(self.pipeline)
        mine = {"spec": 1, "slot_drafts": True, **changes}
        return Engine(self.pipeline, replace(self.options, **mine))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Suite:
    """A named way to play; left out for a model that lacks what it needs."""

    name: str
    meaning: str
    play: Callable[[Material], Iterator[Case]]
    needs_drafts: bool = False
    needs_experts: bool = False
    """Experts in two places."""

    def lacks(self, material: Material) -> str:
        """Why it is left out; empty: it is not."""
        if self.needs_drafts and not material.pipeline.can_draft:
            return "the model has no draft layer"
        if self.needs_experts and material.experts is None:
            return "all experts lie in one place"
        return ""
