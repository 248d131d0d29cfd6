"""Pipelines that are used again and again."""

from __future__ import annotations

from engine.pipeline import Pipeline


def clear_all(pipeline: Pipeline) -> None:
    """Empty every slot, so that a new engine may take the pipeline over."""
    for slot in range(pipeline.slots):
        pipeline.clear(slot)
