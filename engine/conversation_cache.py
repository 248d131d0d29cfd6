"""How much memory parked conversations get: as asked, as far as it is left beside all else."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import Decision, RunConfig
from engine.memory import MIB, MemoryPlan

DEFAULT_MIN_FREE_MIB = 2_560


@dataclass(frozen=True, slots=True)
class ConversationCache:
    """The settings of parking with their reasons, and the memory plan that counts it."""

    size_mib: int
    conversations: int
    min_free_mib: int
    memory: MemoryPlan
    decisions: tuple[Decision, ...]


def conversation_cache(run: RunConfig, memory: MemoryPlan) -> ConversationCache:
    """What is parked of what was asked. A conversation that loses its slot is forgotten unless
    somebody asks for this: memory that is not used makes the machine's file cache larger."""
    asked, left = run.conversation_cache_mib, memory.host_left_bytes // MIB
    size = min(asked or 0, left)
    longest = memory.cache_bytes_per_slot + memory.state_bytes_per_slot
    longest += memory.checkpoint_bytes_per_slot
    each = f"one that fills its context takes up to {longest / 1e9:.2f} GB"
    if not asked:
        why = "as asked" if asked == 0 else "the default"
        reason = f"{why}: a conversation that loses its slot is read again; {each}"
    elif size < asked:
        reason = f"as much as is left beside all else; {each}"
    else:
        reason = f"as asked, for conversations that lose their slot; {each}"
    most = run.conversation_cache_slots or 0
    free = run.conversation_cache_min_free_mib
    free_mib = DEFAULT_MIN_FREE_MIB if free is None else free
    kept = f"{'the default' if free is None else 'as asked'}: parking leaves so much memory free"
    count = f"at most {most} are parked" if most else "any number of them"
    decisions = (
        Decision("conversation_cache_mib", asked, size, reason),
        Decision("conversation_cache_slots", run.conversation_cache_slots, most, count),
        Decision("conversation_cache_min_free_mib", free, free_mib, kept),
    )
    return ConversationCache(size, most, free_mib, memory.with_parked(size * MIB), decisions)
