"""Imports go downward only, and what must stay light imports nothing heavy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("strata_cli", "setup", "bench", "engine", "profiles")
MAY_IMPORT = {
    "strata_cli": {"strata_cli", "setup", "bench", "engine"},
    "setup": {"setup", "engine", "profiles"},
    "bench": {"bench", "engine"},
    "engine": {"engine"},
    "profiles": {"profiles"},
}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, *, at_start: bool) -> Iterator[str]:
    """Modules that a file imports; `at_start` leaves out those inside functions and for types."""
    nodes = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif at_start and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        elif at_start and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_go_downward(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    for name in _imports(path, at_start=False):
        top = name.split(".")[0]
        assert top != "tests", f"{path} imports {name}"
        if top in PACKAGES:
            assert top in MAY_IMPORT[package], f"{path} imports {name}"
    if package == "engine" and "server" not in path.relative_to(ROOT).parts:
        servers = [n for n in _imports(path, at_start=False) if n.startswith("engine.server")]
        assert not servers, f"{path} imports {servers}"


def _reached(starts: list[str]) -> set[str]:
    """Every module that importing `starts` imports at once, ours followed, others named."""
    files = {_name(path): path for path in MODULES}
    seen: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in files:
            waiting += _imports(files[name], at_start=True)
            waiting += [name.rsplit(".", 1)[0]] if "." in name else []
    return {name.split(".")[0] for name in seen} | {n for n in seen if n in files}


@pytest.mark.parametrize(
    ("starts", "forbidden"),
    [
        (["engine.server.app"], {"torch", "numba", "triton"}),
        (["strata_cli.main"], {"torch", "numba", "triton", "numpy", "starlette", "jinja2"}),
        (["engine.resolve", "engine.scheduler", "setup.recommend"], {"torch", "numba", "triton"}),
    ],
)
def test_what_stays_light(starts: list[str], forbidden: set[str]) -> None:
    reached = _reached(starts)
    assert set(starts) <= reached
    assert not reached & forbidden


def test_no_file_has_a_name_that_hides_the_packaging() -> None:
    assert not [path for path in MODULES if path.name in ("setup.py", "utils.py")]


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_environment_variables_are_read_in_one_place(path: Path) -> None:
    if path == ROOT / "engine" / "switches.py":
        return  # the table of switches
    code = path.read_text(encoding="utf-8")
    assert "os.environ" not in code
    assert "getenv" not in code


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_files_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 300 or "kernels" in path.parts, f"{path}: {lines} lines"
