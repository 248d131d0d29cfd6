"""The config file: a sound one is read, a bad value named, and what does nothing said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.capabilities import EVERYTHING, THIS_VERSION
from engine.errors import ConfigError
from setup.config.file import find_configs, read_config
from setup.config.keys import CONFIG_KEYS, KEYS_BY_NAME


def _write(folder: Path, values: object, prefix: bytes = b"") -> Path:
    path = folder / "strata-x.json"
    path.write_bytes(prefix + json.dumps(values).encode())
    return path


def _refusal(folder: Path, values: object) -> ConfigError:
    path = _write(folder, values)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert caught.value.hint
    return caught.value


def test_reads_what_setup_writes_with_a_byte_order_mark(tmp_path: Path) -> None:
    values = {
        "model": "m.gguf",
        "parallel": 3,
        "args": ["--max-context", "4096", "--mtp", "d.gguf"],
        "sampling": {"temperature": 0.7, "top_k": 20},
        "host": "127.0.0.1",
        "port": 8080,
    }
    file = read_config(_write(tmp_path, values, b"\xef\xbb\xbf"))
    assert file.values == values
    assert file.run.model == tmp_path / "m.gguf"
    assert file.run.mtp == tmp_path / "d.gguf"
    assert (file.run.slots, file.run.max_context) == (3, 4096)
    assert file.warnings == ()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("m.gguf", "{folder}/m.gguf"),
        ("../a b/größe.gguf", "{folder}/../a b/größe.gguf"),
        ("/models/m.gguf", "/models/m.gguf"),
        ("~/m.gguf", "{home}/m.gguf"),
    ],
)
def test_paths_count_from_the_configs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, expected: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir("/")
    wanted = Path(expected.format(folder=tmp_path, home=tmp_path / "home"))
    assert read_config(_write(tmp_path, {"model": model})).run.model == wanted
    assert read_config(_write(tmp_path, {"args": ["--model", model]})).run.model == wanted
    assert read_config(_write(tmp_path, {"args": [f"--mtp={model}"]})).run.mtp == wanted


def test_flags_in_args_win_over_keys(tmp_path: Path) -> None:
    values = {
        "model": "a.gguf",
        "parallel": 3,
        "backend": "hip",
        "args": ["--slots", "5", "--model", "b.gguf", "--device", "cpu"],
    }
    run = read_config(_write(tmp_path, values)).run
    assert (run.slots, run.model, run.device) == (5, tmp_path / "b.gguf", "cpu")


def test_unknown_names_are_warnings_with_the_nearest(tmp_path: Path) -> None:
    values = {
        "paralel": 2,
        "zzz": 1,
        "env": {
            "STRATA_TRAC": "1",
            "STRATA_ZZZZZZ": "x",
            "strata_trace": "1",
            "OMP_NUM_THREADS": "2",
        },
        "sampling": {"temprature": 1, "top_k": 3},
    }
    file = read_config(_write(tmp_path, values))
    assert file.warnings == (
        "config key 'paralel' is not known, did you mean parallel?",
        "config key 'zzz' is not known",
        "env 'STRATA_TRAC' is not a switch of the engine, did you mean STRATA_TRACE?",
        "env 'STRATA_ZZZZZZ' is not a switch of the engine",
        "env 'strata_trace' is not a switch of the engine, did you mean STRATA_TRACE?",
        "sampling 'temprature' is not known, did you mean temperature?",
    )
    assert set(file.values) == {"env", "sampling"}


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--slots", "x"], "args: --slots: 'x'"),
        (["--slotz", "1"], "args: '--slotz' is not known"),
        (["--max-context"], "args: --max-context needs a value"),
    ],
)
def test_bad_engine_flags_are_named(tmp_path: Path, args: list[str], part: str) -> None:
    assert part in _refusal(tmp_path, {"args": args}).message


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("lazy_load", True, True),
        ("lazy_load", False, False),
        ("idle_unload_s", 60, True),
        ("idle_unload_s", 0, False),
        ("open_browser", True, True),
        ("open_browser", False, False),
        ("gpu", 0, False),
        ("gpu", [0, 1], False),
        ("draft_vocab", "en", False),
        ("vision", {"mmproj": "v.gguf"}, True),
        ("vision", {}, False),
        ("remote_expert_opt", False, False),
        ("exe", "/strata/engine", True),
        ("parallel", 2, False),
        ("four_card_profile", False, False),
        ("gpus_asked", True, False),
        ("log", "x.log", False),
    ],
)
def test_keys_without_effect_are_told(tmp_path: Path, key: str, value: object, told: bool) -> None:
    expected = (f"config key {key} has no effect in this version",) if told else ()
    assert read_config(_write(tmp_path, {key: value})).warnings == expected


@pytest.mark.parametrize(("key", "value"), [("layer_split", "24"), ("vision", {"a": 1})])
def test_an_engine_that_can_do_more_tells_less(key: str, value: object) -> None:
    assert KEYS_BY_NAME[key].note(value, THIS_VERSION) is not None
    assert KEYS_BY_NAME[key].note(value, EVERYTHING) is None


ORIGINAL = """
exe args cwd tokenizer model_name log lib_dirs port backend env gpu gpus_asked layer_split host
api_key draft_vocab vision cuda open_browser parallel sampling drafter remote_expert_opt
split_skip_if_fits gpu_order four_card_profile hip_ordinal vram_elastic vram_segment_mib
expert_profile_save expert_profile_save_every engine_silence_s effort_position fit_max_tokens
reasoning_budget_tokens anthropic_thinking aliases idle_unload_s lazy_load min_free_vram_mib
before_load api_monitor open_history repeat_stop_tokens cors_origins trusted_origins
allowed_hosts mcp_servers mcp chat_archive_path vram_reserve_mib
"""


def test_every_key_of_the_original_is_known_and_every_key_documented() -> None:
    assert set(ORIGINAL.split()) | {"model"} == set(KEYS_BY_NAME)
    assert len(KEYS_BY_NAME) == len(CONFIG_KEYS)
    for key in CONFIG_KEYS:
        assert key.meaning.endswith("."), key.name
        assert key.allowed, key.name


def test_only_configs_are_found(tmp_path: Path) -> None:
    """Broken ones count: their fault should be told, not another model started."""
    files: dict[str, str | bytes] = {
        "strata-a.json": '{"model": "a.gguf"}',
        "strata-b.json": '{"port": 1,}',
        "strata-c.json": '{"port": 1}'.encode("utf-16"),
        "strata-a.shared-settings.json": '{"model": "a.gguf"}',
        "strata-probe.json": '{"gpus": [], "ram_bytes": 1, "cpu": {}, "os": "linux"}',
        "strata-list.json": "[1]",
        "strata-empty.json": "{}",
        "strata-big.json": '{"model": "' + "a" * (1 << 20) + '"}',
        "strata-a.json.bak": '{"model": "a.gguf"}',
        "other.json": '{"model": "a.gguf"}',
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "strata-folder.json").mkdir()
    (tmp_path / "strata-gone.json").symlink_to("nowhere")
    found = [path.name for path in find_configs(tmp_path)]
    assert found == ["strata-a.json", "strata-b.json", "strata-c.json"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(KEYS_BY_NAME)), _JSON, max_size=3))
def test_any_values_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    path = _write(tmp_path_factory.getbasetemp(), values)
    try:
        file = read_config(path)
    except ConfigError as error:
        assert str(path) in error.message  # noqa: PT017
    else:
        assert file.values == values
