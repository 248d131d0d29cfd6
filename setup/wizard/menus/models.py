"""Models: families, sizes, files, and doubts about a size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, ModelFileError
from setup.models.catalogue import ModelRow
from setup.rules.size import size_verdict
from setup.wizard.answers import OWN
from setup.wizard.question import Menu, Option
from setup.wizard.situation import Situation


def why_family(s: Situation) -> str:
    """What the rules suggest for this machine, and what this version makes of it."""
    row, reason = s.suggested()
    because = reason.removeprefix(f"{row.key}: ")
    found = f"By memory and cards this machine suits {row.title} {row.key}: {because}."
    if s.backends:
        return found
    doubt = _engine_doubt(s, row)
    return f"{found} {doubt or 'This version computes it on the processor, slowly.'}"


def families(s: Situation) -> Menu:
    """The model that comes along, files on the disk, and the families of the catalogue."""
    small = Option(
        s.models.bundled,
        f"{s.models.bundled.stem}, comes with Strata",
        "Small, for trying things out: needs no download and answers on any machine.",
        (s.models.bundled.stem,),
    )
    files = tuple(_file(path) for path in s.models.files if path != s.models.bundled)
    names = tuple(dict.fromkeys(row.family for row in s.rows))
    rows = tuple(_family(s, family) for family in names)
    if not s.backends:
        return Menu((small, *files, *rows))
    wanted = s.suggested()[0].family
    return Menu((*rows, *files, small), names.index(wanted))


def _file(path: Path) -> Option:
    return Option(path, f"{path.name}, on this disk", str(path.parent), (path.stem, path.name))


def _family(s: Situation, family: str) -> Option:
    sizes = s.models.sizes(family)
    least = min(row.download_gb for row in sizes)
    most = max(row.download_gb for row in sizes)
    span = f"{least:.0f} GB" if len(sizes) == 1 else f"{least:.0f} to {most:.0f} GB"
    return Option(family, f"{family}: {sizes[0].title}, {span}", words=(family,))


def read_file(s: Situation, text: str) -> Option:
    """A typed path of a GGUF file; `ConfigError` when it is none that this version can run."""
    path = Path(text.strip("\"'")).expanduser()
    if text.isdigit():
        raise ConfigError(
            f"there is no answer {text}", "type a number of the list, or a path that ends in .gguf"
        )
    if path.suffix.lower() != ".gguf":
        raise ConfigError(
            f"{text!r} is neither a family nor the path of a GGUF file",
            "type a number, or a path that ends in .gguf",
        )
    if not path.is_file():
        raise ConfigError(f"{path} is not there", "type a number, or the path of a file")
    try:
        s.models.of_file(path)
    except ModelFileError as error:
        raise ConfigError(error.message, error.hint) from None
    return _file(path)


def settle_family(s: Situation, value: Any, taken: bool) -> Situation:
    """A family, or a file that is the whole answer."""
    if isinstance(value, str):
        return s.with_answer("family", value, taken=taken)
    answers = s.answers.answered("file", value, taken=taken)
    return replace(s, answers=answers.answered("family", OWN, taken=taken))


def sizes(s: Situation) -> Menu:
    """The sizes of the chosen family, each with what it needs."""
    assert s.answers.family is not None
    rows = tuple(row for row in s.models.sizes(s.answers.family) if row in s.rows)
    best, reason = s.suggested(s.answers.family)
    options = tuple(_size(s, row, reason if row == best else "") for row in rows)
    return Menu(options, rows.index(best))


def _size(s: Situation, row: ModelRow, reason: str) -> Option:
    found, sentence = _verdict(s, row)
    here = ", on this disk" if s.models.on_disk(row) else f", {row.download_gb:.1f} GB"
    trial = ", experimental" if row.experimental else ""
    about = f"{row.about[:1].upper()}{row.about[1:]}. " if row.about else ""
    because = reason.removeprefix(f"{row.key}: ") if s.backends else ""
    why = f"{about}{because[:1].upper()}{because[1:]}." if because else f"{about}{sentence}"
    return Option(row.key, f"{row.key}{here}{trial}: {found}", why, (row.key, *row.aliases))


def _verdict(s: Situation, row: ModelRow) -> tuple[str, str]:
    """Whether a size fits, by what this version does with memory, and a sentence that says why."""
    if s.backends:
        found, sentence = size_verdict(row, s.hardware.ram_gib, s.card_sizes(row))
        return found, f"{sentence}."
    doubt = _engine_doubt(s, row)
    return ("does not fit", doubt) if doubt else ("fits", "")


def doubt(s: Situation) -> str:
    """Why the chosen size may be too large; empty when it is not."""
    found, sentence = _verdict(s, s.row)
    return sentence if found == "does not fit" else ""


def _engine_doubt(s: Situation, row: ModelRow) -> str:
    memory = s.planned(s.models.of_row(row)).memory
    if memory.fits:
        return ""
    return (
        "This version computes on the processor with the whole model in memory: "
        f"{row.key} needs {memory.total_bytes / 1e9:.0f} GB, and {memory.available_bytes / 1e9:.0f}"
        " GB may be used for it."
    )


def keep(s: Situation) -> Menu:
    """Another size, another model, or this one.

    Recommended is to keep what the rules chose. Where this version computes on the processor only,
    all sizes of a family need the same memory, so another model is what helps.
    """
    options = (
        Option("size", "choose another size", words=("size",)),
        Option("model", "choose another model", words=("model",)),
        Option("keep", "keep it", words=("keep",)),
    )
    if not s.backends:
        return Menu(options, 1)
    return Menu(options, 2 if "size" in s.answers.taken else 0)


def settle_keep(s: Situation, value: Any, taken: bool) -> Situation:
    """Keeps the size, or opens the questions before it again."""
    if value == "keep":
        return s.with_answer("keep", value, taken=taken)
    keys = ("size",) if value == "size" else ("size", "family")
    return replace(s, answers=s.answers.without(*keys))
