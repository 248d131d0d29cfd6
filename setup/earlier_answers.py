"""Answers before the rules see them: what an earlier config said, and what the model allows."""

from __future__ import annotations

from dataclasses import replace

from engine.capabilities import Capabilities
from engine.model_info import ModelInfo
from setup.asked import Asked
from setup.config.earlier import Earlier
from setup.rules.context import rope
from setup.rules.kv import recommend_kv


def stays(asked: Asked, earlier: Earlier) -> tuple[Asked, frozenset[str]]:
    """With the context and the format of keys and values of an earlier config, where this run says
    nothing, and the names of these.

    A format that is just what the rules give for the context beside it is nobody's choice: it goes
    with the context.
    """
    context, kv = earlier.said.max_context, earlier.said.kv
    if context is not None and kv == recommend_kv(context)[0]:
        kv = None
    new = replace(
        asked,
        context=context if asked.context is None else asked.context,
        kv=kv if asked.kv is None else asked.kv,
    )
    names = ("context", "kv")
    return new, frozenset(n for n in names if getattr(new, n) != getattr(asked, n))


def within(
    info: ModelInfo, asked: Asked, capabilities: Capabilities
) -> tuple[Asked, tuple[str, ...]]:
    """With a context that can be served: without rope scaling the model sets the limit.

    Raises `ConfigError` for answers about rope scaling that cannot work in any version.
    """
    most = info.train_context
    if asked.context is None or asked.context <= most or capabilities.has("rope_scaling"):
        return asked, ()
    rope(asked.context, most, asked.rope_scaling, asked.rope_scale)
    note = (
        f"context {asked.context}: the model allows {most} without rope scaling, which is not in "
        f"this version; {most} is written"
    )
    return replace(asked, context=most, rope_scaling=None, rope_scale=None), (note,)
