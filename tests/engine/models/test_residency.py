"""Every expert lies somewhere, with the bytes that it has where all of them lie on the device."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.ops import kernel_ops
from engine.models.config import ModelConfig
from engine.models.residency import Residency, Stores
from engine.models.tensors import Tensors
from engine.synthetic import open_synthetic

SPEC = "qwen3.6-35b-a3b:ud-iq4_xs,small,layers=2,experts=6,vocabulary=512,drafts=0"
FIELDS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


@pytest.mark.parametrize("resident", [0, 2, 6])
def test_experts_are_found_where_they_lie(resident: int) -> None:
    gguf = open_synthetic(SPEC)
    config = ModelConfig.from_gguf(gguf)
    ops = kernel_ops("cpu")
    tensors = Tensors(gguf, config, ops, float_activations=False)
    stores = Stores(Residency(resident, staging=2, every=1, swaps=1, decay=0.5), "cpu")
    made = stores.matrices(tensors, "blk.1.", config.experts.count)
    store = made["ffn_gate_exps"].store
    store.tally += torch.tensor([4, 9, 3, 1])
    assert (stores.use().found, stores.use().fetched, stores.use().hit_rate) == (9, 3, 0.75)
    assert stores.use().since(stores.use()).hit_rate == 1.0
    places = store.places.tolist()
    assert sum(place >= 0 for place in places) == resident
    whole = [tensors.matrix(f"blk.1.{field}.weight").record for field in FIELDS]
    host = store._host.view(-1, store.record_bytes) if resident < 6 else None
    for expert, place in enumerate(places):
        parts = [record[expert].reshape(-1).view(torch.uint8) for record in whole]
        expected = torch.cat(parts)
        found = store._slots[place] if place >= 0 else host[-1 - place]
        assert torch.equal(found[: expected.numel()], expected)
