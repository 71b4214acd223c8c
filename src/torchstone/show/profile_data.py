"""Profiles as the data of a page: short things as JSON, long ones as packed columns.

All text is made harmless here: characters without a picture are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchstone.records import (
    Bytecode,
    CallTree,
    FunctionCalls,
    LineTable,
    MemoryUse,
    Profile,
    Spans,
)
from torchstone.show.document import plain
from torchstone.show.profile_pack import Columns, embedded
from torchstone.show.profile_tree import call_tree, check_spans, check_tree
from torchstone.show.text import sanitise

LONGEST_TEXT = 2000
"""Characters of a name or a line of source that are kept: nobody reads on, and pages must open."""
TAB = 4


class _Strings:
    """Each text once, and its number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[str, int] = {}

    def add(self, text: str) -> int:
        number = self._known.get(text)
        if number is None:
            number = self._known[text] = len(self.texts)
            self.texts.append(shown(text))
        return number


def shown(text: str) -> str:
    """Text from outside as it may be shown."""
    if len(text) > LONGEST_TEXT:
        text = text[: LONGEST_TEXT - 1] + "…"
    return sanitise(text)


def profile_json(profiles: Sequence[Profile], title: str) -> str:
    """The data for a stand-alone page, safe inside a script element of type JSON."""
    return embedded(*_gathered(profiles, title))


def _gathered(profiles: Sequence[Profile], title: str) -> tuple[dict[str, Any], bytes]:
    strings, columns = _Strings(), Columns()
    packed = [_profile(profile, strings, columns) for profile in profiles]
    head = {"title": shown(title), "profiles": packed, "strings": strings.texts}
    return head, bytes(columns.body)


def _profile(profile: Profile, strings: _Strings, columns: Columns) -> dict[str, Any]:
    frames = profile.frames
    tree = call_tree(profile)
    if profile.tree is not None and profile.spans is not None:
        check_spans(profile.spans, len(frames))
    return {
        **_words(profile),
        "frames": {
            "name": columns.integers([strings.add(frame.name) for frame in frames]),
            "file": columns.integers([strings.add(frame.file) for frame in frames]),
            "line": columns.integers([frame.line for frame in frames]),
            "kind": columns.integers([strings.add(frame.kind) for frame in frames]),
        },
        "threads": [
            {"name": shown(t.name), "id": t.id, "process": t.process, "critical": t.critical}
            for t in profile.threads
        ],
        "tree": None if tree is None else _tree(tree, columns),
        "gathered": profile.tree is None and tree is not None,
        "spans": _spans(profile.spans, columns),
        "functions": _functions(profile.functions, columns),
        "lines": [_lines(table, strings, columns) for table in profile.lines],
        "bytecode": [_bytecode(code, strings, columns) for code in profile.bytecode],
        "memory": None if profile.memory is None else _memory(profile, profile.memory, columns),
    }


def _words(profile: Profile) -> dict[str, Any]:
    """What is short enough to be JSON."""
    return {
        "id": shown(profile.id),
        "label": shown(profile.label),
        "created": shown(profile.created),
        "how": shown(profile.how),
        "tool": shown(profile.tool),
        "origin": shown(profile.origin),
        "machine": shown(profile.machine_id),
        "version": shown(profile.version),
        "command": [shown(part) for part in profile.command],
        "steps": profile.steps,
        "wall_s": plain(profile.wall_s),
        "estimated": profile.estimated,
        "problems": [shown(text) for text in profile.problems],
        "notes": [shown(text) for text in profile.notes],
        "facts": [[shown(str(key)), shown(str(value))] for key, value in profile.facts.items()],
        "counters": [
            {
                "name": shown(counter.name),
                "value": plain(counter.value),
                "unit": shown(counter.unit),
                "note": shown(counter.note),
            }
            for counter in profile.counters
        ],
        "sampling": plain(profile.sampling),
        "cost": plain(profile.cost),
    }


def _tree(tree: CallTree, columns: Columns) -> dict[str, Any]:
    return {
        "unit": shown(tree.unit),
        "parents": columns.integers(tree.parents),
        "frames": columns.integers(tree.frames),
        "own": columns.numbers(tree.own),
        "threads": columns.integers(tree.threads),
        "calls": columns.integers(tree.calls) if tree.calls else None,
    }


def _spans(spans: Spans | None, columns: Columns) -> dict[str, Any] | None:
    if spans is None or not spans.frames:
        return None
    return {
        "frames": columns.integers(spans.frames),
        "threads": columns.integers(spans.threads),
        "start": columns.integers(spans.start_ns, growing=True),
        "duration": columns.integers(spans.duration_ns),
    }


def _functions(functions: Sequence[FunctionCalls], columns: Columns) -> dict[str, Any] | None:
    """Functions, and their callers in a second set of columns: those of function i stand from
    `first[i]` to `first[i + 1]`."""
    if not functions:
        return None
    of = [entry.of for entry in functions]
    callers = [caller for entry in functions for caller in entry.callers]
    first = [0]
    for entry in functions:
        first.append(first[-1] + len(entry.callers))
    packed: dict[str, Any] = {"first": columns.integers(first, growing=True)}
    for name, calls in (("of", of), ("callers", callers)):
        packed[name] = {
            "frame": columns.integers([call.frame for call in calls]),
            "calls": columns.integers([call.calls for call in calls]),
            "primitive": columns.integers([call.primitive for call in calls]),
            "own": columns.numbers([call.own_s for call in calls]),
            "total": columns.numbers([call.total_s for call in calls]),
        }
    return packed


def _lines(table: LineTable, strings: _Strings, columns: Columns) -> dict[str, Any]:
    return {
        "file": shown(table.file),
        "line": columns.integers(table.lines, growing=True),
        "hits": columns.integers(table.hits) if table.hits else None,
        "seconds": columns.numbers(table.seconds) if table.seconds else None,
        "bytes": columns.integers(table.bytes) if table.bytes else None,
        "increment": columns.integers(table.increment) if table.increment else None,
        "text": columns.integers([strings.add(line.expandtabs(TAB)) for line in table.text]),
    }


def _bytecode(code: Bytecode, strings: _Strings, columns: Columns) -> dict[str, Any]:
    steps = code.instructions
    return {
        "frame": code.frame,
        "offset": columns.integers([step.offset for step in steps], growing=True),
        "line": columns.integers([step.line for step in steps]),
        "name": columns.integers([strings.add(step.name) for step in steps]),
        "argument": columns.integers([strings.add(step.argument) for step in steps]),
        "specialised": columns.integers([strings.add(step.specialised) for step in steps]),
        "target": columns.integers([int(step.jump_target) for step in steps]),
    }


def _memory(profile: Profile, memory: MemoryUse, columns: Columns) -> dict[str, Any]:
    if memory.at_peak is not None:
        check_tree(memory.at_peak, len(profile.frames))
    alive = sorted(memory.alive, key=lambda tensor: -tensor.bytes)
    return {
        "time": columns.integers(memory.time_ns, growing=True),
        "resident": columns.integers(memory.resident) if memory.resident else None,
        "heap": columns.integers(memory.heap) if memory.heap else None,
        "peak_bytes": memory.peak_bytes,
        "peak_ns": memory.peak_ns,
        "at_peak": None if memory.at_peak is None else _tree(memory.at_peak, columns),
        "source": shown(memory.source),
        "alive": [
            {
                "what": shown(tensor.what),
                "count": tensor.count,
                "bytes": tensor.bytes,
                "stack": [frame for frame in tensor.stack if 0 <= frame < len(profile.frames)],
            }
            for tensor in alive
        ],
    }
