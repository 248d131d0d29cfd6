"""The models that may be set up: the catalogue, files on the disk, and the one that comes along."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.model_info import ModelInfo, read_model_info
from setup.models.catalogue import ModelRow
from setup.models.catalogue_info import info_of, row_of
from setup.models.on_disk import FoundModel
from setup.recommend import Subject


@dataclass(frozen=True, slots=True)
class Models:
    """`found` are the models on the disk, `bundled` is the file that comes with Strata."""

    rows: tuple[ModelRow, ...]
    found: tuple[FoundModel, ...]
    bundled: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The complete models on the disk, each by its first file."""
        return tuple(model.path for model in self.found if model.complete)

    def named(self, name: str) -> FoundModel | None:
        """The model on the disk whose first file has that name, with or without `.gguf`."""
        asked = name.casefold()
        names = (asked, f"{asked}.gguf")
        return next((m for m in self.found if m.path.name.casefold() in names), None)

    def families(self) -> tuple[str, ...]:
        """Families of the catalogue, in the order of the menu."""
        return tuple(dict.fromkeys(row.family for row in self.rows))

    def sizes(self, family: str) -> tuple[ModelRow, ...]:
        """A family's rows, experimental ones last."""
        rows = (row for row in self.rows if row.family == family)
        return tuple(sorted(rows, key=lambda row: row.experimental))

    def of_file(self, path: Path) -> Subject:
        """A file of the user's. Raises what reading its header raises."""
        info = _info_at(path)
        return Subject(row_of(info), info, path)

    def of_row(self, row: ModelRow) -> Subject:
        """A model of the catalogue, with its file where the disk has it."""
        path = self.on_disk(row)
        return Subject(row, _info_of(row), None) if path is None else self.of_file(path)

    def on_disk(self, row: ModelRow) -> Path | None:
        """The first file of this model, where all of it is on the disk."""
        whole = (model for model in self.found if model.complete and model.row is not None)
        return next((m.path for m in whole if m.row == row), None)


@cache
def _info_of(row: ModelRow) -> ModelInfo:
    """Every question plans with the same few rows."""
    return info_of(row)


@cache
def _info_at(path: Path) -> ModelInfo:
    """A file's header is read once: it holds the whole tokenizer."""
    return read_model_info(path)
