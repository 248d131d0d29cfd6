"""The probe finds something on every machine, however broken its answers are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pynvml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.hardware import Hardware
from engine.host_memory import HostMemory
from setup.probe import probe
from setup.probe.machine import Disk
from tests.setup.probe import nvidia_machines, other_machines
from tests.setup.probe.fake_nvml import EVERY_FUNCTION, error
from tests.setup.probe.recorded import Recorded

CODES = sorted(pynvml.NVMLError._valClassMapping)
FAILURES = st.one_of(
    st.sampled_from([error(code) for code in CODES]),
    st.sampled_from([OSError("gone"), ValueError(), KeyError("x"), RuntimeError("é\udc80"),
                     AttributeError("no"), MemoryError(), TypeError("\x1b[31m")]),
)  # fmt: skip
ODD = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=12),
    st.binary(max_size=12),
    st.booleans(),
    st.floats(),
    st.lists(st.integers(), max_size=3),
    st.just(pynvml.c_nvmlMemory_t(total=1 << 40, free=1 << 63)),
)
LINES = st.sampled_from([
    "", "max", "-1", "0", "18446744073709551615", "9" * 40, "0-3", "3-0", "1 100000", "x 0", "\0",
    "MemTotal: 0 kB", "MemTotal: 99999999999999 kB", "flags : ", "model name : \x07", "0::/../..",
    "1:memory:/a b", "11:memory:/x\n0::/y", "simd_count 4\ngfx_target_version 99999999999999",
    "unique_id 18446744073709551615\nsimd_count 9\ngfx_target_version 1\nlocation_id 99999999999",
    "1 2 3:4 / /sys/fs/cgroup rw - cgroup2 c rw", "1 2 3:4 /a\\040b /c rw - cgroup c rw,memory",
    "size_in_bytes 9\nheap_type 1", "0x10de", "0x1002", "0x030000", "16.0 GT/s PCIe", "connected",
    "GPU-a, 0:0:0.0, n", ", " * 12, '"', "quota 1",
])  # fmt: skip
TEXTS = st.one_of(LINES, st.lists(LINES, max_size=4).map("\n".join), st.text(max_size=40))


def sound(found: Hardware) -> None:
    """What must hold of every machine."""
    assert Hardware.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.cpu.cores >= 1
    assert found.cpu.sockets >= 1
    assert found.numa_nodes >= 1
    assert 0 <= found.ram_available_bytes <= found.ram_bytes
    assert all(0 <= gpu.vram_free_bytes <= gpu.vram_bytes for gpu in found.gpus)
    assert all(gpu.vram_bytes or gpu.integrated for gpu in found.gpus)
    assert len({gpu.uuid for gpu in found.gpus}) == len(found.gpus)
    assert all(note.isprintable() for note in found.notes)


class OddNvml:
    """Every function raises or answers as `answers` says, in turn."""

    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(self, answers: Sequence[tuple[bool, Any, Exception]]) -> None:
        self._answers = answers
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        if name not in EVERY_FUNCTION:
            raise AttributeError(name)

        def function(*args: Any) -> Any:
            works, value, failure = self._answers[self._asked % len(self._answers)]
            self._asked += 1
            if not works:
                raise failure
            return value

        return function


@given(st.lists(st.tuples(st.booleans(), ODD, FAILURES), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_whatever_nvml_answers(answers: list[tuple[bool, Any, Exception]]) -> None:
    sound(probe(Recorded(modules={"pynvml": OddNvml(answers), "amdsmi": OddNvml(answers)})))


NVIDIA_MAKERS = (nvidia_machines.desktop, nvidia_machines.mig_h100, nvidia_machines.gb10)


@given(st.sampled_from(NVIDIA_MAKERS), st.dictionaries(st.sampled_from(EVERY_FUNCTION), FAILURES))
@settings(max_examples=80, deadline=None)
def test_whichever_nvml_function_raises(make: Any, fails: dict[str, Exception]) -> None:
    machine = make()
    whole = machine.modules["pynvml"]

    class Failing:
        def __getattr__(self, name: str) -> Any:
            if name not in fails:
                return getattr(whole, name)

            def function(*args: Any) -> Any:
                raise fails[name]

            return function

    machine.modules = {"pynvml": Failing()}
    sound(probe(machine))


MAKERS = (
    *NVIDIA_MAKERS,
    nvidia_machines.laptop,
    nvidia_machines.docker_16_gb,
    other_machines.cgroup_v1,
    other_machines.apu_and_card,
)


@given(st.sampled_from(MAKERS), st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_files_hold(make: Any, data: st.DataObject) -> None:
    machine = make()
    paths = data.draw(st.lists(st.sampled_from(sorted(machine.files)), max_size=8))
    texts = {path: data.draw(TEXTS) for path in paths}
    machine.files = {**machine.files, **texts}
    sound(probe(machine))


class OddMachine(Recorded):
    """Every file, folder, link and command is `texts` in turn."""

    texts: Sequence[str] = ("",)
    asked = 0

    def _next(self) -> str:
        self.asked += 1
        return self.texts[self.asked % len(self.texts)]

    def read(self, path: str) -> str:
        return self._next()

    def names(self, folder: str) -> tuple[str, ...]:
        return ("0000:01:00.0", "card0", "0", "node0", self._next()[:20])

    def resolve(self, path: str) -> str:
        return f"/sys/{self._next()[:20]}/0000:00:01.0"

    def command(self, args: Sequence[str]) -> str:
        return self._next()

    def disk(self) -> Disk:
        return Disk(-1, self._next())

    def counted_memory(self) -> HostMemory:
        raise OSError("no")


@given(
    st.lists(TEXTS, min_size=1, max_size=12),
    st.dictionaries(
        st.sampled_from(
            [
                "CUDA_VISIBLE_DEVICES",
                "HIP_VISIBLE_DEVICES",
                "ROCR_VISIBLE_DEVICES",
                "DISPLAY",
                "container",
                "CUDA_DEVICE_ORDER",
            ]
        ),
        st.text(max_size=20),
    ),
)
@settings(max_examples=80, deadline=None)  # fmt: skip
def test_whatever_a_machine_says(texts: list[str], environment: dict[str, str]) -> None:
    machine = OddMachine(environment=environment)
    machine.texts = texts
    sound(probe(machine))


def test_a_machine_whose_every_answer_is_an_error() -> None:
    class Dead(Recorded):
        def __getattribute__(self, name: str) -> Any:
            if name in ("os", "release", "architecture", "environment", "numbers"):
                return {"environment": {}}.get(name, "linux")
            raise OSError("dead")

    found = probe(Dead())
    sound(found)
    assert len(found.notes) >= 8
    assert all("OSError: dead" in note for note in found.notes)
