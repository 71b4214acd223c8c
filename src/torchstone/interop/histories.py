"""What readers of other tools' histories share: bounds, names, units; and who reads which."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from torchstone.interop.files import MAX_NAME, printable
from torchstone.records import ImportedHistory, UsageError
from torchstone.records.metrics import HIGHER, LOWER

MAX_FILE_BYTES = 256 * 2**20
MOST_VALUE = 1e100
"""No tool measures more; squares and sums of so much are finite still. What is more (infinity,
an integer of hundreds of digits) is a value that failed."""
LAST_SECOND = 253_402_300_799
"""Of the year 9999, the last that has a date."""

Reader = Callable[[Sequence[Path]], ImportedHistory]
READERS = {
    "asv": "benchmark_tools:read_asv",
    "pyperf": "benchmark_tools:read_pyperf",
    "pytest-benchmark": "benchmark_tools:read_pytest_benchmark",
    "google-benchmark": "benchmark_tools:read_google_benchmark",
}
"""By name; each is imported when it is asked for."""


def find_reader(name: str) -> Reader:
    """The reader of that name."""
    module, _, function = READERS[name].partition(":")
    return cast("Reader", getattr(import_module(f"torchstone.interop.{module}"), function))


def too_many(what: str, most: int) -> UsageError:
    """The error for more than we read."""
    return UsageError(f"There are more than {most:,} {what}.", "Import a part of them.")


def bounded_text(value: Any) -> str:
    """A name or a parameter as one line of at most so many characters."""
    return printable(str(value))[:MAX_NAME]


def is_usable(value: float) -> bool:
    """Whether a number can be one that was measured; an integer of any size may be asked about."""
    return -MOST_VALUE <= value <= MOST_VALUE


def read_bytes(path: Path) -> bytes:
    """A file within bounds."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{printable(str(path))} cannot be read: {error.strerror}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise too_many(f"bytes in {printable(path.name)}", MAX_FILE_BYTES)
    return data


class Benchmarks:
    """What asv's `benchmarks.json` says of units; by name alone where there is none."""

    def __init__(self) -> None:
        self._units: dict[str, str] = {}

    def read(self, path: Path) -> None:
        """Take over what a file says; one that is not there or damaged says nothing."""
        if not path.is_file():
            return
        try:
            data = json.loads(read_bytes(path))
        except (ValueError, RecursionError):
            return
        for name, one in data.items() if isinstance(data, dict) else ():
            if isinstance(one, dict) and isinstance(one.get("unit"), str):
                self._units[name] = bounded_text(one["unit"])

    def unit(self, name: str) -> tuple[str, str]:
        """The unit, and which direction is better: asv calls every rise a regression."""
        last = name.rpartition(".")[2]
        unit = self._units.get(name)
        if unit is None:
            unit = "bytes" if last.startswith(("mem_", "peakmem_")) else "seconds"
            unit = "unit" if last.startswith("track_") else unit
        return unit, LOWER


__all__ = ["HIGHER", "LOWER", "READERS", "Benchmarks", "find_reader"]
