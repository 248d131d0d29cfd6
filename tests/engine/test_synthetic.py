"""Models of random weights: published sizes, determinism, loading, routing, writing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import ConfigError, ModelFileError
from engine.gguf.dequantize import dequantize
from engine.gguf.reader import open_gguf
from engine.gguf.tokenizer import Tokenizer
from engine.logits import whole_rows
from engine.model_info import ModelInfo
from engine.models.config import ModelConfig
from engine.models.loader import load_weights
from engine.models.pipeline import DevicePipeline
from engine.models.state import StateShape
from engine.ops import Ops, ops_for
from engine.pipeline import DraftAsk
from engine.reference.experts import route
from engine.synthetic import SyntheticGGUF, SyntheticSpec, open_synthetic, write_synthetic
from engine.synthetic_mixes import FAMILIES
from engine.window import Span, Verdict, Window

MODELS = [f"{family}:{mix}" for family, entry in FAMILIES.items() for mix in entry.mixes]
SMALL = "small,layers=2,experts=4"


@pytest.mark.parametrize(
    ("model", "tensors", "experts", "dense_gb"),
    [
        # 1,224 tensors and 32 of the draft layer. IQ3_S 704,000, IQ4_NL 921,600, Q2_0 460,800 bytes
        # a matrix: 512 * (48 * 2 * 704,000 + 19 * 921,600 + 29 * 460,800)
        ("qwen3.8-flash-next:iq3_s", 1256, 50_410_291_200, 4.2),
        # 24,576 experts of 3 * 460,800
        ("qwen3.8-flash-next:q2_0", 1256, 33_973_862_400, 3.9),
        # 512 * (47 * 2 * 921,600 + 2 * 1,126,400 + 43 * 1,228,800 + 5 * 1,740,800)
        ("qwen3.8-flash-next:q4_k", 1256, 77_017_907_200, 5.5),
        # 10,240 experts of 2 * 512 * 880 + 2,048 * 288
        ("qwen3.6-35b-a3b:ud-iq4_xs", 753, 15_267_266_560, 2.7),
    ],
)
def test_published_sizes(model: str, tensors: int, experts: int, dense_gb: float) -> None:
    gguf = open_synthetic(model)
    info = ModelInfo.from_gguf(gguf)
    assert len(gguf.tensors) == tensors
    assert info.expert_bytes == experts
    assert info.dense_bytes / 1e9 == pytest.approx(dense_gb, abs=0.05)
    assert info.has_drafts
    # 320,001,536 rows of 160 weights in IQ4_NL
    assert info.table_bytes == (28_800_138_240 if "flash" in model else 0)


def test_options() -> None:
    spec = SyntheticSpec.parse(
        "qwen3.8-flash-next:q2_0,layers=6,experts=32,seed=4,zipf=1.5,drafts=0"
    )
    assert (spec.layers, spec.experts, spec.seed, spec.zipf) == (6, 32, 4, 1.5)
    assert spec.name == "qwen3.8-flash-next:q2_0:synthetic"
    config = ModelConfig.from_gguf(SyntheticGGUF(spec))
    assert [layer.mixer == "attention" for layer in config.layers] == [0, 0, 0, 1, 0, 0]
    assert (config.experts.count, config.experts.used) == (32, 10)
    assert not config.draft_layers


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("qwen4:iq3_s", "qwen4"),
        ("qwen3.8-flash-next", "''"),
        ("qwen3.8-flash-next:q9", "q9"),
        ("qwen3.8-flash-next:iq3_s,layers=1", "layers='1'"),
        ("qwen3.8-flash-next:iq3_s,experts=many", "many"),
        ("qwen3.8-flash-next:iq3_s,zipf=-1", "zipf"),
        ("qwen3.8-flash-next:iq3_s,small=2", "small"),
        ("qwen3.8-flash-next:iq3_s,colour=1", "colour"),
        ("", "''"),
    ],
)
def test_unknown_models(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as raised:
        open_synthetic(text)
    assert raised.value.hint


@pytest.mark.parametrize("model", MODELS)
def test_tensors_are_the_same_wherever_they_are_made(model: str) -> None:
    gguf, again = (open_synthetic(f"{model},{SMALL},seed=5,zipf=1") for _ in range(2))
    other = open_synthetic(f"{model},{SMALL},seed=6")
    for name in reversed(gguf.tensors):
        raw = gguf.raw(name)
        assert raw.nbytes == gguf.tensors[name].nbytes
        assert np.array_equal(again.raw_on(name, "cpu").numpy(), raw)
        assert not np.array_equal(other.raw(name), raw)
        assert np.isfinite(gguf.float32(name)).all()


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(ModelFileError, match="output_extra"):
        open_synthetic(f"{MODELS[0]},{SMALL}").raw("output_extra.weight")


def _pipeline(gguf: SyntheticGGUF, ops: Ops, drafts: int = 3) -> DevicePipeline:
    config = ModelConfig.from_gguf(gguf)
    weights = load_weights(gguf, config, ops, float_activations=False, drafts=drafts > 0)
    return DevicePipeline(weights, config, config, StateShape(1, 512, "int8", drafts), ops)


@pytest.mark.parametrize("model", MODELS)
def test_loads_and_computes(model: str) -> None:
    gguf = open_synthetic(f"{model},{SMALL}")
    pipeline = _pipeline(gguf, ops_for("cpu"))
    window = Window((Span(0, 0, tuple(range(40, 60)), 20, 0),))
    logits = whole_rows(pipeline.forward(window)())
    assert logits.shape == (20, 1024)
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 5
    pipeline.commit(window, [Verdict(20, 7)])
    assert len(pipeline.draft([DraftAsk(0, 3, 0.0)])()[0]) == 3


def _routes(model: str, tokens: int) -> Iterator[np.ndarray]:
    """How often each expert of each layer is chosen."""
    chosen: list[np.ndarray] = []
    ops = ops_for("cpu")

    def mixture_into(residual: Any, shares: Any, x: Any, w: Any, used: int) -> None:
        chosen.append(route(x, w.ffn_gate_inp, used)[0].numpy().copy())
        ops.mixture_into(residual, shares, x, w, used)

    gguf = open_synthetic(model)
    pipeline = _pipeline(gguf, replace(ops, mixture_into=mixture_into), drafts=0)
    text = tuple(np.random.Philox(1).random_raw(tokens) % 1000)
    pipeline.forward(Window((Span(0, 0, tuple(map(int, text)), tokens, tokens - 1),)))
    for experts in chosen:
        yield np.bincount(experts.ravel(), minlength=gguf.spec.experts)


@pytest.mark.parametrize("model", [MODELS[1], MODELS[3]])
def test_routing_is_even(model: str) -> None:
    """200 tokens, 64 experts, 8 or 10 of them each: 25 or 31 on average, not far from chance.

    By chance alone the sum of squared shares says about 62 experts of 64.
    """
    for counts in _routes(f"{model},small,layers=4,experts=64", 200):
        shares = counts / counts.sum()
        assert 1 / np.square(shares).sum() > 0.93 * 64
        assert counts.min() > 7


def test_routing_by_zipf() -> None:
    """10 of 256: expert 8 gets 10 / 6.12 / 8 = 20% of the tokens, expert 64 gets 2.6%; the first
    ones would get more than all, and get 45% or so."""
    for counts in _routes("qwen3.8-flash-next:q2_0,small,layers=2,experts=256,zipf=1", 200):
        ranked = np.sort(counts)[::-1] / 200
        assert 0.35 < ranked[0] < 0.65
        assert ranked[7] == pytest.approx(0.204, rel=0.3)
        assert ranked[63] == pytest.approx(0.0255, rel=0.7)


def test_popular_experts_are_others_in_every_layer() -> None:
    gguf = open_synthetic("qwen3.8-flash-next:q4_k,small,layers=3,experts=64,zipf=1")
    first = []
    for layer in range(3):
        rows = gguf.float32(f"blk.{layer}.ffn_gate_inp.weight")
        first.append(int(np.square(rows).sum(axis=1).argmax()))
    assert len(set(first)) > 1


def test_a_written_model_is_the_same(tmp_path: Path) -> None:
    gguf = open_synthetic(f"qwen3.8-flash-next:iq3_s,{SMALL}")
    path = tmp_path / "synthetic.gguf"
    write_synthetic(gguf, path)
    with open_gguf(path) as written:
        assert list(written.tensors) == list(gguf.tensors)
        assert written.metadata.keys() == gguf.metadata.keys()
        assert ModelConfig.from_gguf(written) == ModelConfig.from_gguf(gguf)
        for name in gguf.tensors:
            assert np.array_equal(written.raw(name), gguf.raw(name))


def test_tokenizer() -> None:
    gguf = open_synthetic(f"{MODELS[0]},{SMALL}")
    tokenizer = Tokenizer.from_metadata(gguf.metadata)
    assert tokenizer.decode(tokenizer.encode("Hello, wörld")) == "Hello, wörld"
    assert tokenizer.eos_ids == {1000, 1002}
    assert tokenizer.special["<|im_start|>"] == 1001


def test_norms_and_decays() -> None:
    gguf = open_synthetic(f"{MODELS[0]},{SMALL}")
    for name, low, high in (("blk.0.ssm_a", -0.5, -0.25), ("blk.0.ssm_norm.weight", 1, 2)):
        values = dequantize(gguf.raw(name), gguf.tensors[name].type)
        assert low <= values.min() <= values.max() <= high
