"""Finds settings that are faster on this machine, by measurement. They never change a token."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from bench.decode import decode_once
from bench.pipelines import clear_all
from bench.texts import WORKLOADS, Encode, long_prompt, prompts
from engine.config import EngineConfig
from engine.engine import Engine
from engine.pipeline import Pipeline
from engine.request import Produced, Request
from engine.startup import options_of

LEAST_GAIN = 1.03
"""A setting is kept only when it is faster by more than 3%: less is noise."""
PAIRS = 4
"""The winner and the default are measured so often, in turn: AB, BA, AB, BA. A machine that gets
steadily faster or slower meanwhile then favours neither."""
PROMPTS = WORKLOADS[:3]
PROMPT_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting (a field of `EngineConfig`) with the values to try, and what it should speed up."""

    setting: str
    values: tuple[float, ...]
    speeds: Literal["decode", "prompt"]
    drafts_only: bool = False


TRIALS = (
    Trial("spec", (1, 2, 3, 4, 6), "decode", drafts_only=True),
    Trial("spec_min_p", (0.3, 0.5, 0.7), "decode", drafts_only=True),
    Trial("prefill", (64, 128, 256, 512), "prompt"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting: the value before, the best other one, and samples of both in tok/s."""

    setting: str
    before: float
    best: float
    before_tok_s: tuple[float, ...]
    best_tok_s: tuple[float, ...]

    @property
    def gain(self) -> float:
        """Median of the best over median before."""
        return median(self.best_tok_s) / median(self.before_tok_s)

    @property
    def kept(self) -> bool:
        """Whether the gain is above the noise."""
        return self.gain > LEAST_GAIN


@dataclass(frozen=True, slots=True)
class Speeds:
    """Measures configs; `pipeline` gives the loaded model for one (drafts need another loading)."""

    pipeline: Callable[[EngineConfig], Pipeline]
    encode: Encode
    tokens: int = 128
    clock: Callable[[], float] = time.perf_counter

    def decode_tok_s(self, config: EngineConfig) -> float:
        """Tokens per second of one conversation after another, over three prompts."""
        pipeline = self.pipeline(config)
        known = prompts(self.encode, 64)
        runs = [
            decode_once(pipeline, options_of(config), [known[name]], self.tokens)
            for name in PROMPTS
        ]
        return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)

    def prompt_tok_s(self, config: EngineConfig) -> float:
        """Prompt tokens read per second, until the first token of the answer."""
        pipeline = self.pipeline(config)
        length = min(PROMPT_TOKENS, config.max_context // 2)
        clear_all(pipeline)
        engine = Engine(pipeline, options_of(config))
        ids = long_prompt(self.encode, length)
        engine.submit(Request(id="0", tokens=ids, max_new=1, slot=0))
        start = self.clock()
        while not any(isinstance(event, Produced) for event in engine.step()):
            pass
        return length / (self.clock() - start)


Speed = Callable[[EngineConfig], float]


def calibrate(
    config: EngineConfig,
    speeds: Mapping[str, Speed],
    *,
    can_draft: bool,
    progress: Callable[[str], None],
    trials: Sequence[Trial] = TRIALS,
    on_finding: Callable[[tuple[Finding, ...]], None] = lambda findings: None,
) -> tuple[EngineConfig, tuple[Finding, ...]]:
    """The config with every setting that gained, and all that was found.

    One setting after another: a sweep over its values, then the best of them against the value
    before in turn. `speeds` measures a config by `Trial.speeds`. `progress` hears of each
    measurement before it begins, `on_finding` has all findings so far after each.
    """
    findings: list[Finding] = []
    open_trials = [trial for trial in trials if _applies(trial, config, can_draft)]
    while open_trials:
        trial = open_trials.pop(0)
        later = sum(_measurements(other, config) for other in open_trials)
        found = _try(trial, config, speeds[trial.speeds], progress, later)
        verdict = "kept" if found.kept else "not kept"
        progress(
            f"{found.setting} {found.best:g} against {found.before:g}: "
            f"{100 * (found.gain - 1):+.1f}%, {verdict}"
        )
        if found.kept:
            config = _with(config, found.setting, found.best)
        findings.append(found)
        on_finding(tuple(findings))
        open_trials = [trial for trial in open_trials if _applies(trial, config, can_draft)]
    return config, tuple(findings)


def _applies(trial: Trial, config: EngineConfig, can_draft: bool) -> bool:
    return not trial.drafts_only or (can_draft and config.spec > 1)


def _others(trial: Trial, config: EngineConfig) -> list[float]:
    return [value for value in trial.values if value != float(getattr(config, trial.setting))]


def _measurements(trial: Trial, config: EngineConfig) -> int:
    """One to warm up, one of each other value, and the pairs."""
    return 1 + len(_others(trial, config)) + 2 * PAIRS


def _try(
    trial: Trial,
    config: EngineConfig,
    speed: Speed,
    progress: Callable[[str], None],
    later: int,
) -> Finding:
    """`later`: measurements of the settings after this one."""
    before, left = float(getattr(config, trial.setting)), _measurements(trial, config) + later

    def measured(value: float) -> float:
        nonlocal left
        progress(f"measuring {trial.setting} {value:g} (measurements left: {left})")
        left -= 1
        return speed(_with(config, trial.setting, value))

    measured(before)
    sweep = {value: measured(value) for value in _others(trial, config)}
    best = max(sweep, key=lambda value: sweep[value])
    samples: dict[float, list[float]] = {before: [], best: []}
    for pair in range(PAIRS):
        for value in (before, best) if pair % 2 == 0 else (best, before):
            samples[value].append(measured(value))
    return Finding(trial.setting, before, best, tuple(samples[before]), tuple(samples[best]))


def _with(config: EngineConfig, setting: str, value: float) -> EngineConfig:
    kind = type(getattr(config, setting))
    return replace(config, **{setting: kind(value)})
