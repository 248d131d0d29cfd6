"""Compares a model file with llama.cpp and prints samples.

    python -m scripts.train.peer MODEL.gguf tokens.npz tokenizer.json --model strata-tiny

llama.cpp (the xllamacpp wheel) continues held-out texts greedily, with and without drafts; the
training model reads the same texts with the file's weights and is asked for its choice at every
generated token, and for its draft.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xllamacpp

from engine.gguf.reader import open_gguf
from scripts.train.export import named_geometry
from scripts.train.layers import Weights
from scripts.train.model import Model
from scripts.train.tokens import load_tokens

QUESTIONS = (
    "What is a list in Python?",
    "Who are you?",
    "What does textwrap.dedent do?",
    "What does CREATE INDEX do in PostgreSQL?",
    "How do I sort a list?",
)
STARTS = ("The `json` module", "def read_lines(path):\n", "# Transactions\n\nA transaction")
CLEAR_MARGIN = 0.25  # logits; llama.cpp rounds activations to 8 bits


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counts over generated tokens."""

    tokens: int
    equal: int
    clear: int  # tokens whose margin is clear
    clear_equal: int
    drafts: int
    drafts_right: int


def peer(path: Path, drafts: int = 0) -> Any:
    """A one-slot llama.cpp server object on one thread."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel = 2048, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.n_gpu_layers, parameters.fit_params, parameters.warmup = 0, False, False
    parameters.verbosity = 0
    if drafts:
        kind = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_MTP
        parameters.speculative.types = [kind]
        parameters.speculative.draft.n_max = drafts
        parameters.load_mtp = True
    return xllamacpp.Server(parameters)


def greedy(server: Any, prompt: Sequence[int] | str, count: int, top: int = 0) -> dict[str, Any]:
    """llama.cpp's answer to a greedy completion."""
    request = {"prompt": prompt, "n_predict": count, "temperature": 0.0, "cache_prompt": False}
    answer: dict[str, Any] = server.handle_completions(request | ({"logprobs": top} if top else {}))
    return answer


def generated(answer: dict[str, Any]) -> list[int]:
    """Token ids of an answer that was asked for log-probabilities."""
    return [entry["id"] for entry in answer["choices"][0]["logprobs"]["content"]]


@torch.no_grad()
def agreement(model: Model, weights: Weights, prompt: list[int], answer: list[int]) -> Agreement:
    """How the training model's choices compare with the tokens llama.cpp generated."""
    tokens = torch.tensor([prompt + answer])
    out = model.forward(weights, tokens[:, :-1], tokens[:, 1:])
    assert out.draft_logits is not None
    first = len(prompt) - 1
    best = out.logits[0, first:].topk(2)
    equal = best.indices[:, 0] == tokens[0, first + 1 :]
    clear = best.values[:, 0] - best.values[:, 1] > CLEAR_MARGIN
    # the draft at a position sees the next token and names the one after it
    right = out.draft_logits[0, first:-1].argmax(-1) == out.logits[0, first + 1 :].argmax(-1)
    return Agreement(
        tokens=len(answer),
        equal=int(equal.sum()),
        clear=int(clear.sum()),
        clear_equal=int((equal & clear).sum()),
        drafts=right.numel(),
        drafts_right=int(right.sum()),
    )


def compare(path: Path, data: Path, tokenizer: Path, name: str, prompts: int) -> None:
    """Prints the agreement on held-out texts of two lengths, and both acceptances."""
    geometry = named_geometry(name, tokenizer)
    with open_gguf(path) as file:
        weights = {n: torch.from_numpy(file.float32(n).copy()) for n in file.tensors}
    held_out = load_tokens(data)["test"]
    plain, model = peer(path), Model(geometry)
    for length in (96, 700):
        starts = [(i + 1) * (len(held_out) - length) // (prompts + 1) for i in range(prompts)]
        texts = [held_out[s : s + length].tolist() for s in starts]
        answers = [generated(greedy(plain, text, 64, top=1)) for text in texts]
        pairs = zip(texts, answers, strict=True)
        found = [agreement(model, weights, text, answer) for text, answer in pairs if answer]
        sums = [sum(getattr(f, field) for f in found) for field in Agreement.__slots__]
        print(
            f"prompts of {length}: {sums[1]} of {sums[0]} greedy tokens equal, "
            f"{sums[3]} of {sums[2]} with a margin over {CLEAR_MARGIN}; "
            f"our first drafts {sums[5]} of {sums[4]} ({sums[5] / sums[4]:.3f})"
        )
        _peer_drafts(path, texts)


def _peer_drafts(path: Path, texts: list[list[int]]) -> None:
    """Prints llama.cpp's acceptance of one draft a step."""
    server = peer(path, drafts=1)
    timings = [greedy(server, text, 64)["timings"] for text in texts]
    asked = sum(t.get("draft_n", 0) for t in timings)
    taken = sum(t.get("draft_n_accepted", 0) for t in timings)
    print(f"  llama.cpp's first drafts {taken} of {asked} ({taken / max(1, asked):.3f})")


def describe(path: Path) -> None:
    """Prints the number of weights and the bytes of each type."""
    sizes: dict[str, int] = {}
    with open_gguf(path) as file:
        weights = sum(math.prod(t.shape) for t in file.tensors.values())
        for tensor in file.tensors.values():
            sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.nbytes
    listed = ", ".join(f"{name} {size}" for name, size in sorted(sizes.items()))
    print(f"{path.name}: {path.stat().st_size} bytes, {weights} weights; bytes by type: {listed}")


def samples(path: Path) -> None:
    """Prints greedy answers and continuations."""
    server = peer(path)
    chat = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    for prompt in [*(chat.format(question) for question in QUESTIONS), *STARTS]:
        choice = greedy(server, prompt, 120)["choices"][0]
        print(f"--- {prompt!r} ({choice['finish_reason']})\n{choice['text']}")


def main() -> None:
    """Prints everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--model", choices=("strata-tiny", "tiny-qwen35moe"), required=True)
    parser.add_argument("--prompts", type=int, default=24)
    arguments = parser.parse_args()
    describe(arguments.gguf)
    compare(arguments.gguf, arguments.data, arguments.tokenizer, arguments.model, arguments.prompts)
    samples(arguments.gguf)


if __name__ == "__main__":
    main()
