"""This machine as the probe sees it: bounded, and silent where there is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.system_files import MOST_BYTES
from setup.probe import ThisMachine, probe

REPOSITORY = Path(__file__).parents[3]


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def with_path(machine: ThisMachine, folder: Path) -> ThisMachine:
    machine.environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return machine


def test_what_is_not_there_reads_as_nothing(tmp_path: Path) -> None:
    machine = ThisMachine(tmp_path)
    assert machine.command(["a-program-that-is-not-there"]) == ""
    assert machine.read(str(tmp_path)) == ""
    assert machine.read("a\0path") == ""
    assert machine.names(str(tmp_path / "missing")) == ()
    assert machine.names("a\0path") == ()
    assert machine.resolve(str(tmp_path / "missing")) == ""
    assert machine.resolve("a\0path") == ""
    assert not machine.may_use(str(tmp_path / "missing"))
    with pytest.raises(ModuleNotFoundError):
        machine.module("a_library_that_is_not_there")


def test_commands(tmp_path: Path) -> None:
    machine = with_path(ThisMachine(tmp_path), tmp_path)
    program(tmp_path, "good", 'printf "a\\377b %s" "$1"')
    program(tmp_path, "bad", "echo text; exit 9")
    (tmp_path / "broken").write_bytes(b"\x7fELFnot really")
    (tmp_path / "broken").chmod(0o755)
    assert machine.command(["good", "word"]) == "a\ufffdb word"
    assert machine.command(["bad"]) == ""
    assert machine.command(["broken"]) == ""


def test_reading_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * (MOST_BYTES + 10))
    assert len(ThisMachine(tmp_path).read(str(path))) == MOST_BYTES


def test_links_and_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").symlink_to("b")
    machine = ThisMachine(tmp_path)
    assert machine.names(str(tmp_path)) == ("a", "b")
    assert machine.resolve(str(tmp_path / "a")) == str((tmp_path / "b").resolve())


def test_the_disk_of_a_folder_that_is_not_made_yet(tmp_path: Path) -> None:
    here, there = ThisMachine(tmp_path).disk(), ThisMachine(tmp_path / "a" / "b").disk()
    assert here.device == there.device
    device = tmp_path.stat().st_dev
    assert here.device == f"{os.major(device)}:{os.minor(device)}"
    assert there.free_bytes > 0


def test_a_library_that_prints_does_not_disturb_our_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "noisy_library_of_a_test.py").write_text("print('hello')\nraise KeyError('x')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KeyError):
        ThisMachine(tmp_path).module("noisy_library_of_a_test")
    assert capsys.readouterr().out == ""


def test_a_whole_probe_with_a_program_in_place_of_nvidia_smi(tmp_path: Path) -> None:
    program(tmp_path, "nvidia-smi", "head -c 100000 /dev/zero | tr '\\0' ','; printf '\\377\\n'")
    machine = with_path(ThisMachine(tmp_path), tmp_path)
    assert probe(machine).ram_bytes > 0


CHECK = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
REFUSED = set("typer rich click msgspec numpy numba torch triton httpx starlette gguf jinja2 "
              "tokenizers tomlkit uvicorn".split()) | set(sys.argv[1:])
sys.meta_path.insert(0, Refuse())
import json, pathlib
from setup.probe import ThisMachine, probe
found = probe(ThisMachine(pathlib.Path(".")))
print(json.dumps(found.to_json()))
assert found.ram_bytes > 0 and found.cpu.cores >= 1 and found.cpu.name
assert not REFUSED & {name.split(".")[0] for name in sys.modules}
"""


@pytest.mark.parametrize("without", [[], ["psutil"], ["pynvml"], ["psutil", "pynvml", "amdsmi"]])
def test_probing_needs_no_other_library(without: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK, *without], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert '"notes": []' in done.stdout or '"notes": ["' in done.stdout
