"""The element types of a GGUF tensor: how many elements a block holds and how many bytes it takes.

Numbers are those of ggml's type enumeration; Q2_0 (42) is newer than the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class QuantType:
    """One tensor type: `block_elements` consecutive elements of a row take `block_bytes` bytes."""

    id: int
    name: str
    block_elements: int
    block_bytes: int

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row of `elements`, which must be whole blocks."""
        assert elements % self.block_elements == 0
        return elements // self.block_elements * self.block_bytes


def has_limbs(kind: QuantType, columns: int) -> bool:
    """True if matrices of floats become integers, as `limbs.py` says, where activations are int8:
    where groups of 32 inputs are whole."""
    return kind.name in ("F32", "F16", "BF16") and columns % 32 == 0


_ALL = (
    QuantType(0, "F32", 1, 4),
    QuantType(1, "F16", 1, 2),
    QuantType(2, "Q4_0", 32, 18),
    QuantType(3, "Q4_1", 32, 20),
    QuantType(6, "Q5_0", 32, 22),
    QuantType(7, "Q5_1", 32, 24),
    QuantType(8, "Q8_0", 32, 34),
    QuantType(10, "Q2_K", 256, 84),
    QuantType(11, "Q3_K", 256, 110),
    QuantType(12, "Q4_K", 256, 144),
    QuantType(13, "Q5_K", 256, 176),
    QuantType(14, "Q6_K", 256, 210),
    QuantType(16, "IQ2_XXS", 256, 66),
    QuantType(17, "IQ2_XS", 256, 74),
    QuantType(18, "IQ3_XXS", 256, 98),
    QuantType(19, "IQ1_S", 256, 50),
    QuantType(20, "IQ4_NL", 32, 18),
    QuantType(21, "IQ3_S", 256, 110),
    QuantType(22, "IQ2_S", 256, 82),
    QuantType(23, "IQ4_XS", 256, 136),
    QuantType(24, "I8", 1, 1),
    QuantType(25, "I16", 1, 2),
    QuantType(26, "I32", 1, 4),
    QuantType(27, "I64", 1, 8),
    QuantType(28, "F64", 1, 8),
    QuantType(29, "IQ1_M", 256, 56),
    QuantType(30, "BF16", 1, 2),
    QuantType(34, "TQ1_0", 256, 54),
    QuantType(35, "TQ2_0", 256, 66),
    QuantType(39, "MXFP4", 32, 17),
    QuantType(40, "NVFP4", 64, 36),
    QuantType(42, "Q2_0", 64, 18),
)

QUANT_TYPES: Mapping[int, QuantType] = MappingProxyType({t.id: t for t in _ALL})
_BY_NAME = MappingProxyType({t.name: t for t in _ALL})


def quant_type(name: str) -> QuantType:
    """The type called `name`, for example "Q4_K". Raises KeyError for an unknown name."""
    return _BY_NAME[name]
