"""The documents are true: every module is described, generated parts are current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("strata_cli", "setup", "bench", "engine", "profiles")


def _modules() -> list[str]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return [str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py"]


def test_every_module_is_in_structure() -> None:
    described = set(
        re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "structure.md").read_text(), re.MULTILINE)
    )
    modules = set(_modules())
    assert modules - described == set(), "modules that docs/structure.md does not describe"
    assert described - modules == set(), "docs/structure.md describes what is not there"


@pytest.mark.parametrize(
    ("script", "document"),
    [
        ("gen_cli_docs.py", "docs/cli.md"),
        ("gen_model_docs.py", "docs/models.md"),
        ("gen_readme_tables.py", "README.md"),
        ("gen_structure_tables.py", "docs/structure.md"),
    ],
)
def test_generated_parts_are_current(script: str, document: str) -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--print"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert (ROOT / document).read_text() == made, f"run scripts/{script}"


_DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("path", _DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_readmes_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"\bmake ([a-z]+)", (ROOT / document).read_text()))
        assert named <= targets, document
