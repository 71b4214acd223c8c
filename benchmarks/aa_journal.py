"""The file that a long benchmark fills line by line, and takes up again where it stopped.

One JSON object a line, on disk before the next trial starts. A line that was cut off by a kill
is removed on the next start; a second writer is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Journal:
    """Appends rows; use in a `with` block."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = open(path, "a+b")  # noqa: SIM115 - closed by __exit__
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise SystemExit(f"{path} is being written by another run.") from None
        self._cut_torn_line()
        self.rows = list(read_rows([path]))

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, row: Mapping[str, Any]) -> None:
        """One row, on disk when this returns."""
        line = json.dumps(row, separators=(",", ":"), allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows.append(dict(row))

    def pinned(self, name: str, make: Callable[[], Row]) -> Row:
        """Settings that the whole file shares: made once, read back ever after."""
        for row in self.rows:
            if row["kind"] == "pin" and row["name"] == name:
                return dict(row["value"])
        value = make()
        self.append({"kind": "pin", "name": name, "value": value})
        return value

    def must_match(self, name: str, wanted: Row) -> None:
        """Refuse to mix trials made under different settings in one file."""
        found = self.pinned(name, lambda: wanted)
        if found != wanted:
            raise SystemExit(
                f"{self.path} was begun with {found}, not {wanted}. "
                "Give the same settings, or another --out."
            )

    def _cut_torn_line(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        if data and not data.endswith(b"\n"):
            self._file.truncate(data.rfind(b"\n") + 1)


def read_rows(paths: Iterable[Path]) -> Iterator[Row]:
    """Every whole row of the files; a last line without its end is not there yet."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n") and line.strip():
                    yield json.loads(line)


def number(value: float | None) -> float | None:
    """A float that JSON can hold; None for infinities and NaN."""
    return None if value is None or value != value or abs(value) == float("inf") else value
