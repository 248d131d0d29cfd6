"""ModelConfig from metadata: every error names its key, damage gives a StrataError and no other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelFileError, StrataError, UnsupportedModelError
from engine.models.config import ModelConfig
from tests.engine.models.metadata import FAMILIES, FILES, config_with, parse


def test_qwen4exp() -> None:
    config = config_with("qwen4exp")
    assert config.architecture == "qwen4exp"
    assert config.name == "Q4Exp A"
    assert (config.width, config.vocab_size, config.context_length) == (256, 512, 4096)
    assert [layer.mixer for layer in config.layers] == [
        "gated_delta_net",
        "attention",
        "gated_delta_net",
        "attention",
        "gated_delta_net",
    ]
    assert [layer.compress_ratio for layer in config.layers] == [0, 4, 0, 4, 0]
    assert [layer.ngram for layer in config.layers] == [False, False, True, False, False]
    assert config.draft_layers == ()
    assert config.hyper_streams == 4
    net, ngram, indexer = config.gated_delta_net, config.ngram, config.indexer
    assert net is not None
    assert net.gate == "sigmoid"
    assert net.channels == 320
    assert ngram is not None
    assert (ngram.history, ngram.conv_span) == (2, 9)
    assert indexer is not None
    assert (indexer.heads, indexer.key_length, indexer.top_k) == (8, 32, 64)


def test_qwen35moe() -> None:
    config = config_with("qwen35moe")
    assert config.hyper_streams == 0
    assert config.ngram is None
    assert config.indexer is None
    assert config.gated_delta_net is not None
    assert config.gated_delta_net.gate == "silu"
    assert [layer.mixer for layer in config.layers] == 3 * ["gated_delta_net"] + ["attention"]
    assert (config.experts.count, config.experts.used) == (6, 2)
    assert config.attention.rotary == 16


def _mixers(config: ModelConfig) -> str:
    return "".join("g" if layer.mixer == "gated_delta_net" else "a" for layer in config.layers)


def test_the_pattern_by_interval() -> None:
    pattern = {"attention__recurrent_layers": None, "block_count": 9}
    assert _mixers(config_with("qwen35moe", **pattern)) == "gggagggag"
    assert _mixers(config_with("qwen35moe", **pattern, full_attention_interval=2)) == "gagagagag"
    assert _mixers(config_with("qwen35moe", **pattern, full_attention_interval=1)) == "a" * 9


def test_an_irregular_pattern_wins_over_the_interval() -> None:
    flags = np.array([0, 0, 1, 1, 0, 1], np.int32)
    config = config_with("qwen35moe", attention__recurrent_layers=flags, block_count=6)
    assert _mixers(config) == "aaggag"


def test_attention_alone_needs_no_delta_net_keys() -> None:
    config = config_with(
        "qwen35moe",
        attention__recurrent_layers=np.zeros(4, np.bool_),
        ssm__conv_kernel=None,
        ssm__state_size=None,
    )
    assert config.gated_delta_net is None


@pytest.mark.parametrize("entries", [5, 4])
def test_the_draft_layer_is_the_last_and_always_attention(entries: int) -> None:
    """The list of recurrent layers may leave the draft layer out."""
    config = config_with(
        "qwen35moe",
        nextn_predict_layers=1,
        block_count=5,
        attention__recurrent_layers=np.ones(entries, np.bool_),
    )
    assert _mixers(config) == "gggg"
    assert [layer.mixer for layer in config.draft_layers] == ["attention"]
    assert config.draft_layers[0].index == 4


def test_a_ratio_for_each_layer() -> None:
    config = config_with(
        "qwen4exp", attention__compress_ratios=np.array([0, 8, 0, 0, 4], np.uint32)
    )
    assert [layer.compress_ratio for layer in config.layers] == [0, 8, 0, 0, 0]


def test_without_ratios_layers_of_an_ngram_model_have_four() -> None:
    config = config_with("qwen4exp", attention__compress_ratios=None)
    assert [layer.compress_ratio for layer in config.layers] == [0, 4, 0, 4, 0]


def test_a_list_of_equal_entries_is_one_number() -> None:
    config = config_with("qwen35moe", attention__head_count_kv=np.array([2, 2, 2, 2], np.int32))
    assert config.attention.kv_heads == 2


NEEDED = [
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "attention__head_count",
    "attention__key_length",
    "attention__layer_norm_rms_epsilon",
    "ssm__time_step_rank",
    "ssm__group_count",
    "ssm__inner_size",
    "ssm__state_size",
    "ssm__conv_kernel",
]
NEEDED_BY_QWEN4EXP = [
    "hyper_connection__count",
    "attention__indexer__head_count",
    "attention__indexer__key_length",
    "attention__indexer__top_k",
    "ple__ngram_size",
    "ple__heads_per_ngram",
    "ple__conv_kernel",
    "ple__eos_token_id",
    "ple__layer_multipliers",
    "ple__head_offsets",
    "ple__head_vocab_sizes",
]


def _assert_names(family: str, key: str, value: object) -> None:
    name = f"{family}.{key.replace('__', '.')}"
    with pytest.raises(ModelFileError) as caught:
        config_with(family, **{key: value})
    assert name in caught.value.message
    assert "some.gguf" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("family", "key"),
    [(family, key) for family in FAMILIES for key in NEEDED]
    + [("qwen4exp", key) for key in NEEDED_BY_QWEN4EXP],
)
def test_a_needed_key_is_missing(family: str, key: str) -> None:
    _assert_names(family, key, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 2**32 - 1),
        ("block_count", "five"),
        ("block_count", 5.0),
        ("context_length", 0),
        ("embedding_length", -1),
        ("embedding_length", np.array([256, 128], np.int32)),
        ("embedding_length", np.array([], np.int32)),
        ("expert_count", 0),
        ("expert_used_count", 0),
        ("expert_used_count", 7),
        ("nextn_predict_layers", 2),
        ("nextn_predict_layers", 5),
        ("full_attention_interval", 0),
        ("attention__recurrent_layers", np.ones(3, np.bool_)),
        ("attention__recurrent_layers", ["yes"] * 5),
        ("attention__recurrent_layers", 1),
        ("attention__compress_ratios", np.array([0, 4, 0], np.int32)),
        ("attention__compress_ratios", np.array([0, -4, 0, 4, 0], np.int32)),
        ("attention__head_count", 5),
        ("attention__head_count_kv", 3),
        ("attention__value_length", 32),
        ("attention__layer_norm_rms_epsilon", 0.0),
        ("attention__layer_norm_rms_epsilon", float("nan")),
        ("attention__layer_norm_rms_epsilon", True),
        ("attention__layer_norm_rms_epsilon", "small"),
        ("rope__dimension_count", 15),
        ("rope__dimension_count", 66),
        ("rope__freq_base", float("inf")),
        ("rope__freq_base", -1.0),
        ("ssm__time_step_rank", 5),
        ("ssm__inner_size", 193),
        ("ssm__conv_kernel", 0),
        ("attention__indexer__top_k", 3),
        ("attention__indexer__head_count", 0),
        ("hyper_connection__count", 0),
        ("ple__layers", "all"),
        ("ple__ngram_size", 1),
        ("ple__conv_kernel", 0),
        ("ple__eos_token_id", -1),
    ],
)
def test_an_unusable_value(key: str, value: object) -> None:
    family = "qwen4exp"
    if key == "attention__head_count":  # the message names the pair
        with pytest.raises(ModelFileError, match=r"qwen4exp\.attention\.head_count"):
            config_with(family, attention__head_count=value)
        return
    if key == "attention__head_count_kv":
        with pytest.raises(ModelFileError, match="head_count_kv 3"):
            config_with(family, attention__head_count_kv=value)
        return
    _assert_names(family, key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layer_multipliers", np.array([1, 2], np.uint64)),
        ("layer_multipliers", np.array([-1, 2, 3], np.int64)),
        ("head_offsets", np.array([0], np.uint64)),
        ("head_vocab_sizes", np.zeros(8, np.uint64)),
    ],
)
def test_unusable_hash_constants(key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=key):
        config_with("qwen4exp", **{f"ple__{key}": value})


@pytest.mark.parametrize("found", [None, "llama", 7, ["qwen4exp"], np.array([1, 2], np.int32)])
def test_another_architecture(found: object) -> None:
    metadata = dict(FILES["qwen4exp"][0]) | {"general.architecture": found}
    with pytest.raises(UnsupportedModelError, match=r"general\.architecture"):
        parse("qwen4exp", metadata)


@pytest.mark.parametrize("name", [None, "", 7, np.array([1, 2], np.int32)])
def test_a_name_that_is_none_becomes_the_file_s(name: object) -> None:
    metadata = dict(FILES["qwen4exp"][0]) | {"general.name": name}
    assert parse("qwen4exp", metadata).name == "some"


_NUMBERS = st.integers(-5, 70) | st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**64 - 1, -(2**63)])
_ARRAYS = st.builds(
    lambda values, kind: np.array(values).astype(kind),
    st.lists(st.integers(0, 100), max_size=9),
    st.sampled_from(["<u1", "<i4", "<u8", "<f4", "?"]),
)
_VALUES = st.one_of(
    _NUMBERS,
    st.floats(),
    st.booleans(),
    st.text(max_size=4),
    _ARRAYS,
    st.lists(st.text(max_size=3), max_size=4),
    st.lists(_ARRAYS, max_size=3),
    st.none(),
)


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_metadata_give_no_other_error(family: str, data: st.DataObject) -> None:
    """One to three keys replaced by any value that a GGUF can hold, or removed."""
    metadata = dict(FILES[family][0])
    keys = sorted(k for k in metadata if not k.startswith("tokenizer."))
    for key in data.draw(st.sets(st.sampled_from(keys), min_size=1, max_size=3)):
        value = data.draw(_VALUES)
        metadata.pop(key)
        if value is not None:
            metadata[key] = value
    try:
        config = parse(family, metadata)
    except StrataError:
        return
    assert config.layers
    assert config.experts.used <= config.experts.count
