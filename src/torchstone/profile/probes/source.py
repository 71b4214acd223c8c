"""The source and the bytecode of what took most, for looking at beside the figures."""

from __future__ import annotations

import bisect
import dis
import linecache
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import CodeType

from torchstone.records import Bytecode, Instruction, LineTable

MOST_FUNCTIONS = 12
"""Hottest functions whose bytecode is kept."""
MOST_INSTRUCTIONS = 2_000
MOST_FILES = 8
MOST_FILE_BYTES = 512 * 1024
_ARGUMENT = 80
"""Characters of an argument that are kept."""


def text_of(file: str) -> tuple[str, ...]:
    """The lines of a Python file that ran; nothing if it is no such file, or too large."""
    try:
        if not file.endswith(".py") or os.stat(file).st_size > MOST_FILE_BYTES:
            return ()
    except (OSError, ValueError):
        return ()
    return tuple(line.rstrip("\n") for line in linecache.getlines(file))


def with_text(tables: Iterable[LineTable], weight: Mapping[str, float]) -> tuple[LineTable, ...]:
    """The same tables; those of the files that took most with their source."""
    tables = list(tables)
    hottest = sorted((table.file for table in tables), key=lambda file: -weight.get(file, 0.0))
    shown = set(hottest[:MOST_FILES])
    return tuple(
        replace(table, text=text_of(table.file)) if table.file in shown else table
        for table in tables
    )


def bytecode_of(code: CodeType, frame: int) -> Bytecode:
    """The instructions of a function, and what the interpreter has made of each since."""
    plain = list(dis.get_instructions(code))[:MOST_INSTRUCTIONS]
    adapted: dict[int, str] = {}
    if sys.version_info >= (3, 11):
        adapted = {one.offset: one.opname for one in dis.get_instructions(code, adaptive=True)}
    starts = [(offset, line) for offset, line in dis.findlinestarts(code) if line]
    offsets = [offset for offset, _ in starts]
    found = []
    for one in plain:
        place = bisect.bisect_right(offsets, one.offset) - 1
        now = adapted.get(one.offset, one.opname)
        found.append(
            Instruction(
                offset=one.offset,
                line=starts[place][1] if place >= 0 else 0,
                name=one.opname,
                argument=str(one.argrepr)[:_ARGUMENT],
                specialised=now if now != one.opname else "",
                jump_target=bool(one.is_jump_target),
            )
        )
    return Bytecode(frame, tuple(found))


def hottest(weights: Mapping[int, float], codes: Mapping[int, CodeType]) -> tuple[Bytecode, ...]:
    """Bytecode of the functions that took most; weights and codes are by frame."""
    known = [frame for frame in weights if frame in codes and weights[frame] > 0]
    known.sort(key=lambda frame: -weights[frame])
    return tuple(bytecode_of(codes[frame], frame) for frame in known[:MOST_FUNCTIONS])
