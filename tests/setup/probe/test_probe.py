"""The probe of this machine, and of one that says nothing."""

from __future__ import annotations

import json
from pathlib import Path

from engine.hardware import Hardware, local_hardware
from setup.probe import ThisMachine, probe
from tests.setup.probe.recorded import Recorded


def test_nothing_known_is_not_an_error() -> None:
    found = probe(Recorded())
    assert (found.ram_bytes, found.ram_available_bytes, found.swap_bytes) == (7, 3, 1)
    assert found.gpus == ()
    assert found.cpu.name == "x86_64"
    assert not found.cpu.avx2
    assert found.notes == ()


def test_this_machine(tmp_path: Path) -> None:
    found = probe(ThisMachine(tmp_path / "not" / "made" / "yet"))
    assert found.cpu.cores >= 1
    assert 0 < found.ram_available_bytes <= found.ram_bytes
    assert found.disk_free_bytes > 0
    assert Hardware.from_json(json.loads(json.dumps(found.to_json()))) == found
    # The engine plans with the same memory.
    planned = local_hardware(tmp_path)
    assert (planned.ram_bytes, planned.memory_limit_bytes) == (
        found.ram_bytes,
        found.memory_limit_bytes,
    )


def test_what_is_not_there_reads_as_nothing(tmp_path: Path) -> None:
    machine = ThisMachine(tmp_path)
    assert machine.command(["a-program-that-is-not-there"]) == ""
    assert machine.command(["false"]) == ""
    assert machine.read(str(tmp_path)) == ""
    assert machine.read("a\0path") == ""
    assert machine.names(str(tmp_path / "missing")) == ()
    assert machine.resolve(str(tmp_path / "missing")) == ""
