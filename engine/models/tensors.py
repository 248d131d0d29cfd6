"""Takes tensors out of a GGUF by the names of a dataclass's fields, checking their shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_type_hints

import numpy as np
import torch

from engine.errors import ModelFileError
from engine.gguf.reader import GGUF, TensorInfo
from engine.models import weights
from engine.models.config import ModelConfig
from engine.models.shapes import Shapes
from engine.ops import Ops

T = TypeVar("T")
TablePlace = Literal["vram", "ram"]

# Fields whose tensor does not end in ".weight".
_SUFFIX = {"ssm_a": "", "ssm_dt": ".bias"}


class Tensors:
    """The tensors of one GGUF, packed for a device."""

    def __init__(
        self, gguf: GGUF, config: ModelConfig, ops: Ops, *, float_activations: bool
    ) -> None:
        self._gguf = gguf
        self._shapes = Shapes(config, gguf)
        self._ops = ops
        self._float_activations = float_activations
        self._tables: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """True when the file has this tensor."""
        return name in self._gguf.tensors

    def group(self, kind: type[T], prefix: str, **built: Any) -> T:
        """An instance of a dataclass of `engine/models/weights.py`; `built` gives some fields.

        Field `f` is the tensor `prefix + f + ".weight"`.
        """
        hints = get_type_hints(kind)
        values = dict(built)
        free: dict[str, int] = {}
        for field in fields(kind):  # type: ignore[arg-type]
            if field.name in values:
                continue
            name = f"{prefix}{field.name}{_SUFFIX.get(field.name, '.weight')}"
            if field.default is None and not self.has(name):
                continue
            vector = hints[field.name] is weights.Vector
            values[field.name] = (
                self._vector(name, field.name) if vector else self._matrix(name, field.name, free)
            )
        return kind(**values)

    def vector(self, name: str) -> torch.Tensor:
        """A tensor outside a group as float32, in the shape that its last name part stands for."""
        return self._vector(name, _field(name))

    def require(self, name: str) -> None:
        """Raises ModelFileError when the file lacks this tensor."""
        self._gguf.tensor(name)

    def matrix(self, name: str, outputs: Sequence[int] | None = None) -> Any:
        """A matrix [N, K], a stack [E, N, K], or a vector [K] as one output, packed; of a matrix
        only these `outputs`, where they are said."""
        return self._matrix(name, _field(name), {}, outputs)

    def stack(self, name: str) -> Callable[[int, int], Any]:
        """Packs the matrices first..last-1 of a stack [E, N, K], whose bytes are read once."""
        info = self._gguf.tensor(name)
        self._shapes.check(name, _field(name), info.shape, {})
        raw = self._stored(name)
        scale = name.removesuffix(".weight") + ".scale"
        factors = self._gguf.float32(scale) if self.has(scale) else None

        def packed(first: int, last: int) -> Any:
            part = self._ops.matrix(
                raw[first:last],
                info.type,
                info.shape[-1],
                float_activations=self._float_activations,
            )
            return part if factors is None else part.scaled(factors[first:last])

        return packed

    def table(self, name: str, place: TablePlace = "vram") -> Any:
        """An embedding table that stays as it lies in the file, in the device's memory or in host
        memory that the device reads; the same one whenever it is asked for."""
        if name not in self._tables:
            info = self._gguf.tensor(name)
            self._shapes.check(name, _field(name), info.shape, {})
            in_host = place == "ram" and self._ops.device != "cpu"
            raw = self._in_host(info) if in_host else self._stored(name)
            self._tables[name] = self._ops.table(raw, info.type)
        return self._tables[name]

    def give_back(self) -> None:
        """Returns to the device what packing took beside its results."""
        if self._ops.device != "cpu":
            torch.cuda.empty_cache()

    def _in_host(self, info: TensorInfo) -> torch.Tensor:
        from engine.kernels.host_buffer import host_buffer

        # In place: the memory is the device's to read as long as this very tensor lives.
        buffer = host_buffer(info.nbytes, torch.device(self._ops.device))
        buffer.resize_(info.shape[0], info.type.row_bytes(info.shape[-1]))
        self._gguf.fill(info.name, buffer, self._ops.device)
        return buffer

    def _stored(self, name: str) -> Any:
        """The bytes of a tensor: a numpy array, or a torch tensor where a device is to pack it."""
        if self._ops.device == "cpu":
            return self._gguf.raw(name)
        return self._gguf.raw_on(name, self._ops.device)

    def _vector(self, name: str, field: str) -> torch.Tensor:
        shape = self._shapes.check(name, field, self._gguf.tensor(name).shape, {})
        values = np.ascontiguousarray(self._gguf.float32(name)).reshape(shape)
        return torch.from_numpy(values).to(self._ops.device)

    def _matrix(
        self, name: str, field: str, free: dict[str, int], outputs: Sequence[int] | None = None
    ) -> Any:
        info = self._gguf.tensor(name)
        self._shapes.check(name, field, info.shape, free)
        raw = self._stored(name)
        if outputs is not None:
            raw = raw[list(outputs)]
        columns = info.shape[-1]
        if columns == 1 and len(info.shape) == 2:  # stored as [K, 1] in ggml order: one output
            columns, raw = info.shape[0], raw.reshape(1, -1)
        if raw.ndim == 1:
            raw = raw[None]
        if raw.ndim > 3:
            raise ModelFileError(
                f"{self._gguf.path}: tensor {name} has {raw.ndim} axes, a matrix has 1 to 3",
                hint="The file is damaged or was converted by a tool that Strata does not know.",
            )
        packed = self._ops.matrix(
            raw, info.type, columns, float_activations=self._float_activations
        )
        scale = name.removesuffix(".weight") + ".scale"
        return packed.scaled(self._gguf.float32(scale)) if self.has(scale) else packed


def _field(name: str) -> str:
    """`blk.4.nextn.enorm.weight` -> `enorm`."""
    return name.removesuffix(".weight").rsplit(".", 1)[-1]
