"""llama.cpp beside us: greedy tokens, decode speed and draft acceptance through `xllamacpp`.

The wheel is optional and is imported inside the functions; without it they raise `PeerMissing`.
Figures come from llama.cpp's own server timings, so they leave out tokenising and Python.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import StrataError


class PeerMissing(StrataError):
    """The program to compare with is not installed."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What llama.cpp did for one prompt; counts in tokens, `decode_s` without the prompt."""

    tokens: tuple[int, ...]
    first_top: tuple[tuple[int, float], ...]
    """Best first tokens and their log-probabilities, of the first token that was whole text."""
    decode_s: float
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Drafts proposed and kept."""

    drafted: int
    accepted: int

    @property
    def share(self) -> float:
        """Kept drafts among proposed ones; 0 when nothing was proposed."""
        return self.accepted / self.drafted if self.drafted else 0.0


def available() -> bool:
    """Whether the xllamacpp wheel can be imported."""
    try:
        _module()
    except PeerMissing:
        return False
    return True


def version() -> str:
    """The wheel's version, for records."""
    return str(_module().__version__)


def greedy(path: Path, ids: Sequence[int], count: int, *, threads: int = 1) -> list[int]:
    """Greedy continuation of `ids` up to `count` tokens; an end token ends it and is included."""
    return list(generate(path, ids, count, threads=threads).tokens)


def decode_speed(path: Path, ids: Sequence[int], count: int, threads: int) -> float:
    """Tokens per second of greedy decoding after `ids`, the first token (the prompt's) left out.

    End tokens are forbidden, so that `count` tokens are timed whatever the model says.
    """
    result = generate(path, ids, count, threads=threads, past_end=True)
    return (len(result.tokens) - 1) / result.decode_s


def draft_acceptance(
    path: Path, ids: Sequence[int], count: int, drafts: int, *, draft_path: Path | None = None
) -> Acceptance:
    """Acceptance of llama.cpp's greedy MTP speculation with up to `drafts` drafts a step.

    The draft block is the file's own, or that of `draft_path`.
    """
    result = generate(path, ids, count, drafts=drafts, draft_path=draft_path, past_end=True)
    return Acceptance(drafted=result.drafted, accepted=result.accepted)


def generate(
    path: Path,
    ids: Sequence[int],
    count: int,
    *,
    threads: int = 1,
    drafts: int = 0,
    draft_path: Path | None = None,
    past_end: bool = False,
) -> Generation:
    """One greedy run in a fresh llama.cpp server inside this process, on the CPU."""
    server = _server(path, len(ids) + count + 16, threads, drafts, draft_path)
    request = {
        "prompt": list(ids),
        "n_predict": count,
        "temperature": 0,
        "top_k": 1,
        "n_probs": 5,
        "cache_prompt": False,
        "return_tokens": True,
        "verbose": True,
        "stream": False,
        "ignore_eos": past_end,
    }
    answer: dict[str, Any] = server.handle_completions(request)
    if "error" in answer:
        raise PeerMissing(f"llama.cpp refused the request: {answer['error']}")
    return _generation(answer)


def _generation(answer: dict[str, Any]) -> Generation:
    raw, timings = answer["__verbose"], answer["timings"]
    first = raw.get("completion_probabilities") or [{"top_logprobs": []}]
    return Generation(
        tokens=tuple(raw["tokens"]),
        first_top=tuple((top["id"], top["logprob"]) for top in first[0]["top_logprobs"]),
        decode_s=timings["predicted_ms"] / 1000,
        drafted=timings.get("draft_n", 0),
        accepted=timings.get("draft_n_accepted", 0),
    )


def _server(path: Path, context: int, threads: int, drafts: int, draft_path: Path | None) -> Any:
    peer = _module()
    params = peer.CommonParams()
    params.model.path = os.fspath(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.warmup = False
    params.fit_params = False
    params.verbosity = 0
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    if drafts:
        _draft_with(params, peer, threads, drafts, draft_path)
    return peer.Server(params)


def _draft_with(params: Any, peer: Any, threads: int, drafts: int, draft_path: Path | None) -> None:
    """Ask for MTP drafts, always as many as allowed: no probability floor."""
    params.load_mtp = draft_path is None
    speculative = params.speculative
    speculative.types = [peer.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP]
    speculative.draft.n_max = drafts
    speculative.draft.p_min = 0.0
    speculative.draft.cpuparams.n_threads = threads
    speculative.draft.cpuparams_batch.n_threads = threads
    if draft_path is not None:
        speculative.draft.mparams.path = os.fspath(draft_path)


def _module() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise PeerMissing(
            "xllamacpp, the llama.cpp wheel to compare with, is not installed.",
            hint="pip install xllamacpp",
        ) from error
    return xllamacpp
