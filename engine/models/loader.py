"""Builds the weights of a model from its GGUF, and of its draft layer, perhaps from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.errors import ModelFileError
from engine.gguf.reader import GGUF
from engine.models.config import LayerConfig, ModelConfig
from engine.models.residency import Stores
from engine.models.tensors import TablePlace, Tensors
from engine.models.weights import (
    Attention,
    Block,
    DraftBlock,
    Experts,
    GatedDeltaNet,
    HyperConnection,
    Indexer,
    ModelWeights,
    NgramEmbedding,
)
from engine.ops import Ops

Progress = Callable[[int, int], None]


def load_weights(
    gguf: GGUF,
    config: ModelConfig,
    ops: Ops,
    *,
    float_activations: bool,
    drafts: bool = True,
    draft_from: tuple[GGUF, ModelConfig] | None = None,
    draft_ids: Sequence[int] | None = None,
    table_place: TablePlace = "vram",
    stores: Stores | None = None,
    progress: Progress = lambda done, of: None,
) -> ModelWeights:
    """All weights, packed for the device of `ops`; `drafts` False leaves the draft layer out.
    `draft_ids` are the tokens that may be drafted, ascending (None: all).
    `table_place` is that of the n-gram table; `stores` keep the trunk's routed experts (None:
    all lie on the device). `progress` hears of every block.

    Raises ModelFileError for a tensor that is missing or has another shape than the metadata say.
    """
    tensors = Tensors(gguf, config, ops, float_activations=float_activations)
    total = len(config.layers) + len(config.draft_layers)
    blocks = []
    for done, layer in enumerate(config.layers):
        progress(done, total)
        blocks.append(_block(tensors, layer, config, stores))
    head = "output.weight" if tensors.has("output.weight") else "token_embd.weight"
    output = tensors.matrix(head)
    drafted = output if draft_ids is None or not drafts else tensors.matrix(head, draft_ids)
    draft = None
    if draft_from is not None and drafts:
        other = Tensors(*draft_from, ops, float_activations=float_activations)
        draft = _draft(other, draft_from[1], tensors, drafted, draft_ids)
    elif config.draft_layers and drafts:
        draft = _draft(tensors, config, tensors, drafted, draft_ids)
    progress(total, total)
    hyper = config.hyper_streams > 0
    weights = ModelWeights(
        token_embd=tensors.table("token_embd.weight"),
        output=output,
        blocks=tuple(blocks),
        per_layer_token_embd=(
            tensors.table("per_layer_token_embd.weight", table_place) if config.ngram else None
        ),
        output_hc=tensors.group(HyperConnection, "output_hc_") if hyper else None,
        output_norm=None if hyper else tensors.vector("output_norm.weight"),
        draft=draft,
    )
    tensors.give_back()
    return weights


def _block(
    tensors: Tensors, layer: LayerConfig, config: ModelConfig, stores: Stores | None = None
) -> Block:
    prefix = f"blk.{layer.index}."
    hyper = config.hyper_streams > 0
    mixer: GatedDeltaNet | Attention
    if layer.mixer == "gated_delta_net":
        mixer = tensors.group(GatedDeltaNet, prefix)
    else:
        sparse = layer.compress_ratio > 0
        indexer = tensors.group(Indexer, f"{prefix}indexer.") if sparse else None
        mixer = tensors.group(Attention, prefix, indexer=indexer)
    routed = stores.matrices(tensors, prefix, config.experts.count) if stores else {}
    return Block(
        mixer=mixer,
        experts=tensors.group(Experts, prefix, **routed),
        ngram=tensors.group(NgramEmbedding, prefix) if layer.ngram else None,
        hc_attn=_connection(tensors, f"{prefix}hc_attn_") if hyper else None,
        hc_ffn=_connection(tensors, f"{prefix}hc_ffn_") if hyper else None,
        attn_norm=None if hyper else tensors.vector(f"{prefix}attn_norm.weight"),
        post_attention_norm=None
        if hyper
        else tensors.vector(f"{prefix}post_attention_norm.weight"),
    )


def _connection(tensors: Tensors, prefix: str) -> HyperConnection:
    """A block's hyper-connection, which must have its write weights."""
    tensors.require(f"{prefix}inject.weight")
    return tensors.group(HyperConnection, prefix)


def _draft(
    tensors: Tensors,
    config: ModelConfig,
    trunk: Tensors,
    output: object,
    ids: Sequence[int] | None,
) -> DraftBlock:
    if not config.draft_layers:
        raise ModelFileError(
            "the draft file has no draft layer: nextn_predict_layers is 0 or missing",
            hint="Name a GGUF with the MTP block of this model, or leave --mtp out.",
        )
    layer = config.draft_layers[0]
    prefix = f"blk.{layer.index}.nextn."
    hyper = config.hyper_streams > 0
    norm = f"{prefix}shared_head_norm.weight"
    if not hyper and not tensors.has(norm):
        norm = "output_norm.weight"
    head, embedding = f"{prefix}shared_head_head.weight", f"{prefix}embed_tokens.weight"
    own_embedding = tensors.has(embedding)
    return DraftBlock(
        block=_block(tensors, layer, config),
        eh_proj=tensors.matrix(f"{prefix}eh_proj.weight"),
        enorm=tensors.vector(f"{prefix}enorm.weight"),
        hnorm=tensors.vector(f"{prefix}hnorm.weight"),
        hc_head=tensors.group(HyperConnection, f"{prefix}hc_head_") if hyper else None,
        shared_head_norm=None if hyper else (tensors if tensors.has(norm) else trunk).vector(norm),
        shared_head_head=tensors.matrix(head, ids) if tensors.has(head) else output,
        ids=None if ids is None else tuple(ids),
        embed_tokens=(
            tensors.table(embedding) if own_embedding else trunk.table("token_embd.weight")
        ),
    )
