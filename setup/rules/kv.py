"""How keys and values are stored, and whether most of them stay in RAM (streaming)."""

from __future__ import annotations

from typing import Final

from engine.errors import ConfigError
from setup.models.catalogue import ModelRow
from setup.rules.cells import cell_bytes
from setup.rules.sums import compared

FP16_MOST_CONTEXT: Final = 8_192
STREAM_LEAST_CONTEXT: Final = 65_536
STREAM_WINDOW: Final = 32_768
STREAM_SPARE_GIB: Final = 1.0
DENSE_LEAST_CONTEXT: Final = 131_072
DENSE_LEAST_FREE_GIB: Final = 9.0
DRAFT_LAYERS: Final = 1
"""The draft layer keeps keys and values, too."""

_ANSWERS = (None, "auto", "on", "off")


def recommend_kv(context: int, asked: str | None = None) -> tuple[str, str]:
    """The format for `context` tokens, and why. `ConfigError` for an unknown format."""
    if asked is not None:
        return asked, f"kv {asked}: as asked ({cell_bytes(asked)} bytes a token and layer)"
    if context <= FP16_MOST_CONTEXT:
        return "fp16", f"kv fp16: {context} tokens are short (up to {FP16_MOST_CONTEXT})"
    small, full = cell_bytes("int8"), cell_bytes("fp16")
    return "int8", f"kv int8: {small} bytes a token and layer, where fp16 takes {full}"


def kv_ram_gb(row: ModelRow, context: int, kv: str) -> float:
    """Decimal GB of all keys and values of one conversation, with the draft layer's."""
    return context * (row.attention_layers + DRAFT_LAYERS) * cell_bytes(kv) / 1e9


def kv_streaming(
    row: ModelRow,
    ram_gib: float,
    context: int,
    kv: str,
    *,
    wsl: bool,
    asked: str | None,
    free_vram_gib: float | None,
) -> tuple[int | None, str]:
    """Tokens that stay on the card while the rest lies in RAM (None: all stay), and why.

    `asked` is None, "auto", "on" (no test of the RAM) or "off"; anything else is a `ConfigError`.
    The RAM line is GiB, keys and values are decimal GB: added as they are, as the original's setup
    0.1.40 does.
    """
    if asked not in _ANSWERS:
        raise ConfigError(f"kv-streaming is {asked!r}, allowed is auto, on or off")
    name = "kv streaming"
    required = _dense_needs_it(row, context, free_vram_gib)
    if asked == "off":
        risk = f", though {required}" if required else ""
        return None, f"{name} off: as asked{risk}"
    if context < STREAM_LEAST_CONTEXT:
        return None, f"{name} off: it begins at {STREAM_LEAST_CONTEXT} tokens, this is {context}"
    if wsl:
        return None, f"{name} off: WSL limits the memory that a program may pin"
    if asked == "on":
        return STREAM_WINDOW, f"{name}: as asked, {STREAM_WINDOW} tokens stay on the card"
    if required:
        return STREAM_WINDOW, f"{name}: {required}; {STREAM_WINDOW} tokens stay on the card"
    if row.attends_all:
        return None, f"{name} off: attention of {row.key} reads every token, so it would be slow"
    return _by_ram(row, ram_gib, context, kv)


def _by_ram(row: ModelRow, ram_gib: float, context: int, kv: str) -> tuple[int | None, str]:
    stored = kv_ram_gb(row, context, kv)
    need = row.ram_gib + stored + STREAM_SPARE_GIB
    parts = f"{row.ram_gib:.3g} GiB + {stored:.1f} GB + {STREAM_SPARE_GIB:g} GiB"
    sums = compared(parts, need, ram_gib)
    if ram_gib < need:
        return None, f"kv streaming off: too little RAM, {sums}"
    return STREAM_WINDOW, f"kv streaming: {STREAM_WINDOW} tokens stay on the card; RAM has {sums}"


def _dense_needs_it(row: ModelRow, context: int, free_vram_gib: float | None) -> str:
    if not row.attends_all or free_vram_gib is None:
        return ""
    if context < DENSE_LEAST_CONTEXT or free_vram_gib >= DENSE_LEAST_FREE_GIB:
        return ""
    return (
        f"{context} tokens do not fit beside {row.key} in {free_vram_gib:.1f} GiB of free memory "
        f"(under {DENSE_LEAST_FREE_GIB:g})"
    )
