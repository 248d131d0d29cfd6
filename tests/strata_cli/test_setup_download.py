"""Downloads as a part of setup, from a server on this machine."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.capabilities import THIS_VERSION
from engine.errors import ConfigError
from setup.asked import Asked
from setup.wizard.situation import Situation
from setup.wizard.subjects import Models
from strata_cli.console import Console
from strata_cli.setup_session import Choice, draft, get_model, show_draft, write
from tests.machines import machine
from tests.setup.hub_case import model_files, model_row
from tests.setup.hub_server import HubFiles, hub_server
from tests.setup.situations import situation

Capture = pytest.CaptureFixture[str]
CHOICE = Choice(
    model="IQ3_S",
    family=None,
    models_dirs=(),
    download=True,
    vision_off=False,
    yes=True,
    dry_run=False,
    explain=False,
    calibrate=False,
)


def _chosen(folder: Path, endpoint: str, download: bool) -> Situation:
    start = situation(machine(), THIS_VERSION, Asked())
    return replace(
        start,
        folder=folder,
        models_folder=folder / "models",
        models=Models((model_row(),), (), start.models.bundled),
        answers=replace(start.answers, family="qwen", size="IQ3_S", keep="keep", download=download),
        environment={"HF_ENDPOINT": endpoint, "XDG_CONFIG_HOME": str(folder / ".config")},
    )


def test_the_config_names_the_file_that_came(tmp_path: Path, capsys: Capture) -> None:
    with hub_server(HubFiles(model_files())) as hub:
        chosen = _chosen(tmp_path, hub.endpoint, download=True)
        drafted = draft(chosen, CHOICE)
        get_model(chosen, Console())
        write(drafted, Console())
    model = tmp_path / str(drafted.document["config"]["model"])
    assert model.read_bytes() == model_files()["IQ3_S/m-00001-of-00002.gguf"]
    said = capsys.readouterr()
    assert said.out == "strata-iq3_s.json\n"
    assert "start it with: strata run strata-iq3_s.json" in said.err
    # Off a terminal: a line for each tenth of 301,000 bytes, and no more.
    tenths = re.findall(r"^downloaded .* at m-0000[12]-of-00002\.gguf$", said.err, re.MULTILINE)
    assert 2 <= len(tenths) <= 12


def test_without_consent_nothing_is_asked_of_the_hub(tmp_path: Path, capsys: Capture) -> None:
    with hub_server(HubFiles(model_files())) as hub:
        chosen = _chosen(tmp_path, hub.endpoint, download=False)
        drafted = draft(chosen, CHOICE)
        show_draft(drafted, CHOICE, Console())
        get_model(chosen, Console())
        assert hub.asked == []
    assert drafted.next_step.startswith("fetch it with: strata setup --family ")
    assert "the model is not there yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_the_download_tells_is_in_the_document(tmp_path: Path, capsys: Capture) -> None:
    """The pinned revision is gone: that is told, and kept where -q keeps stderr silent."""
    console = Console(json=True, quiet=True)
    with hub_server(HubFiles(model_files(), revisions=("main",))) as hub:
        chosen = _chosen(tmp_path, hub.endpoint, download=True)
        drafted = draft(chosen, CHOICE)
        write(drafted, console, get_model(chosen, console))
    *before, told = json.loads(capsys.readouterr().out)["notes"]
    assert before == list(drafted.document["notes"])
    assert "no longer has revision aaaaaaaaaaaa" in told


def test_a_failed_download_writes_no_config(tmp_path: Path) -> None:
    with hub_server(HubFiles({"README.md": b""})) as hub:
        chosen = _chosen(tmp_path, hub.endpoint, download=True)
        with pytest.raises(ConfigError):
            get_model(chosen, Console(quiet=True))
    assert not list(tmp_path.glob("*.json"))
