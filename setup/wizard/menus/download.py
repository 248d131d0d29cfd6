"""The last questions: whether to download the model, and whether to write the config."""

from __future__ import annotations

from setup.models.disk_space import RESERVE_BYTES, decimal_size
from setup.wizard.question import Menu, Option
from setup.wizard.situation import Situation


def may_download(s: Situation) -> bool:
    """Whether the chosen model is not on this disk and can be had."""
    return s.subject is not None and s.subject.path is None and bool(s.row.files)


def why_download(s: Situation) -> str:
    """How much is left to download, where to, and how much room is there."""
    # The client of downloads is slow to import, and most runs ask no such question.
    from setup.models.download import plan_download

    left, free = plan_download(s.row, s.models_folder), s.hardware.disk_free_bytes
    return (
        f"{decimal_size(left)} to {s.models_folder}, where {decimal_size(free)} are free and "
        f"{decimal_size(RESERVE_BYTES)} should stay free."
    )


def download(s: Situation) -> Menu:
    """No, or yes: nothing large is fetched by pressing Enter."""
    return Menu(
        (
            Option(False, "no", "Write the config; get the model later.", ("no", "n")),
            Option(True, "yes", "", ("yes", "y")),
        )
    )


def write(s: Situation) -> Menu:
    """Yes, or no."""
    return Menu((Option(True, "yes", "", ("yes", "y")), Option(False, "no", "", ("no", "n"))))
