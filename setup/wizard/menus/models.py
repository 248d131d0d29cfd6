"""Models: families, sizes, files, and doubts about a size."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, ModelFileError
from engine.memory import WEIGHTS_IN_MEMORY, MemoryPlan
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
    if s.rules_hold:
        return found
    fresh = s.unasked()
    doubt = _engine_doubt(fresh, row)
    if not doubt and _on_card(fresh, row):
        return found
    if not doubt:
        return f"{found} This version computes it on the processor, slowly."
    return f"{found} {doubt} {_that_fit(fresh)}"


def _that_fit(s: Situation) -> str:
    """The families that this version can hold on this machine."""
    fitting = dict.fromkeys(row.family for row in s.rows if _memory(s, row).fits)
    small = f"{s.models.bundled.stem}, which comes with Strata"
    if not fitting:
        return f"No model of the catalogue fits it here; {small}, is the one to try."
    names = " and ".join(filter(None, (", ".join(list(fitting)[:-1]), list(fitting)[-1])))
    return f"Of the families {names} {'fit' if len(fitting) > 1 else 'fits'} it, and {small}."


def families(s: Situation) -> Menu:
    """The model that comes along, files on the disk, and the families of the catalogue."""
    small = _small(s)
    files = tuple(_file(path) for path in s.models.files if path != s.models.bundled)
    names = tuple(dict.fromkeys(row.family for row in s.rows))
    rows = tuple(_family(s, family) for family in names)
    wanted = s.suggested()[0]
    if not s.rules_hold and not _on_card(s.unasked(), wanted):
        return Menu((small, *files, *rows))
    return Menu((*rows, *files, small), names.index(wanted.family))


def _small(s: Situation, why: str = "") -> Option:
    name = s.models.bundled.stem
    about = "Small, for trying things out: needs no download and answers on any machine."
    return Option(s.models.bundled, f"{name}, comes with Strata", why or about, (name,))


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
    path = Path(os.path.expanduser(text.strip("\"'")))
    if text.isdigit():
        raise ConfigError(
            f"there is no answer {text}", "type a number of the list, or a path that ends in .gguf"
        )
    if path.suffix.lower() != ".gguf":
        raise ConfigError(
            f"{text!r} is neither a family nor the path of a GGUF file",
            "type a number, or a path that ends in .gguf",
        )
    if not os.path.isfile(path):
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
    """The sizes of the chosen family, each with what it needs.

    Recommended is the rules' size where it fits this version, else the first that does. Where none
    does, it is the model that comes along, unless a flag names the family.
    """
    assert s.answers.family is not None
    rows = tuple(row for row in s.models.sizes(s.answers.family) if row in s.rows)
    best, reason = s.suggested(s.answers.family)
    options = tuple(_size(s, row, reason if row == best else "") for row in rows)
    if s.rules_hold:
        return Menu(options, rows.index(best))
    fitting = [row for row in rows if _memory(s, row).fits]
    if fitting:
        return Menu(options, rows.index(best if best in fitting else fitting[0]))
    why = f"No size of {rows[0].title} fits this version on this machine; this one does."
    menu = (*options, _small(s, why))
    return Menu(menu, len(options) if s.answers.keep is None else rows.index(best))


def settle_size(s: Situation, value: Any, taken: bool) -> Situation:
    """A size, or the model that comes along in place of the family."""
    if isinstance(value, str):
        return s.with_answer("size", value, taken=taken)
    return settle_family(replace(s, answers=s.answers.without("family", "keep")), value, taken)


def _size(s: Situation, row: ModelRow, reason: str) -> Option:
    found, sentence = _verdict(s, row)
    here = ", on this disk" if s.models.on_disk(row) else f", {row.download_gb:.1f} GB"
    trial = ", experimental" if row.experimental else ""
    about = f"{row.about[:1].upper()}{row.about[1:]}. " if row.about else ""
    because = reason.removeprefix(f"{row.key}: ") if s.rules_hold else ""
    why = f"{about}{because[:1].upper()}{because[1:]}." if because else f"{about}{sentence}"
    return Option(row.key, f"{row.key}{here}{trial}: {found}", why, (row.key, *row.aliases))


def _verdict(s: Situation, row: ModelRow) -> tuple[str, str]:
    """Whether a size fits, by what this version does with memory, and a sentence that says why."""
    if s.rules_hold:
        found, sentence = size_verdict(row, s.hardware.ram_gib, s.card_sizes(row))
        return found, f"{sentence}."
    memory = _memory(s, row)
    return ("fits", "") if memory.fits else ("does not fit", f"{_need(row, memory)}.")


def doubt(s: Situation) -> str:
    """Why the chosen size may be too large; empty when it is not."""
    if not s.rules_hold:
        return _engine_doubt(s, s.row)
    found, sentence = _verdict(s, s.row)
    return sentence if found == "does not fit" else ""


def why_size(s: Situation) -> str:
    """What sizes differ in, and why that is not memory where one does not fit this version."""
    bits = "More bits for a weight mean better answers and a larger file."
    if s.rules_hold or all(_memory(s, row).fits for row in s.models.sizes(s.answers.family or "")):
        return bits
    return f"{bits} {WEIGHTS_IN_MEMORY[:1].upper()}{WEIGHTS_IN_MEMORY[1:]}."


def _memory(s: Situation, row: ModelRow) -> MemoryPlan:
    """Of this version's engine with what was asked for."""
    return s.planned(s.models.of_row(row)).memory


def _on_card(s: Situation, row: ModelRow) -> bool:
    """Whether this version holds the model on a card of this machine."""
    found = s.planned(s.models.of_row(row))
    return found.memory.card is not None and found.memory.fits


def _engine_doubt(s: Situation, row: ModelRow) -> str:
    memory = _memory(s, row)
    if memory.fits:
        return ""
    return f"{_need(row, memory)}: {WEIGHTS_IN_MEMORY}."


def _need(row: ModelRow, memory: MemoryPlan) -> str:
    there = f"{memory.available_bytes / 1e9:.0f} GB may be used for it"
    return f"{row.key} needs {memory.total_bytes / 1e9:.0f} GB of memory, and {there}"


def keep(s: Situation) -> Menu:
    """Another size, another model, or this one.

    Recommended is to keep what the rules chose. On the processor all sizes of a family need the
    same memory, so another model is what helps.
    """
    options = (
        Option("size", "choose another size", words=("size",)),
        Option("model", "choose another model", words=("model",)),
        Option("keep", "keep it", words=("keep",)),
    )
    if not s.rules_hold:
        return Menu(options, 1)
    return Menu(options, 2 if "size" in s.answers.taken else 0)


def settle_keep(s: Situation, value: Any, taken: bool) -> Situation:
    """Keeps the size, or opens the questions before it again."""
    if value == "keep":
        return s.with_answer("keep", value, taken=taken)
    keys = ("size",) if value == "size" else ("size", "family")
    return replace(s, answers=s.answers.without(*keys))
