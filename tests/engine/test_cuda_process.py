"""The card that a process takes, with CUDA as a stand-in: two cards, as torch tells of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.config import CardConfig
from engine.cuda_process import local_cards, take_card
from engine.device_memory import CONTEXT_BYTES
from engine.errors import ConfigError
from engine.memory import MIB
from engine.switches import this_environment

GB = 10**9
FIRST, SECOND = "11111111-0000", "22222222-0000"


class Cuda:
    """What torch.cuda says of two cards, and what it is told."""

    def __init__(self, *, initialized: bool = False, count: int = 2) -> None:
        self.initialized = initialized
        self.count = count
        self.current = -1
        self.fraction = 0.0

    def is_available(self) -> bool:
        return self.count > 0

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        return self.count

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(
            uuid=(FIRST, SECOND)[index],
            name=f"Card {index}",
            major=9,
            minor=0,
            total_memory=100 * GB,
            is_integrated=0,
        )

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return 90 * GB, 100 * GB

    def set_device(self, index: int) -> None:
        self.current = index

    def set_per_process_memory_fraction(self, fraction: float, index: int) -> None:
        self.fraction = fraction


def _config(identity: str, limit_mib: int = 50_000) -> CardConfig:
    return CardConfig(
        identity=identity,
        vram_limit_mib=limit_mib,
        expert_cache_bytes=0,
        resident_experts=0,
        keeps_all_experts=False,
        table_place="ram",
        adapt_every=0,
        adapt_swaps=0,
        adapt_decay=1.0,
        checkpoints=0,
    )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
    stand_in = Cuda()
    monkeypatch.setattr(torch, "cuda", stand_in)
    return stand_in


def test_cards_are_told_as_a_probe_tells_them(cuda: Cuda) -> None:
    first, second = local_cards()
    assert (first.index, first.uuid, first.arch) == (0, f"GPU-{FIRST}", "9.0")
    assert second.name == "Card 1"
    # The context of this process is part of what an engine may take.
    assert first.vram_free_bytes == 90 * GB + CONTEXT_BYTES
    cuda.count = 0
    assert local_cards() == ()


def test_the_card_alone_is_shown_before_cuda_starts(cuda: Cuda) -> None:
    cuda.count = 1
    assert take_card(_config(f"GPU-{SECOND}")) == "cuda:0"
    assert this_environment()["CUDA_VISIBLE_DEVICES"] == f"GPU-{SECOND}"
    assert this_environment()["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert cuda.fraction == pytest.approx((50_000 * MIB - CONTEXT_BYTES) / (100 * GB))


@pytest.mark.parametrize(
    ("identity", "index"), [(f"GPU-{SECOND}", 1), (f"GPU-{FIRST}", 0), ("1", 1)]
)
def test_afterwards_it_is_found_among_the_others(cuda: Cuda, identity: str, index: int) -> None:
    cuda.initialized = True
    assert take_card(_config(identity)) == f"cuda:{index}"
    assert this_environment()["CUDA_VISIBLE_DEVICES"] == ""
    assert cuda.current == index


def test_a_card_that_cuda_does_not_show_is_an_error(cuda: Cuda) -> None:
    with pytest.raises(ConfigError, match="CUDA shows 2 cards"):
        take_card(_config("GPU-3"))
    cuda.count = 0
    with pytest.raises(ConfigError, match="CUDA shows 0 cards") as raised:
        take_card(_config(f"GPU-{FIRST}"))
    assert "--device cpu" in raised.value.hint
