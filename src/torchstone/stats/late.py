"""numpy, imported when it is first used: it takes a tenth of a second, and much here needs none."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """A module that is imported with the first thing that is asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)  # the next time it is found without coming here
        return found
