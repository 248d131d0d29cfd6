"""One run of setup: who answers the questions, what is shown, and what is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.switches import this_environment
from strata_cli.folder import check_models_dir, check_named
from strata_cli.named_model import is_path, with_model
from strata_cli.setup_calibration import calibrated

if TYPE_CHECKING:
    from engine.hardware import Hardware
    from setup.asked import Asked
    from setup.models.catalogue import ModelRow
    from setup.recommend import Recommendation, Subject
    from setup.wizard.answers import Answers
    from setup.wizard.interview import Ask
    from setup.wizard.situation import Situation
    from setup.wizard.subjects import Models
    from strata_cli.console import Console

DEFAULT_MODELS = Path("models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the flags say about the run itself and about the model."""

    model: str | None
    family: str | None
    models_dirs: tuple[Path, ...]
    download: bool | None
    vision_off: bool
    yes: bool
    dry_run: bool
    explain: bool
    calibrate: bool
    reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A config before it is written. `document` is what `--json` prints: it has no secrets."""

    path: Path
    config: Mapping[str, Any]
    document: Mapping[str, Any]
    changes: tuple[str, ...]
    is_new: bool
    next_step: str
    """What to do once it is written: start, or fetch the model, when it will not be there."""
    found: Recommendation
    warnings: tuple[str, ...] = ()
    """The notes that are shown with -q, too."""


def begin(
    choice: Choice, flags: Asked, hardware: Hardware, folder: Path, console: Console
) -> Situation:
    """The situation before the first question."""
    from engine.capabilities import THIS_VERSION
    from setup.rules.cards import choose_cards
    from setup.wizard.situation import Situation

    for place in choice.models_dirs:
        check_models_dir(place)
    models = _models(choice, folder, console)
    situation = Situation(
        hardware=hardware,
        capabilities=THIS_VERSION,
        models=models,
        flags=flags,
        answers=with_model(
            _answers(choice, flags), choice.model, choice.family, models, folder, console.note
        ),
        folder=folder,
        models_folder=_models_folder(choice, folder),
        old=cache(lambda row: {} if choice.reset else _old(_config_path(folder, row))),
        environment=this_environment(),
    )
    if choice.model is not None:
        # Flags that contradict each other are told before anything is asked.
        opt_ins = situation.opt_ins
        choose_cards(hardware, situation.row, flags.gpus, flags.backend, opt_ins)
    return situation


def _models_folder(choice: Choice, folder: Path) -> Path:
    return folder / os.path.expanduser((*choice.models_dirs, DEFAULT_MODELS)[0])


def _models(choice: Choice, folder: Path, console: Console) -> Models:
    """The catalogue, and what lies in this folder, in `models` and in the named folders."""
    from setup.models.bundled import bundled_model
    from setup.models.catalogue import catalogue
    from setup.models.on_disk import find_models
    from setup.wizard.subjects import Models

    places = [folder / os.path.expanduser(place) for place in choice.models_dirs]
    if not places and os.path.lexists(folder / DEFAULT_MODELS):
        places = [folder / DEFAULT_MODELS]
    found = find_models([*places, *sorted(folder.glob("*.gguf"))], console.note)
    if choice.model is None or not is_path(choice.model, folder):
        for model in found:
            if not model.complete:
                state = model.state.removeprefix(f"{model.path}: ")
                console.note(f"note: {model.path} is left out: {state}")
    return Models(catalogue(), found, bundled_model())


def _answers(choice: Choice, flags: Asked) -> Answers:
    """Flags are answers."""
    from setup.wizard.answers import answers_of

    return replace(
        answers_of(flags),
        download=choice.download,
        images="no" if choice.vision_off else flags.vision,
    )


def who_answers(choice: Choice) -> Ask:
    """`--yes` and a dry run without a terminal take what is recommended; else a person decides."""
    from setup.wizard.interview import nobody, recommended
    from strata_cli.wizard import Wizard

    if is_unattended(choice):
        return recommended if choice.yes or choice.dry_run else nobody
    return Wizard()


def is_unattended(choice: Choice) -> bool:
    """Whether no person is shown the questions."""
    return choice.yes or not sys.stdin.isatty()


def draft(situation: Situation, choice: Choice) -> Draft:
    """The config that would be written, over the one that is there."""
    from setup.config.diff import config_diff
    from setup.config.secrets import shown_config
    from strata_cli.setup_merge import outcome

    subject = situation.subject
    assert subject is not None
    there = subject.path is not None or bool(situation.answers.download)
    path = _config_path(situation.folder, subject.row)
    only_rules = choice.reset and not choice.calibrate
    found = situation.planned() if only_rules else calibrated(situation, now=choice.calibrate)
    check_named(found.config["model"], f"the model {found.config['model']!r}")
    old = _old(path)
    merged = outcome(situation, found, old, path, reset=choice.reset)
    document = found.document()
    document["config"] = shown_config(merged.config)
    document["notes"] = [
        *(_better(situation) if is_unattended(choice) else ()),
        *document["notes"],
        *merged.notes,
        *(warning for warning in merged.warnings if warning not in document["notes"]),
        *_missing(situation, merged.config["model"]),
    ]
    document["path"] = path.name
    return Draft(
        path=path,
        config=merged.config,
        document=document,
        changes=config_diff(old, merged.config),
        is_new=not path.exists(),
        next_step=f"start it with: strata run {path.name}" if there else _next_step(subject),
        found=found,
        warnings=merged.warnings,
    )


def _config_path(folder: Path, row: ModelRow) -> Path:
    return folder / f"strata-{row.tag}.json"


def _old(path: Path) -> Mapping[str, Any]:
    from setup.config.text import read_json

    return read_json(path) if path.exists() else {}


def _better(situation: Situation) -> tuple[str, ...]:
    """What the rules suggest where the small model was taken for want of another answer."""
    from setup.wizard.menus.models import why_family

    taken = "family" in situation.answers.taken
    bundled = situation.answers.file == situation.models.bundled
    return (why_family(situation),) if taken and bundled else ()


def _missing(situation: Situation, expected: str) -> tuple[str, ...]:
    subject = situation.subject
    assert subject is not None
    if subject.path is not None or situation.answers.download:
        return ()
    return (f"the model is not there yet: {expected}; {_next_step(subject)}",)


def _next_step(subject: Subject) -> str:
    from setup.models.bundled import fetch_command

    if not subject.row.files:
        return "get the model first"
    return f"fetch it with: {fetch_command(subject.row)}"


def show_draft(drafted: Draft, choice: Choice, console: Console) -> None:
    """Notes, tables and the lines of the config, before anything is written."""
    from strata_cli.setup_view import show_changes, show_memory_tables, show_notes

    explain = choice.explain or console.verbose
    notes = [note for note in drafted.document["notes"] if note not in drafted.warnings]
    show_notes({**drafted.document, "notes": notes}, console, explain=explain)
    for warning in drafted.warnings:
        console.warn(warning)
    if explain:
        show_memory_tables(drafted.found, console)
    if not choice.dry_run:
        name = drafted.path.name
        show_changes(name, drafted.changes, is_new=drafted.is_new, console=console)


def print_draft(drafted: Draft, console: Console) -> int:
    """`--dry-run`: the document or the config is the result."""
    if console.json:
        console.document(drafted.document)
    console.config(drafted.document["config"])
    return 0


def confirm(situation: Situation, ask: Ask) -> bool:
    """Whether to write. Raises what `ask` raises."""
    from setup.wizard.question import put
    from setup.wizard.questions import WRITE

    asking = put(WRITE, situation)
    assert asking is not None
    return bool(ask(asking).value)


def get_model(situation: Situation, console: Console) -> tuple[str, ...]:
    """Downloads the model when that was the answer; returns what was told on the way.

    Raises what the download raises.
    """
    from setup.models.download import download
    from strata_cli.download_view import DownloadView

    subject = situation.subject
    assert subject is not None
    if not situation.answers.download or subject.path is not None:
        return ()
    with DownloadView(console) as progress:
        download(
            subject.row,
            situation.models_folder,
            situation.environment,
            progress,
            note=progress.note,
        )
    return progress.notes


def write(drafted: Draft, console: Console, told: tuple[str, ...] = ()) -> int:
    """Writes the config; its name is the result. `told`: by the download, for the document."""
    from setup.config.write import write_config

    changed = write_config(drafted.path, drafted.config)
    if console.json:
        notes = [*drafted.document["notes"], *told]
        console.document({**drafted.document, "notes": notes})
    name = drafted.path.name
    console.result(name)
    state = "written" if changed else "already as it should be"
    console.note(f"{name}: {state}; {drafted.next_step}")
    return 0
