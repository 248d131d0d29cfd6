"""What stays of an earlier config, and the context that a model allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.model_info import read_model_info
from setup.asked import Asked
from setup.models.bundled import bundled_model
from setup.models.catalogue_info import row_of
from setup.recommend import Recommendation, Subject, recommend
from tests.machines import machine


def _found(old: dict[str, Any], **asked: Any) -> Recommendation:
    info = read_model_info(bundled_model(), None)
    subject = Subject(row_of(info), info, bundled_model())
    return recommend(subject, machine(), Asked(**asked), Path("/nowhere"), old=old)


@pytest.mark.parametrize(
    ("args", "asked", "written"),
    [
        ([], {}, ["--max-context", "4096", "--kv", "fp16"]),
        (["--max-context", "1024"], {}, ["--max-context", "1024", "--kv", "fp16"]),
        (["--max-context", "1024"], {"context": 2048}, ["--max-context", "2048", "--kv", "fp16"]),
        (["--kv", "int8"], {}, ["--max-context", "4096", "--kv", "int8"]),
        (["--kv", "int8"], {"kv": "f32"}, ["--max-context", "4096", "--kv", "f32"]),
        (
            ["--prefill", "128", "--prefil", "3", "--spec", "99", "--spec-min-p", "0.7"],
            {},
            ["--max-context", "4096", "--kv", "fp16", "--prefill", "128", "--spec-min-p", "0.7"],
        ),
        # Above the 4096 tokens that the model allows; keys and values are those of 4096 tokens.
        (["--max-context", "16384"], {}, ["--max-context", "4096", "--kv", "fp16"]),
        ([], {"context": 16384}, ["--max-context", "4096", "--kv", "fp16"]),
    ],
)
def test_choices_stay_until_this_run_says_otherwise(
    args: list[str], asked: dict[str, Any], written: list[str]
) -> None:
    assert _found({"args": args}, **asked).config["args"] == written


def test_a_context_above_the_limit_is_told_once() -> None:
    found = _found({}, context=16384)
    assert [note for note in found.notes if "16384" in note] == list(found.unheeded)
    assert len(found.unheeded) == 1


def test_bad_values_of_the_old_config_are_not_served() -> None:
    found = _found({"port": "9000", "parallel": -1, "model_name": "office"})
    assert (found.config["port"], found.config["model_name"]) == (8080, "office")
    assert not any("parallel -1" in note for note in found.notes)
