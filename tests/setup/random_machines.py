"""Random machines and answers for tests by hypothesis: sound types, any values."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.hardware import Cpu, Gpu, Hardware
from setup.asked import Asked

_GIB = 1 << 30
_NVIDIA = ("5.2", "6.1", "7.0", "7.5", "8.6", "8.9", "9.0", "12.0", "12.1", "", "unknown")
_AMD = ("gfx1100", "gfx1201", "gfx1030", "gfx1151", "gfx1103", "gfx906", "gfx90a", "gfx", "")
_NAMES = ("NVIDIA GeForce RTX 4090", "AMD Radeon AI PRO R9700", "Radeon AI PRO R9700", "A card")
_DRIVERS = ("580.95.05", "580", "581.29", "535.183.01", "470.256.02", "", "N/A", "6.10.5")


@st.composite
def gpus(draw: st.DrawFn, index: int) -> Gpu:
    """One card or integrated GPU, at its place in the recording."""
    vendor = draw(st.sampled_from(("nvidia", "amd")))
    integrated = draw(st.sampled_from((False, False, False, True)))
    usual = st.sampled_from((8, 10, 12, 16, 24, 32, 48, 80)).map(lambda gib: gib * _GIB)
    odd = st.integers(2 * _GIB, 200 * _GIB)
    vram = draw(st.integers(0, 2 * _GIB) if integrated else usual | odd)
    return Gpu(
        index=index,
        uuid=draw(st.sampled_from((f"GPU-{index}", ""))),
        pci_bus_id=f"0000:{index:02x}:00.0",
        vendor=vendor,
        name=draw(st.sampled_from(_NAMES)),
        arch=draw(st.sampled_from(_NVIDIA if vendor == "nvidia" else _AMD)),
        vram_bytes=vram,
        vram_free_bytes=draw(st.integers(0, vram)),
        driver=draw(st.sampled_from(_DRIVERS)) if vendor == "nvidia" else "",
        integrated=integrated,
        display=draw(st.booleans()),
        compute_mode=draw(st.sampled_from(("", "Default", "Exclusive_Process", "Prohibited"))),
        link_width=draw(st.sampled_from((0, 1, 4, 16))),
        shared_bytes=draw(st.integers(0, 200 * _GIB)) if integrated else 0,
        cores=draw(st.sampled_from((0, 4_352, 10_752))),
        clock_mhz=draw(st.sampled_from((2_100, 3_090))),
    )


@st.composite
def alike(draw: st.DrawFn) -> list[Gpu]:
    """Up to eight cards of one kind, as servers and profiles have them."""
    count = draw(st.integers(1, 8))
    vendor, name, arch = draw(
        st.sampled_from(
            (
                ("amd", "AMD Radeon AI PRO R9700", "gfx1201"),
                ("nvidia", "NVIDIA GeForce RTX 3090", "8.6"),
            )
        )
    )
    vram = draw(st.integers(6 * _GIB, 48 * _GIB))
    return [
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            pci_bus_id=f"0000:{index:02x}:00.0",
            vendor=vendor,
            name=name,
            arch=arch,
            vram_bytes=vram,
            vram_free_bytes=vram,
            driver="580.95.05" if vendor == "nvidia" else "",
            integrated=False,
        )
        for index in range(count)
    ]


@st.composite
def machines(draw: st.DrawFn) -> Hardware:
    """0 to 8 cards, 1 to 2048 GiB of memory, WSL or a container."""
    count = draw(st.integers(0, 8))
    cards = draw(alike() | st.tuples(*(gpus(i) for i in range(count))).map(list))
    ram = draw(st.integers(_GIB, 2048 * _GIB) | st.integers(_GIB, 128 * _GIB))
    fast, slow = draw(st.sampled_from(((0, 0), (8, 16), (4, 4), (1, 2), (6, 0))))
    container = draw(st.booleans())
    return Hardware(
        gpus=tuple(cards),
        ram_bytes=ram,
        ram_available_bytes=draw(st.integers(0, ram)),
        cpu=Cpu(
            name="A CPU",
            cores=draw(st.integers(1, 256)),
            avx2=draw(st.booleans()),
            avx512=False,
            performance_cores=fast,
            efficiency_cores=slow,
            sockets=draw(st.integers(1, 4)),
        ),
        disk_free_bytes=draw(st.integers(0, 10**13)),
        os=draw(st.sampled_from(("linux", "windows"))),
        wsl=draw(st.booleans()),
        swap_bytes=draw(st.integers(0, 64 * _GIB)),
        memory_limit_bytes=ram if container else 0,
        cpu_limit=draw(st.sampled_from((0.0, 0.5, 8.0))) if container else 0.0,
        container=container,
        disk_rotational=draw(st.booleans()),
        desktop=draw(st.booleans()),
    )


def _maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Mostly not said: answers that exclude each other would fill the run otherwise."""
    return st.one_of(st.none(), st.none(), st.none(), values)


def _seldom(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """For answers that few others allow."""
    return _maybe(_maybe(values))


_CONTEXTS = st.sampled_from((512, 8192, 32_768, 65_536, 131_072, 262_144, 524_288))
_NUMBERS = st.lists(st.integers(0, 8), max_size=5).map(tuple)
_SPLITS = st.sampled_from(
    ("auto", "AUTO", "", "24", "16,32", " 12, 24 ,36", "13,26,39", "24,16", "x", "1")
)
answers = st.builds(
    Asked,
    context=_maybe(_CONTEXTS | st.integers(16, 2_000_000)),
    kv=_maybe(st.sampled_from(("int8", "q4_0", "k8v4", "fp16"))),
    kv_streaming=_maybe(st.sampled_from(("auto", "on", "off"))),
    parallel=_maybe(st.integers(0, 100)),
    gpus=_maybe(st.sampled_from(("all", (0, 1), (1, 0), (0, 1, 2)))) | _seldom(_NUMBERS),
    backend=_seldom(st.sampled_from(("cuda", "hip", "cpu"))),
    layer_split=_seldom(_SPLITS | st.lists(st.integers(-1, 50), max_size=4)),
    low_ram=_maybe(st.sampled_from(("auto", "on", "off", "resident", "mmap"))),
    resident_budget_gib=_maybe(st.integers(1, 500)),
    rope_scaling=_maybe(st.sampled_from(("yarn", "linear", "none"))),
    rope_scale=_seldom(st.floats(0.25, 16)),
    draft_vocab=_maybe(st.sampled_from(("cjk", "cyrillic", "fr", "en"))),
    vision=_maybe(st.sampled_from(("gpu", "cpu"))),
    vram_reserve_mib=_maybe(st.integers(0, 8192)),
    pool_workers=_maybe(st.integers(1, 64)),
    host=_maybe(st.just("127.0.0.1")),
    port=_maybe(st.integers(0, 65_535)),
    api_key=_maybe(st.just("a key")),
    open_browser=_maybe(st.booleans()),
    sampling=_maybe(st.sampled_from(("thinking", "instruct"))),
)
