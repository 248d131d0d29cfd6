"""Little memory, containers, WSL, unified memory, old or no cards."""

from __future__ import annotations

from setup.asked import Asked
from tests.setup.expected.case import K32, K128, NOTHING, WINDOW, Case

SMALL_MACHINES = (
    # 8 GB card, 30.7 < 33.4; the card holds 2.996: 23.4 - 3.0 + 10 = 30.40 <= 30.7: resident.
    # The integrated GPU (gfx1103) is not supported. 2 slots 1.170 > 0.2 * 2.996.
    Case("laptop-4060-32gb", "IQ1_M", NOTHING, (0,), 32_768, 0, low_ram="resident"),
    # Images take 700 / 1024 = 0.684 of the card: 31.09 > 30.7.
    Case("laptop-4060-32gb", "IQ1_M", Asked(vision="gpu"), (0,), 32_768, 0, low_ram="mmap"),
    # 30.7 >= 15.2 + 10; 2 slots 0.9 > 0.6.
    Case("laptop-4060-32gb", "Qwen3.6-UD-IQ4_XS", NOTHING, (0,), 32_768, 0),
    # A card < 5.5 with Qwen3.6: 8192, fp16; it holds nothing: 12.9 + 10 > 15.3.
    Case(
        "laptop-3050-16gb", "Qwen3.6-UD-IQ3_S", NOTHING, (0,), 8_192, 0, kv="fp16", low_ram="mmap"
    ),
    # 11.94 - 5 = 6.94: 12.9 - 6.94 + 10 = 15.96 > 15.6. 2 slots: 6.94 - 0.9 = 6.04 < 6.45.
    Case("rtx5070-16gb", "Qwen3.6-UD-IQ3_S", NOTHING, (0,), 32_768, 0, low_ram="mmap"),
    # Streaming only where free memory of the card is < 9: 11847 MiB = 11.6, no.
    Case("rtx5070-16gb", "Qwen3.6-UD-IQ3_S", K128, (0,), 131_072, 0, low_ram="mmap"),
    Case("rtx4060-16gb", "Qwen3.6-UD-IQ3_S", NOTHING, (0,), 32_768, 0, low_ram="mmap"),
    # 7878 MiB = 7.7 < 9 at 128K: streaming is needed.
    Case(
        "rtx4060-16gb",
        "Qwen3.6-UD-IQ3_S",
        K128,
        (0,),
        131_072,
        0,
        kv_resident=WINDOW,
        low_ram="mmap",
    ),
    # 23.4 >= 12.9 + 10 = 22.9: normal. Cache 7: 2 slots 0.9 <= 1.4, 6.1 < 6.45.
    Case("rtx3060-24gb", "Qwen3.6-UD-IQ3_S", NOTHING, (0,), 32_768, 0),
    # 23.4 < 25.2; 15.2 - 7 + 10 = 18.2 <= 23.4.
    Case("rtx3060-24gb", "Qwen3.6-UD-IQ4_XS", NOTHING, (0,), 32_768, 0, low_ram="resident"),
    # WSL never streams, however much memory: 62 + 1.8 + 1 = 64.8 <= 78.5. 18.99 - 3.66 < 25.15.
    Case("wsl-4090-96gb", "IQ3_S", NOTHING, (0,), 131_072, 0),
    Case("wsl-4090-96gb", "Q2_0", Asked(context=131_072, kv_streaming="on"), (0,), 131_072, 0),
    Case("wsl-4090-96gb", "Q2_0", K32, (0,), 32_768, 3),
    # 16.0 < 22.9; the card holds all 12.9: 0 + 10 <= 16. 128K: 2 slots 2.97 <= 3.8, 16.0 >= 6.45.
    Case("container-16gb", "Qwen3.6-UD-IQ3_S", NOTHING, (0,), 131_072, 2, low_ram="resident"),
    # 34.0 - 18.99 + 10 = 25.0 > 16. Low memory does not change the slots: 3.
    Case("container-16gb", "Q2_0", K32, (0,), 32_768, 3, low_ram="mmap"),
    # What a GB10 counts as is not described. 119.7 >= 60.3: no low-memory mode.
    Case("gb10-128gb", "IQ3_S", K32, ..., 32_768, ...),
    # Own 0.5 and 62.5 of the machine (<= 125 - 6) count for context and slots: 63.0 >= 20.
    # Streams 64.8 <= 125. Cache 58: 4 slots 2.341 <= 11.6, 55.7 >= 25.15.
    Case("strix-halo-128gb", "IQ3_S", NOTHING, (0,), 131_072, 4, kv_resident=WINDOW),
    # budget min(125 - 24, 55); 55.7 >= 29.75.
    Case("strix-halo-128gb", "UD-IQ4_XS", NOTHING, (0,), 32_768, 4, budget=55),
    # Low memory counts its own 0.5 alone: forced, 50.3 - 0 + 10 = 60.3 <= 125.
    Case(
        "strix-halo-128gb",
        "IQ3_S",
        Asked(context=32_768, low_ram="on"),
        (0,),
        32_768,
        4,
        low_ram="resident",
    ),
    # Pascal is used where there is nothing newer. 24.0: 3: 17.24 >= 17.0; 4: 16.66.
    Case("tesla-p40-64gb", "Q2_0", K32, (0,), 32_768, 3),
    # 2: 17.83 >= 17.75; 3: 17.24.
    Case("tesla-p40-64gb", "IQ2_XS", K32, (0,), 32_768, 2),
    # 17.83 < 21.45.
    Case("tesla-p40-64gb", "IQ3_XXS", K32, (0,), 32_768, 0),
    # Beside a newer card Pascal is used when it is named only. 7 - 1.17 and 6 - 1.17 < 17.0.
    Case("1080ti-and-3060-64gb", "Q2_0", K32, (1,), 32_768, 0),
    Case("1080ti-and-3060-64gb", "Q2_0", Asked(gpus=(0,)), (0,), 32_768, 0),
    # Driver 470 < 525: the card cannot be used. 62.7 >= 44.
    Case("old-driver-3090-64gb", "Q2_0", K32, (), 32_768, 0),
    # Nothing held: 12.9 + 10 = 22.9 > 15.6.
    Case("no-gpu-16gb", "Qwen3.6-UD-IQ3_S", K32, (), 32_768, 0, low_ram="mmap"),
    # 251.7 >= 60.3.
    Case("no-gpu-256gb", "IQ3_S", K32, (), 32_768, 0),
    # min(252 - 24, 71) = 71 also without a card.
    Case("no-gpu-256gb", "UD-Q4_K_XL", K32, (), 32_768, 0, budget=71),
    # T4, 15.0 < 20: 65536; 62 + 0.9 + 1 <= 376.5; 10 - 1.17 < 25.15.
    Case("two-sockets-t4-384gb", "IQ3_S", NOTHING, (0,), 65_536, 0, kv_resident=WINDOW),
    # 15.992: 10.99 - 1.17 = 9.82 < 17.0. IQ3_S: 62.5 >= 60.3, 62.5 < 63.9.
    Case("hybrid-4070tis-64gb", "Q2_0", K32, (0,), 32_768, 0),
    Case("hybrid-4070tis-64gb", "IQ3_S", NOTHING, (0,), 65_536, 0),
    # 48 + 0.9 + 1 = 49.9 <= 62.6.
    Case("display-4080s-64gb", "Q2_0", NOTHING, (0,), 65_536, 0, kv_resident=WINDOW),
    # 23.54 >= 22.9; 8192 stays fp16.
    Case("development", "Qwen3.6-UD-IQ3_S", Asked(context=8_192), (), 8_192, 0, kv="fp16"),
)
