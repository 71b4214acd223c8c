"""Stacks as they are seen, added up, and turned into call paths and lines."""

from __future__ import annotations

import os
import runpy
import sys
import threading
from types import CodeType, FrameType

from torchstone.profile import trees
from torchstone.profile.formats.frames import FrameTable
from torchstone.profile.probes.source import hottest, with_text
from torchstone.records import Bytecode, CallTree, Frame, LineTable, Thread

HOUSE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of this package: its own frames are not the user's."""
STARTERS = (
    "<frozen runpy>",
    runpy.__file__,
    os.path.join(HOUSE, "profile", "child.py"),
    os.path.join(HOUSE, "profile", "child_script.py"),
)
"""Files whose functions only start the work."""
BEGINNERS = ("__enter__", "_begin", "_begin_if_free")
"""Functions of ours that have ended when what is profiled runs: those of `Profiling`."""
MOST_DEPTH = 2_000


def innermost_outside(frame: FrameType | None) -> FrameType | None:
    """The frame in which what is profiled will run: not one that is left when profiling begins."""
    while frame is not None and frame.f_code.co_name in BEGINNERS and is_ours(frame.f_code):
        frame = frame.f_back
    return frame


def is_ours(code: CodeType) -> bool:
    """Whether it is code of this package."""
    return code.co_filename.startswith(HOUSE + os.sep)


class StackTally:
    """Weights by thread and stack. Adding is all that happens while the work runs."""

    def __init__(self, outside: FrameType | None) -> None:
        self._outside = outside
        self._keep_outside = outside is not None and not is_ours(outside.f_code)
        self._weights: dict[tuple[int, ...], float] = {}
        self._lines: dict[tuple[int, int], list[float]] = {}
        self._codes: dict[int, CodeType] = {}
        self._names: dict[int, tuple[str, int]] = {}
        self.main = threading.get_ident()
        self.stacks = 0
        self._look = self._sum = self._squares = 0.0

    def add(self, thread: int, frame: FrameType | None, weight: float) -> None:
        """One look at one thread; the weight is the time that it stands for."""
        if frame is None:
            return
        if thread not in self._names:
            self._name(thread)
        key: list[int] = []
        codes = self._codes
        line = (id(frame.f_code), frame.f_lineno or 0)
        while frame is not None and len(key) < MOST_DEPTH:
            if frame is self._outside and not self._keep_outside:
                break
            code = frame.f_code
            codes[id(code)] = code
            key.append(id(code))
            if frame is self._outside:
                break
            frame = frame.f_back
        if not key:
            return
        key.append(thread)
        path = tuple(key)
        self._weights[path] = self._weights.get(path, 0.0) + weight
        row = self._lines.setdefault(line, [0, 0.0])
        row[0] += 1
        row[1] += weight
        self.stacks += 1
        self._look += weight

    def end_look(self) -> None:
        """All threads were looked at: together they are one sample, as they were seen at once."""
        self._sum += self._look
        self._squares += self._look * self._look
        self._look = 0.0

    @property
    def effective(self) -> int:
        """Independent looks of equal weight that would tell as much (Kish): late ones stand for
        more time than others, and so tell less than their weight."""
        return round(self._sum**2 / self._squares) if self._squares > 0 else 0

    def parts(self) -> _Parts:
        """The records that they make."""
        return _Parts(self)

    def _name(self, thread: int) -> None:
        for one in threading.enumerate():
            if one.ident is not None and one.ident not in self._names:
                self._names[one.ident] = (one.name, one.native_id or 0)
        self._names.setdefault(thread, (f"thread {thread}", 0))


class _Parts:
    """Frames, threads, tree, lines and bytecode."""

    def __init__(self, tally: StackTally) -> None:
        table = FrameTable()
        frame_of = {
            number: table.add(code.co_name, code.co_filename, code.co_firstlineno)
            for number, code in tally._codes.items()
        }
        order = sorted(tally._names, key=lambda thread: thread != tally.main)
        used = [thread for thread in order if any(path[-1] == thread for path in tally._weights)]
        place = {thread: index for index, thread in enumerate(used)}
        self.threads = tuple(
            Thread(*tally._names[thread], critical=thread == tally.main) for thread in used
        )
        own: dict[int, float] = {}
        stacks = []
        for path, weight in tally._weights.items():
            own[frame_of[path[0]]] = own.get(frame_of[path[0]], 0.0) + weight
            codes = _without_starters([tally._codes[number] for number in path[:-1]])
            frames = [frame_of[id(code)] for code in reversed(codes)]
            stacks.append((frames, weight, place[path[-1]]))
        self.tree: CallTree = trees.from_stacks(stacks, "seconds")
        self.frames: tuple[Frame, ...] = table.frames
        self.bytecode: tuple[Bytecode, ...] = hottest(
            own, {frame_of[number]: code for number, code in tally._codes.items()}
        )
        self.lines = _line_tables(tally)


def _without_starters(codes: list[CodeType]) -> list[CodeType]:
    """The stack, innermost first, without the functions that start a script or a step."""
    end = len(codes)
    while end > 1 and codes[end - 1].co_filename in STARTERS:
        end -= 1
    return codes[:end]


def _line_tables(tally: StackTally) -> tuple[LineTable, ...]:
    by_file: dict[str, dict[int, tuple[int, float]]] = {}
    for (number, line), (hits, seconds) in tally._lines.items():
        of = by_file.setdefault(tally._codes[number].co_filename, {})
        before = of.get(line, (0, 0.0))
        of[line] = (before[0] + int(hits), before[1] + seconds)
    tables = []
    weight = {}
    for file, of in by_file.items():
        lines = sorted(of)
        counts, times = zip(*(of[line] for line in lines), strict=True)
        tables.append(LineTable(file, tuple(lines), counts, times))
        weight[file] = sum(times)
    return with_text(tables, weight)


def caller() -> FrameType | None:
    """The frame outside of the function that calls this one."""
    return innermost_outside(sys._getframe(2))


def outer_calls() -> tuple[tuple[str, str], ...]:
    """Files and functions around the one in which what is profiled will run, the outermost first;
    for whom frames cannot be told by identity."""
    outside = innermost_outside(sys._getframe(2))
    frame = outside if outside is None or is_ours(outside.f_code) else outside.f_back
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))
