"""speedscope's file format: stacks with weights, or openings and closings of frames.

py-spy, pyinstrument, memray's converters and others write it. Layout: speedscope's
`src/lib/file-format-spec.ts`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchstone import __version__
from torchstone.profile import trees
from torchstone.profile.formats.base import (
    MAX_DOCUMENT_BYTES,
    Faults,
    FrameTable,
    Input,
    bad,
    brief,
    clean,
    first_byte,
    guess_kind,
    line_of,
    split_place,
)
from torchstone.profile.formats.chrome_events import Columns, settle
from torchstone.profile.formats.own import KEY, UNKNOWN_CLOCK, metadata_of, read_metadata
from torchstone.records import CallTree, Frame, Profile, Sampling, Spans, Thread, UsageError

# A profile as a speedscope document.


SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"seconds": "seconds", "bytes": "bytes"}


def document(profile: Profile) -> dict[str, Any]:
    """Spans as events where there are some, else call paths as samples; a profile a thread."""
    names = [thread.name for thread in profile.threads]
    if profile.spans is not None and profile.spans.frames:
        parts = _evented(profile.spans, names)
    elif profile.tree is not None and profile.tree.frames:
        parts = _sampled(profile.tree, names)
    else:
        raise UsageError(
            "The profile has no call paths, so it cannot be written as speedscope.",
            "Write it as pstats or torchstone.",
        )
    return {
        "$schema": SCHEMA,
        "exporter": f"torchstone@{__version__}",
        "name": profile.label or profile.tool,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(one) for one in profile.frames]},
        "profiles": parts,
        KEY: metadata_of(profile),
    }


def _frame(frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = {"name": frame.name}
    if frame.file:
        found["file"] = frame.file
    if frame.line:
        found["line"] = frame.line
    return found


def _part(
    kind: str, names: Sequence[str], thread: int, unit: str, end: float, **columns: Any
) -> dict[str, Any]:
    name = names[thread] if thread < len(names) else f"thread {thread}"
    about = {"type": kind, "name": name, "unit": unit, "startValue": 0, "endValue": end}
    return {**about, **columns}


def _evented(spans: Spans, names: Sequence[str]) -> list[dict[str, Any]]:
    end = max(s + d for s, d in zip(spans.start_ns, spans.duration_ns, strict=True))
    found: dict[int, tuple[list[dict[str, Any]], list[tuple[int, int]]]] = {}
    for frame, thread, start, duration in trees.rows_of(spans):
        events, stack = found.setdefault(thread, ([], []))
        _close(events, stack, start)
        events.append({"type": "O", "at": start, "frame": frame})
        stack.append((frame, start + duration))
    for events, stack in found.values():
        _close(events, stack, end)
    return [
        _part("evented", names, thread, "nanoseconds", end, events=events)
        for thread, (events, _) in found.items()
    ]


def _close(events: list[dict[str, Any]], stack: list[tuple[int, int]], until: int) -> None:
    while stack and stack[-1][1] <= until:
        frame, at = stack.pop()
        events.append({"type": "C", "at": at, "frame": frame})


def _sampled(tree: CallTree, names: Sequence[str]) -> list[dict[str, Any]]:
    found: dict[int, tuple[list[list[int]], list[float]]] = {}
    for node, own in enumerate(tree.own):
        samples, weights = found.setdefault(tree.threads[node], ([], []))
        if own > 0:
            samples.append(trees.path_of(tree, node))
            weights.append(own)
    unit = _UNITS.get(tree.unit, "none")
    return [
        _part("sampled", names, thread, unit, sum(weights), samples=samples, weights=weights)
        for thread, (samples, weights) in found.items()
    ]


MAX_PROFILES = 10_000
MAX_NUMBER = 1e18
"""Of a weight or a time in any unit: 30 years of nanoseconds, and no sum overflows."""
SECONDS = {"nanoseconds": 1e-9, "microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1.0}
_OTHER_UNITS = {"none": "weight", "bytes": "bytes"}
_SAME = 1e-6
"""Weights that differ by less are equal: the rest comes from dividing."""
_MAX_S = 3e9
"""95 years: what 63 bits of nanoseconds hold with room to add."""


class SpeedscopeFormat:
    """See the module."""

    name = "speedscope"
    endings = (".speedscope.json", ".json")

    def accepts(self, head: bytes, path: Path) -> bool:
        """An object that names its schema, or has shared frames."""
        if first_byte(head) != b"{":
            return False
        return b"speedscope.app/file-format-schema" in head or b'"shared"' in head

    def read(self, path: Path) -> Profile:
        """Call paths; spans too where the file says when frames were opened and closed."""
        file = Input(path, MAX_DOCUMENT_BYTES)
        reading = _Reading(file.name, file.json())
        return reading.profile(file)

    def write(self, profile: Profile) -> bytes:
        """Spans as events where there are some, else call paths as samples."""
        return json.dumps(document(profile), separators=(",", ":")).encode()

    def remarks(self, profile: Profile) -> tuple[str, ...]:
        """Tables have no place there."""
        return (
            "speedscope holds call paths or spans with names, files and lines; kinds of frames, "
            "tables, memory and notes are left out.",
        )


class _Reading:
    """A document, checked as it is read."""

    def __init__(self, name: str, data: Any) -> None:
        self._name = name
        self._table = FrameTable()
        self._faults = Faults()
        self._builder = trees.TreeBuilder()
        self._columns = Columns()
        self._looks = _Looks()
        data = data if isinstance(data, dict) else {}
        self._was = read_metadata(data.get(KEY))
        self._longest = 0.0
        self._exporter = data.get("exporter")
        shared, profiles = data.get("shared"), data.get("profiles")
        frames = shared.get("frames") if isinstance(shared, dict) else None
        if not isinstance(frames, list) or not isinstance(profiles, list) or not profiles:
            raise bad(name, "this is not a speedscope file: it has no frames or no profiles")
        if len(profiles) > MAX_PROFILES:
            raise bad(name, f"it has more than {MAX_PROFILES:,} profiles")
        self._frames = [self._frame(one) for one in frames]
        self._unit = ""
        starts = [self._start_ns(one) for one in profiles if _is_evented(one)]
        self._base_ns = min(starts, default=0)
        self.threads: list[Thread] = []
        for one in profiles:
            self._profile(one)

    def profile(self, file: Input) -> Profile:
        """The whole as a record."""
        frames = self._table.frames
        spans: Spans | None = None
        # Profiles are of threads that ran side by side: their sum is no time on a wall.
        wall = self._longest if self._unit == "seconds" else 0.0
        if len(self._columns):
            settled = settle(self._columns, frames, self._faults, 0)
            spans, wall = settled.spans, max(wall, settled.wall_ns / 1e9)
            before = self._builder.own
            self._builder.own = [value * 1e9 for value in before]  # spans count nanoseconds
            self._builder.add_spans(spans)
        if not self._builder.parents:
            raise bad(self._name, "there is nothing in it", "Record something, or give another.")
        tree = self._builder.tree(
            self._unit_now(),
            scale=1e9 if spans else 1.0,
            counted=bool(spans) and not self._looks.entries,
        )
        return file.profile(
            SpeedscopeFormat.name,
            **(self._was.parts() if self._was else self._guessed(spans is not None)),
            frames=frames,
            threads=tuple(self.threads),
            tree=tree,
            spans=spans,
            wall_s=wall,
            problems=self._faults.problems("entry", "entries"),
            notes=self._faults.notes(),
        )

    def _guessed(self, has_spans: bool) -> dict[str, Any]:
        """How the profile was taken, where nobody says so."""
        how = "memory" if self._unit == "bytes" else "trace" if has_spans else "sample"
        said = self._exporter if isinstance(self._exporter, str) else ""
        tool = clean(said.split("@")[0].strip()) or "speedscope"
        looks, sampling = self._looks, None
        # Only where the entries are looks, one by one: elsewhere nobody knows how many.
        if looks.listed and self._unit != "bytes":
            every = looks.least if self._unit == "seconds" else 0.0
            sampling = Sampling(looks.entries, every, UNKNOWN_CLOCK)
        return {"how": how, "tool": tool, "sampling": sampling}

    def _unit_now(self) -> str:
        """The tree's unit: a file without one may still say what it counts."""
        if self._unit != _OTHER_UNITS["none"]:
            return self._unit
        if self._was is not None:
            return self._was.unit
        return "samples" if self._looks.listed and self._looks.least == 1.0 else self._unit

    def _frame(self, data: Any) -> int:
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise bad(self._name, "a frame has no name")
        name, file, line = data["name"], data.get("file"), line_of(data.get("line"))
        if not isinstance(file, str) or not file:
            name, file, line = split_place(clean(name))
        return self._table.add(name, file, line, guess_kind(name, file))

    def _profile(self, data: Any) -> None:
        if not isinstance(data, dict):
            raise bad(self._name, "a profile is not an object")
        said = data.get("unit")
        if not isinstance(said, str) or not (said in SECONDS or said in _OTHER_UNITS):
            raise bad(self._name, f"the unit {brief(said)} is not known")
        unit = _OTHER_UNITS.get(said, "seconds")
        self._unit = self._unit or unit
        name = data.get("name")
        name = clean(name) if isinstance(name, str) and name else f"profile {len(self.threads) + 1}"
        if unit != self._unit:
            self._faults.add("unit", brief(name))
            return
        self.threads.append(Thread(name, critical=not self.threads))
        scale = SECONDS.get(said, 1.0)
        if data.get("type") == "sampled":
            self._sampled(data, scale)
        elif data.get("type") == "evented":
            self._evented(data, scale)
        else:
            raise bad(self._name, f"a profile is of the type {brief(data.get('type'))}")

    def _sampled(self, data: dict[str, Any], scale: float) -> None:
        samples, weights = data.get("samples"), data.get("weights")
        if not isinstance(samples, list) or not isinstance(weights, list):
            raise bad(self._name, "a profile has no samples or no weights")
        if len(samples) != len(weights):
            raise bad(self._name, f"there are {len(samples):,} samples, {len(weights):,} weights")
        thread, taken = len(self.threads) - 1, 0.0
        for stack, value in zip(samples, weights, strict=True):
            weight = self._number(value)
            if weight is None or weight < 0 or not isinstance(stack, list):
                self._faults.add("weight", brief(value))
                continue
            known = [self._known(one) for one in stack]
            self._builder.add_stack(known, weight * scale, thread)
            self._looks.add(known, weight * scale, thread)
            taken += weight * scale
        self._longest = max(self._longest, taken)

    def _evented(self, data: dict[str, Any], scale: float) -> None:
        events = data.get("events")
        if not isinstance(events, list):
            raise bad(self._name, "a profile has no events")
        thread, timed = len(self.threads) - 1, self._unit == "seconds"
        last = self._number(data.get("startValue")) or 0.0
        stack: list[tuple[int, float]] = []
        for event in events:
            at, frame, opens = self._event(event)
            if at < last:
                self._faults.add("backwards", f"{at!r}")
                at = last
            if not timed:
                self._builder.add_stack([one for one, _ in stack], at - last, thread)
            last = at
            if opens:
                stack.append((frame, at))
            elif stack and stack[-1][0] == frame:
                self._close(stack, at, scale, thread)
            else:
                self._faults.add("end_alone", f"an end at {at!r}")
        end = max(last, self._number(data.get("endValue")) or 0.0)
        while stack:
            self._faults.add("no_end", f"an opening at {stack[-1][1]!r}")
            self._close(stack, end, scale, thread)

    def _close(self, stack: list[tuple[int, float]], end: float, scale: float, thread: int) -> None:
        frame, start = stack.pop()
        if self._unit != "seconds":
            return
        if max(abs(start), abs(end)) * scale > _MAX_S:
            raise bad(self._name, f"a frame is open from {start!r} to {end!r}")
        begin_ns, end_ns = (_ns(at, scale) - self._base_ns for at in (start, end))
        self._columns.add(frame, thread, begin_ns, end_ns - begin_ns, len(stack))

    def _start_ns(self, data: dict[str, Any]) -> int:
        """When an evented profile begins."""
        unit, start = data.get("unit"), self._number(data.get("startValue")) or 0.0
        scale = SECONDS.get(unit, 0.0) if isinstance(unit, str) else 0.0
        return _ns(start, scale) if abs(start) * scale < _MAX_S else 0

    def _event(self, event: Any) -> tuple[float, int, bool]:
        if not isinstance(event, dict) or event.get("type") not in ("O", "C"):
            raise bad(self._name, "an event neither opens nor closes a frame")
        at = self._number(event.get("at"))
        if at is None:
            raise bad(self._name, f"an event is at {brief(event.get('at'))}")
        return at, self._known(event.get("frame")), event["type"] == "O"

    def _known(self, frame: Any) -> int:
        if type(frame) is not int or not 0 <= frame < len(self._frames):
            raise bad(self._name, f"there is no frame {brief(frame)}")
        return self._frames[frame]

    def _number(self, value: Any) -> float | None:
        if type(value) not in (int, float) or not abs(value) < MAX_NUMBER:
            return None
        return float(value)


class _Looks:
    """Whether the entries of sampled profiles are looks, one by one in time.

    Then all weigh the same, and some stack was seen more than once. Call paths that somebody added
    up come once each and weigh what they took; how many looks they stand for is lost, if there ever
    were any.
    """

    def __init__(self) -> None:
        self.entries = 0
        self.least = self.most = 0.0
        self._repeated = False
        self._seen: set[tuple[int, tuple[int, ...]]] = set()

    @property
    def listed(self) -> bool:
        return self._repeated and self.least > 0 and self.most <= self.least * (1 + _SAME)

    def add(self, stack: list[int], weight: float, thread: int) -> None:
        """One entry."""
        self.least = min(self.least, weight) if self.entries else weight
        self.most = max(self.most, weight)
        self.entries += 1
        if not self._repeated:
            key = (thread, tuple(stack))
            self._repeated = key in self._seen
            self._seen.add(key)


def _is_evented(data: Any) -> bool:
    return isinstance(data, dict) and data.get("type") == "evented"


def _ns(at: float, scale: float) -> int:
    # Nanoseconds are whole numbers as they are: a factor of 1e-9 and back would spoil them.
    return round(at) if scale == SECONDS["nanoseconds"] else round(at * scale * 1e9)


SPEEDSCOPE = SpeedscopeFormat()
