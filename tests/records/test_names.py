"""Packages whose `__init__` takes every public name of their modules."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest


def modules_of(package: str) -> list[ModuleType]:
    folder = importlib.import_module(package).__path__
    return [
        importlib.import_module(f"{package}.{one.name}") for one in pkgutil.iter_modules(folder)
    ]


@pytest.mark.parametrize("package", ["torchstone.records", "torchstone.stats"])
def test_no_two_modules_give_one_name_to_two_things(package: str) -> None:
    """Of two, the package would offer whichever is imported last."""
    seen: dict[str, tuple[str, object]] = {}
    for module in modules_of(package):
        for name, value in vars(module).items():
            if not name.startswith("_"):
                where, other = seen.setdefault(name, (module.__name__, value))
                assert other is value, f"{name} in {where} and {module.__name__}"
