"""What setup writes of answers, old configs and rules; `test_fuzz.py` runs every machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.capabilities import EVERYTHING, FEATURES, THIS_VERSION, Capabilities
from engine.config import RunConfig
from engine.flags import LATER_FLAGS
from engine.hardware import Hardware
from engine.model_info import ModelInfo
from engine.resolve import make_plan
from setup.asked import Asked
from setup.config.file import read_config
from setup.config.write import write_config
from setup.models.catalogue import find_row
from setup.models.catalogue_info import info_of, row_of
from setup.recommend import Recommendation, Subject, recommend
from setup.user_settings import Calibration, Gained
from tests.machines import flash_next_sizes, machine
from tests.setup.expected.case import machine as recorded

SMALL = flash_next_sizes(path=Path("/models/m.gguf"), name="m")


def _subject(info: ModelInfo) -> Subject:
    return Subject(row_of(info), info, info.path)


def _found(
    info: ModelInfo = SMALL,
    hardware: Hardware | None = None,
    asked: Asked | None = None,
    folder: Path = Path("/"),
    **more: Any,
) -> Recommendation:
    return recommend(_subject(info), hardware or machine(), asked or Asked(), folder, **more)


def _changed(found: Recommendation, info: ModelInfo, hardware: Hardware, folder: Path) -> set[str]:
    """The settings that the engine changes of the config that was written."""
    path = folder / "strata-m.json"
    write_config(path, dict(found.config))
    run = read_config(path).run
    plan = make_plan(replace(run, model=info.path), info, hardware)
    return {decision.setting for decision in plan.decisions if decision.changed}


def test_what_was_asked_is_written_as_asked_and_said_when_it_is_cut(tmp_path: Path) -> None:
    """Free are 0.9 * 12 GB; weights 5.9, 1.07 to work with; a slot of 262144 tokens takes 4.2."""
    hardware = machine(free_gb=12)
    found = _found(hardware=hardware, asked=Asked(parallel=3, context=262_144))
    assert found.config["parallel"] == 3
    assert found.config["args"][:2] == ["--max-context", "262144"]
    assert _changed(found, SMALL, hardware, tmp_path) == {"slots", "max_context"}
    assert any("parallel 3 is kept, the engine serves 1" in note for note in found.notes)
    assert any("context 262144 is kept" in note for note in found.notes)


@pytest.mark.parametrize(("asked", "written"), [(0, 1), (1, 1), (7, 7)])
def test_parallel_is_written_when_it_was_asked_for(asked: int, written: int) -> None:
    assert "parallel" not in _found().config
    assert _found(asked=Asked(parallel=asked)).config["parallel"] == written


def test_the_model_is_named_so_that_the_folder_may_move(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    inside = replace(SMALL, path=tmp_path / "models" / "m.gguf")
    assert _found(inside, folder=tmp_path).config["model"] == "models/m.gguf"
    assert _found(folder=tmp_path).config["model"] == "/models/m.gguf"


def test_a_model_that_is_not_downloaded_yet_is_named_where_it_will_lie() -> None:
    row = find_row("IQ3_S")
    found = recommend(Subject(row, info_of(row), None), machine(), Asked(), Path("/"))
    assert found.config["model"] == f"models/{Path(row.files[0].path).name}"
    assert found.config["model_name"] == "iq3_s"


def test_answers_win_over_the_old_config_and_that_over_the_defaults() -> None:
    old = {"host": "0.0.0.0", "port": 9, "api_key": "k", "parallel": 2}
    assert {key: _found().config.get(key) for key in old} == {
        "host": "127.0.0.1",
        "port": 8080,
        "api_key": None,
        "parallel": None,
    }
    kept = _found(old=old)
    assert {key: kept.config.get(key) for key in ("host", "port", "api_key")} == {
        "host": "0.0.0.0",
        "port": 9,
        "api_key": "k",
    }
    assert kept.memory.slots == 2
    asked = Asked(host="::1", port=0, api_key="new", parallel=3)
    said = _found(old=old, asked=asked).config
    assert [said[key] for key in old] == ["::1", 0, "new", 3]


def test_what_this_version_lacks_is_left_out_and_told() -> None:
    row = find_row("IQ3_S")
    subject = Subject(row, info_of(row), None)
    asked = Asked(context=131_072, kv="q4_0", draft_vocab="en", vision="gpu", pool_workers=3)
    here = recommend(subject, recorded("2x4090-128gb"), asked, Path("/"))
    words = here.config["args"]
    assert words == ["--max-context", "131072", "--kv", "int8", "--expert-cache", "auto"]
    # One card of the two: layers are not spread.
    assert (here.config["backend"], here.config["gpu"]) == ("cuda", 0)
    assert "layer_split" not in here.config
    assert here.config["draft_vocab"] == "en"
    told = " ".join(note for note in here.notes if note.startswith("left out"))
    for what in ("q4_0", "layer split auto", "kv-resident 32768", "images"):
        assert what in told
    everything = recommend(
        subject, recorded("2x4090-128gb"), asked, Path("/"), capabilities=EVERYTHING
    )
    assert everything.config["args"] == [
        *("--max-context", "131072", "--kv", "q4_0", "--expert-cache", "auto"),
        *("--kv-resident", "32768", "--vision", "--vram-reserve-mib", "700"),
        *("--pool-workers", "3"),
    ]
    assert everything.config["backend"] == "cuda"
    assert everything.config["gpu"] == [0, 1]
    assert (everything.config["layer_split"], everything.config["draft_vocab"]) == ("auto", "en")
    assert not any(note.startswith("left out") for note in everything.notes)
    assert everything.rule.document() == here.rule.document()


@pytest.mark.parametrize(("split", "trims"), [(None, False), ("auto", False), ("24", True)])
def test_cards_load_their_own_layers_only_where_the_split_is_known(
    split: str | None, trims: bool
) -> None:
    row = find_row("IQ3_S")
    subject, asked = Subject(row, info_of(row), None), Asked(layer_split=split)
    hardware = recorded("2x4090-128gb")
    found = recommend(subject, hardware, asked, Path("/"), capabilities=EVERYTHING)
    assert ("--trim-stage-weights" in found.config["args"]) is trims


@pytest.mark.parametrize("feature", [feature.name for feature in FEATURES])
def test_one_capability_more_never_leaves_more_out(feature: str) -> None:
    row = find_row("IQ3_S")
    subject = Subject(row, info_of(row), None)
    asked = Asked(context=393_216, kv="k8v4", low_ram="on", vram_reserve_mib=900)
    one = Capabilities(THIS_VERSION.names | {feature})
    left = {
        capabilities: {
            note
            for note in recommend(
                subject, recorded("2x4090-128gb"), asked, Path("/"), capabilities=capabilities
            ).notes
            if note.startswith("left out")
        }
        for capabilities in (THIS_VERSION, one)
    }
    assert left[one] <= left[THIS_VERSION]


def test_every_flag_of_a_missing_feature_is_known_and_said_to_do_nothing() -> None:
    for flag, takes_value in LATER_FLAGS.items():
        run = RunConfig(unused=((flag, "1" if takes_value else ""),))
        plan = make_plan(run, SMALL, machine())
        decision = next(d for d in plan.decisions if d.setting == flag)
        assert decision.value == "off"
        assert decision.reason.startswith("this version cannot")


def test_a_calibration_is_written_and_told() -> None:
    calibration = Calibration((Gained("spec", 2, 1.2), Gained("prefill", 512, 1.1)), "2026-11-30")
    found = _found(calibration=calibration)
    assert found.config["args"][-4:] == ["--spec", "2", "--prefill", "512"]
    assert "--spec 2 (+20%): measured here on 2026-11-30" in found.reasons


def test_sampling_presets() -> None:
    sampling = _found(asked=Asked(sampling="instruct")).config["sampling"]
    assert (sampling["temperature"], sampling["presence_penalty"]) == (0.7, 1.5)
    assert "sampling" not in _found().config


def test_the_document_is_the_same_byte_for_byte() -> None:
    one, two = (json.dumps(_found(asked=Asked(parallel=2)).document()) for _ in range(2))
    assert one == two
    assert list(json.loads(one)) == ["config", "recommendation", "reasons", "notes"]


def test_the_oldest_cards_are_written_with_their_toolkit() -> None:
    row = find_row("IQ3_S")
    found = recommend(
        Subject(row, info_of(row), None),
        recorded("tesla-p40-64gb"),
        Asked(gpus=(0,)),
        Path("/"),
        capabilities=EVERYTHING,
    )
    assert (found.config["backend"], found.config["cuda"]) == ("cuda", 12)


def test_a_card_that_no_rule_of_this_version_uses_is_named_as_idle() -> None:
    subject = Subject(find_row("Q2_0"), info_of(find_row("Q2_0")), None)
    without_cuda = replace(recorded("rtx4090-128gb"), torch_cuda=False)
    here = recommend(subject, without_cuda, Asked(), Path("/"))
    assert here.config["backend"] == "cpu"
    assert any("PyTorch is installed here without CUDA" in note for note in here.notes)
    assert any("which this version does not use" in reason for reason in here.reasons)
    both = recommend(
        subject, recorded("rtx4090-128gb"), Asked(), Path("/"), capabilities=EVERYTHING
    )
    assert not any("does not use" in reason for reason in both.reasons)
    without = recommend(subject, recorded("no-gpu-16gb"), Asked(), Path("/"))
    assert not any("does not use" in reason for reason in without.reasons)


def test_what_does_not_fit_is_told_with_the_reason_why_it_is_more_than_the_file() -> None:
    subject = Subject(find_row("Q2_0"), info_of(find_row("Q2_0")), None)
    notes = recommend(subject, recorded("no-gpu-16gb"), Asked(), Path("/")).notes
    assert any("each weight in memory as an 8-bit integer" in note for note in notes)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Asked(resident_budget_gib=40), "--resident-budget-gib 40: IQ3_S has no budget of memory"),
        (Asked(layer_split="24"), "--layer-split 24: it takes two cards or more"),
        # 32768 tokens, streaming begins at 65536.
        (Asked(context=32_768, kv_streaming="on"), "--kv-streaming on: it begins at 65536 tokens"),
    ],
)
def test_an_answer_that_nothing_has_a_use_for_is_told(asked: Asked, told: str) -> None:
    row = find_row("IQ3_S")
    subject = Subject(row, info_of(row), None)
    notes = recommend(subject, recorded("rtx4090-128gb"), asked, Path("/")).notes
    assert any(note.startswith(f"without effect: {told}") for note in notes), notes


def test_a_context_beyond_the_models_is_the_rules_and_not_this_versions() -> None:
    row = find_row("IQ3_S")
    subject = Subject(row, info_of(row), None)
    found = recommend(subject, recorded("rtx4090-128gb"), Asked(context=524_288), Path("/"))
    assert found.rule.context == 524_288
    assert found.config["args"][:2] == ["--max-context", "262144"]
