"""What must be said before anything is imported: kernels run under Triton's interpreter, and torch
has one thread a process."""

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
# Several workers with several threads each wait for one another: five times as long on two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


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
