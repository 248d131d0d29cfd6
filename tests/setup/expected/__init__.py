"""What the rules must choose on the recorded machines, worked out by hand from their description.

The numbers that the comments use (GiB of cards and machines beside decimal GB of models, as the
rules mix them):

slot, int8   32768 * 12 * 1056 / 1e9 + 0.17 = 0.585; 64K 1.000; 128K 1.831; 256K 3.492
slot, q4_0   32768 * 12 *  576 / 1e9 + 0.17 = 0.396; 256K 1.982
streamed     a slot holds 32768 cells, so 0.585 or 0.396 whatever the context
cache        the sum over the cards of (GiB - 5)
parallel     the largest n of 2, 3, 4 with n * slot <= 0.2 * cache and
             cache - n * slot >= half of the experts:
             Q2_0 17.0, IQ2_XS 17.75, IQ3_XXS 21.45, IQ3_S 25.15, IQ1_M 11.7, UD-IQ4_XS 29.75,
             UD-Q4_K_XL 38.5, Qwen3.6 UD-IQ4_XS 7.6 and UD-IQ3_S 6.45
K/V in RAM   context * 13 * 1056 / 1e9: 64K 0.900, 128K 1.799, 256K 3.599
streams      from 64K on, where RAM >= the model's line + K/V + 1, outside WSL
low RAM      below experts + 10; a card holds GiB - 5 - K/V beyond 32K (64K 0.450, 128K 1.350);
             resident where RAM >= experts - held + 10, else mmap
lines (GiB)  Q2_0 and IQ2_XS 48, IQ3_XXS 60, IQ3_S 62, IQ1_M 32, UD-* 48
context      smallest card < 14: 32768, < 20: 65536, else 131072; UD-*: < 14: 8192, else 32768
"""
