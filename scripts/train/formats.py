"""Which quantised type each tensor of the two models is stored in."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from scripts.train.geometry import Geometry
from scripts.train.quantise import straight_through

FLOAT_ENDINGS = (
    "_inp.weight",
    "_inp_shexp.weight",
    "_inject.weight",
    "ssm_alpha.weight",
    "ssm_beta.weight",
    "conv1d.weight",
)
WIDE = {
    "token_embd": "Q4_0",
    "output": "Q5_1",
    "per_layer_token_embd": "Q4_0",
    "ffn_gate_exps": "Q2_0",
    "ffn_up_exps": "Q2_0",
    "ffn_down_exps": "Q2_0",
    "ffn_gate_shexp": "Q4_0",
    "ffn_up_shexp": "Q4_0",
    "ffn_down_shexp": "Q5_1",
    "attn_output": "Q5_1",
    "ssm_out": "Q5_1",
    "attn_gate": "Q5_1",
    "ple_key": "Q5_1",
    "attn_qkv": "Q5_1",
    "attn_q": "Q5_1",
    "hc_attn_down": "Q5_1",
    "hc_ffn_down": "Q5_1",
}
NARROW = {
    "token_embd": "Q4_0",
    "output": "Q4_1",
    "ffn_gate_exps": "Q4_0",
    "ffn_up_exps": "Q4_0",
    "ffn_down_exps": "Q5_0",
    "ffn_gate_shexp": "Q4_1",
    "ffn_up_shexp": "Q4_0",
    "ffn_down_shexp": "Q5_1",
    "attn_qkv": "Q4_1",
    "attn_gate": "Q4_0",
    "ssm_out": "Q5_0",
    "attn_q": "Q4_1",
    "attn_output": "Q5_0",
    "nextn": "Q5_0",
}


def type_of(name: str, tensor_rank: int, geometry: Geometry) -> str:
    """The type of a tensor: F32 for vectors and small matrices, else by its role and block."""
    if tensor_rank < 2 or name.endswith(FLOAT_ENDINGS):
        return "F32"
    parts = name.split(".")
    block = int(parts[1]) if parts[0] == "blk" else -1
    role = parts[0] if block < 0 else parts[2]
    if geometry.wide:
        if role == "ffn_down_exps" and block == geometry.blocks:
            return "Q4_0"
        return WIDE.get(role, "Q8_0")
    if role in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps") and block % 2:
        return "Q2_0"
    return NARROW.get(role, "Q8_0")


def types(weights: Mapping[str, Tensor], geometry: Geometry) -> dict[str, str]:
    """Type of every tensor."""
    return {name: type_of(name, value.dim(), geometry) for name, value in weights.items()}


def quantised(weights: Mapping[str, Tensor], geometry: Geometry) -> dict[str, Tensor]:
    """The weights as the file will hold them, with gradients passed straight through."""
    return {
        name: straight_through(value, type_of(name, value.dim(), geometry))
        for name, value in weights.items()
    }
