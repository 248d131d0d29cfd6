"""Opens a GGUF model, one file or many, without copying its tensors."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import ModelFileError
from engine.gguf.header import Header, TensorInfo, read_header
from engine.gguf.metadata import MetadataValue
from engine.gguf.shards import join_metadata, join_tensors, shard_paths

if TYPE_CHECKING:
    import torch

__all__ = ["GGUF", "MetadataValue", "TensorInfo", "open_gguf"]


class GGUF:
    """An open model: the union of its shards. A context manager; tensors are views into the files.

    `path` is what was asked for, `paths` are all files in order, `metadata` is described at
    `read_metadata`, `tensors` maps names to where they lie.
    """

    def __init__(
        self,
        path: Path,
        headers: tuple[Header, ...],
        files: tuple[mmap.mmap, ...],
    ) -> None:
        joined = join_metadata(headers)
        self.path = path
        self.paths = tuple(header.path for header in headers)
        self.metadata: Mapping[str, MetadataValue] = MappingProxyType(joined)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(join_tensors(headers, joined))
        self._files = files
        self._bytes = tuple(np.frombuffer(file, np.uint8) for file in files)

    def raw(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes of tensor `name`: read-only uint8 [*shape[:-1], row_bytes], not a copy.

        Raises ModelFileError for a name that the model does not have.
        """
        assert self._bytes, "the model is closed"
        tensor = self.tensor(name)
        rows = self._bytes[tensor.shard][tensor.offset : tensor.offset + tensor.nbytes]
        return rows.reshape(*tensor.shape[:-1], tensor.type.row_bytes(tensor.shape[-1]))

    def raw_on(self, name: str, device: str | torch.device) -> torch.Tensor:
        """The same bytes on a device, as a torch tensor; on the CPU not a copy, either.

        Raises ModelFileError for a name that the model does not have.
        """
        from engine.gguf.upload import upload

        return upload(self.raw(name), device)

    def fill(self, name: str, out: torch.Tensor, device: str | torch.device) -> None:
        """Copies the bytes of tensor `name` into `out`, contiguous uint8 of its size in host
        memory; `device` may help to make them."""
        from engine.gguf.upload import copy_by_threads

        copy_by_threads(self.raw(name), out.numpy())

    def float32(self, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Tensor `name` dequantised: a new float32 array of the tensor's shape.

        Raises ModelFileError for a name that the model does not have.
        """
        from engine.gguf.dequantize import dequantize

        return dequantize(self.raw(name), self.tensor(name).type)

    def tensor(self, name: str) -> TensorInfo:
        """Where tensor `name` lies. Raises ModelFileError for a name the model does not have."""
        if name not in self.tensors:
            raise ModelFileError(
                f"{self.path}: the model has no tensor {name!r}",
                hint="The file is incomplete or of another architecture than it says.",
            )
        return self.tensors[name]

    def close(self) -> None:
        """Unmaps the files. Views that are still in use keep their file mapped until they go."""
        files, self._files, self._bytes = self._files, (), ()
        for file in files:
            _unmap(file)

    def __enter__(self) -> GGUF:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_gguf(path: str | Path) -> GGUF:
    """Opens the model that `path` is a file of; any shard of a split model may be named.

    Raises ModelFileError for missing, damaged or mismatched files and UnsupportedModelError for
    a version or tensor type that is not known. The files must not be changed while open.
    """
    path = Path(path)
    headers: list[Header] = []
    files: list[mmap.mmap] = []
    try:
        for shard, file_path in enumerate(shard_paths(path)):
            files.append(_map(file_path))
            headers.append(read_header(files[-1], file_path, shard))
        return GGUF(path, tuple(headers), tuple(files))
    except BaseException:
        for file in files:
            _unmap(file)
        raise


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise ModelFileError(
                    f"{path}: the file is empty", hint="Download or convert it again."
                )
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        # ValueError: a path with a zero character.
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(
            f"{path}: cannot be opened: {reason}", hint="Check the path and the file's permissions."
        ) from None


def _unmap(file: mmap.mmap) -> None:
    try:
        file.close()
    except BufferError:
        # Someone holds a view; the mapping goes with the last one.
        return
