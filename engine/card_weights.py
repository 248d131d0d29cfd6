"""Bytes of a model's weights as they lie in a card's memory, by its header alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import prod

from engine.gguf.header import TensorInfo
from engine.gguf.reader import GGUF
from engine.gguf.types import has_limbs, quant_type
from engine.kernels.form import FLOAT_TILE, GROUP, LIMBS, QUAD, TILE, are_integers, form_of
from engine.models.config import ModelConfig

_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down|gate_up)_exps\.weight")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_NGRAM_TABLE = "per_layer_token_embd.weight"
_TABLES = (_NGRAM_TABLE, "token_embd.weight")
# Multipliers of 32 weights: none, or one for all or for each half of them. Minima have as many.
_MULTIPLIERS = {
    **dict.fromkeys(("Q4_K", "Q5_K", "IQ4_XS", "IQ1_S", "IQ2_XXS", "IQ3_S", "IQ3_XXS"), 1),
    **dict.fromkeys(("Q2_K", "Q3_K", "Q6_K", "IQ1_M", "IQ2_S", "IQ2_XS"), 2),
}
_WITH_MINIMA = frozenset({"Q2_K", "Q4_1", "Q4_K", "Q5_1", "Q5_K"})
_FLOAT_BYTES = {"F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class CardWeights:
    """Bytes on a card, beside each other: a model is the sum of them."""

    dense_bytes: int
    """All that every token reads, with the output head."""
    head_bytes: int
    """The output head alone, which is counted in `dense_bytes`."""
    embedding_bytes: int
    """The token embedding, of which a token reads a row."""
    expert_bytes: int
    """Routed experts of the trunk."""
    table_bytes: int
    """The n-gram table."""
    draft_bytes: int
    """The draft layer with its experts."""

    @classmethod
    def from_gguf(cls, gguf: GGUF, config: ModelConfig) -> CardWeights:
        """Reads the header only."""
        trunk = len(config.layers)
        sizes = {"dense": 0, "embedding": 0, "expert": 0, "table": 0, "draft": 0}
        for name, tensor in gguf.tensors.items():
            sizes[_part(name, trunk)] += _tensor_bytes(name, tensor)
        own = "output.weight" in gguf.tensors
        head = gguf.tensors.get("output.weight" if own else "token_embd.weight")
        sizes["head"] = 0 if head is None else matrix_bytes(head)
        sizes["dense"] += 0 if own else sizes["head"]
        return cls(**{f"{part}_bytes": size for part, size in sizes.items()})


def matrix_bytes(tensor: TensorInfo) -> int:
    """Bytes of a matrix [N, K], or of a stack [E, N, K], in the layout that kernels read."""
    *stack, rows, columns = (1, *tensor.shape) if len(tensor.shape) == 1 else tensor.shape
    if columns == 1:
        rows, columns = 1, rows
    if not are_integers(tensor.type, columns):
        padded = -(-rows // FLOAT_TILE) * FLOAT_TILE * -(-columns // GROUP) * GROUP
        return prod(stack) * padded * _FLOAT_BYTES.get(tensor.type.name, 4)
    return prod(stack) * -(-rows // TILE) * _tile_bytes(tensor.type.name, columns)


def _part(name: str, trunk: int) -> str:
    if name == _NGRAM_TABLE:
        return "table"
    if name == "token_embd.weight":
        return "embedding"
    block = _BLOCK.match(name)
    if block is not None and int(block[1]) >= trunk:
        return "draft"
    return "expert" if _EXPERTS.match(name) else "dense"


def _tensor_bytes(name: str, tensor: TensorInfo) -> int:
    if name in _TABLES or name.endswith("nextn.embed_tokens.weight"):
        return tensor.nbytes
    if len(tensor.shape) == 1 and tensor.type.name in ("F32", "F16", "BF16"):
        return 4 * tensor.shape[0]
    return matrix_bytes(tensor)


@cache
def _tile_bytes(name: str, columns: int) -> int:
    if has_limbs(quant_type(name), columns):
        return 4 * LIMBS.tile_words(-(-columns // (GROUP * QUAD)))
    each = _MULTIPLIERS.get(name, 0)
    minimum = name in _WITH_MINIMA
    form = form_of(
        quant_type(name),
        multipliers=each,
        minimum=minimum,
        minimum_multipliers=each if minimum else 0,
    )
    return 4 * form.tile_words(-(-columns // (GROUP * QUAD)))
