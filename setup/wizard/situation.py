"""Where an interview stands: the machine, the models, and the answers so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.capabilities import Capabilities
from engine.hardware import BACKENDS, Gpu, Hardware
from setup.asked import Asked
from setup.models.catalogue import ModelRow
from setup.models.hub.names import place_files
from setup.recommend import Recommendation, Subject, recommend
from setup.rules.card_verdict import OptIns, read_opt_ins, sizing_gib
from setup.rules.cards import choose_cards
from setup.rules.size import recommend_row
from setup.user_settings import Calibration
from setup.wizard.answers import Answers
from setup.wizard.subjects import Models


def _nothing(row: ModelRow) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a question looks at to decide whether it applies, and what it offers."""

    hardware: Hardware
    capabilities: Capabilities
    models: Models
    flags: Asked
    """What the command line said."""
    answers: Answers
    folder: Path
    """Where the config will lie."""
    models_folder: Path
    """Where a download goes."""
    old: Callable[[ModelRow], Mapping[str, Any]] = _nothing
    """The config that is there for a model."""
    environment: Mapping[str, str] = field(default_factory=dict)
    questions_put: int = 0
    """How many questions a person has seen."""

    @property
    def asked(self) -> Asked:
        """Flags and answers together."""
        return self.answers.asked(self.flags)

    @property
    def opt_ins(self) -> OptIns:
        """Kinds of cards that the environment lets in."""
        return read_opt_ins(self.environment)

    @property
    def backends(self) -> tuple[str, ...]:
        """Backends for cards that this version has."""
        return tuple(name for name in BACKENDS.values() if self.capabilities.has(name))

    @property
    def rules_hold(self) -> bool:
        """Whether the rules say what fits; else it is this version's engine."""
        return self.capabilities.follow_the_rules

    @property
    def subject(self) -> Subject | None:
        """The model, as far as it is chosen."""
        if self.answers.file is not None:
            return self.models.of_file(self.answers.file)
        if self.answers.size is None:
            return None
        sizes = self.models.sizes(self.answers.family or "")
        return self.models.of_row(next(row for row in sizes if row.key == self.answers.size))

    @property
    def row(self) -> ModelRow:
        """The chosen model's row, else the one that the rules suggest."""
        return self.subject.row if self.subject is not None else self.suggested()[0]

    @property
    def rows(self) -> tuple[ModelRow, ...]:
        """The catalogue without what the chosen cards cannot run."""
        amd = self.asked.backend == "hip" or any(gpu.vendor == "amd" for gpu in self._named_cards())
        return tuple(row for row in self.models.rows if not (amd and row.nvidia_only))

    def cards_for(self, row: ModelRow) -> tuple[Gpu, ...]:
        """The cards that the rules count with for a model."""
        asked = self._for_row(row, self.asked)
        return choose_cards(self.hardware, row, asked.gpus, asked.backend, self.opt_ins).cards

    def card_sizes(self, row: ModelRow) -> tuple[float, ...]:
        """Their GiB."""
        return tuple(card.vram_gib for card in self.cards_for(row))

    def suggested(self, family: str | None = None) -> tuple[ModelRow, str]:
        """The size that the rules suggest for this machine, and why."""
        cards = self.cards_for(self.rows[0])
        sizes = [sizing_gib(card, self.hardware) for card in cards]
        shared = next((card.vram_gib for card in cards if card.integrated), None)
        ram = self.hardware.ram_gib
        return recommend_row(self.rows, ram, sizes, family, carve_out_gib=shared)

    def too_many_cards(self, row: ModelRow) -> bool:
        """Whether several cards were chosen, and the model runs on one."""
        cards = self.asked.gpus
        several = cards == "all" or (cards is not None and len(cards) > 1)
        return row.one_card and several

    def _for_row(self, row: ModelRow, asked: Asked) -> Asked:
        """A model that runs on one card is planned with the first until the person says which."""
        if not self.too_many_cards(row):
            return asked
        return replace(asked, gpus=asked.gpus[:1] if isinstance(asked.gpus, tuple) else None)

    def _named_cards(self) -> tuple[Gpu, ...]:
        named, backend = self.asked.gpus, self.asked.backend
        if not isinstance(named, tuple):
            return ()
        return choose_cards(self.hardware, self.models.rows[0], named, backend, self.opt_ins).cards

    def placed(self, subject: Subject) -> Subject:
        """The same model with a path: where its file lies, or where a download puts it."""
        names = [file.path for file in subject.row.files]
        if subject.path is not None or not names:
            return subject
        return replace(subject, path=place_files(self.models_folder, names)[names[0]])

    def planned(
        self,
        subject: Subject | None = None,
        calibration: Calibration | None = None,
        **said: Any,
    ) -> Recommendation:
        """What setup would write now for `subject`, else for the chosen model; `said` are further
        answers."""
        subject = subject or self.subject
        assert subject is not None
        return recommend(
            self.placed(subject),
            self.hardware,
            self._for_row(subject.row, replace(self.asked, **said)),
            self.folder,
            old=self.old(subject.row),
            environment=self.environment,
            calibration=calibration,
            capabilities=self.capabilities,
        )

    def unasked(self) -> Situation:
        """The same machine and cards with nothing said about the model: what was asked for one
        model (a length, slots, scaling) says nothing about another."""
        flags = Asked(gpus=self.flags.gpus, backend=self.flags.backend)
        answers = Answers(
            vendor=self.answers.vendor,
            cards=self.answers.cards,
            taken=self.answers.taken & {"vendor", "cards"},
        )
        return replace(self, flags=flags, answers=answers)

    def with_answer(self, key: str, value: Any, *, taken: bool) -> Situation:
        """With one answer more."""
        return replace(self, answers=self.answers.answered(key, value, taken=taken))
