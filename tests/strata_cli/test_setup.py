"""`strata setup` without questions: what it writes, and what it prints where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.machines import CARD, SMALL_MODEL, machine
from tests.strata_cli.commands import strata

Capture = pytest.CaptureFixture[str]
NAME = "strata-q35moe-a-iq3s.json"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))


def test_writes_a_config_and_prints_its_name(capsys: Capture, tmp_path: Path) -> None:
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes")
    assert ran.code == 0
    assert ran.out == f"{NAME}\n"
    values = json.loads((tmp_path / NAME).read_text())
    assert values["model"] == str(SMALL_MODEL)
    # Up to 8192 tokens the rules keep fp16.
    assert values["args"] == ["--max-context", "4096", "--kv", "fp16"]
    assert "+ args: --max-context 4096" in ran.err
    assert "nothing changes" not in ran.err
    again = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes")
    assert "nothing changes" in again.err
    quiet = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes", "-q")
    assert (quiet.out, quiet.err) == (f"{NAME}\n", "")
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_without_a_model_the_one_that_comes_along_is_set_up(
    capsys: Capture, tmp_path: Path
) -> None:
    ran = strata(capsys, "setup", "--yes")
    assert ran.out == "strata-tiny.json\n"
    assert "note: By memory and cards this machine suits" in ran.err
    values = json.loads((tmp_path / "strata-tiny.json").read_text())
    assert Path(values["model"]).name == "strata-tiny.gguf"


def test_a_second_run_keeps_the_users_keys(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text(
        json.dumps({"aliases": ["x"], "args": ["--pcie-frac", "1"], "port": 1, "mine": 1})
    )
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes", "--parallel", "2")
    values = json.loads(path.read_text())
    assert (values["aliases"], values["mine"], values["port"]) == (["x"], 1, 1)
    assert values["parallel"] == 2
    assert "--pcie-frac" in ran.err
    assert "- args: --pcie-frac 1" in ran.err
    assert json.loads((tmp_path / f"{NAME}.bak").read_text())["mine"] == 1
    moved = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes", "--port", "8081")
    assert "- port: 1" in moved.err
    assert "+ port: 8081" in moved.err
    assert json.loads(path.read_text())["parallel"] == 2


def test_a_damaged_config_is_not_written_over(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"port": 1,\n "host": }')
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert "line 2" in ran.err
    assert (tmp_path / NAME).read_text() == '{"port": 1,\n "host": }'


def test_dry_run_prints_and_writes_nothing(capsys: Capture, tmp_path: Path) -> None:
    ran = strata(capsys, "setup", "--model", str(SMALL_MODEL), "--dry-run", "--context", "1024")
    assert ran.code == 0
    assert json.loads(ran.out)["args"][:2] == ["--max-context", "1024"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["2k", "2K", "2048"])
def test_a_context_is_taken_as_the_wizard_takes_it(capsys: Capture, text: str) -> None:
    words = ["--model", str(SMALL_MODEL), "--context", text]
    assert json.loads(strata(capsys, "setup", *words, "--dry-run").out)["args"][1] == "2048"
    plan = strata(capsys, "run", *words, "--plan", "--json").document
    assert plan["config"]["max_context"] == 2048


def test_the_json_document(capsys: Capture, tmp_path: Path) -> None:
    probe = tmp_path / "machine.json"
    probe.write_text(json.dumps(machine(gpus=(CARD,)).to_json()))
    words = ["--probe", "machine.json", "--model", str(SMALL_MODEL), "--yes", "--json"]
    document = strata(capsys, "setup", *words, "--dry-run").document
    assert list(document) == ["config", "recommendation", "reasons", "notes", "path"]
    assert document["recommendation"]["context"] == 4096
    assert document["recommendation"]["kv"] == "fp16"
    assert document["path"] == NAME
    assert not (tmp_path / NAME).exists()
    written = strata(capsys, "setup", *words).document
    assert written == document
    assert json.loads((tmp_path / NAME).read_text()) == document["config"]


def test_without_a_terminal_nothing_is_asked(capsys: Capture, tmp_path: Path) -> None:
    ran = strata(capsys, "setup")
    assert (ran.code, ran.out) == (1, "")
    assert "error: setup would ask: Which model?" in ran.err
    assert "--model" in ran.err.splitlines()[-1]
    assert "--yes" in ran.err.splitlines()[-1]
    # Every question is answered but the last one.
    words = ["--model", str(SMALL_MODEL), "--context", "1024"]
    ran = strata(capsys, "setup", *words, "--json")
    assert ran.code == 1
    assert ran.document["error"]["message"] == "setup would ask: Write this?"
    assert "--yes or --dry-run decides it" in ran.document["error"]["hint"]
    assert list(tmp_path.iterdir()) == []


def test_save_probe_records_a_machine_that_can_be_used(capsys: Capture) -> None:
    saved = strata(capsys, "setup", "--save-probe", "here.json")
    assert (saved.code, saved.out) == (0, "here.json\n")
    words = ["setup", "--probe", "here.json", "--model", str(SMALL_MODEL), "--check"]
    assert strata(capsys, *words).code == 0


def test_explain_prints_reasons_and_the_memory_table(capsys: Capture) -> None:
    words = ["setup", "--model", str(SMALL_MODEL), "--dry-run"]
    ran = strata(capsys, *words, "--explain")
    assert "keys and values, 4 slots" in ran.err
    assert "because: context 4096: " in ran.err
    assert "because" not in strata(capsys, *words).err
    assert json.loads(ran.out) == json.loads(strata(capsys, *words).out)


def test_a_file_in_a_folder_of_models_is_found(capsys: Capture, tmp_path: Path) -> None:
    folder = tmp_path / "my models" / "deep"
    folder.mkdir(parents=True)
    (folder / "half.gguf").write_bytes(b"GGUF")
    ran = strata(capsys, "setup", "--yes", "--models-dir", "my models", "--dry-run")
    assert ran.code == 0
    assert "half.gguf is left out" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--gpus", "0,x"], 1, "--gpus: '0,x' is not a list of GPU numbers"),
        (["--gpu", "all"], 1, "--gpu: 'all' is not a list"),
        (["--gpu", "0", "--gpus", "0"], 1, "both given"),
        (["--gpu", "7"], 1, "there is no GPU 7"),
        (["--model", "IQ9_S"], 1, "'IQ9_S' is not a size"),
        (["--model", "qwen36"], 1, "hint: it is a family: --family qwen36"),
        (["--family", "IQ3_S"], 1, "hint: it is a size: --model IQ3_S"),
        (["--model", "missing.gguf"], 1, "missing.gguf does not exist"),
        (["--family", "qwem"], 1, "--family: 'qwem' is not one"),
        (["--family", "qwen", "--model", str(SMALL_MODEL)], 1, "are both given"),
        (["--family", "qwen", "--model", "IQ1_M"], 1, "'IQ1_M' is not a size of the family qwen"),
        (["--api-key", " "], 1, "--api-key is empty"),
        (["--context", "5"], 1, "--context or --max-context: '5' is not a number of tokens from"),
        (["--kv", "int7"], 1, "'int7' is not one of"),
        (["--max-context", "24 kb"], 1, "'24 kb' is not a number of tokens"),
        (["--parallel", "-1"], 1, "--slots or --parallel: '-1' is not a whole number"),
        (["--rope-scaling", "yarn", "--rope-scale", "0.5"], 1, "rope-scale is 0.5"),
        (["--kv-streaming", "maybe"], 2, "'maybe' is not one of auto, on, off"),
        (["--low-ram", "yes"], 2, "is not one of auto, on, off, resident, mmap"),
        (["--port", "70000"], 2, "'--port'"),
        (["--resident-budget-gib", "0"], 2, "'--resident-budget-gib'"),
        (["--probe", "missing.json"], 1, "missing.json"),
    ],
)
def test_a_flag_of_no_use_is_told(
    capsys: Capture, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    ran = strata(capsys, "setup", "--yes", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert not list(tmp_path.glob("*.json"))


def test_a_name_of_several_families_is_told(capsys: Capture) -> None:
    words = ["--yes", "--dry-run"]
    ran = strata(capsys, "setup", "--model", "IQ2_XS", *words)
    assert "note: IQ2_XS is taken as Qwen3.8-Flash-Next IQ2_XS (--family qwen)" in ran.err
    assert "--family swift --model IQ2_XS" in ran.err
    ran = strata(capsys, "setup", "--model", "IQ4_XS", *words)
    assert "--family unsloth --model UD-IQ4_XS" in ran.err
    assert "--family qwen36 --model Qwen3.6-UD-IQ4_XS" in ran.err
    ran = strata(capsys, "setup", "--model", "IQ2_XS", "--family", "swift", *words)
    assert "is taken as" not in ran.err
    assert "is taken as" not in strata(capsys, "setup", "--model", "UD-Q4_K_XL", *words).err


@pytest.mark.parametrize("name", ["mine", "Mine.GGUF"])
def test_a_name_is_looked_up_in_the_folders_of_models(
    capsys: Capture, tmp_path: Path, name: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.gguf").symlink_to(SMALL_MODEL)
    (tmp_path / "there" / "half.gguf").write_bytes(b"GGUF")
    words = ["--models-dir", "there", "--yes", "--dry-run"]
    ran = strata(capsys, "setup", "--model", name, *words)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["model_name"] == "mine"
    half = strata(capsys, "setup", "--model", "half", *words)
    assert half.code == 1
    assert "half.gguf" in half.err.splitlines()[-1] + half.err


def test_nothing_to_change_is_said_and_not_asked(capsys: Capture) -> None:
    words = ["--model", str(SMALL_MODEL), "--context", "1024"]
    assert strata(capsys, "setup", *words, "--yes").code == 0
    # Without a terminal a question would be an error.
    again = strata(capsys, "setup", *words)
    assert (again.code, again.out) == (0, f"{NAME}\n")
    assert "nothing changes" in again.err
