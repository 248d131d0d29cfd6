"""One run of setup: who answers the questions, what is shown, and what is written."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ConfigError
from engine.switches import this_environment
from strata_cli.setup_calibration import calibrated

if TYPE_CHECKING:
    from engine.hardware import Hardware
    from setup.asked import Asked
    from setup.models.catalogue import ModelRow
    from setup.recommend import Recommendation
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A config before it is written. `document` is what `--json` prints."""

    path: Path
    document: Mapping[str, Any]
    changes: tuple[str, ...]
    is_new: bool
    can_start: bool
    """The model is on this disk, or will be downloaded before the config is written."""
    found: Recommendation


def begin(
    choice: Choice, flags: Asked, hardware: Hardware, folder: Path, console: Console
) -> Situation:
    """The situation before the first question."""
    from engine.capabilities import THIS_VERSION
    from setup.rules.cards import choose_cards
    from setup.wizard.situation import Situation

    models = _models(choice, folder, console)
    situation = Situation(
        hardware=hardware,
        capabilities=THIS_VERSION,
        models=models,
        flags=flags,
        answers=_answers(choice, flags, models, folder),
        folder=folder,
        models_folder=_models_folder(choice, folder),
        old=lambda row: _old(_config_path(folder, row)),
        environment=this_environment(),
    )
    if choice.model is not None:
        # Flags that contradict each other are told before anything is asked.
        opt_ins = situation.opt_ins
        choose_cards(hardware, situation.row, flags.gpus, flags.backend, opt_ins)
    return situation


def _models_folder(choice: Choice, folder: Path) -> Path:
    return folder / (choice.models_dirs[0].expanduser() if choice.models_dirs else DEFAULT_MODELS)


def _models(choice: Choice, folder: Path, console: Console) -> Models:
    """The catalogue, and what lies in this folder, in `models` and in the named folders."""
    from setup.models.bundled import bundled_model
    from setup.models.catalogue import catalogue
    from setup.models.on_disk import find_models
    from setup.wizard.subjects import Models

    places = [folder / place.expanduser() for place in choice.models_dirs]
    if not places and (folder / DEFAULT_MODELS).is_dir():
        places = [folder / DEFAULT_MODELS]
    found = find_models([*places, *sorted(folder.glob("*.gguf"))], console.note)
    for model in found:
        if not model.complete:
            console.note(f"note: {model.path} is left out: {model.state}")
    return Models(catalogue(), found, bundled_model())


def _answers(choice: Choice, flags: Asked, models: Models, folder: Path) -> Answers:
    """Flags are answers; a size or a file that is named is meant."""
    from setup.models.bundled import find_model
    from setup.models.catalogue import find_row
    from setup.wizard.answers import OWN, answers_of

    answers = replace(
        answers_of(flags),
        download=choice.download,
        family=choice.family,
        keep=None if choice.family is None else "keep",
        images="no" if choice.vision_off else flags.vision,
    )
    families = models.families()
    if choice.family not in (None, *families):
        raise ConfigError(
            f"--family: {choice.family!r} is not one", f"families are {', '.join(families)}"
        )
    if choice.model is None:
        return answers
    if _is_path(choice.model, folder):
        if choice.family is not None:
            raise ConfigError(
                f"--family {choice.family} and the file {choice.model} are both given",
                "a file needs no family: leave one of them out",
            )
        return replace(answers, family=OWN, file=find_model(choice.model, folder))
    row = find_row(choice.model, choice.family)
    return replace(answers, family=row.family, size=row.key, keep="keep")


def _is_path(name: str, folder: Path) -> bool:
    return name.lower().endswith(".gguf") or "/" in name or (folder / name).exists()


def who_answers(choice: Choice) -> Ask:
    """`--yes` and a dry run without a terminal take what is recommended; else a person decides."""
    from setup.wizard.interview import nobody, recommended
    from strata_cli.wizard import Wizard

    if choice.yes:
        return recommended
    if sys.stdin.isatty():
        return Wizard()
    return recommended if choice.dry_run else nobody


def draft(situation: Situation) -> Draft:
    """The config that would be written, over the one that is there."""
    from setup.config.diff import config_diff
    from setup.config.merge import merge

    subject = situation.subject
    assert subject is not None
    path = _config_path(situation.folder, subject.row)
    found = calibrated(situation)
    old = situation.old(subject.row)
    merged = merge(old, found.config, situation.folder)
    document = found.document()
    document["config"] = dict(merged.config)
    document["notes"] = [
        *_better(situation),
        *document["notes"],
        *merged.notes,
        *_missing(situation, merged.config["model"]),
    ]
    document["path"] = path.name
    return Draft(
        path=path,
        document=document,
        changes=config_diff(old, merged.config),
        is_new=not path.exists(),
        can_start=subject.path is not None or bool(situation.answers.download),
        found=found,
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
    return (f"the model is not there yet: {expected}; --download fetches it",)


def show_draft(drafted: Draft, choice: Choice, console: Console) -> None:
    """Notes, tables and the lines of the config, before anything is written."""
    from strata_cli.setup_view import show_changes, show_memory_tables, show_notes

    explain = choice.explain or console.verbose
    show_notes(dict(drafted.document), console, explain=explain)
    if explain:
        show_memory_tables(drafted.found, console)
    if not choice.dry_run:
        name = drafted.path.name
        show_changes(name, drafted.changes, is_new=drafted.is_new, console=console)


def print_draft(drafted: Draft, console: Console) -> int:
    """`--dry-run`: the document or the config is the result."""
    if console.json:
        console.document(drafted.document)
    console.result(json.dumps(drafted.document["config"], indent=1, ensure_ascii=False))
    return 0


def confirm(situation: Situation, ask: Ask) -> bool:
    """Whether to write. Raises what `ask` raises."""
    from setup.wizard.question import put
    from setup.wizard.questions import WRITE

    asking = put(WRITE, situation)
    assert asking is not None
    return bool(ask(asking).value)


def get_model(situation: Situation, console: Console) -> None:
    """Downloads the model when that was the answer. Raises what the download raises."""
    from setup.models.download import download
    from strata_cli.download_view import DownloadView

    subject = situation.subject
    assert subject is not None
    if not situation.answers.download or subject.path is not None:
        return
    with DownloadView(console) as progress:
        download(
            subject.row,
            situation.models_folder,
            situation.environment,
            progress,
            note=console.note,
        )


def write(drafted: Draft, console: Console) -> int:
    """Writes the config; its name is the result."""
    from setup.config.write import write_config

    changed = write_config(drafted.path, drafted.document["config"])
    if console.json:
        console.document(drafted.document)
    name = drafted.path.name
    console.result(name)
    state = "written" if changed else "already as it should be"
    next_step = f"start it with: strata run {name}" if drafted.can_start else "get the model first"
    console.note(f"{name}: {state}; {next_step}")
    return 0
