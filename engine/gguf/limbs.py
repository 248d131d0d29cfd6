"""Float matrices as integers: 16 bits a weight in two limbs, one scale for 256 inputs.

A weight is about scale * (256 * (256 * high + low)), the scale a power of two such that the largest
of a block is 2**13 to 2**14 in units of 256 * scale. So a number of 8 significant bits, such as any
of bfloat16, keeps its value within six binades of its block's largest one; the others are rounded,
by 2**-14 of the largest at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

BLOCK = 256
_GROUP = 32
# Of float32: the exponent field of 2**-126, and how far scales lie below their block's largest.
_LEAST, _BELOW = 1, 21


@dataclass(frozen=True, slots=True)
class Limbs:
    """`high` and `low`, int8 [*, K], and `scale`, float32 [*, K/32]: 8 neighbours are equal. The
    scale of a block that has a NaN or an infinity is NaN, and its limbs are 0."""

    high: torch.Tensor
    low: torch.Tensor
    scale: torch.Tensor


def limbs_of(values: torch.Tensor) -> Limbs:
    """The limbs of float32 [*, K], K a multiple of 32, on the device where they lie."""
    shape, columns = values.shape[:-1], values.shape[-1]
    blocks = -(-columns // BLOCK)
    padded = torch.nn.functional.pad(values, (0, blocks * BLOCK - columns))
    padded = padded.view(*shape, blocks, BLOCK)
    largest = padded.abs().amax(-1)
    sound = torch.isfinite(largest)
    field = largest.view(torch.int32) >> 23
    field = torch.where(sound, field - _BELOW, _LEAST).clamp_(min=_LEAST)
    # Division by 256 * scale, a power of two.
    by = ((254 - 8 - field) << 23).view(torch.float32)
    whole = torch.where(sound[..., None], padded, 0.0).mul_(by[..., None]).round_().int()
    low = ((whole + 128) & 255) - 128
    scale = torch.where(sound, (field << 23).view(torch.float32), torch.nan)
    scale = scale.repeat_interleave(BLOCK // _GROUP, -1)[..., : columns // _GROUP]

    def limb(numbers: torch.Tensor) -> torch.Tensor:
        return numbers.to(torch.int8).view(*shape, -1)[..., :columns].contiguous()

    return Limbs(limb((whole - low) >> 8), limb(low), scale.contiguous())
