"""Random weights as integer codes, and the device record that the kernels read.

A record is one run of bytes: code planes, multipliers, scales. Every plane is tiled as
[N/BN][K/32][BN][...], so that a program's loads are contiguous. In a plane byte, the low field
belongs to element j of a group of 32 and the high field to element j + 16.
"""

from dataclasses import dataclass

import torch

IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
ODD4, TABLE4, INT8, PLANES5, PLANES6, TWO_BIT = range(6)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a weight type is stored: codes, multipliers (0, 1 or 2 a group), groups a scale."""

    name: str
    codes: int
    multipliers: int
    scale_groups: int
    minimum: bool = False


KINDS = (
    Kind("int4 odd, integer multiplier (IQ3_S)", ODD4, 1, 8),
    Kind("int4 odd, fp16 group scale (prototype)", ODD4, 0, 1),
    Kind("int4 table (IQ4_NL)", TABLE4, 0, 1),
    Kind("int4 table, multiplier (IQ4_XS)", TABLE4, 1, 8),
    Kind("int8 (Q8_0)", INT8, 0, 1),
    Kind("4+1 bit, minimum (Q5_K)", PLANES5, 1, 8, True),
    Kind("4+2 bit, 2 multipliers (Q6_K)", PLANES6, 2, 8),
    Kind("2 bit (Q2_0)", TWO_BIT, 0, 2),
)


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix: what the CPU reads (codes, multipliers, scales) and the device record."""

    kind: Kind
    n: int
    k: int
    bn: int
    codes: torch.Tensor  # int8 [N, K]
    multiplier: torch.Tensor | None  # int8 [N, G, multipliers]
    scale: torch.Tensor  # fp16 [N, G / scale_groups]
    minimum_multiplier: torch.Tensor | None  # int8 [N, G]
    minimum_scale: torch.Tensor | None  # fp16 [N, G / scale_groups]
    record: torch.Tensor  # uint8 [bytes]
    offsets: tuple[int, int, int, int, int, int]  # code plane, high plane, m, d, m_min, d_min


def tile_rows(n: int) -> int:
    """Rows of weights in a tile: small matrices take small tiles, to fill the chip."""
    if n % 64 == 0 and n > 2560:
        return 64
    return 32 if n % 32 == 0 else 16


def _tiles(plane: torch.Tensor, bn: int) -> torch.Tensor:
    n, groups = plane.shape[:2]
    return plane.reshape(n // bn, bn, groups, -1).transpose(1, 2).contiguous().view(torch.uint8)


def _halves(raw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    n, k = raw.shape
    both = raw.view(n, k // 32, 2, 16)
    return both[:, :, 0], both[:, :, 1]


def _fields(raw: torch.Tensor, bits: int, groups: int) -> torch.Tensor:
    """Packs `bits` of `groups` neighbouring groups into one byte: [N, G / groups, 16]."""
    low, high = _halves(raw)
    out = torch.zeros_like(low[:, ::groups])
    for i in range(groups):
        out |= low[:, i::groups] << (2 * bits * i)
        out |= high[:, i::groups] << (2 * bits * i + bits)
    return out


def _planes(kind: Kind, raw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    if kind.codes == INT8:
        n, k = raw.shape
        # both halves of a tile's group lie one after the other: [2][BN][16]
        return raw.view(n, k // 32, 2, 16), None
    if kind.codes == TWO_BIT:
        return _fields(raw, 2, 2), None
    low = _fields(raw & 15, 4, 1)
    if kind.codes == PLANES5:
        return low, _fields(raw >> 4, 1, 4)
    if kind.codes == PLANES6:
        return low, _fields(raw >> 4, 2, 2)
    return low, None


def _codes(kind: Kind, raw: torch.Tensor) -> torch.Tensor:
    if kind.codes == TABLE4:
        return torch.tensor(IQ4_NL, dtype=torch.int8, device=raw.device)[raw.int()]
    signed = raw.to(torch.int16)
    if kind.codes == ODD4:
        signed = signed * 2 - 15
    elif kind.codes == PLANES6:
        signed = signed - 32
    elif kind.codes == TWO_BIT:
        signed = signed - 1
    return signed.to(torch.uint8).view(torch.int8)


def random_matrix(kind: Kind, n: int, k: int, device: str) -> Matrix:
    """A random matrix of `kind` with fresh random codes, multipliers and scales."""
    bn, groups = tile_rows(n), k // 32
    width = {ODD4: 16, TABLE4: 16, INT8: 256, PLANES5: 32, PLANES6: 64, TWO_BIT: 4}[kind.codes]
    raw = torch.randint(0, width, (n, k), dtype=torch.uint8, device=device)
    scale = (torch.rand(n, groups // kind.scale_groups, device=device) * 0.02).half()
    multiplier = low = low_scale = None
    if kind.multipliers:
        shape = (n, groups, kind.multipliers)
        bottom = -127 if kind.multipliers == 2 else 1
        top = 128 if kind.multipliers == 2 else 64
        multiplier = torch.randint(bottom, top, shape, dtype=torch.int8, device=device)
    if kind.minimum:
        low = torch.randint(0, 64, (n, groups), dtype=torch.int8, device=device)
        low_scale = (torch.rand(n, groups // kind.scale_groups, device=device) * 0.02).half()
    code_plane, high_plane = _planes(kind, raw)
    if kind.codes == INT8:
        n_tiles = n // bn
        tiled = code_plane.view(n_tiles, bn, groups, 2, 16).permute(0, 2, 3, 1, 4).contiguous()
    else:
        tiled = _tiles(code_plane, bn)
    sections = [tiled, None if high_plane is None else _tiles(high_plane, bn)]
    if multiplier is not None:
        tiles = multiplier.view(n // bn, bn, groups, -1).permute(0, 2, 3, 1).contiguous()
        sections.append(tiles.view(torch.uint8))
    else:
        sections.append(None)
    sections.append(_tiles(scale, bn))
    sections.append(None if low is None else _tiles(low, bn))
    sections.append(None if low_scale is None else _tiles(low_scale, bn))
    record, offsets = _join(sections)
    return Matrix(
        kind, n, k, bn, _codes(kind, raw), multiplier, scale, low, low_scale, record, offsets
    )


def _join(sections: list[torch.Tensor | None]) -> tuple[torch.Tensor, tuple[int, ...]]:
    parts, offsets, at = [], [], 0
    for section in sections:
        offsets.append(at)
        if section is not None:
            flat = section.reshape(-1)
            flat = torch.nn.functional.pad(flat, (0, -flat.numel() % 128))
            parts.append(flat)
            at += flat.numel()
    return torch.cat(parts), tuple(offsets)


@dataclass(frozen=True, slots=True)
class Activations:
    """Rows quantised to int8 in groups of 32, in the orders that the kernels read."""

    q: torch.Tensor  # int8 [R, K], element order
    scale: torch.Tensor  # float32 [R, G]
    words: torch.Tensor  # int32 [R, G, 8]: elements 0..15, then 16..31
    woven: torch.Tensor  # int8 [R, K]: elements 0, 16, 1, 17, ... of each group
    sums: torch.Tensor  # int32 [R, G, 2]: sums of q over elements 0..15 and 16..31


def quantise_rows(x: torch.Tensor) -> Activations:
    """Quantises float32 rows [R, K] on any device by the contract's rule."""
    rows, k = x.shape
    blocks = x.view(rows, k // 32, 32)
    scale = blocks.abs().amax(-1) / torch.tensor(127.0, device=x.device)
    q = torch.where(scale[..., None] == 0, 0.0, torch.round(blocks / scale[..., None]))
    q = q.to(torch.int8)
    woven = torch.stack([q[..., :16], q[..., 16:]], -1).reshape(rows, k).contiguous()
    sums = q.view(rows, k // 32, 2, 16).sum(-1, dtype=torch.int32)
    flat = q.view(rows, k)
    words = flat.view(torch.int32).view(rows, k // 32, 8).contiguous()
    return Activations(flat, scale.contiguous(), words, woven, sums.contiguous())
