"""llama.cpp as an outside oracle of whole models: its greedy tokens on a GGUF file."""

from bench.peers import decode_speed, draft_acceptance, generate, greedy

__all__ = ["decode_speed", "draft_acceptance", "generate", "greedy"]
