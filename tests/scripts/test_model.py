"""The training model against transformers, at shapes small enough for a CPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from scripts.train.geometry import Geometry
from scripts.train.model import Model
from scripts.train.parameters import initial, shapes
from tests.scripts.from_transformers import carried, transformers_model

WIDE = Geometry(
    "qwen4exp",
    vocab=96,
    hidden=64,
    blocks=4,
    interval=2,
    heads=4,
    kv_heads=2,
    head_dim=32,
    rotary=16,
    experts=5,
    experts_used=2,
    expert_ff=32,
    shared_ff=32,
    ssm_state=16,
    ssm_key_heads=2,
    ssm_value_heads=6,
    streams=3,
    hc_rank=8,
    index_heads=8,  # few equal scores: transformers breaks ties differently
    index_dim=32,
    index_budget=16,
    ple_block=2,
    ple_width=8,
    ple_heads=2,
    ple_base=50,
    ple_eos=3,
)
NARROW = dataclasses.replace(WIDE, architecture="qwen35moe", ssm_value_heads=4, interval=4)


@pytest.mark.parametrize("geometry", [WIDE, NARROW], ids=["qwen4exp", "qwen35moe"])
@pytest.mark.parametrize("length", [9, 150])
def test_logits_agree_with_transformers(geometry: Geometry, length: int) -> None:
    oracle = transformers_model(geometry, seed=length)
    tokens = torch.randint(0, geometry.vocab, (2, length))
    tokens[0, 5:7] = geometry.ple_eos
    with torch.no_grad():
        expected = oracle(input_ids=tokens).logits
        found = Model(geometry).forward(carried(oracle, geometry), tokens).logits
    error = (found - expected).abs().amax() / expected.abs().amax()
    assert error < 1e-4


@pytest.mark.parametrize("geometry", [WIDE, NARROW], ids=["qwen4exp", "qwen35moe"])
def test_carried_weights_have_the_declared_shapes(geometry: Geometry) -> None:
    found = {
        k: tuple(v.shape) for k, v in carried(transformers_model(geometry, 0), geometry).items()
    }
    draft = f"blk.{geometry.blocks}."
    assert found == {k: v for k, v in shapes(geometry).items() if not k.startswith(draft)}


@pytest.mark.parametrize("geometry", [WIDE, NARROW], ids=["qwen4exp", "qwen35moe"])
def test_every_parameter_gets_a_gradient(geometry: Geometry) -> None:
    weights = {k: v.requires_grad_() for k, v in initial(geometry, 1).items()}
    tokens = torch.randint(0, geometry.vocab, (2, 70))
    out = Model(geometry).forward(
        weights, tokens[:, :-1], tokens[:, 1:], rows=torch.arange(6, 69, 8)
    )
    assert out.draft_logits is not None
    loss = out.logits.square().mean() + out.draft_logits.square().mean()
    (loss + out.balance + out.index_loss).backward()
    silent = [k for k, v in weights.items() if v.grad is None or not v.grad.abs().sum() > 0]
    assert silent == []
