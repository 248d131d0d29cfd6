"""One card of a workstation or a server, 20 to 96 GB."""

from __future__ import annotations

from tests.setup.expected.case import K32, K128_HELD, K256, K256_HELD, NOTHING, WINDOW, Case

LARGE_CARDS = (
    # 20 GB reads 19.990: 14.990 - 1.170 = 13.82 < 17.0.
    Case("rtxa4500-64gb", "Q2_0", K32, (0,), 32_768, 0),
    # 4 slots 2.341 <= 2.998, 14.990 - 2.341 = 12.65 >= 11.7.
    Case("rtxa4500-64gb", "IQ1_M", K32, (0,), 32_768, 4),
    # 19.990 < 20: 65536; streams 48 + 0.9 + 1 = 49.9 <= 62.6.
    Case("rtxa4500-64gb", "Q2_0", NOTHING, (0,), 65_536, 0, kv_resident=WINDOW),
    # 60 + 0.9 + 1 = 61.9 <= 62.6.
    Case("rtxa4500-64gb", "IQ3_XXS", NOTHING, (0,), 65_536, 0, kv_resident=WINDOW),
    # 62 + 0.9 + 1 = 63.9 > 62.6; 62.6 >= 50.3 + 10.
    Case("rtxa4500-64gb", "IQ3_S", NOTHING, (0,), 65_536, 0),
    # 40 GB, cache 35: 4 slots 2.341 <= 7.0, 32.66 >= 25.15.
    Case("a100-40gb-128gb", "IQ3_S", K32, (0,), 32_768, 4),
    # 3 slots 5.493 <= 7.0, 29.5 >= 25.15; 4 slots 7.324 > 7.0.
    Case("a100-40gb-128gb", "IQ3_S", K128_HELD, (0,), 131_072, 3),
    Case("a100-40gb-128gb", "Q2_0", K128_HELD, (0,), 131_072, 3),
    # 2 slots 6.984 <= 7.0, 28.0 >= 17.0; 3 slots 10.5.
    Case("a100-40gb-128gb", "Q2_0", K256_HELD, (0,), 262_144, 2),
    # 32.66 >= 29.75; budget min(126 - 24, 55) = 55.
    Case("a100-40gb-128gb", "UD-IQ4_XS", K32, (0,), 32_768, 4, budget=55),
    # 35 - 1.170 = 33.83 < 38.5; budget min(102, 71).
    Case("a100-40gb-128gb", "UD-Q4_K_XL", K32, (0,), 32_768, 0, budget=71),
    # 48 GB reads 47.988, cache 42.988: 40.65 >= 38.5.
    Case("rtxa6000-128gb", "UD-Q4_K_XL", K32, (0,), 32_768, 4, budget=71),
    Case("rtxa6000-128gb", "Q2_0", K32, (0,), 32_768, 4),
    # 4 slots 7.324 <= 8.598, 35.66 >= 17.0.
    Case("rtxa6000-128gb", "Q2_0", K128_HELD, (0,), 131_072, 4),
    # 2 slots 6.984 <= 8.598; 3 slots 10.48.
    Case("rtxa6000-128gb", "Q2_0", K256_HELD, (0,), 262_144, 2),
    # 47.988 >= 20: 131072; 62 + 1.8 + 1 = 64.8 <= 125.6.
    Case("rtxa6000-128gb", "IQ3_S", NOTHING, (0,), 131_072, 4, kv_resident=WINDOW),
    # 80 GB reads 79.647, cache 74.647: 4 slots 13.97 <= 14.93, 60.7 >= 17.0.
    Case("h100-256gb", "Q2_0", K256_HELD, (0,), 262_144, 4),
    # 74.647 - 2.341 = 72.3 >= 38.5; budget min(252 - 24, 71).
    Case("h100-256gb", "UD-Q4_K_XL", NOTHING, (0,), 32_768, 4, budget=71),
    # 62 + 3.6 + 1 = 66.6 <= 188.4; cache 90.6.
    Case("rtxpro6000-192gb", "IQ3_S", K256, (0,), 262_144, 4, kv_resident=WINDOW),
)
