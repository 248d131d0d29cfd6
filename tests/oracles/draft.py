"""The draft (MTP) blocks of both families in plain torch, float64, one pair at a time.

Written from the description of the blocks alone. A pair is the trunk's residual R_i and the token
that follows it, t_{i+1}; it stands at rope position i and predicts token i + 2. The block has
its own K/V cells, one a pair, and attends to all of them, or, where `compress_ratios` has a ratio
for it, to what its own indexer selects. Weights are read from a GGUF by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.oracles.weights import Weights, rms, rope

DRAFTS = 3


class Indexer:
    """Chooses cells: the best complete blocks of `ratio` cells, and the incomplete tail."""

    def __init__(self, weights: Weights, ratio: int) -> None:
        keys = weights.keys
        self.ratio = ratio
        self.blocks = keys["attention.indexer.top_k"] // ratio
        self.width = keys["attention.indexer.key_length"]
        self.rotation = keys["rope.dimension_count"], keys["rope.freq_base"]
        self.eps = keys["attention.layer_norm_rms_epsilon"]
        self.query, self.key, self.query_norm, self.key_norm = (
            weights.of_block(f"indexer.{name}") for name in ("q_proj", "k_proj", "q_norm", "k_norm")
        )
        self.keys: list[Tensor] = []

    def __call__(self, row: Tensor) -> list[int]:
        """[D] of the next cell -> ascending cells to attend to."""
        position = len(self.keys)
        self.keys.append(self.key @ row)
        query = rms((self.query @ row).reshape(-1, self.width), self.query_norm, self.eps)
        query = rope(query, position, *self.rotation)
        starts = range(0, len(self.keys) - self.ratio + 1, self.ratio)
        scores = torch.tensor(
            [float((query @ self._pooled(start)).relu().sum()) for start in starts]
        )
        best = scores.argsort(descending=True, stable=True)[: self.blocks].tolist()
        chosen = [starts[block] + i for block in sorted(best) for i in range(self.ratio)]
        return chosen + list(range(len(starts) * self.ratio, len(self.keys)))

    def _pooled(self, start: int) -> Tensor:
        mean = torch.stack(self.keys[start : start + self.ratio]).mean(0, keepdim=True)
        return rope(rms(mean, self.key_norm, self.eps), start, *self.rotation)[0]


class Attention:
    """Gated attention of the draft block with K/V cells that grow by one a call."""

    def __init__(self, weights: Weights) -> None:
        keys = weights.keys
        self.heads = keys["attention.head_count"]
        self.kv_heads = keys["attention.head_count_kv"]
        self.width = keys["attention.key_length"]
        self.rotation = keys["rope.dimension_count"], keys["rope.freq_base"]
        self.eps = keys["attention.layer_norm_rms_epsilon"]
        names = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm")
        self.query, self.key, self.value, self.output, self.query_norm, self.key_norm = (
            weights.of_block(name) for name in names
        )
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        ratio = keys.get("attention.compress_ratios", [0])[-1]
        self.indexer = Indexer(weights, ratio) if ratio else None

    def __call__(self, row: Tensor) -> Tensor:
        """[D] -> [D] at the next position."""
        position = len(self.keys)
        query, gate = (self.query @ row).reshape(self.heads, 2, self.width).unbind(1)
        key = (self.key @ row).reshape(self.kv_heads, self.width)
        query = rope(rms(query, self.query_norm, self.eps), position, *self.rotation)
        self.keys.append(rope(rms(key, self.key_norm, self.eps), position, *self.rotation))
        self.values.append((self.value @ row).reshape(self.kv_heads, self.width))
        chosen = self.indexer(row) if self.indexer else range(position + 1)
        shared = self.heads // self.kv_heads
        cells = torch.stack([self.keys[i] for i in chosen]).repeat_interleave(shared, 1)
        values = torch.stack([self.values[i] for i in chosen]).repeat_interleave(shared, 1)
        chances = torch.softmax(torch.einsum("hd,chd->hc", query, cells) / self.width**0.5, -1)
        mixed = torch.einsum("hc,chd->hd", chances, values) * torch.sigmoid(gate)
        return self.output @ mixed.flatten()


class Experts:
    """Softmax router, its best experts renormalised, and the gated shared expert."""

    def __init__(self, weights: Weights) -> None:
        self.used = weights.keys["expert_used_count"]
        self.router = weights.of_block("ffn_gate_inp")
        self.gate, self.up, self.down = (
            weights.of_block(f"ffn_{part}_exps") for part in ("gate", "up", "down")
        )
        self.shared = [weights.of_block(f"ffn_{part}_shexp") for part in ("gate", "up", "down")]
        self.shared_gate = weights.of_block("ffn_gate_inp_shexp").flatten()

    def __call__(self, row: Tensor) -> Tensor:
        """[D] -> [D]."""
        best = torch.softmax(self.router @ row, 0).topk(self.used)
        total = torch.zeros_like(row)
        for chance, expert in zip(best.values / best.values.sum(), best.indices, strict=True):
            total += chance * _expert(row, self.gate[expert], self.up[expert], self.down[expert])
        return total + torch.sigmoid(self.shared_gate @ row) * _expert(row, *self.shared)


def _expert(row: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return down @ (functional.silu(gate @ row) * (up @ row))


class Mixer:
    """A hyper-connection: reads one vector from the streams, writes a block's output back."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self.streams = weights.keys["hyper_connection.count"]
        self.eps = weights.keys["attention.layer_norm_rms_epsilon"]
        self.norm = weights.of_block(prefix + "norm")
        self.down = weights.of_block(prefix + "down")
        self.up = weights.of_block(prefix + "up")
        writes = not prefix.endswith("head_")
        self.inject = weights.of_block(prefix + "inject") if writes else None

    def read(self, wide: Tensor) -> Tensor:
        """[N, D] -> [D]."""
        normed = self._normed(wide)
        mix = functional.silu(self.down @ normed.flatten() / self.streams)
        return (torch.sigmoid(self.up @ mix).reshape(wide.shape) * normed).mean(0)

    def write(self, wide: Tensor, output: Tensor) -> Tensor:
        """Add `output` to each stream of `wide` (the value that was read), [N, D]."""
        shares = 2 * torch.sigmoid(self.inject @ self._normed(wide).flatten() / self.streams)
        return wide + shares[:, None] * output

    def _normed(self, wide: Tensor) -> Tensor:
        return rms(wide, self.norm.reshape(wide.shape), self.eps)


@dataclass
class Qwen4ExpDraft:
    """One hyper-connected decoder layer; `hnorm` pools all streams in one RMS, or not."""

    weights: Weights
    hnorm: str = "pooled"
    attention: Attention = field(init=False)

    def __post_init__(self) -> None:
        weights = self.weights
        self.attention, self.experts = Attention(weights), Experts(weights)
        self.before_attention = Mixer(weights, "hc_attn_")
        self.before_experts = Mixer(weights, "hc_ffn_")
        self.head_mixer = Mixer(weights, "nextn.hc_head_")

    def step(self, residual: Tensor, token: int) -> tuple[Tensor, Tensor]:
        """Residual [N * D] and the next token -> (logits [V], the residual of the next step)."""
        wide = self._combined(residual, token)
        for mixer, block in (
            (self.before_attention, self.attention),
            (self.before_experts, self.experts),
        ):
            wide = mixer.write(wide, block(mixer.read(wide)))
        return _head(self.weights) @ self.head_mixer.read(wide), wide.flatten()

    def _combined(self, residual: Tensor, token: int) -> Tensor:
        weights, eps = self.weights, self.before_attention.eps
        streams = self.before_attention.streams
        gamma = weights.of_block("nextn.hnorm")
        if self.hnorm == "pooled":
            hidden = rms(residual, gamma, eps).reshape(streams, -1)
        else:
            hidden = rms(residual.reshape(streams, -1), gamma.reshape(streams, -1), eps)
        embedded = rms(_embedding(weights)[token], weights.of_block("nextn.enorm"), eps)
        both = torch.cat([embedded.expand_as(hidden), hidden], 1)
        return both @ weights.of_block("nextn.eh_proj").T


@dataclass
class Qwen35MoeDraft:
    """One ordinary pre-norm decoder layer; its normed output is also the next step's input."""

    weights: Weights
    attention: Attention = field(init=False)

    def __post_init__(self) -> None:
        self.attention, self.experts = Attention(self.weights), Experts(self.weights)

    def step(self, hidden: Tensor, token: int) -> tuple[Tensor, Tensor]:
        """Normed trunk output [D] and the next token -> (logits [V], the next step's input)."""
        weights, eps = self.weights, self.attention.eps
        embedded = rms(_embedding(weights)[token], weights.of_block("nextn.enorm"), eps)
        normed = rms(hidden, weights.of_block("nextn.hnorm"), eps)
        row = weights.of_block("nextn.eh_proj") @ torch.cat([embedded, normed])
        row = row + self.attention(rms(row, weights.of_block("attn_norm"), eps))
        row = row + self.experts(rms(row, weights.of_block("post_attention_norm"), eps))
        last = f"{weights.block}nextn.shared_head_norm.weight"
        norm = weights[last if last in weights else "output_norm.weight"]
        output = rms(row, norm, eps)
        return _head(weights) @ output, output


def _embedding(weights: Weights) -> Tensor:
    own = weights.block + "nextn.embed_tokens.weight"
    return weights[own if own in weights else "token_embd.weight"]


def _head(weights: Weights) -> Tensor:
    own = weights.block + "nextn.shared_head_head.weight"
    for name in (own, "output.weight"):
        if name in weights:
            return weights[name]
    return weights["token_embd.weight"]


def residuals(model: nn.Module, ids: Sequence[int]) -> Tensor:
    """What the trunk of a transformers model hands to the draft block, in the model's precision.

    qwen4exp: the streams before the output mixer, [T, N * D]. qwen35moe: the output of the final
    norm, [T, D].
    """
    kept: list[Tensor] = []
    trunk = model.model
    if hasattr(trunk, "hyper_connection_mixer"):
        place = trunk.hyper_connection_mixer
        handle = place.register_forward_pre_hook(lambda module, given: kept.append(given[0]))
    else:
        handle = trunk.norm.register_forward_hook(lambda module, given, out: kept.append(out))
    model(torch.tensor([list(ids)]), use_cache=False)
    handle.remove()
    return kept[0][0]


def draft_logits(
    weights: Weights, rows: Tensor, ids: Sequence[int], *, hnorm: str = "pooled"
) -> tuple[Tensor, Tensor]:
    """First drafts at every pair, [T - 1, V], and the chain from the last pair, [DRAFTS, V].

    The first row of the chain is the last pair's own; each later one is fed the argmax before it.
    """
    qwen4exp = weights.family == "qwen4exp"
    block = Qwen4ExpDraft(weights, hnorm) if qwen4exp else Qwen35MoeDraft(weights)
    first = []
    for row, token in zip(rows.double(), ids[1:], strict=False):
        logits, residual = block.step(row, token)
        first.append(logits)
    chain = [first[-1]]
    while len(chain) < DRAFTS:
        logits, residual = block.step(residual, int(chain[-1].argmax()))
        chain.append(logits)
    return torch.stack(first), torch.stack(chain)
