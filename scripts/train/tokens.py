"""Makes the vocabulary from the corpus and turns the corpus into token ids.

    python -m scripts.train.tokens corpus.jsonl FOLDER --vocab 4096

writes FOLDER/tokenizer.json and FOLDER/tokens.npz (uint16 arrays text, chat, test, test_chat).
Pack it with `xz` where it has to travel: tokens.npz.xz is read as well.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)


def train_tokenizer(texts: Iterator[str], vocab: int) -> Tokenizer:
    """Byte-level BPE with the special tokens at its end."""
    tokenizer = Tokenizer(BPE())
    split = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab - len(CONTROL) - len(USER_DEFINED),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=16,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in USER_DEFINED])
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> NDArray[np.uint16]:
    """All texts in a row, each followed by <|endoftext|>."""
    end = tokenizer.token_to_id("<|endoftext|>")
    parts: list[NDArray[np.uint16]] = []
    for start in range(0, len(texts), 512):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + 512]):
            parts.append(np.array([*encoding.ids, end], dtype=np.uint16))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint16)


def load_tokens(path: Path) -> dict[str, NDArray[np.uint16]]:
    """The arrays of tokens.npz or tokens.npz.xz."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    with np.load(BytesIO(data)) as arrays:
        return {name: arrays[name] for name in arrays.files}


def main() -> None:
    """Trains the vocabulary unless it exists, writes the ids and prints their counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--share", type=float, default=1.0, help="part of the documents to use")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.corpus.open(encoding="utf-8")]
    rows = rows[: int(len(rows) * arguments.share)]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "tokenizer.json"
    if not path.exists():
        sample = (row["text"][:4000] for row in rows[::3])
        train_tokenizer(sample, arguments.vocab).save(str(path))
    tokenizer = Tokenizer.from_file(str(path))
    talk = ("chat", "seed")
    groups = {
        "text": [r["text"] for r in rows if r["kind"] not in talk and not r["test"]],
        "chat": [r["text"] for r in rows if r["kind"] in talk and not r["test"]],
        "test": [r["text"] for r in rows if r["kind"] not in talk and r["test"]],
        "test_chat": [r["text"] for r in rows if r["kind"] in talk and r["test"]],
    }
    arrays = {name: encode(tokenizer, texts) for name, texts in groups.items()}
    size = {
        name: np.array([len(t.encode()) for t in texts]).sum() for name, texts in groups.items()
    }
    np.savez(arguments.folder / "tokens.npz", **arrays, test_bytes=np.array(size["test"]))
    for name, ids in arrays.items():
        print(f"{name}: {len(ids)} tokens, {size[name] / max(1, len(ids)):.2f} bytes a token")


if __name__ == "__main__":
    main()
