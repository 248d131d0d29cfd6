"""The models that `--synthetic FAMILY:MIX` makes: widths and types of the published files.

Types follow what is known of the files: the experts' and their bytes exactly (IQ3_S: 19 of 48
layers with IQ4_NL down, the nearest to 50.3 GB), dense weights within a tenth of their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from engine.models.geometry import FLASH_NEXT, QWEN36, Geometry
from engine.models.published import StoredTypes

# 4.1 GB of dense weights, of which 0.27 are embeddings.
_IQ3_S_DENSE = {
    "ffn_gate_inp": "BF16",
    "attn_qkv": "Q5_K",
    "attn_gate": "IQ4_XS",
    "ssm_out": "Q5_K",
    "attn_q": "Q5_K",
    "attn_k": "Q6_K",
    "attn_v": "Q6_K",
    "attn_output": "Q5_K",
    "ffn_gate_shexp": "IQ4_XS",
    "ffn_up_shexp": "IQ4_XS",
    "token_embd": "IQ3_S",
    "output": "Q5_K",
}
_Q2_0_DENSE = {**_IQ3_S_DENSE, "attn_qkv": "IQ4_XS", "attn_gate": "Q2_0", "token_embd": "Q3_K"}
_FLOATS = dict.fromkeys(("ssm_alpha", "ssm_beta", "hc_attn_inject", "hc_ffn_inject"), "F32")


def _iq3_s_down(layer: int) -> str:
    """19 of 48 layers, spread evenly."""
    return "IQ4_NL" if layer * 19 // 48 != (layer + 1) * 19 // 48 else "Q2_0"


def _q4_k_experts(layer: int) -> tuple[str, str]:
    gate_up = "Q5_K" if layer == 2 else "Q4_K"
    return gate_up, "Q8_0" if layer in (2, 4, 30, 46, 47) else "Q5_1"


@dataclass(frozen=True, slots=True)
class Family:
    """A model: its widths, a small version's, and its mixes of types."""

    title: str
    geometry: Geometry
    small: Geometry
    mixes: Mapping[str, StoredTypes]


def _small(geometry: Geometry, **other: int) -> Geometry:
    """Widths for a test: matrices of a few hundred rows, the same kinds of heads and layers."""
    return replace(
        geometry,
        width=512,
        heads=2,
        kv_heads=1,
        key_heads=2,
        index_heads=2,
        expert_width=128,
        low_rank=64,
        vocabulary=1024,
        eos=1000,
        primes=(101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179),
        **other,  # type: ignore[arg-type]
    )


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "qwen3.8-flash-next": Family(
            "Qwen3.8-Flash-Next",
            replace(FLASH_NEXT, drafts=1),
            _small(FLASH_NEXT, value_heads=6, drafts=1),
            {
                "iq3_s": StoredTypes(
                    experts=tuple(("IQ3_S", _iq3_s_down(layer)) for layer in range(48)),
                    named=_IQ3_S_DENSE,
                    draft_experts=("Q2_0", "Q2_0"),
                ),
                "q2_0": StoredTypes(
                    experts=(("Q2_0", "Q2_0"),) * 48,
                    named=_Q2_0_DENSE,
                    draft_experts=("Q2_0", "Q2_0"),
                ),
                "q4_k": StoredTypes(
                    experts=tuple(_q4_k_experts(layer) for layer in range(48)),
                    wide="Q8_0",
                    named=_FLOATS,
                    draft_experts=("Q2_0", "Q2_0"),
                ),
            },
        ),
        "qwen3.6-35b-a3b": Family(
            "Qwen3.6-35B-A3B",
            QWEN36,
            _small(QWEN36, value_heads=4),
            {
                "ud-iq4_xs": StoredTypes(experts=(("IQ3_S", "IQ4_NL"),) * 40, draft_dense="Q4_0"),
            },
        ),
    }
)
