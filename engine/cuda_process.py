"""This process and CUDA: which cards it sees, the one that it takes, and how much it uses of it."""

from __future__ import annotations

from engine.config import CardConfig
from engine.device_memory import CONTEXT_BYTES
from engine.errors import ConfigError
from engine.hardware import Gpu
from engine.memory import MIB
from engine.switches import show_one_card


def local_cards() -> tuple[Gpu, ...]:
    """The NVIDIA cards that this process sees, by CUDA's numbers. Makes the driver's context."""
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(_card(index) for index in range(torch.cuda.device_count()))


def take_card(card: CardConfig) -> str:
    """Makes a card this process's own, with its limit; its name for torch, such as `cuda:0`.

    Raises `ConfigError` when CUDA does not show it.
    """
    import torch

    # Once CUDA runs, it does not look again.
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        show_one_card(card.identity)
    index = _index_of(card.identity)
    torch.cuda.set_device(index)
    room = card.vram_limit_mib * MIB - CONTEXT_BYTES
    total = torch.cuda.get_device_properties(index).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, max(0.01, room / total)), index)
    return f"cuda:{index}"


def used_bytes(device: str) -> int:
    """Bytes of `device` that this process has taken, the driver's share with them, as far as it
    can tell."""
    import torch

    return CONTEXT_BYTES + torch.cuda.memory_reserved(device)


def _card(index: int) -> Gpu:
    import torch

    found = torch.cuda.get_device_properties(index)
    free, _ = torch.cuda.mem_get_info(index)
    return Gpu(
        index=index,
        uuid=f"GPU-{found.uuid}",
        pci_bus_id="",
        vendor="nvidia",
        name=found.name,
        arch=f"{found.major}.{found.minor}",
        vram_bytes=found.total_memory,
        # The context that reading this has made is part of what an engine takes.
        vram_free_bytes=min(found.total_memory, free + CONTEXT_BYTES),
        driver="",
        integrated=bool(found.is_integrated),
    )


def _index_of(identity: str) -> int:
    """CUDA's number for the card. The only visible one is the one that was asked for."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    uuids = [f"GPU-{torch.cuda.get_device_properties(i).uuid}" for i in range(count)]
    if identity in uuids:
        return uuids.index(identity)
    if count == 1:
        return 0
    if identity.isdigit() and int(identity) < count:
        return int(identity)
    raise ConfigError(
        f"CUDA shows {count} cards to this process, and {identity} is none of them",
        "check the driver with nvidia-smi; --device cpu runs the model on the processor",
    )
