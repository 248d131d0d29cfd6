"""Writes docs/models.md: the models that setup knows, and the profiles of machines."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from marked_part import finish

from setup.models.catalogue import ModelRow, catalogue
from setup.profile_file import Profile
from setup.profiles import load_profiles

DOCUMENT = "docs/models.md"

INTRO = """# Models and profiles

This file is written by `make docs` from `profiles/models/*.toml` and `profiles/machines/*.toml`.

## Models

`strata setup --model SIZE --family FAMILY` takes them by name; the first size of a family is its
default. Download and experts are decimal GB. Memory is the GiB that a machine should have without
a low-memory mode, as setup's rules count it; `strata setup --check` says what fits your machine
with this version. A file of your own needs no row: `--model FILE.gguf`."""

PROFILES = """## Profiles

A profile holds settings that were measured on one kind of machine. Setup and `strata run` fill in
what is not set: a flag, a key or flag of the config and an environment variable always win. One
that needs what this version cannot do fills in nothing, and setup says so. The numbers are those of
the source that each names, not of this engine."""


def notes(row: ModelRow) -> str:
    """What a row is beside its numbers."""
    marks = (
        (row.budget, "memory budget for experts"),
        (row.experimental, "experimental"),
        (row.one_card, "one card"),
        (row.nvidia_only, "NVIDIA only"),
    )
    return ", ".join(text for is_so, text in marks if is_so)


def models() -> str:
    """One table a family."""
    parts = []
    for family, group in groupby(catalogue(), key=lambda row: row.family):
        rows = tuple(group)
        link = f"[{rows[0].repository}](https://huggingface.co/{rows[0].repository})"
        parts.append(
            f"### `{family}`: {rows[0].title}\n\n{link}\n\n"
            "| size | what | download GB | experts GB | memory GiB | notes |\n"
            "|---|---|---:|---:|---:|---|\n"
            + "\n".join(
                f"| `{row.key}` | {row.about} | {row.download_gb:g} | {row.arena_gb:g} "
                f"| {row.ram_gib:g} | {notes(row)} |"
                for row in rows
            )
        )
    return "\n\n".join(parts)


def profile_text(profile: Profile) -> str:
    """A section of one profile."""
    match = profile.match
    settings = {**profile.settings, **profile.args, **profile.env}
    lines = [
        f"### `{profile.name}`",
        profile.text.strip(),
        f"For {match.count} cards whose name has {match.name} ({match.vendor}, {match.arch}), each "
        f"with at least {match.least_gib:g} GiB, and the model {' or '.join(match.models)}; not "
        f"beside {', '.join(profile.not_with)}. Off with `{profile.opt_out_variable}=0` or "
        f'`"{profile.opt_out_key}": false`.',
        f"Needs: {', '.join(f'`{need}`' for need in profile.needs)}.",
        "\n".join(
            ["| setting | value |", "|---|---|"]
            + [f"| `{name}` | {value} |" for name, value in settings.items()]
        ),
        "\n".join(
            ["| measured | without | with | |", "|---|---:|---:|---|"]
            + [f"| {e.what} | {e.before:g} | {e.after:g} | {e.unit} |" for e in profile.evidence]
        ),
        f"Source: {profile.source.strip()}",
    ]
    return "\n\n".join(lines)


if __name__ == "__main__":
    sections = [INTRO, models(), PROFILES, *map(profile_text, load_profiles())]
    finish(DOCUMENT, "\n\n".join(sections) + "\n")
