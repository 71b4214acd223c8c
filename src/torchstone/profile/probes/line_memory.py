"""Memory line by line: what was resident after each line of chosen functions, and what it added."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from torchstone.profile.probes.resident import ResidentReader
from torchstone.profile.probes.source import with_text
from torchstone.records import LineTable

_Trace = Callable[[FrameType, str, Any], Any]


class LineMemory:
    """Watches the lines of the functions that are named, or of all functions of some files."""

    def __init__(self, functions: tuple[str, ...], files: tuple[str, ...]) -> None:
        self._functions = frozenset(functions)
        self._files = frozenset(os.path.abspath(file) for file in files)
        self._chosen: dict[CodeType, bool] = {}
        self._rows: dict[tuple[str, int], list[int]] = {}
        self.seen: set[str] = set()

    def start(self) -> None:
        """Watch this thread and those that it starts."""
        self._reader = ResidentReader()
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def stop(self) -> tuple[LineTable, ...]:
        """By file; only lines that ran."""
        sys.settrace(None)
        threading.settrace(None)
        self._reader.close()
        by_file: dict[str, list[int]] = {}
        for file, line in self._rows:
            by_file.setdefault(file, []).append(line)
        tables = []
        for file, lines in by_file.items():
            lines.sort()
            rows = [self._rows[file, line] for line in lines]
            hits, most, added = (tuple(row[i] for row in rows) for i in range(3))
            tables.append(LineTable(file, tuple(lines), hits, (), most, added))
        weight = {table.file: float(sum(map(abs, table.increment))) for table in tables}
        return with_text(tables, weight)

    def missing(self) -> list[str]:
        """Functions that were named and never ran."""
        return sorted(name for name in self._functions if name not in self.seen)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> _Trace | None:
        code = frame.f_code
        chosen = self._chosen.get(code)
        if chosen is None:
            chosen = self._chosen[code] = self._wanted(code)
        return _Watch(self, frame).trace if chosen and event == "call" else None

    def _wanted(self, code: CodeType) -> bool:
        """Lambdas and generator expressions belong to the line that they stand in."""
        if code.co_name.startswith("<") and code.co_name != "<module>":
            return False
        if self._functions:
            names = {code.co_name, getattr(code, "co_qualname", code.co_name)}
            self.seen |= names & self._functions
            return bool(names & self._functions)
        return os.path.abspath(code.co_filename) in self._files

    def add(self, file: str, line: int, now: int, added: int) -> None:
        """A line has run."""
        row = self._rows.setdefault((file, line), [0, 0, 0])
        row[0] += 1
        row[1] = max(row[1], now)
        row[2] += added

    def read(self) -> int:
        """Resident bytes now."""
        return self._reader.read()


class _Watch:
    """One call of a chosen function: the line that runs, and what was resident before it."""

    def __init__(self, lines: LineMemory, frame: FrameType) -> None:
        self._lines = lines
        self._file = frame.f_code.co_filename
        self._line = 0
        self._before = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> _Trace:
        if event in ("line", "return"):
            now = self._lines.read()
            if self._line:
                self._lines.add(self._file, self._line, now, now - self._before)
            self._line = frame.f_lineno if event == "line" else 0
            self._before = now
        return self.trace
