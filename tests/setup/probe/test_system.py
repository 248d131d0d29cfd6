"""Disk, container, desktop, memory nodes and the PCI bus, from recorded texts."""

from __future__ import annotations

import pytest

from setup.probe import probe, system
from setup.probe.pci import AMD, NVIDIA, bus_id, bus_order, display_devices, has_screen, link
from tests.setup.probe.recorded import Recorded, folder
from tests.setup.probe.texts import pci_device

SDA = "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
VDA = "/sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda"


@pytest.mark.parametrize(
    ("turns", "device", "path", "expected"),
    [
        ("1", "8:1", f"{SDA}/sda1", True),  # a partition
        ("1", "8:0", SDA, True),  # a whole disk
        ("0", "8:1", f"{SDA}/sda1", False),
        ("", "8:1", f"{SDA}/sda1", False),
        ("1", "", f"{SDA}/sda1", False),
    ],
)
def test_a_disk_that_turns(turns: str, device: str, path: str, expected: bool) -> None:
    files = folder(f"{SDA}/queue", rotational=turns)
    machine = Recorded(files=files, links={"/sys/dev/block/" + device: path}, device=device)
    assert system.rotational(machine) == expected
    machine.release = "6.6.87.2-microsoft-standard-wsl2"
    assert not system.rotational(machine)
    machine.release, machine.os = "11", "windows"
    assert not system.rotational(machine)


def test_a_virtual_disk_says_nothing_about_the_real_one() -> None:
    files = folder(f"{VDA}/queue", rotational=1)
    for path in (VDA, f"{VDA}/vda1"):
        assert not system.rotational(Recorded(files=files, links={"/sys/dev/block/259:2": path}))


def test_a_file_system_with_a_number_of_its_own() -> None:
    mounts = (
        "22 1 0:20 / /proc rw - proc proc rw\n"
        "41 1 0:36 /@home /home rw shared:3 - btrfs /dev/mapper/luks-1 rw,compress=zstd\n"
    )
    files = folder(f"{SDA}/queue", rotational=1) | {"/proc/self/mountinfo": mounts}
    links = {"/dev/mapper/luks-1": "/dev/sda", "/sys/class/block/sda": SDA}
    machine = Recorded(files=files, links=links, device="0:36")
    assert system.rotational(machine)
    machine.device = "0:20"
    assert not system.rotational(machine)


DOCKER_V1 = "12:memory:/docker/0f3a8c\n1:name=systemd:/docker/0f3a8c\n"
KUBERNETES = (
    "1100 1090 259:2 /var/lib/kubelet/pods/4f/etc-hosts /etc/hosts rw - ext4 /dev/root rw\n"
)


@pytest.mark.parametrize(
    ("files", "environment", "expected"),
    [
        ({"/etc/hosts": ""}, {}, False),
        ({"/.dockerenv": ""}, {}, True),
        ({"/run/.containerenv": ""}, {}, True),
        ({"/proc/1/cgroup": DOCKER_V1}, {}, True),
        ({"/proc/1/cgroup": "0::/kubepods.slice/kubepods-pod1.slice\n"}, {}, True),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, False),
        ({"/proc/self/mountinfo": KUBERNETES}, {}, True),
        # A host that runs containers is none.
        ({"/proc/self/mountinfo": "9 1 0:9 / /var/lib/docker/overlay2/x rw - overlay o rw\n"}, {},
         False),
        ({}, {"container": "systemd-nspawn"}, True),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
    ],
)  # fmt: skip
def test_containers(files: dict[str, str], environment: dict[str, str], expected: bool) -> None:
    assert system.container(Recorded(files=files, environment=environment)) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"DISPLAY": "unix:0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": "localhost:10.0"}, False),
        ({"DISPLAY": ""}, False),
    ],
)
def test_desktops(environment: dict[str, str], expected: bool) -> None:
    assert system.desktop(Recorded(environment=environment)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 1),
        ({"has_cpu": "0\n"}, 1),
        ({"has_cpu": "0-1\n", "node2/meminfo": "", "node3/meminfo": ""}, 2),
        ({"node0/meminfo": "", "node1/meminfo": "", "power/x": ""}, 2),
    ],
)
def test_memory_nodes(files: dict[str, str], expected: int) -> None:
    under = {f"/sys/devices/system/node/{name}": text for name, text in files.items()}
    assert system.numa_nodes(Recorded(files=under)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:C1:00.1", "10000:c1:00.1"),
        (" 0000:03:00.0\n", "0000:03:00.0"),
        ("01:00.0", ""),
        ("0000:01:00.8", ""),
        ("", ""),
    ],
)
def test_bus_ids(text: str, expected: str) -> None:
    assert bus_id(text) == expected


def test_bus_order_is_by_number() -> None:
    places = ["0000:c1:00.0", "10000:01:00.0", "0000:0a:00.0", "0000:09:00.1", "", "0000:09:00.0"]
    assert sorted(places, key=bus_order) == [
        "0000:09:00.0", "0000:09:00.1", "0000:0a:00.0", "0000:c1:00.0", "10000:01:00.0", ""
    ]  # fmt: skip


def test_display_devices() -> None:
    files = {
        **pci_device("0000:01:00.0", 0x10DE, 0x2F04),
        **pci_device("0000:01:00.1", 0x10DE, 0x2F80, 0x040300),  # the card's sound
        **pci_device("0000:c1:00.0", 0x10DE, 0x2330, 0x030200),  # a card without connectors
        **pci_device("0000:03:00.0", 0x1002, 0x74A1, 0x120000),  # an accelerator
        "/sys/bus/pci/devices/0000:05:00.0/vendor": "0x10de and more\n",
    }
    machine = Recorded(files=files)
    assert [d.bus_id for d in display_devices(machine, NVIDIA)] == ["0000:01:00.0", "0000:c1:00.0"]
    assert [d.device for d in display_devices(machine, AMD)] == [0x74A1]


def test_a_card_of_intel_is_told_and_the_gpu_in_its_processor_is_not() -> None:
    files = pci_device("0000:00:02.0", 0x8086, 0xA788) | pci_device("0000:03:00.0", 0x8086, 0xE20B)
    found = probe(Recorded(files=files))
    assert found.notes == ("Intel card e20b at 0000:03:00.0: this version does not use it",)


@pytest.mark.parametrize(
    ("speed", "width", "expected"),
    [
        ("32.0 GT/s PCIe", "16", (5, 16)),
        ("2.5 GT/s PCIe", "1", (1, 1)),
        ("5.0 GT/s PCIe", "4", (2, 4)),
        ("8.0 GT/s PCIe", "8", (3, 8)),
        ("64.0 GT/s PCIe", "16", (6, 16)),
        ("16 GT/s", "4", (4, 4)),
        ("3.0 GT/s PCIe", "0", (0, 0)),
        ("Unknown", "255", (0, 0)),
        ("", "", (0, 0)),
    ],
)
def test_links(speed: str, width: str, expected: tuple[int, int]) -> None:
    place = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    files = folder(place, max_link_speed=speed, max_link_width=width)
    links = {"/sys/bus/pci/devices/0000:01:00.0": place}
    assert link(Recorded(files=files, links=links), "0000:01:00.0") == expected


def test_a_card_that_is_not_on_the_bus_has_no_link_and_no_screen() -> None:
    assert link(Recorded(), "0000:01:00.0") == (0, 0)
    assert not has_screen(Recorded(), "0000:01:00.0")
