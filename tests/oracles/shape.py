"""Shapes of small random models, and the transformers models that have them.

`Shape` says everything in one place; `build` makes the transformers text model (float32, eager
attention) with random weights whose scale keeps every gate, router and indexer busy.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

VOCABULARY = 512
"""Tokens of the fixtures' tokenizer, which every random model borrows."""

EVERYTHING = 1 << 12
"""An indexer budget no test text reaches: attention is dense."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One small model. `layers` has a letter a block: g GatedDeltaNet, a attention, d dense
    attention (`compress_ratios` 0; in qwen35moe every attention layer is dense, written a)."""

    name: str
    family: str = "qwen4exp"
    seed: int = 0
    layers: str = "ggga"
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    rotary: int = 16
    theta: float = 1e7
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 16
    value_dim: int = 16
    conv_kernel: int = 4
    experts: int = 6
    experts_used: int = 2
    expert_ff: int = 32
    shared_ff: int = 32
    streams: int = 4
    lowrank: int = 16
    indexer_heads: int = 4
    indexer_dim: int = 32
    budget: int = 16
    ratios: tuple[int, ...] = (4,)
    write_ratios: bool = True
    draft_ratio: int = 0
    ple_block: int | None = None
    ple_width: int = 64
    ngram_size: int = 3
    heads_per_ngram: int = 4
    ngram_rows: int = 150
    ple_kernel: int = 4
    eos: int = 509
    eps: float = 1e-6
    tied: bool = False
    gate_shape: str = "1xD"
    storage: str = "f32"
    tokens: int = 80
    eos_at: tuple[int, ...] = ()

    def ratio(self, block: int) -> int:
        """Tokens an indexer block of attention layer `block`; 0: dense attention."""
        if self.layers[block] != "a" or self.family == "qwen35moe":
            return 0
        nth = self.layers[:block].count("a")
        return self.ratios[nth % len(self.ratios)]

    def text(self) -> list[int]:
        """Random ids with end-of-text tokens exactly at `eos_at` (negative: from the end)."""
        chooser = torch.Generator().manual_seed(1000 + self.seed)
        ids = torch.randint(0, 500, (self.tokens,), generator=chooser).tolist()
        for position in self.eos_at:
            ids[position] = self.eos
        return ids


def build(shape: Shape) -> nn.Module:
    """The transformers causal language model of `shape`, on the CPU, in evaluation mode."""
    make = _qwen4exp if shape.family == "qwen4exp" else _qwen35moe
    model = make(shape).eval()
    model.requires_grad_(False)
    _randomise(model, shape)
    return model


def logits(model: nn.Module, ids: list[int]) -> torch.Tensor:
    """[T, vocabulary] of the whole text in one pass without a cache, in the model's precision."""
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def _common(shape: Shape) -> dict[str, object]:
    third = shape.rotary // 2 // 3
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": shape.hidden,
        "num_hidden_layers": len(shape.layers),
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 4096,
        "rms_norm_eps": shape.eps,
        "tie_word_embeddings": shape.tied,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.theta,
            "partial_rotary_factor": shape.rotary / shape.head_dim,
            "mrope_section": [shape.rotary // 2 - 2 * third, third, third],
        },
        "linear_conv_kernel_dim": shape.conv_kernel,
        "linear_key_head_dim": shape.key_dim,
        "linear_value_head_dim": shape.value_dim,
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.value_heads,
        "moe_intermediate_size": shape.expert_ff,
        "shared_expert_intermediate_size": shape.shared_ff,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.experts_used,
        "layer_types": [
            "linear_attention" if letter == "g" else "full_attention" for letter in shape.layers
        ],
        "eos_token_id": shape.eos,
        "pad_token_id": None,
        "attn_implementation": "eager",
        "experts_implementation": "eager",
    }


def _qwen35moe(shape: Shape) -> nn.Module:
    return Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**_common(shape)))


def _qwen4exp(shape: Shape) -> nn.Module:
    config = Qwen4ExpTextConfig(
        **_common(shape),
        hc_count=max(shape.streams, 2),
        hc_lowrank=shape.lowrank,
        ple_layer_ids=[] if shape.ple_block is None else [shape.ple_block + 1],
        ple_embed_dim=shape.ple_width,
        ple_conv_kernel_size=shape.ple_kernel,
        ngram_size=shape.ngram_size,
        heads_per_ngram=shape.heads_per_ngram,
        ngram_vocab_size_base=shape.ngram_rows,
        split_ngram_parts=2,
        indexer_n_heads=shape.indexer_heads,
        indexer_kv_heads=1,
        indexer_head_dim=shape.indexer_dim,
        indexer_budget=shape.budget,
        indexer_compress_ratio=shape.ratios[0],
        output_gate_type="sigmoid",
    )
    # The published code refuses one stream, though its formulas hold; set it after the check.
    config.hc_count = shape.streams
    model = Qwen4ExpForCausalLM(config)
    for block, layer in enumerate(model.model.layers):
        if shape.layers[block] != "g":
            _set_indexer(layer.self_attn.indexer, shape, block)
    return model


def _set_indexer(indexer: nn.Module, shape: Shape, block: int) -> None:
    """Give one attention layer its own ratio, or a budget that selects everything."""
    ratio = shape.ratio(block)
    if ratio == 0:
        indexer.token_budget = EVERYTHING
        indexer.block_topk = EVERYTHING // indexer.compress_ratio
        return
    indexer.compress_ratio = ratio
    indexer.block_topk = indexer.token_budget // ratio


def _randomise(model: nn.Module, shape: Shape) -> None:
    chooser = torch.Generator().manual_seed(shape.seed)
    for name, weight in model.named_parameters():
        weight.data = _stored(_draw(name, weight, chooser), name, shape.storage)
    if shape.tied:
        model.lm_head.weight = model.model.embed_tokens.weight


def _draw(name: str, weight: torch.Tensor, chooser: torch.Generator) -> torch.Tensor:
    def uniform(low: float, high: float) -> torch.Tensor:
        return torch.rand(weight.shape, generator=chooser) * (high - low) + low

    normal = torch.randn(weight.shape, generator=chooser)
    if name.endswith("A_log"):
        return uniform(0.05, 4.0).log()
    if name.endswith("linear_attn.norm.weight"):
        return uniform(0.5, 1.5)
    if weight.dim() == 1:
        return normal if name.endswith("dt_bias") else uniform(-0.5, 0.5)
    if "embed" in name:
        return normal
    if "conv1d" in name:
        return normal * 0.6
    gain = 2.0 if ".gate.weight" in name or "in_proj_b" in name else 1.0
    return normal * gain * weight.shape[-1] ** -0.5


def _stored(weight: torch.Tensor, name: str, storage: str) -> torch.Tensor:
    """Round a matrix to the type its GGUF tensor will have, so that nothing is lost there."""
    if weight.dim() < 2 or storage == "f32" or is_kept_float32(name):
        return weight
    dtype = torch.float16 if storage == "f16" else torch.bfloat16
    return weight.to(dtype).to(torch.float32)


def is_kept_float32(name: str) -> bool:
    """Matrices that published files keep in F32: the router and the GatedDeltaNet taps."""
    return name.endswith(("mlp.gate.weight", "linear_attn.conv1d.weight"))
