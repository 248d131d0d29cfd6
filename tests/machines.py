"""Recorded machines and sizes for tests of planning."""

from __future__ import annotations

from pathlib import Path

from engine.card_weights import CardWeights
from engine.hardware import Cpu, Gpu, Hardware
from engine.model_info import ModelInfo

FIXTURES = Path(__file__).parent / "fixtures"
SMALL_MODEL = FIXTURES / "q35moe-a-iq3s.gguf"

CARD = Gpu(
    index=0,
    uuid="GPU-1",
    pci_bus_id="0000:01:00.0",
    vendor="nvidia",
    name="NVIDIA GeForce RTX 5070",
    arch="12.0",
    vram_bytes=12_820_938_752,
    vram_free_bytes=12_100_000_000,
    driver="580.95",
    integrated=False,
)


def machine(*, free_gb: float = 20.0, cores: int = 2, gpus: tuple[Gpu, ...] = ()) -> Hardware:
    """A Linux machine with so much free memory (decimal GB)."""
    return Hardware(
        gpus=gpus,
        ram_bytes=64_000_000_000,
        ram_available_bytes=int(free_gb * 1e9),
        cpu=Cpu(name="A CPU", cores=cores, avx2=True, avx512=False),
        disk_free_bytes=10**11,
        os="linux",
        wsl=False,
    )


def flash_next_sizes(**changes: object) -> ModelInfo:
    """The sizes of Qwen3.8-Flash-Next: 12 attention layers and the draft layer's one, 2 K/V heads
    of 256; 36 GatedDeltaNet layers."""
    values: dict[str, object] = {
        "path": Path("flash-next.gguf"),
        "name": "Flash Next",
        "architecture": "qwen4exp",
        "train_context": 262_144,
        "vocab_size": 248_320,
        "width": 2_560,
        "layers": 48,
        "has_drafts": True,
        "stored_bytes": 4 * 10**9,
        "quantised_weights": 4 * 10**9,
        "float_weights": 10**8,
        "kv_vectors": ((256, 26), (256, 26)),
        "index_bytes_per_token": 1536,
        "state_bytes": 118_038_528,
        "expert_bytes": 2 * 10**9,
        "expert_pairs": 48 * 512,
        "table_bytes": 10**9,
        "draft_bytes": 10**8,
        "on_card": CardWeights(
            dense_bytes=8 * 10**8,
            head_bytes=2 * 10**8,
            embedding_bytes=2 * 10**8,
            expert_bytes=25 * 10**8,
            table_bytes=10**9,
            draft_bytes=10**8,
        ),
        "row_state_bytes": 1_550_000,
    }
    return ModelInfo(**{**values, **changes})  # type: ignore[arg-type]
