"""Makes the bundled model `strata-tiny` and the small `qwen35moe` test model.

Steps, each a module with `--help`: `corpus` (texts and chat turns from Debian packages),
`tokens` (vocabulary and token ids), `train` (one GPU), `export` (GGUF), `evaluate` (numbers and
samples for docs/model_card.md).
"""
