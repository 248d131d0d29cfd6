"""Compiles every kernel of a model's windows and prompts for a card, without a GPU.

`python -m scripts.compile_kernels [SPEC] [--only NAME] [--ir] [--rows 1,2,8,64] [--prompt 512]`;
SPEC as `engine.synthetic` takes it, by default a small model of each family. The interpreter
accepts what Triton's compiler does not, and versions of Triton differ: this finds both. `--ir`
stops after Triton's own front end, which takes seconds. Prints barriers and layout changes of each
kernel. Exit code 1: a kernel does not compile. Nothing runs.
"""

from __future__ import annotations

import argparse
import sys
import traceback

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

from engine.kernels import dependent
from engine.kernels.compile_ahead import Job, listed
from engine.kernels.ops import kernel_ops
from engine.models import pipeline as pipelines
from engine.models.config import ModelConfig
from engine.models.loader import load_weights
from engine.models.pipeline import DevicePipeline
from engine.models.runner import EagerRunner
from engine.models.state import StateShape
from engine.rows import rows_of
from engine.synthetic import open_synthetic

TARGET = GPUTarget("cuda", 90, 32)
SPECS = (
    "qwen3.8-flash-next:iq3_s,layers=4,small,drafts=0",
    "qwen3.6-35b-a3b:ud-iq4_xs,layers=4,small,drafts=0",
)


class NoDriver:
    """What Triton asks of a driver before it launches."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def as_on_a_card() -> None:
    """Tensors of this process, which lie in host memory, are taken for a card's."""
    triton.runtime.driver.set_active(NoDriver())
    torch.Tensor.is_cuda = property(lambda tensor: True)  # type: ignore[assignment]
    dependent._has_dependent_launch = lambda device: True  # type: ignore[assignment]


def pipeline_of(spec: str, slots: int, longest: int) -> DevicePipeline:
    """The model as on a card, to be asked for what it launches."""
    pipelines.recorder_for = lambda device: object()  # type: ignore[assignment]
    gguf = open_synthetic(spec)
    config, ops = ModelConfig.from_gguf(gguf), kernel_ops("cpu")
    weights = load_weights(gguf, config, ops, float_activations=False, drafts=True)
    shape = StateShape(slots=slots, context=2048, kv="int8", drafts=3 if weights.draft else 0)
    return DevicePipeline(weights, config, config, shape, ops, longest=longest)


def jobs_of(spec: str, rows: list[int], prompts: list[int]) -> list[Job]:
    """All kernels that such windows of the model launch; without any, all that serving does."""
    pipeline = pipeline_of(spec, max([4, *rows]), max([1024, *prompts]))
    eager = EagerRunner(pipeline.trunk, "cpu", hyper=False, drafts=False)

    def run() -> None:
        windows = [[(slot, 0, 1, 1) for slot in range(count)] for count in rows]
        windows += [[(0, 0, length, length)] for length in prompts]
        for spans in windows:
            made = rows_of(spans)
            _, hidden = eager.compute(torch.zeros(made.count, dtype=torch.int64), made, [0])
            pipeline.trunk.logits(hidden)
            pipeline.trunk.commit(made)

    return listed(run if rows or prompts else pipeline.launches)


def told(job: Job, ir: bool) -> str:
    """Compiles one kernel; a line about it."""
    source, backend = job.source(), make_backend(TARGET)
    options = backend.parse_options(job.options)
    if ir:
        from triton._C.libtriton import ir as mlir

        context = mlir.context()
        mlir.load_dialects(context)
        backend.load_dialects(context)
        codegen = backend.get_codegen_implementation(options)
        source.make_ir(TARGET, options, codegen, backend.get_module_map(), context)
        return "made"
    done = triton.compile(source, target=TARGET, options=options.__dict__)
    ptx, layouts = done.asm["ptx"], done.asm["ttgir"]
    return (
        f"{done.metadata.num_warps} warps, {done.metadata.shared} bytes shared,"
        f" {ptx.count('bar.sync')} barriers, {layouts.count('convert_layout')} layout changes"
    )


def main() -> int:
    """Exit code 0: everything compiles."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spec", nargs="*", default=SPECS)
    parser.add_argument("--only", default="")
    parser.add_argument("--ir", action="store_true")
    parser.add_argument("--rows", default="1,2,8,64")
    parser.add_argument("--prompt", default="512")
    asked = parser.parse_args()
    as_on_a_card()
    failed = 0
    for spec in asked.spec:
        rows, prompts = (
            [int(n) for n in text.split(",") if n] for text in (asked.rows, asked.prompt)
        )
        jobs = [job for job in jobs_of(spec, rows, prompts) if asked.only in job.name]
        print(f"Triton {triton.__version__}, {spec}: {len(jobs)} kernels", flush=True)
        for job in jobs:
            try:
                print(f"  {job.name:24} {told(job, asked.ir)}", flush=True)
            except Exception:
                failed += 1
                print(f"  {job.name:24} FAILED\n{traceback.format_exc()[-1500:]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
