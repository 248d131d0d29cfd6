"""Formats of keys and values, and when they stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import NAMED_KV_FORMATS
from engine.errors import ConfigError
from setup.models.catalogue import find_row
from setup.rules.context import CONTEXTS
from setup.rules.kv import kv_ram_gb, kv_streaming, recommend_kv

QWEN36 = "Qwen3.6-UD-IQ4_XS"


@pytest.mark.parametrize(
    ("context", "asked", "kv"),
    [
        (8_192, None, "fp16"),  # up to 8192
        (8_193, None, "int8"),
        (16, None, "fp16"),
        (131_072, None, "int8"),
        (524_288, None, "int8"),
        (8_192, "int8", "int8"),  # what is asked is kept, at any length
        (131_072, "q4_0", "q4_0"),
        (131_072, "k8v4", "k8v4"),
        (131_072, "fp16", "fp16"),
        (32_768, "f32", "f32"),
    ],
)
def test_format(context: int, asked: str | None, kv: str) -> None:
    found, why = recommend_kv(context, asked)
    assert found == kv
    assert why.startswith(f"kv {kv}: ")
    assert ("as asked" in why) == (asked is not None)


def test_the_reason_has_the_numbers() -> None:
    assert recommend_kv(131_072) == (
        "int8",
        "kv int8: 1056 bytes a token and layer, where fp16 takes 2048",
    )


def test_unknown_format() -> None:
    with pytest.raises(ConfigError, match="kv is 'int4', allowed is one of int8, fp16"):
        recommend_kv(32_768, "int4")


@pytest.mark.parametrize(
    ("name", "context", "kv", "gb"),
    [
        # 12 attention layers and the draft layer: context * 13 * 1056 / 1e9
        ("IQ3_S", 65_536, "int8", 0.90),  # 0.8997
        ("IQ3_S", 131_072, "int8", 1.80),  # 1.7994
        ("IQ3_S", 204_800, "int8", 2.81),  # 2.8115
        ("IQ3_S", 262_144, "int8", 3.60),  # 3.5987
        ("IQ3_S", 131_072, "q4_0", 0.98),  # 131072 * 13 * 576 = 0.9815
        ("IQ3_S", 131_072, "k8v4", 1.39),  # 131072 * 13 * 816 = 1.3904
        ("IQ3_S", 8_192, "fp16", 0.22),  # 8192 * 13 * 2048 = 0.2181
        # 10 attention layers and the draft layer
        (QWEN36, 131_072, "int8", 1.52),  # 131072 * 11 * 1056 = 1.5225
    ],
)
def test_ram_of_keys_and_values(name: str, context: int, kv: str, gb: float) -> None:
    assert kv_ram_gb(find_row(name), context, kv) == pytest.approx(gb, abs=0.005)


def streams(
    name: str,
    ram: float,
    context: int,
    kv: str = "int8",
    *,
    wsl: bool = False,
    asked: str | None = None,
    free: float | None = 20.0,
) -> tuple[int | None, str]:
    return kv_streaming(find_row(name), ram, context, kv, wsl=wsl, asked=asked, free_vram_gib=free)


@pytest.mark.parametrize(
    ("name", "ram", "context", "resident"),
    [
        # the published cases: RAM line + keys and values + 1
        ("IQ3_XXS", 63.7, 131_072, 32_768),  # 60 + 1.80 + 1 = 62.8
        ("IQ3_S", 63.7, 131_072, None),  # 62 + 1.80 + 1 = 64.8
        ("IQ3_XXS", 95.8, 65_536, 32_768),  # 60 + 0.90 + 1 = 61.9
        ("IQ3_XXS", 127.8, 131_072, 32_768),
        # both sides of the line
        ("IQ3_XXS", 62.80, 131_072, 32_768),  # 62.7994
        ("IQ3_XXS", 62.79, 131_072, None),
        ("IQ3_S", 64.80, 131_072, 32_768),  # 64.7994
        ("IQ3_S", 64.79, 131_072, None),
        ("Q2_0", 49.90, 65_536, 32_768),  # 48 + 0.8997 + 1 = 49.8997
        ("Q2_0", 49.89, 65_536, None),
        ("Q2_0", 47.0, 65_536, None),
        ("UD-Q4_K_XL", 63.7, 131_072, 32_768),  # 48 + 1.80 + 1 = 50.8
        # it begins at 65536 tokens
        ("IQ3_XXS", 512.0, 65_535, None),
        ("IQ3_XXS", 512.0, 32_768, None),
        ("IQ3_XXS", 512.0, 8_192, None),
        ("IQ3_XXS", 512.0, 524_288, 32_768),
    ],
)
def test_streaming_by_ram(name: str, ram: float, context: int, resident: int | None) -> None:
    assert streams(name, ram, context)[0] == resident
    assert streams(name, ram, context, asked="auto")[0] == resident


def test_smaller_formats_need_less_ram() -> None:
    # k8v4: 60 + 1.3904 + 1 = 62.39; q4_0: 60 + 0.9815 + 1 = 61.98
    assert streams("IQ3_XXS", 62.5, 131_072, "int8")[0] is None
    assert streams("IQ3_XXS", 62.5, 131_072, "k8v4")[0] == 32_768
    assert streams("IQ3_XXS", 62.0, 131_072, "k8v4")[0] is None
    assert streams("IQ3_XXS", 62.0, 131_072, "q4_0")[0] == 32_768


def test_asked_on_skips_the_test_of_ram_only() -> None:
    assert streams("IQ3_S", 16.0, 131_072, asked="on")[0] == 32_768
    assert streams("IQ3_S", 16.0, 65_535, asked="on")[0] is None
    assert streams("IQ3_S", 16.0, 131_072, asked="on", wsl=True)[0] is None


def test_off_and_wsl() -> None:
    assert streams("IQ3_XXS", 512.0, 131_072, asked="off") == (None, "kv streaming off: as asked")
    found, why = streams("IQ3_XXS", 512.0, 131_072, wsl=True)
    assert found is None
    assert "WSL" in why


@pytest.mark.parametrize(
    ("context", "free", "asked", "resident"),
    [
        (131_072, 8.99, None, 32_768),  # under 9 GiB free at 131072 tokens: required
        (131_072, 9.0, None, None),  # there is room: it would only be slow
        (131_071, 8.0, None, None),
        (65_536, 8.0, None, None),
        (262_144, 20.0, None, None),
        (262_144, 6.0, "auto", 32_768),
        (131_072, 20.0, "on", 32_768),
        (131_072, 8.0, "off", None),
        (131_072, None, None, None),  # free memory is not known
    ],
)
def test_attention_that_reads_everything_streams_only_when_it_must(
    context: int, free: float | None, asked: str | None, resident: int | None
) -> None:
    # 512 GiB: RAM is never the reason
    assert streams(QWEN36, 512.0, context, asked=asked, free=free)[0] == resident
    if asked is None:  # and the need does not ask for RAM
        assert streams(QWEN36, 16.0, context, asked=asked, free=free)[0] == resident


def test_off_says_what_it_risks() -> None:
    _, why = streams(QWEN36, 64.0, 131_072, asked="off", free=8.0)
    assert why == (
        "kv streaming off: as asked, though 131072 tokens do not fit beside Qwen3.6-UD-IQ4_XS in "
        "8.0 GiB of free memory (under 9)"
    )


def test_the_reason_has_the_sum() -> None:
    assert streams("IQ3_XXS", 63.7, 131_072)[1] == (
        "kv streaming: 32768 tokens stay on the card; RAM has 60 GiB + 1.8 GB + 1 GiB = 62.8 of "
        "63.7 GiB, with a GB counted as a GiB"
    )
    assert streams("IQ3_S", 63.7, 131_072)[1] == (
        "kv streaming off: too little RAM, 62 GiB + 1.8 GB + 1 GiB = 64.8 of 63.7 GiB, "
        "with a GB counted as a GiB"
    )


@pytest.mark.parametrize("asked", ["yes", "", "ON"])
def test_unknown_answers(asked: str) -> None:
    with pytest.raises(ConfigError, match=r"kv-streaming is .* allowed is auto, on or off"):
        streams("IQ3_S", 64.0, 131_072, asked=asked)


@given(
    ram=st.floats(8, 1024),
    context=st.sampled_from(CONTEXTS),
    kv=st.sampled_from(NAMED_KV_FORMATS),
    more=st.floats(0, 512),
)
def test_more_ram_never_ends_streaming(ram: float, context: int, kv: str, more: float) -> None:
    if streams("IQ3_S", ram, context, kv)[0] is not None:
        assert streams("IQ3_S", ram + more, context, kv)[0] is not None
