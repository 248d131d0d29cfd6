"""llama.cpp beside us: greedy tokens, decode speed and draft acceptance through `xllamacpp`.

The wheel is optional and imported inside the functions; without it they raise `PeerMissingError`.
Figures come from llama.cpp's own server timings, so they leave out tokenising and Python.
"""

import multiprocessing
import os
import shutil
import struct
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import StrataError

_HEADER_BYTES = 64 << 20
"""More than any GGUF metadata; tensors come after it."""


class PeerMissingError(StrataError):
    """The program to compare with is not installed."""


class PeerFailedError(StrataError):
    """The program to compare with refused the file or the request, or crashed."""


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
    except PeerMissingError:
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
    """Acceptance of llama.cpp's greedy MTP speculation with exactly `drafts` drafts a step.

    The draft block is the file's own, or that of `draft_path`, which then needs `token_embd` and
    the trunk's head of its own. llama.cpp norms each stream of the residual by itself (our
    `stream` setting of the qwen4exp draft block). It runs in a child process, because an assertion
    in its draft code ends the process.
    """
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=spawn) as child,
    ):
        target = draftable(path, Path(folder) / "target.gguf")
        drafter = draft_path and draftable(draft_path, Path(folder) / "draft.gguf")
        work = child.submit(
            generate, target, ids, count, drafts=drafts, draft_path=drafter, past_end=True
        )
        try:
            result = work.result()
        except BrokenProcessPool as error:
            raise PeerFailedError(f"llama.cpp crashed while drafting with {path}.") from error
    return Acceptance(drafted=result.drafted, accepted=result.accepted)


def draftable(path: Path, copy: Path) -> Path:
    """The file, or a copy whose draft block has the trunk's indexer ratio instead of 0.

    A ratio of 0 (dense) in the draft block beside others in the trunk trips an assertion in
    llama.cpp 2026.10. Within the indexer's budget the copy attends to the same cells.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    key = b"qwen4exp.attention.compress_ratios"
    start = header.find(key) + len(key)
    if start < len(key):
        return path
    # After the key: u32 type (array), u32 element type (i32), u64 count, the elements.
    (count,) = struct.unpack_from("<Q", header, start + 8)
    ratios = struct.unpack_from(f"<{count}i", header, start + 16)
    if ratios[-1] != 0 or not any(ratios):
        return path
    shutil.copyfile(path, copy)
    with copy.open("r+b") as file:
        file.seek(start + 16 + 4 * (count - 1))
        file.write(struct.pack("<i", max(ratios)))
    return copy


def generate(
    path: Path,
    ids: Sequence[int],
    count: int,
    *,
    threads: int = 1,
    drafts: int = 0,
    draft_path: Path | None = None,
    past_end: bool = False,
    verbosity: int = 0,
) -> Generation:
    """One greedy run in a fresh llama.cpp server inside this process, on the CPU.

    It never picks an end token when `past_end`. llama.cpp logs to stderr: 0 nothing, 10 everything.
    """
    server = _server(path, len(ids) + count + 16, threads, verbosity, drafts, draft_path)
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
        raise PeerFailedError(f"llama.cpp refused the request: {answer['error']}")
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


def _server(
    path: Path, context: int, threads: int, verbosity: int, drafts: int, draft_path: Path | None
) -> Any:
    peer = _module()
    params = peer.CommonParams()
    params.model.path = os.fspath(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.warmup = False
    params.fit_params = False
    params.verbosity = verbosity
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    if drafts:
        _draft_with(params, peer, threads, drafts, draft_path)
    try:
        return peer.Server(params)
    except RuntimeError as error:
        raise PeerFailedError(f"llama.cpp cannot load {path}: {error}") from error


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
        raise PeerMissingError(
            "xllamacpp, the llama.cpp wheel to compare with, is not installed.",
            hint="pip install xllamacpp",
        ) from error
    return xllamacpp
