"""Kernels compiled by several processes before their first launch.

Triton compiles a kernel when it is launched, one after the other: minutes for a model. Here the
launches of a window are first only listed; the ones that no cache on the disk has are compiled by
workers, processes that never touch a GPU, and land in that cache under the key that the first
launch looks up. What a worker cannot do is left to that launch.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from operator import attrgetter
from typing import Any, BinaryIO

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.cache import get_cache_key, get_cache_manager
from triton.runtime.jit import JITCallable, JITFunction

from engine.switches import this_environment

__all__ = ["Job", "compile_ahead", "listed"]

Progress = Callable[[int, int], None]
_COMPILED = b"compiled\n"


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel for one set of types, constants and options, as Triton's compiler takes it."""

    module: str
    name: str
    signature: dict[str, Any]
    constants: dict[Any, Any]
    attributes: dict[Any, Any]
    options: dict[str, Any]

    def source(self) -> ASTSource:
        """What is compiled. Imports the kernel's module."""
        kernel = attrgetter(self.name)(importlib.import_module(self.module))
        return ASTSource(kernel, self.signature, self.constants, self.attributes)


def compile_ahead(
    run: Callable[[], None],
    workers: int | None = None,
    progress: Progress = lambda done, of: None,
) -> int:
    """Compiles what `run` launches, without launching it; `run` must not read what kernels write.

    workers: processes, by default one a core. `progress` hears how many kernels are done, of how
    many. Returns how many were compiled; those in the cache are none of them.
    """
    jobs = listed(run)
    if not jobs:
        return 0
    settle(jobs)
    target = triton.runtime.driver.active.get_current_target()
    missing = [job for job in jobs if _is_missing(job, target)]
    if not missing:
        return 0
    missing.reverse()  # larger windows are listed later and take longer: none should come last
    return _compiled_by_workers(missing, target, workers or len(os.sched_getaffinity(0)), progress)


def listed(run: Callable[[], None]) -> list[Job]:
    """The kernels that `run` would launch and this process has not compiled, each once."""
    found: list[Job] = []
    with _not_launching(found.append):
        run()
    return found


@contextmanager
def _not_launching(note: Callable[[Job], None]) -> Iterator[None]:
    """Launches only look whether they are compiled; `note` hears once of each that is not."""
    launch, compiled = JITFunction.run, JITFunction._do_compile
    noted: list[tuple[dict[Any, Any], Any]] = []

    def looked_up(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        launch(self, *args, grid=grid, warmup=True, **options)

    def not_compiled(
        self: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any,
        attributes: Any, warmup: bool,
    ) -> object:  # fmt: skip
        name = self.fn.__qualname__
        note(Job(self.module, name, signature, constants, attributes, dict(options.__dict__)))
        cache = self.device_caches[device][0]
        noted.append((cache, key))
        cache[key] = noted  # the next such launch finds something, and has nothing to tell
        return noted

    JITFunction.run, JITFunction._do_compile = looked_up, not_compiled
    try:
        yield
    finally:
        JITFunction.run, JITFunction._do_compile = launch, compiled
        for cache, key in noted:
            del cache[key]


def settle(jobs: list[Job]) -> None:
    """Makes the keys of what jobs compile the same in every process.

    Triton 3.6 makes the key of a function of the constants that its callees are known to use, and
    they are known once a callee has its own key. So callees get theirs first.
    """
    done: set[int] = set()
    for job in jobs:
        _settle_one(job.source().fn, done)


def _settle_one(function: Any, done: set[int]) -> None:
    if id(function) in done:  # its hash would be a key
        return
    done.add(id(function))
    for node in ast.walk(function.parse()):
        if isinstance(node, ast.Name | ast.Attribute):
            callee = _named(node, function.__globals__)
            if isinstance(callee, JITCallable):
                _settle_one(callee, done)
    function.hash = None
    function.cache_key  # noqa: B018


def _named(node: ast.expr, names: dict[str, Any]) -> Any:
    """What a name such as `lanes.tree` stands for; None if it is no global."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_named(node.value, names), node.attr, None)
    return None


def _is_missing(job: Job, target: GPUTarget) -> bool:
    """Whether a worker should compile it: it can, and the cache has it not."""
    try:
        pickle.dumps(job)
        return not _in_cache(job, target)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False  # a kernel within a function, or one that another is given


def _in_cache(job: Job, target: GPUTarget) -> bool:
    source, backend = job.source(), make_backend(target)
    options = backend.parse_options(job.options)
    key = get_cache_key(source, backend, options, env_vars=_environment())
    folder = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
    name = f"{source.name[:150]}.json"
    return name in (folder.get_group(name) or {})


def _environment() -> Any:
    from triton._C.libtriton import get_cache_invalidating_env_vars

    return get_cache_invalidating_env_vars()


def _compiled_by_workers(
    jobs: list[Job], target: GPUTarget, workers: int, progress: Progress
) -> int:
    """How many were compiled. A process of its own imports everything once and forks the workers;
    this one, with the driver's threads and memory in it, could not be forked."""
    search = os.pathsep.join(path for path in sys.path if path)
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.kernels.compile_ahead"],
        env={**this_environment(), "PYTHONPATH": search, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    results: list[bool] = []
    progress(0, len(jobs))
    try:
        with suppress(BrokenPipeError), child.stdin:
            pickle.dump((target, jobs, workers), child.stdin)
        for line in child.stdout:
            results.append(line == _COMPILED)
            progress(len(results), len(jobs))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        child.stdout.close()
        child.wait()
    return sum(results)


class _NoDriver:
    """What Triton's compiler may ask of a driver, in a process that has none."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0


def _compiled(job: Job, target: GPUTarget) -> bool:
    try:
        triton.compile(job.source(), target=target, options=job.options)
    except Exception:  # the launch that needs it will say why
        return False
    finally:
        gc.collect()
    return True


def _serve(request: BinaryIO, answers: BinaryIO) -> None:
    """Compiles the jobs of a request side by side; a line for each that is done."""
    target, jobs, workers = pickle.load(request)
    triton.runtime.driver.set_active(_NoDriver(target))
    settle(jobs)  # workers have the modules and keys
    gc.freeze()
    gc.disable()  # a fifth of the time of Triton's front end
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("fork")) as pool:
        for future in as_completed([pool.submit(_compiled, job, target) for job in jobs]):
            good = future.exception() is None and future.result()
            answers.write(_COMPILED if good else b"failed\n")
            answers.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may come between the answers
    _serve(sys.stdin.buffer, answers)
