"""Profiles and files of other tools' shape, as the tests of this room need them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchstone.profile import read_profile, trees
from torchstone.profile.formats.own import check_profile
from torchstone.records import Frame, Profile, Spans, Thread, UsageError

US = 1_000
"""Nanoseconds of a microsecond, the unit of Chrome's time stamps."""


def put(path: Path, data: bytes | str | dict[str, Any] | list[Any]) -> Path:
    if isinstance(data, (dict, list)):
        data = json.dumps(data)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def read(path: Path, format: str | None = None) -> Profile:
    """Through the door; whatever a reader gives must keep the record's promises."""
    profile = read_profile(path, format)
    check_profile(profile)
    return profile


def refused(path: Path, format: str | None = None) -> str:
    """The sentence that a file is refused with."""
    with pytest.raises(UsageError) as error:
        read_profile(path, format)
    assert error.value.message.endswith(".")
    assert error.value.message.isprintable()
    assert "\n" not in error.value.remedy
    return error.value.message


def x(name: str, ts: float, dur: float, tid: Any = 1, **more: Any) -> dict[str, Any]:
    """A complete event."""
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid, **more}


def mark(ph: str, name: str, ts: float, tid: Any = 1, **more: Any) -> dict[str, Any]:
    return {"ph": ph, "name": name, "ts": ts, "pid": 1, "tid": tid, **more}


def spans_of(profile: Profile) -> list[tuple[str, str, int, int]]:
    """Thread, name, start and duration of each span."""
    assert profile.spans is not None
    spans = profile.spans
    columns = zip(spans.threads, spans.frames, spans.start_ns, spans.duration_ns, strict=True)
    return [(profile.threads[t].name, profile.frames[f].name, s, d) for t, f, s, d in columns]


def own_by_path(profile: Profile) -> dict[tuple[str, ...], float]:
    """What each call path took by itself, over all threads; paths of nothing are left out."""
    tree = profile.tree
    assert tree is not None
    paths: list[tuple[str, ...]] = []
    found: dict[tuple[str, ...], float] = {}
    for parent, frame, own in zip(tree.parents, tree.frames, tree.own, strict=True):
        above = paths[parent] if parent >= 0 else ()
        paths.append((*above, profile.frames[frame].name))
        if own:
            found[paths[-1]] = found.get(paths[-1], 0.0) + own
    return found


def traced() -> Profile:
    """A small trace of two threads, of every kind of frame."""
    frames = (
        Frame("main", "app.py", 3),
        Frame("forward", kind="annotation"),
        Frame("aten::mm", kind="op"),
        Frame("<built-in function len>", kind="native"),
        Frame("Python GC", kind="gc"),
        Frame("volta_sgemm", kind="kernel"),
        Frame("späte <script>alert(1)</script>; x", "ünï;code.py", 7),
    )
    rows = [
        (0, 0, 0, 1000 * US),
        (1, 0, 10 * US, 500 * US),
        (2, 0, 20 * US, 100 * US),
        (3, 0, 20 * US, 30 * US),
        (2, 0, 200 * US, 150 * US + 7),
        (4, 0, 600 * US, 40 * US),
        (5, 1, 30 * US, 80 * US),
        (6, 1, 300 * US, 0),
        (6, 1, 400 * US, 1),
    ]
    spans = Spans(*(tuple(column) for column in zip(*rows, strict=True)))
    return Profile(
        id="abc",
        created="2026-01-01T00:00:00+00:00",
        how="trace",
        tool="torch.profiler",
        frames=frames,
        threads=(Thread("main thread", 71, 70, True), Thread("stream 7", 0, 70)),
        tree=trees.from_spans(spans),
        spans=spans,
        wall_s=1e-3,
        label="a trace",
    )
