"""Kernels run under Triton's interpreter here: it must be asked for before they are imported."""

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"


def _patch_once() -> None:
    """Calls of functions inside a kernel patch the language anew, 10 ms each: once is enough."""
    from triton.runtime import interpreter

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        core = interpreter.tl.core
        languages = (self.fn.__globals__.get(name) for name in ("tl", "core"))
        if any(core.is_builtin(language.load) for language in languages if language is not None):
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*arguments, **options)

    interpreter.InterpretedFunction.__call__ = call


_patch_once()
