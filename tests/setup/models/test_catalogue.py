"""The shipped table of models, and the strict reading of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiles
from engine.errors import ConfigError
from setup.models.catalogue import FAMILIES, ModelRow, catalogue, find_row, load_catalogue

# key, family, download GB, experts GB, memory line GiB, experts in all layers:
# the table of the original's setup, and of its docs/QWEN36.md for the last three families.
# Ornith's experts: 15.9 GiB * 1.0737 = 17.1 GB, 12.4 GiB * 1.0737 = 13.3 GB.
TABLE = [
    ("Q2_0", "qwen", 66.4, 34.0, 48, 24_576),
    ("IQ2_XS", "qwen", 68.0, 35.5, 48, 24_576),
    ("IQ3_XXS", "qwen", 75.8, 42.9, 60, 24_576),
    ("IQ3_S", "qwen", 83.6, 50.3, 62, 24_576),
    ("IQ2_XS", "swift", 68.0, 35.5, 48, 24_576),
    ("IQ3_XXS", "swift", 75.8, 42.9, 60, 24_576),
    ("Q2_0", "swift", 66.5, 34.0, 48, 24_576),
    ("IQ1_M", "coder", 58.4, 23.4, 32, 12_288),
    ("UD-IQ4_XS", "unsloth", 93.7, 59.5, 48, 24_576),
    ("UD-Q4_K_XL", "unsloth", 111.3, 77.0, 48, 24_576),
    ("Qwen3.6-UD-IQ4_XS", "qwen36", 18.2, 15.2, 26, 10_240),
    ("Qwen3.6-UD-IQ3_S", "qwen36", 15.3, 12.9, 24, 10_240),
    ("IQ4_XS", "ornith", 19.3, 17.1, 28, 10_240),
    ("IQ3_XXS", "ornith", 15.3, 13.3, 24, 10_240),
    ("Q6_K", "huihui", 29.2, 29.2, 40, 10_240),
    ("Q5_K", "huihui", 25.3, 25.3, 36, 10_240),
    ("Q4_K", "huihui", 21.7, 19.5, 30, 10_240),
    ("Q3_K", "huihui", 17.2, 17.2, 28, 10_240),
    ("Q2_K", "huihui", 13.2, 13.2, 24, 10_240),
]

FAULTLESS = """
key = "A"
family = "qwen"
place = 1
title = "A model"
about = "small"
tag = "a"
architecture = "qwen4exp"
download_gb = 2
arena_gb = 1.5
ram_gib = 4
layers = 4
experts_per_layer = 8
attention_layers = 1
state_gb = 0.1
source = "a test"
repository = "someone/a"
revision = "main"

[[files]]
path = "a/a.gguf"
"""


def _folder(tmp_path: Path, *texts: str) -> Path:
    for number, text in enumerate(texts):
        (tmp_path / f"row{number}.toml").write_text(text, encoding="utf-8")
    return tmp_path


def test_the_table_and_its_order() -> None:
    rows = [
        (r.key, r.family, r.download_gb, r.arena_gb, r.ram_gib, r.layers * r.experts_per_layer)
        for r in catalogue()
    ]
    assert rows == TABLE


@pytest.mark.parametrize("row", catalogue(), ids=lambda row: f"{row.family}-{row.key}")
def test_every_row_is_sound(row: ModelRow) -> None:
    assert row.family in FAMILIES
    assert row.source
    assert row.repository.count("/") == 1
    assert len(row.revision) == 40, "a commit, so that two days give the same file"
    # The files together are the download, to the tenth of a GB that the table knows. Swift's
    # table repeats the numbers of the original model: 68.15 for 68.0, 75.97 for 75.8.
    tolerance = 0.2 if row.family == "swift" else 0.06
    assert row.file_bytes / 1e9 == pytest.approx(row.download_gb, abs=tolerance)
    assert all(file.sha256 for file in row.files)
    assert row.arena_gb + row.table_gb <= row.download_gb
    assert row.layers == 4 * row.attention_layers


def test_the_table_of_ngrams_is_one_file_shared_by_four_sizes_and_the_coder() -> None:
    keys = [("qwen", "Q2_0"), ("qwen", "IQ2_XS"), ("qwen", "IQ3_XXS"), ("qwen", "IQ3_S")]
    last = {find_row(key, family).files[-1].sha256 for family, key in [*keys, ("coder", "IQ1_M")]}
    assert len(last) == 1
    # 320,001,536 rows of 90 bytes, and a header of 192 bytes
    assert find_row("IQ3_S").files[-1].size_bytes == 320_001_536 * 90 + 192


@pytest.mark.parametrize(
    ("name", "family", "tag"),
    [
        ("IQ3_S", None, "iq3_s"),
        ("iq3_s ", None, "iq3_s"),
        ("IQ2_XS", None, "iq2_xs"),  # the first family that has it
        ("IQ2_XS", "swift", "swift-iq2_xs"),
        ("swift-IQ2_XS", None, "swift-iq2_xs"),
        ("UD-IQ4_XS", None, "unsloth-ud-iq4_xs"),  # a key goes before a further name
        ("UD-IQ4_XS", "qwen36", "qwen36-ud-iq4_xs"),
        ("Qwen3.6-UD-IQ4_XS", None, "qwen36-ud-iq4_xs"),
        ("UD-IQ3_S", None, "qwen36-ud-iq3_s"),
        ("IQ4_XS", None, "ornith15-iq4_xs"),
        ("IQ3_XXS", "ornith", "ornith15-iq3_xxs"),
        ("ornith-IQ3_XXS", None, "ornith15-iq3_xxs"),
        ("huihui-Q4_K", None, "huihui-q4_k"),
        ("IQ1_M", None, "coder-iq1_m"),
    ],
)
def test_a_row_by_name(name: str, family: str | None, tag: str) -> None:
    assert find_row(name, family).tag == tag


@pytest.mark.parametrize(
    ("name", "family", "message", "hint"),
    [
        ("IQ3_M", None, "'IQ3_M' is not a size", "IQ3_S"),
        ("IQ3_S", "swift", "'IQ3_S' is not a size of the family swift", "IQ2_XS"),
        ("zzz", "coder", "'zzz' is not a size of the family coder", "sizes are IQ1_M"),
        ("", None, "'' is not a size", "sizes are Q2_0, IQ2_XS"),
        ("IQ3_S", "llama", "family: 'llama' is not one", "qwen, swift, coder"),
    ],
)
def test_an_unknown_name_lists_the_nearest(
    name: str, family: str | None, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        find_row(name, family)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("place = 1", "", "'place' is missing"),
        ('source = "a test"', "", "'source' is missing"),
        ("layers = 4", "layers = 4\nlayer = 4", "'layer' is not a key"),
        ("layers = 4", "layers = 4.0", "'layers' is 4.0, not a whole number"),
        ("layers = 4", "layers = true", "'layers' is True, not a whole number"),
        ("layers = 4", "layers = 0", "'layers' is 0"),
        ("ram_gib = 4", "ram_gib = -4", "'ram_gib' is -4, not a number from 0"),
        ("ram_gib = 4", "ram_gib = inf", "'ram_gib' is inf"),
        ("ram_gib = 4", "ram_gib = nan", "'ram_gib' is nan"),
        ("ram_gib = 4", 'ram_gib = "4"', "'ram_gib' is '4', not a number"),
        ('title = "A model"', 'title = " "', "'title' is ' ', not a text"),
        ('family = "qwen"', 'family = "own"', "'family' is 'own'"),
        ("state_gb = 0.1", "state_gb = 0.1\nbudget = 1", "'budget' is 1, not true or false"),
        ("state_gb = 0.1", 'state_gb = 0.1\naliases = "x"', "'aliases' is 'x', not a list"),
        ('path = "a/a.gguf"', 'path = "a"\nsha = "0"', r"files\[0\]: 'sha' is not a key"),
        ('path = "a/a.gguf"', "size_bytes = 4", r"files\[0\]: 'path' is missing"),
        ('path = "a/a.gguf"', 'path = "a"\nsha256 = "0g"', r"files\[0\]: 'sha256' is '0g'"),
        ('[[files]]\npath = "a/a.gguf"', "files = []", "'files' is empty"),
        ("[[files]]", '[[experts]]\nlayers = 4\ngate_up = "Q4_K"\n[[files]]', "'down' is missing"),
        (
            "[[files]]",
            '[[experts]]\nlayers = 3\ngate_up = "Q4_K"\ndown = "Q4_K"\n[[files]]',
            "'experts' counts 3 of 4 layers",
        ),
        (
            "[[files]]",
            '[[experts]]\nlayers = 4\ngate_up = "Q4_K"\ndown = "Q9_9"\n[[files]]',
            r"experts\[0\]: 'down' is 'Q9_9', not a type of GGUF",
        ),
        ("layers = 4", "layers = = 4", "cannot be read.* line 12 "),
    ],
)
def test_a_fault_names_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FAULTLESS
    folder = _folder(tmp_path, FAULTLESS.replace(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        load_catalogue(folder)
    assert "row0.toml" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "2 rows of qwen have the key 'A'"),
        ({'key = "A"': 'key = "B"'}, "2 rows of qwen have the place '1'"),
        ({'key = "A"': 'key = "B"', "place = 1": "place = 2"}, "have the tag 'a'"),
        ({'family = "qwen"': 'family = "swift"'}, "2 rows of all families have the tag 'a'"),
    ],
)
def test_twins_are_refused(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    other = FAULTLESS
    for old, new in changes.items():
        other = other.replace(old, new)
    with pytest.raises(ConfigError, match=message):
        load_catalogue(_folder(tmp_path, FAULTLESS, other))


def test_places_make_the_order_and_what_is_unsaid_has_a_default(tmp_path: Path) -> None:
    second = FAULTLESS.replace('"A"', '"0"').replace("place = 1", "place = 9")
    third = FAULTLESS.replace('"A"', '"1"').replace("place = 1", "place = 2")
    folder = _folder(tmp_path, second.replace('tag = "a"', 'tag = "b"'), FAULTLESS)
    (folder / "third.toml").write_text(third.replace('tag = "a"', 'tag = "c"'), encoding="utf-8")
    rows = load_catalogue(folder)
    assert [row.key for row in rows] == ["A", "1", "0"]
    assert rows[0].file_bytes == 0
    assert rows[0].files[0].name == "a.gguf"
    assert (rows[0].train_context, rows[0].budget, rows[0].table_gb) == (262_144, False, 0.0)


def test_a_folder_without_files_has_no_rows(tmp_path: Path) -> None:
    assert load_catalogue(tmp_path) == ()


def test_every_toml_beside_the_bundled_model_is_a_row() -> None:
    folder = Path(profiles.__file__).parent / "models"
    assert len(list(folder.iterdir())) == len(catalogue()) + 1
    assert (folder / "strata-tiny.gguf").is_file()
