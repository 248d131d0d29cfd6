"""What the person said, by flags or in the wizard. `None`: not said, so setup chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SAMPLING = {
    "thinking": {
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0,
        "presence_penalty": 0,
        "repetition_penalty": 1,
    },
    "instruct": {
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
        "min_p": 0,
        "presence_penalty": 1.5,
        "repetition_penalty": 1,
    },
}
"""The model authors' sampling for answers with and without thinking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The answers. A value that is said here is kept, with what it risks."""

    context: int | None = None
    kv: str | None = None
    kv_streaming: str | None = None
    parallel: int | None = None
    gpus: tuple[int, ...] | Literal["all"] | None = None
    backend: str | None = None
    layer_split: object = None
    low_ram: str | None = None
    resident_budget_gib: int | None = None
    rope_scaling: str | None = None
    rope_scale: float | None = None
    draft_vocab: str | None = None
    vision: str | None = None
    vram_reserve_mib: int | None = None
    pool_workers: int | None = None
    host: str | None = None
    port: int | None = None
    api_key: str | None = None
    open_browser: bool | None = None
    sampling: Literal["thinking", "instruct"] | None = None
