"""Two to four cards: which ones, and what they hold together."""

from __future__ import annotations

from setup.asked import Asked
from tests.setup.expected.case import K32, K128, K128_HELD, NOTHING, WINDOW, Case

ALL32 = Asked(context=32_768, gpus="all")
SEVERAL_CARDS = (
    # 2 x 15.929, cache 21.859, 47.0 GiB. Smallest < 20: 65536; 47.0 >= 34.0 + 10: normal mode;
    # 48 + ... > 47.0: not streamed. 4 slots 4.002 <= 4.372, 21.859 - 4.002 = 17.86 >= 17.0.
    Case("2x5060ti16-48gb", "Q2_0", NOTHING, (0, 1), 65_536, 4, split="auto"),
    # 4 slots 2.341 <= 4.372, 19.52 >= 17.0.
    Case("2x5060ti16-48gb", "Q2_0", K32, (0, 1), 32_768, 4, split="auto"),
    # 2 slots 3.662 <= 4.372, 18.2 >= 17.0; 3 slots 5.493.
    Case("2x5060ti16-48gb", "Q2_0", K128, (0, 1), 131_072, 2, split="auto"),
    # 19.52 >= 17.75; 47.0 >= 35.5 + 10.
    Case("2x5060ti16-48gb", "IQ2_XS", K32, (0, 1), 32_768, 4, split="auto"),
    # 21.859 - 1.170 = 20.69 < 21.45. 47.0 < 52.9; 42.9 - 21.86 + 10 = 31.0 <= 47.0.
    Case("2x5060ti16-48gb", "IQ3_XXS", K32, (0, 1), 32_768, 0, split="auto", low_ram="resident"),
    # At 64K the cards hold 2 * (10.929 - 0.450) = 20.96: 31.9 <= 47.0 and 39.3 <= 47.0.
    Case(
        "2x5060ti16-48gb",
        "IQ3_XXS",
        NOTHING,
        (0, 1),
        65_536,
        0,
        split="auto",
        low_ram="resident",
    ),
    Case("2x5060ti16-48gb", "IQ3_S", NOTHING, (0, 1), 65_536, 0, split="auto", low_ram="resident"),
    # A budget and 47.0 < 111.3 + 24: one card; 47 - 24 = 23; 10.93 - 1.17 < 38.5.
    Case("2x5060ti16-48gb", "UD-Q4_K_XL", NOTHING, (0,), 32_768, 0, budget=23),
    # One card only, cache 10.929: 65536 * 10 * 1056 / 1e9 = 0.692 + state about 0.1:
    # 2 slots 1.58 <= 2.186, 9.35 >= 7.6; 3 slots 2.38. At 32K 4 slots of 0.45: 1.8 <= 2.186.
    Case("2x5060ti16-48gb", "Qwen3.6-UD-IQ4_XS", NOTHING, (0,), 65_536, 2),
    Case("2x5060ti16-48gb", "Qwen3.6-UD-IQ4_XS", K32, (0,), 32_768, 4),
    # 2 x 24, cache 38, 31.9 GiB: held 2 * (19 - 1.350) = 35.3, all of Q2_0: 0 + 10 <= 31.9.
    # Not streamed: 4 slots 7.324 <= 7.6, 30.7 >= 17.0, 21.45 and 25.15.
    Case("2x3090-32gb", "Q2_0", NOTHING, (0, 1), 131_072, 4, split="auto", low_ram="resident"),
    # 42.9 - 35.3 + 10 = 17.6 <= 31.9.
    Case("2x3090-32gb", "IQ3_XXS", NOTHING, (0, 1), 131_072, 4, split="auto", low_ram="resident"),
    # 50.3 - 35.3 + 10 = 25.0 <= 31.9.
    Case("2x3090-32gb", "IQ3_S", NOTHING, (0, 1), 131_072, 4, split="auto", low_ram="resident"),
    Case("2x3090-32gb", "IQ3_S", K32, (0, 1), 32_768, 4, split="auto", low_ram="resident"),
    # max(8, 32 - 24) = 8 on one card.
    Case("2x3090-32gb", "UD-Q4_K_XL", NOTHING, (0,), 32_768, 0, budget=8),
    # Both by the person's word: split, so no budget. 38 - 1.170 = 36.8 < 38.5.
    Case("2x3090-32gb", "UD-Q4_K_XL", Asked(gpus="all"), (0, 1), 32_768, 0, split="auto"),
    # 2 x 23.988, cache 37.977: 4 slots 2.341 <= 7.595, 35.6 >= 25.15.
    Case("2x4090-128gb", "IQ3_S", K32, (0, 1), 32_768, 4, split="auto"),
    Case("2x4090-128gb", "IQ3_XXS", K32, (0, 1), 32_768, 4, split="auto"),
    # 4 slots 7.324 <= 7.595, 30.65 >= 25.15.
    Case("2x4090-128gb", "IQ3_S", K128_HELD, (0, 1), 131_072, 4, split="auto"),
    Case("2x4090-128gb", "IQ3_S", NOTHING, (0, 1), 131_072, 4, split="auto", kv_resident=WINDOW),
    # 125.7 >= 93.7 + 24 = 117.7: split, no budget. 35.6 >= 29.75.
    Case("2x4090-128gb", "UD-IQ4_XS", K32, (0, 1), 32_768, 4, split="auto"),
    # 125.7 < 111.3 + 24 = 135.3: one card, budget min(126 - 24, 71); 18.99 - 1.17 < 38.5.
    Case("2x4090-128gb", "UD-Q4_K_XL", K32, (0,), 32_768, 0, budget=71),
    # The person's cards, in the person's order; 18.988 - 1.170 < 25.15 on one.
    Case("2x4090-128gb", "IQ3_S", Asked(context=32_768, gpus=(1,)), (1,), 32_768, 0),
    Case(
        "2x4090-128gb",
        "IQ3_S",
        Asked(context=32_768, gpus=(1, 0), layer_split="20"),
        (1, 0),
        32_768,
        4,
        split="20",
    ),
    # 2 x 47.988; 251.6 >= 135.3: split without a budget, cache 85.98 - 2.34 >= 38.5.
    Case("2xrtxa6000-256gb", "UD-Q4_K_XL", NOTHING, (0, 1), 32_768, 4, split="auto"),
    Case(
        "2xrtxa6000-256gb", "IQ3_S", NOTHING, (0, 1), 131_072, 4, split="auto", kv_resident=WINDOW
    ),
    # 2 x 12, cache 14: 14 - 1.170 = 12.83 < 17.0. The second card is >= 11.5: the pair.
    Case("2x3060-64gb", "Q2_0", K32, (0, 1), 32_768, 0, split="auto"),
    # 3 slots 1.756 <= 2.8, 12.24 >= 11.7; 4: 11.66 < 11.7.
    Case("2x3060-64gb", "IQ1_M", NOTHING, (0, 1), 32_768, 3, split="auto"),
    # 2 x 8: the first is not >= 11.5 either, so the pair; held 2 * 3: 23.4 - 6 + 10 = 27.4 <= 31.3.
    # 2 slots 1.170 <= 1.2, 6 - 1.17 < 11.7.
    Case("2x3070-32gb", "IQ1_M", NOTHING, (0, 1), 32_768, 0, split="auto", low_ram="resident"),
    # 31.3 >= 12.9 + 10; 2 slots 0.89 > 0.6.
    Case("2x3070-32gb", "Qwen3.6-UD-IQ3_S", NOTHING, (0,), 32_768, 0),
    # 16 + 24 of one generation: the larger first; 18.988 + 10.992 = 29.98; 4: 27.64 >= 25.15.
    Case("4080-and-4090-64gb", "IQ3_S", K32, (1, 0), 32_768, 4, split="auto"),
    Case("4080-and-4090-64gb", "Q2_0", K32, (1, 0), 32_768, 4, split="auto"),
    # Smallest 15.992: 65536; 62 + 0.9 + 1 > 62.7: held; 4 slots 4.0 <= 6.0, 25.98 >= 25.15.
    Case("4080-and-4090-64gb", "IQ3_S", NOTHING, (1, 0), 65_536, 4, split="auto"),
    # Two generations: the newer first; 19 + 10.929 = 29.93; 4: 27.59 >= 25.15.
    Case("5060ti16-and-3090-64gb", "IQ3_S", K32, (1, 0), 32_768, 4, split="auto"),
    # One card: the one with most memory, 24.0: 131072; 2 slots 2.97 <= 3.8.
    Case("5060ti16-and-3090-64gb", "Qwen3.6-UD-IQ4_XS", NOTHING, (0,), 131_072, 2),
    # 24 + 10: 24 >= 11.5 and 10 < 11.5: the first alone. 3: 17.24 >= 17.0; 4: 16.66.
    Case("3090-and-3080-64gb", "Q2_0", K32, (1,), 32_768, 3),
    Case("3090-and-3080-64gb", "Q2_0", NOTHING, (1,), 131_072, 3, kv_resident=WINDOW),
    # Both by the person's word: cache 19 + 5 = 24; 4: 21.66 >= 17.0. IQ3_S: 22.83 < 25.15.
    Case("3090-and-3080-64gb", "Q2_0", ALL32, (1, 0), 32_768, 4, split="auto"),
    Case("3090-and-3080-64gb", "IQ3_S", ALL32, (1, 0), 32_768, 0, split="auto"),
    # The smallest of both has 10 < 14: 32768.
    Case("3090-and-3080-64gb", "Q2_0", Asked(gpus="all"), (1, 0), 32_768, 4, split="auto"),
    # 32 + 10: the first alone, as one 5090.
    Case("5090-and-3080-64gb", "IQ3_S", K32, (0,), 32_768, 2),
    Case("5090-and-3080-64gb", "IQ3_XXS", NOTHING, (0,), 131_072, 4, kv_resident=WINDOW),
    # 4 x 15.992: the pair is recommended, cache 21.98: 20.81 < 25.15; 4: 19.64 >= 17.0.
    Case("4xa4000-128gb", "IQ3_S", K32, (0, 1), 32_768, 0, split="auto"),
    Case("4xa4000-128gb", "Q2_0", K32, (0, 1), 32_768, 4, split="auto"),
    # All four: cache 43.97; 41.6 >= 25.15.
    Case("4xa4000-128gb", "IQ3_S", ALL32, (0, 1, 2, 3), 32_768, 4, split="auto"),
    Case(
        "4xa4000-128gb",
        "IQ3_S",
        Asked(context=32_768, gpus="all", layer_split=[12, 24, 36]),
        (0, 1, 2, 3),
        32_768,
        4,
        split="12,24,36",
    ),
    # 2 x 31.843: cache 53.69; 4 x: 107.4. No profile: not R9700.
    Case("4x5090-256gb", "IQ3_S", K32, (0, 1), 32_768, 4, split="auto"),
    Case("4x5090-256gb", "IQ3_S", ALL32, (0, 1, 2, 3), 32_768, 4, split="auto"),
    # AMD: one card unless more are named. 31.859: 2: 25.69 >= 25.15; 3: 25.10 < 25.15.
    Case("2xr9700-128gb", "IQ3_S", K32, (0,), 32_768, 2),
    Case("2xr9700-128gb", "IQ3_S", ALL32, (0, 1), 32_768, 4, split="auto"),
    # Both vendors: NVIDIA is recommended; 10.921 - 1.170 < 17.0. 15.921 < 20: 65536, 49.9 <= 62.6.
    Case("5070ti-and-9070xt-64gb", "Q2_0", K32, (0,), 32_768, 0),
    Case("5070ti-and-9070xt-64gb", "Q2_0", NOTHING, (0,), 65_536, 0, kv_resident=WINDOW),
    Case("5070ti-and-9070xt-64gb", "Q2_0", Asked(context=32_768, backend="hip"), (1,), 32_768, 0),
)
