"""The models that setup knows by name: sizes, needs and files, from `profiles/models/*.toml`."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import profiles
from engine.errors import ConfigError
from engine.gguf.types import QUANT_TYPES
from setup.toml_table import Kind, checked, read_toml

FAMILIES = ("qwen", "swift", "coder", "unsloth", "qwen36", "ornith", "huihui")
"""In the order of the menu; the first is the default."""


QWEN36_ARCHITECTURE = "qwen35moe"
_RAM_SPARE_GIB = 10.0
"""What the system and the engine need beside the experts of a published model."""
_SYSTEM_GIB = 2.0
"""What the system needs beside a model that is smaller than that."""


def spare_gib(download_gb: float) -> float:
    """RAM beside the experts: 10 for every published model, less for a small file of one's own."""
    return min(_RAM_SPARE_GIB, _SYSTEM_GIB + download_gb)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """One file of a model in its repository. `size_bytes` 0: not known before it is asked."""

    path: str
    size_bytes: int = 0
    sha256: str = ""
    """64 hexadecimal digits; empty: not known."""

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTypes:
    """How so many layers store their routed experts: types of gate and up, and of down."""

    layers: int
    gate_up: str
    down: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One size of one family. Sizes are decimal GB, memory is GiB of a machine."""

    key: str
    """The name that `--model` takes, such as `IQ3_S`."""
    family: str
    """The name that `--family` takes, one of `FAMILIES`; `own` for a file of the user's."""
    title: str
    """The model's name, the same for all sizes of a family."""
    tag: str
    """The model's part of `strata-<model>.json`."""
    architecture: str
    download_gb: float
    arena_gb: float
    """The routed experts."""
    ram_gib: float
    """Memory that a machine should have, without a low-memory mode."""
    layers: int
    experts_per_layer: int
    attention_layers: int
    """Layers with keys and values, without the draft layer."""
    state_gb: float
    """Recurrent state of one slot, as the rules charge it."""
    table_gb: float = 0.0
    """The n-gram table, read from the disk or held in memory."""
    train_context: int = 262_144
    budget: bool = False
    """Runs within a budget of memory for experts; never uses the low-memory modes."""
    experimental: bool = False
    one_card: bool = False
    """Cannot be spread over cards."""
    nvidia_only: bool = False
    attends_all: bool = False
    """Attention reads every cell, so that keys and values are slow to stream."""
    repository: str = ""
    revision: str = "main"
    files: tuple[ModelFile, ...] = ()
    source: str = ""
    """Where its numbers come from."""
    about: str = ""
    """One line for a menu."""
    aliases: tuple[str, ...] = ()
    """Further names that `--model` takes."""
    experts: tuple[ExpertTypes, ...] = ()
    """Types of the routed experts of all layers, in no order; empty: not published."""
    expert_bytes: int = 0
    """Bytes of all routed experts as measured, finer than `arena_gb`; 0: not measured."""

    @property
    def file_bytes(self) -> int:
        """Bytes of all its files; 0 when one is not known."""
        sizes = [file.size_bytes for file in self.files]
        return sum(sizes) if all(sizes) else 0


_REQUIRED: Mapping[str, Kind] = {
    "key": "text",
    "family": "text",
    "place": "whole",
    "title": "text",
    "about": "text",
    "tag": "text",
    "architecture": "text",
    "download_gb": "number",
    "arena_gb": "number",
    "ram_gib": "number",
    "layers": "whole",
    "experts_per_layer": "whole",
    "attention_layers": "whole",
    "state_gb": "number",
    "source": "text",
    "repository": "text",
    "revision": "text",
    "files": "tables",
}
_OPTIONAL: Mapping[str, Kind] = {
    "aliases": "texts",
    "experts": "tables",
    "expert_bytes": "whole",
    "table_gb": "number",
    "train_context": "whole",
    "budget": "flag",
    "experimental": "flag",
    "one_card": "flag",
    "nvidia_only": "flag",
    "attends_all": "flag",
}
_EXPERTS: Mapping[str, Kind] = {"layers": "whole", "gate_up": "text", "down": "text"}
_FILE: Mapping[str, Kind] = {"path": "text"}
_FILE_OPTIONAL: Mapping[str, Kind] = {"size_bytes": "whole", "sha256": "text"}


@cache
def catalogue() -> tuple[ModelRow, ...]:
    """Every model that comes with Strata, family by family, each family's default first."""
    return load_catalogue(Path(profiles.__file__).parent / "models")


def load_catalogue(folder: Path) -> tuple[ModelRow, ...]:
    """The rows of all TOML files in `folder`. `ConfigError` names file and key of any fault."""
    placed = [_row(path) for path in sorted(folder.glob("*.toml"))]
    _refuse_twins(folder, placed)
    placed.sort(key=lambda pair: (FAMILIES.index(pair[1].family), pair[0]))
    return tuple(row for _, row in placed)


def find_row(name: str, family: str | None = None) -> ModelRow:
    """The row of that key, tag or further name, upper or lower case.

    Without a family the first family that has the key is meant; keys go before other names.
    `ConfigError` lists the nearest names.
    """
    if family is not None and family not in FAMILIES:
        raise ConfigError(f"family: {family!r} is not one", f"families are {', '.join(FAMILIES)}")
    found = rows_named(name, family)
    if found:
        return found[0]
    asked, where = name.strip().casefold(), f" of the family {family}" if family else ""
    rows = [row for row in catalogue() if family in (None, row.family)]
    hint = f"it is a family: --family {asked}" if asked in FAMILIES else _nearest(asked, rows)
    raise ConfigError(f"model: {name!r} is not a size{where}", hint)


def rows_named(name: str, family: str | None = None) -> tuple[ModelRow, ...]:
    """Every row that the name may mean, in the order of the catalogue: those that have it as
    their key, else those that have it as a further name."""
    rows = [row for row in catalogue() if family in (None, row.family)]
    asked = name.strip().casefold()
    for names in (_key, _other_names):
        found = tuple(row for row in rows if asked in map(str.casefold, names(row)))
        if found:
            return found
    return ()


def also_meant(name: str, row: ModelRow) -> tuple[ModelRow, ...]:
    """Rows of other families that the name may mean beside `row`: the same name, or its end, as
    IQ4_XS of UD-IQ4_XS."""
    end = f"-{name.strip().casefold()}"
    same = rows_named(name)
    others = (o for o in catalogue() if o in same or o.key.casefold().endswith(end))
    return tuple(other for other in others if other.family != row.family)


def _key(row: ModelRow) -> tuple[str, ...]:
    return (row.key,)


def _other_names(row: ModelRow) -> tuple[str, ...]:
    return (*row.aliases, row.tag, f"{row.family}-{row.key}")


def _nearest(asked: str, rows: list[ModelRow]) -> str:
    names = {name.casefold(): name for row in rows for name in (row.key, *row.aliases)}
    close = difflib.get_close_matches(asked, names, n=3, cutoff=0.5)
    if close:
        return f"nearest are {', '.join(names[c] for c in close)}"
    return f"sizes are {', '.join(dict.fromkeys(row.key for row in rows))}"


def _row(path: Path) -> tuple[int, ModelRow]:
    values = checked(read_toml(path), _REQUIRED, _OPTIONAL, str(path))
    place = values.pop("place")
    if values["family"] not in FAMILIES:
        raise ConfigError(f"{path}: 'family' is {values['family']!r}", f"one of {FAMILIES}")
    for key in ("download_gb", "arena_gb", "ram_gib", "layers", "experts_per_layer"):
        if not values[key]:
            raise ConfigError(f"{path}: {key!r} is 0")
    values["files"] = tuple(_file(path, i, file) for i, file in enumerate(values["files"]))
    if not values["files"]:
        raise ConfigError(f"{path}: 'files' is empty")
    values["experts"] = tuple(
        _experts(path, i, part) for i, part in enumerate(values.get("experts", ()))
    )
    counted = sum(part.layers for part in values["experts"])
    if values["experts"] and counted != values["layers"]:
        raise ConfigError(f"{path}: 'experts' counts {counted} of {values['layers']} layers")
    return place, ModelRow(**values)


def _experts(path: Path, index: int, record: Mapping[str, Any]) -> ExpertTypes:
    where = f"{path}: experts[{index}]"
    types = ExpertTypes(**checked(record, _EXPERTS, {}, where))
    for key, name in (("gate_up", types.gate_up), ("down", types.down)):
        if name not in {known.name for known in QUANT_TYPES.values()}:
            raise ConfigError(f"{where}: {key!r} is {name!r}, not a type of GGUF")
    return types


def _file(path: Path, index: int, record: Mapping[str, Any]) -> ModelFile:
    where = f"{path}: files[{index}]"
    file = ModelFile(**checked(record, _FILE, _FILE_OPTIONAL, where))
    digits = set(file.sha256) <= set("0123456789abcdef")
    if file.sha256 and not (digits and len(file.sha256) == 64):
        raise ConfigError(f"{where}: 'sha256' is {file.sha256!r}, not 64 hexadecimal digits")
    return file


def _refuse_twins(folder: Path, placed: list[tuple[int, ModelRow]]) -> None:
    for what, seen in (
        ("key", Counter((row.family, row.key) for _, row in placed)),
        ("place", Counter((row.family, str(place)) for place, row in placed)),
        ("tag", Counter(("all families", row.tag) for _, row in placed)),
    ):
        for (family, value), count in seen.items():
            if count > 1:
                raise ConfigError(f"{folder}: {count} rows of {family} have the {what} {value!r}")
