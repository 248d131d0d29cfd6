"""Bytes on a card by the header alone are those of the matrices that the loader makes."""

from __future__ import annotations

import numpy as np
import pytest

from engine.card_weights import CardWeights, matrix_bytes
from engine.gguf.header import TensorInfo
from engine.gguf.integer_form import INTEGER_TYPES
from engine.gguf.types import quant_type
from engine.kernels.matrix import matrix
from engine.models.config import ModelConfig
from engine.synthetic import open_synthetic


@pytest.mark.parametrize("name", sorted(INTEGER_TYPES | {"F32", "F16", "BF16"}))
@pytest.mark.parametrize("shape", [(33, 256), (2, 64, 768)])
def test_a_matrix_of_each_type(name: str, shape: tuple[int, ...]) -> None:
    kind = quant_type(name)
    raw = np.zeros((*shape[:-1], kind.row_bytes(shape[-1])), np.uint8)
    made = matrix(raw, kind, shape[-1], float_activations=False, device="cpu")
    info = TensorInfo("x", kind, shape, shard=0, offset=0, nbytes=raw.nbytes)
    assert matrix_bytes(info) == made.record.nbytes


def test_parts_of_a_model() -> None:
    gguf = open_synthetic("qwen3.8-flash-next:iq3_s,small,layers=4,experts=8")
    config = ModelConfig.from_gguf(gguf)
    found = CardWeights.from_gguf(gguf, config)
    tensors = gguf.tensors
    experts = [n for n in tensors if "_exps." in n and int(n.split(".")[1]) < 4]
    assert found.expert_bytes == sum(matrix_bytes(tensors[name]) for name in experts)
    assert found.table_bytes == tensors["per_layer_token_embd.weight"].nbytes
    drafts = [n for n in tensors if n.startswith("blk.4.")]
    assert 0 < found.draft_bytes < 8 * sum(tensors[name].nbytes for name in drafts)
    assert found.dense_bytes > tensors["output.weight"].nbytes
