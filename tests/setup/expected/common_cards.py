"""One card of 12 to 32 GB."""

from __future__ import annotations

from setup.asked import Asked
from tests.setup.expected.case import K32, K128, K128_HELD, K256, K256_HELD, NOTHING, WINDOW, Case

COMMON_CARDS = (
    # 12 GB: 11.940 - 5 = 6.94; 2 slots 1.170 <= 1.388, but 6.94 - 1.17 = 5.77 < 17.0.
    # RAM 63.70 >= 34.0 + 10 and >= 50.3 + 10: no low-memory mode.
    Case("rtx5070-64gb", "Q2_0", K32, (0,), 32_768, 0),
    # 5.77 < 25.15.
    Case("rtx5070-64gb", "IQ3_S", K32, (0,), 32_768, 0),
    # 11.940 < 14: 32768, too short to stream.
    Case("rtx5070-64gb", "IQ3_XXS", NOTHING, (0,), 32_768, 0),
    # UD on a card < 14: 8192, which stays fp16; budget min(64 - 24, 71) = 40.
    Case("rtx5070-64gb", "UD-Q4_K_XL", NOTHING, (0,), 8_192, 0, kv="fp16", budget=40),
    # 16 GB, 95.8: 15.929 < 20: 65536; streams: 60 + 0.9 + 1 = 61.9 <= 95.8.
    # 10.93 - 1.17 = 9.76 < 21.45.
    Case("rtx5060ti16-96gb", "IQ3_XXS", NOTHING, (0,), 65_536, 0, kv_resident=WINDOW),
    # 9.76 < 17.0.
    Case("rtx5060ti16-96gb", "Q2_0", K32, (0,), 32_768, 0),
    # As asked, twice the trained length; 60 + 524288 * 13728 / 1e9 (7.2) + 1 = 68.2 <= 95.8.
    Case(
        "rtx5060ti16-96gb",
        "IQ3_XXS",
        Asked(context=524_288),
        (0,),
        524_288,
        0,
        kv_resident=WINDOW,
    ),
    # 15.929 >= 14: 32768; budget min(96 - 24 = 72, int(59.5 / 1.0737) = 55) = 55.
    Case("rtx5060ti16-96gb", "UD-IQ4_XS", NOTHING, (0,), 32_768, 0, budget=55),
    # min(72, int(77 / 1.0737) = 71) = 71.
    Case("rtx5060ti16-96gb", "UD-Q4_K_XL", NOTHING, (0,), 32_768, 0, budget=71),
    # 16 GB, 31.8 < 23.4 + 10; the card holds 10.99: 23.4 - 10.99 + 10 = 22.4 <= 31.8: resident.
    # 10.99 - 1.17 = 9.82 < 11.7.
    Case("rtx4080-32gb", "IQ1_M", K32, (0,), 32_768, 0, low_ram="resident"),
    # 34.0 - 10.99 + 10 = 33.0 > 31.8.
    Case("rtx4080-32gb", "Q2_0", K32, (0,), 32_768, 0, low_ram="mmap"),
    # 35.5 - 10.99 + 10 = 34.5 > 31.8.
    Case("rtx4080-32gb", "IQ2_XS", K32, (0,), 32_768, 0, low_ram="mmap"),
    # 42.9 - 10.99 + 10 = 41.9 > 31.8.
    Case("rtx4080-32gb", "IQ3_XXS", K32, (0,), 32_768, 0, low_ram="mmap"),
    # 15.992 < 20: 65536; held 10.99 - 0.45 = 10.54: 22.9 <= 31.8; streaming 32 + 0.9 + 1 > 31.8.
    # 2 slots 2.0 <= 2.198, 10.99 - 2.0 = 8.99 < 11.7.
    Case("rtx4080-32gb", "IQ1_M", NOTHING, (0,), 65_536, 0, low_ram="resident"),
    # max(8, 32 - 24) = 8.
    Case("rtx4080-32gb", "UD-Q4_K_XL", NOTHING, (0,), 32_768, 0, budget=8),
    # The person's word: no mode, or the one that is named.
    Case("rtx4080-32gb", "Q2_0", Asked(context=32_768, low_ram="off"), (0,), 32_768, 0),
    Case(
        "rtx4080-32gb",
        "Q2_0",
        Asked(context=32_768, low_ram="resident"),
        (0,),
        32_768,
        0,
        low_ram="resident",
    ),
    # 24 GB, 31.3: 131072; held 18.988 - 1.350 = 17.64: 34.0 - 17.64 + 10 = 26.4 <= 31.3.
    # Not streamed (49.8 + 1 > 31.3): 2 slots 3.662 <= 3.798, 18.988 - 3.662 = 15.33 < 17.0.
    Case("rtx4090-32gb", "Q2_0", NOTHING, (0,), 131_072, 0, low_ram="resident"),
    # 3 slots 1.756 <= 3.798, 18.988 - 1.756 = 17.23 >= 17.0; 4: 16.65. Held 18.99: 25.0 <= 31.3.
    Case("rtx4090-32gb", "Q2_0", K32, (0,), 32_768, 3, low_ram="resident"),
    # 31.3 >= 15.2 + 10. Ten attention layers: 131072 * 10 * 1056 / 1e9 = 1.384, state about 0.1:
    # 2 slots 2.97 <= 3.798, 16.0 >= 7.6; 3 slots 4.45 > 3.798. Reads all cells: not streamed.
    Case("rtx4090-32gb", "Qwen3.6-UD-IQ4_XS", NOTHING, (0,), 131_072, 2),
    # 24 GB, 127.8: streams 60 + 1.8 + 1; 18.988 - 1.170 = 17.8 < 21.45.
    Case("rtx4090-128gb", "IQ3_XXS", NOTHING, (0,), 131_072, 0, kv_resident=WINDOW),
    Case("rtx4090-128gb", "Q2_0", K32, (0,), 32_768, 3),
    # 2 slots: 18.988 - 1.170 = 17.82 >= 17.75; 3: 17.23 < 17.75.
    Case("rtx4090-128gb", "IQ2_XS", K32, (0,), 32_768, 2),
    # 17.82 < 25.15.
    Case("rtx4090-128gb", "IQ3_S", K32, (0,), 32_768, 0),
    # Streamed (48 + 1.8 + 1): a slot costs what it costs at 32K.
    Case("rtx4090-128gb", "Q2_0", K128, (0,), 131_072, 3, kv_resident=WINDOW),
    # Not streamed: 15.33 < 17.0 as above.
    Case("rtx4090-128gb", "Q2_0", K128_HELD, (0,), 131_072, 0),
    Case("rtx4090-128gb", "Q2_0", K256, (0,), 262_144, 3, kv_resident=WINDOW),
    # 4 slots of 0.396: 1.586 <= 3.798, 18.988 - 1.586 = 17.40 >= 17.0.
    Case("rtx4090-128gb", "Q2_0", Asked(context=32_768, kv="q4_0"), (0,), 32_768, 4, kv="q4_0"),
    # 2 slots of 1.982: 3.96 > 3.798.
    Case(
        "rtx4090-128gb",
        "Q2_0",
        Asked(context=262_144, kv="q4_0", kv_streaming="off"),
        (0,),
        262_144,
        0,
        kv="q4_0",
    ),
    # min(128 - 24, 71) = 71; 18.988 - 1.170 < 38.5.
    Case("rtx4090-128gb", "UD-Q4_K_XL", NOTHING, (0,), 32_768, 0, budget=71),
    # Forced: 50.3 - 18.99 + 10 = 41.3 <= 127.8.
    Case(
        "rtx4090-128gb",
        "IQ3_S",
        Asked(context=32_768, low_ram="on"),
        (0,),
        32_768,
        0,
        low_ram="resident",
    ),
    # 32 GB, 63.7: 60 + 1.8 + 1 = 62.8 <= 63.7. 4 slots: 2.341 <= 5.369, 24.50 >= 21.45.
    Case("rtx5090-64gb", "IQ3_XXS", NOTHING, (0,), 131_072, 4, kv_resident=WINDOW),
    # 62 + 1.8 + 1 = 64.8 > 63.7. 2 slots 3.662 <= 5.369, 26.843 - 3.662 = 23.18 < 25.15.
    Case("rtx5090-64gb", "IQ3_S", NOTHING, (0,), 131_072, 0),
    # 2 slots: 26.843 - 1.170 = 25.67 >= 25.15; 3: 25.09 < 25.15.
    Case("rtx5090-64gb", "IQ3_S", K32, (0,), 32_768, 2),
    # int8 at 64K: 62 + 0.900 + 1 = 63.90 > 63.7. 2 slots 2.0: 24.84 < 25.15.
    Case("rtx5090-64gb", "IQ3_S", Asked(context=65_536), (0,), 65_536, 0),
    # q4_0: 65536 * 13 * 576 / 1e9 = 0.491: 63.49 <= 63.7. 4 * 0.396 = 1.586: 25.26 >= 25.15.
    Case(
        "rtx5090-64gb",
        "IQ3_S",
        Asked(context=65_536, kv="q4_0"),
        (0,),
        65_536,
        4,
        kv="q4_0",
        kv_resident=WINDOW,
    ),
    # k8v4: 65536 * 13 * 816 / 1e9 = 0.695: 63.695 <= 63.7. Charged as int8: 2 slots of 0.585.
    Case(
        "rtx5090-64gb",
        "IQ3_S",
        Asked(context=65_536, kv="k8v4"),
        (0,),
        65_536,
        2,
        kv="k8v4",
        kv_resident=WINDOW,
    ),
    # 4: 2.341 <= 5.369, 24.50 >= 17.0.
    Case("rtx5090-64gb", "Q2_0", K32, (0,), 32_768, 4),
    # 2 slots 3.662 <= 5.369, 23.18 >= 17.0; 3 slots 5.493 > 5.369.
    Case("rtx5090-64gb", "Q2_0", K128_HELD, (0,), 131_072, 2),
    # 2 slots 6.984 > 5.369; streamed (48 + 3.6 + 1 = 52.6) 4 * 0.585.
    Case("rtx5090-64gb", "Q2_0", K256_HELD, (0,), 262_144, 0),
    Case("rtx5090-64gb", "Q2_0", K256, (0,), 262_144, 4, kv_resident=WINDOW),
    # 26.843 - 1.170 = 25.67 < 29.75; budget min(64 - 24, 55) = 40.
    Case("rtx5090-64gb", "UD-IQ4_XS", K32, (0,), 32_768, 0, budget=40),
    # Streams 48 + 1.8 + 1 = 50.8 <= 63.7; budget 64 - 24 - ceil(1.8) = 38.
    Case("rtx5090-64gb", "UD-Q4_K_XL", K128, (0,), 131_072, 0, kv_resident=WINDOW, budget=38),
    # 31.992: 3 slots: 26.992 - 1.756 = 25.24 >= 25.15; 4: 24.65.
    Case("rtx5000ada-128gb", "IQ3_S", K32, (0,), 32_768, 3),
    Case("rtx5000ada-128gb", "IQ3_S", NOTHING, (0,), 131_072, 3, kv_resident=WINDOW),
    # 24 GB of AMD, 23.984: 3 slots: 18.984 - 1.756 = 17.23 >= 17.0.
    Case("rx7900xtx-64gb", "Q2_0", K32, (0,), 32_768, 3),
    Case("rx7900xtx-64gb", "IQ2_XS", K32, (0,), 32_768, 2),
    # 48 + 1.8 + 1 = 50.8 <= 62.7.
    Case("rx7900xtx-64gb", "Q2_0", NOTHING, (0,), 131_072, 3, kv_resident=WINDOW),
)
