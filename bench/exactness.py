"""The exactness check: a conversation's tokens and logits do not depend on how it was computed.

Every text is played alone, token by token, in an empty slot. Then every suite plays the texts in
another way, and each row's token and the hash of its logits must be the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.player import Alone, Row
from bench.suite import Case, Known, Material, Suite
from bench.suites import SUITES
from bench.texts import FOLLOW_UP, Encode, Text, workload
from engine.engine import EngineOptions
from engine.errors import ConfigError
from engine.pipeline import Pipeline
from engine.work import ExpertCounts

FEWEST_DISTINCT = 32
"""A text whose answer repeats fewer tokens than this proves little and does not count."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first row that differs. `position` is the token's place in the conversation."""

    suite: str
    text: str
    position: int
    expected_token: int | None
    token: int | None
    expected_hash: str
    hash: str
    problem: str = ""

    def __str__(self) -> str:
        where = f"suite {self.suite}, text {self.text!r}"
        if self.problem:
            return f"{where}: {self.problem}"
        if self.token != self.expected_token:
            what = f"token {self.token} instead of {self.expected_token}"
        else:
            what = f"token {self.token} agrees, its logits do not"
        return f"{where}, position {self.position}: {what} (hash {self.hash}, {self.expected_hash})"


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """What one suite found; `rows` were compared."""

    suite: str
    meaning: str
    texts: int
    rows: int
    seconds: float
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `weak` names texts whose answers have too few distinct tokens to count."""

    suites: tuple[SuiteReport, ...]
    distinct: dict[str, int]
    weak: tuple[str, ...]
    left_out: dict[str, str]
    """Suites that the model lacks something for, and what."""
    seconds: float
    digest: str
    """Of every token and row hash of the texts played alone: the same wherever the same model is
    computed, on another device or with experts elsewhere."""

    @property
    def equal(self) -> bool:
        """True when every row of every suite agreed and every text counts."""
        return not self.weak and all(suite.difference is None for suite in self.suites)

    @property
    def rows(self) -> int:
        """Rows compared."""
        return sum(suite.rows for suite in self.suites)


def choose_suites(names: str | None) -> tuple[Suite, ...]:
    """The suites of a comma-separated list; all of them when nothing is said."""
    if names is None:
        return SUITES
    by_name = {suite.name: suite for suite in SUITES}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted or [names]:
        if name not in by_name:
            raise ConfigError(
                f"--suite: {name!r} is not a suite", "there are " + ", ".join(by_name)
            )
    return tuple(by_name[name] for name in wanted)


def check(
    pipeline: Pipeline,
    encode: Encode,
    texts: Sequence[Text],
    options: EngineOptions,
    *,
    suites: Sequence[Suite] = SUITES,
    seed: int = 1,
    drafts: int | None = None,
    experts: ExpertCounts | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Plays `texts` alone and in every suite, and compares.

    `drafts`: most draft rows that the pipeline takes of one slot, those of `options` unless said.
    `experts`: of a model whose experts lie in two places.
    """
    start = time.perf_counter()
    options = replace(options, eos_ids=frozenset())
    progress(f"{len(texts)} texts alone, token by token")
    drafts = options.spec - 1 if drafts is None else drafts
    material = _material(pipeline, encode, texts, options, seed)
    material = replace(material, drafts=drafts, experts=experts)
    distinct = {
        known.text.name: len({row.token for row in known.rows}) for known in material.firsts
    }
    reports, left_out = [], {}
    for suite in suites:
        if lack := suite.lacks(material):
            left_out[suite.name] = lack
            continue
        progress(f"{suite.name}: {suite.meaning}")
        reports.append(_run(suite, material))
    return Report(
        tuple(reports),
        distinct,
        tuple(name for name, count in distinct.items() if count < FEWEST_DISTINCT),
        left_out,
        time.perf_counter() - start,
        _digest((*material.firsts, *material.longer, *material.forked)),
    )


def _digest(known: Sequence[Known]) -> str:
    rows = ((*one.prompt_rows, *one.rows) for one in known)
    text = "\n".join(f"{row.token} {row.hash}" for text in rows for row in text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _material(
    pipeline: Pipeline, encode: Encode, texts: Sequence[Text], options: EngineOptions, seed: int
) -> Material:
    """The texts and their second turns, with what they give token by token."""
    follow = tuple(encode(workload(FOLLOW_UP)))
    firsts, longer, forked = [], [], []
    for text in texts:
        alone = Alone(pipeline)
        firsts.append(_continued(alone, text, text.prompt))
        second = replace(text, prompt=(*alone.tokens, *follow), max_new=max(1, text.max_new // 2))
        longer.append(_continued(alone, second, follow))
        half = max(17, min(64, len(text.prompt) // 2))
        fork = replace(second, prompt=text.prompt[:half] + follow)
        forked.append(_continued(Alone(pipeline), fork, fork.prompt))
    return Material(
        pipeline=pipeline,
        options=options,
        firsts=tuple(firsts),
        longer=tuple(longer),
        forked=tuple(forked),
        seed=seed,
        drafts=0,
    )


def _continued(alone: Alone, text: Text, turn: Sequence[int]) -> Known:
    rows = alone.continue_with(turn, text.max_new, text.sampling)
    prompt_rows = map(Row, text.prompt, alone.hashes[: len(text.prompt)])
    return Known(text, tuple(rows), tuple(prompt_rows))


def _run(suite: Suite, material: Material) -> SuiteReport:
    start = time.perf_counter()
    texts = rows = 0
    difference = None
    for case in suite.play(material):
        texts += 1
        rows += len(case.rows)
        difference = _compare(suite.name, case)
        if difference is not None:
            break
    return SuiteReport(
        suite.name, suite.meaning, texts, rows, time.perf_counter() - start, difference
    )


def _compare(suite: str, case: Case) -> Difference | None:
    name, prompt = case.known.text.name, len(case.known.text.prompt)
    if case.problem:
        return Difference(suite, name, 0, None, None, "", "", case.problem)
    expected = case.known.rows[case.skip :]
    for index, (before, now) in enumerate(zip(expected, case.rows, strict=False)):
        if before != now:
            at = (prompt + case.skip if case.first is None else case.first) + index
            return Difference(suite, name, at, before.token, now.token, before.hash, now.hash)
    if len(case.rows) > len(expected) or (case.whole and len(case.rows) < len(expected)):
        problem = f"{len(case.rows)} rows instead of {len(expected)}"
        return Difference(suite, name, 0, None, None, "", "", problem)
    return None
