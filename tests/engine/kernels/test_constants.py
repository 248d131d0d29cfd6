"""What keeps compiled kernels in Triton's cache from one process to the next."""

import importlib
import pkgutil

import triton.language as tl

import engine.kernels


def test_constants_of_one_name_have_one_value() -> None:
    """Triton's key of a kernel lists the constants of all modules that it uses by their names. Of
    two with the same name the one whose module lies lower in memory comes first, so with different
    values the key would change from process to process."""
    values: dict[str, set[str]] = {}
    for found in pkgutil.iter_modules(engine.kernels.__path__, "engine.kernels."):
        for name, value in vars(importlib.import_module(found.name)).items():
            if isinstance(value, tl.constexpr):
                values.setdefault(name, set()).add(repr(value))
    assert values
    assert {name: found for name, found in values.items() if len(found) > 1} == {}
