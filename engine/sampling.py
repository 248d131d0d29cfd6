"""How one request chooses its tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import RequestError

MAX_SEED = 2**63 - 1
LARGEST_BIAS = 100
_WHOLE = ("top_k", "seed", "penalty_last_n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters; the defaults are greedy. `engine/sampler.py` says what each does.

    Raises `RequestError` that names the field, its value and what is allowed.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    penalty_repeat: float = 1.0
    penalty_freq: float = 0.0
    penalty_present: float = 0.0
    penalty_last_n: int = 64
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids, each once, and what is added to their logits."""

    def __post_init__(self) -> None:
        self._check("temperature", 0, 100)
        self._check("top_k", 0, 2**31 - 1)
        self._check("top_p", 0, 1)
        self._check("min_p", 0, 1)
        self._check("seed", 0, MAX_SEED)
        self._check("penalty_repeat", 0.01, 100)
        self._check("penalty_freq", -100, 100)
        self._check("penalty_present", -100, 100)
        self._check("penalty_last_n", 0, 2**31 - 1)
        for token, bias in self.logit_bias:
            if not math.isfinite(bias) or abs(bias) > LARGEST_BIAS:
                limit = f"-{LARGEST_BIAS} to {LARGEST_BIAS}"
                raise RequestError(f"logit_bias of token {token} is {bias!r}, allowed is {limit}")

    @property
    def greedy(self) -> bool:
        """True when the likeliest token is taken and nothing is drawn."""
        return self.temperature == 0

    @property
    def penalises(self) -> bool:
        """True when earlier tokens change the logits."""
        neutral = (self.penalty_repeat, self.penalty_freq, self.penalty_present) == (1, 0, 0)
        return not neutral and self.penalty_last_n > 0

    @property
    def plain(self) -> bool:
        """True when the token is that of the largest logit."""
        return self.temperature == 0 and not self.penalises and not self.logit_bias

    @property
    def lowers(self) -> bool:
        """True when penalties raise no logit."""
        return self.penalty_repeat >= 1 and self.penalty_freq >= 0 and self.penalty_present >= 0

    def _check(self, field: str, low: float, high: float) -> None:
        value = getattr(self, field)
        kinds = (int,) if field in _WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            noun = "whole number" if field in _WHOLE else "number"
            raise RequestError(f"{field} is {value!r}, a {noun} is needed")
        if not math.isfinite(value) or not low <= value <= high:
            raise RequestError(f"{field} is {value!r}, allowed is {low} to {high}")
