"""A profile as a speedscope document."""

from __future__ import annotations

from typing import Any

from torchstone import __version__
from torchstone.profile.formats.remembered import KEY, remember
from torchstone.records import CallTree, Frame, Profile, Spans, Thread, UsageError

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"seconds": "seconds", "bytes": "bytes"}


def document(profile: Profile) -> dict[str, Any]:
    """Spans as events where there are some, else call paths as samples; a profile a thread."""
    if profile.spans is not None and profile.spans.frames:
        parts = _evented(profile.spans, profile.threads)
    elif profile.tree is not None and profile.tree.frames:
        parts = _sampled(profile.tree, profile.threads)
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
        KEY: remember(profile),
    }


def _frame(frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = {"name": frame.name}
    if frame.file:
        found["file"] = frame.file
    if frame.line:
        found["line"] = frame.line
    return found


def _name(threads: tuple[Thread, ...], index: int) -> str:
    return threads[index].name if index < len(threads) else f"thread {index}"


def _evented(spans: Spans, threads: tuple[Thread, ...]) -> list[dict[str, Any]]:
    end = max(s + d for s, d in zip(spans.start_ns, spans.duration_ns, strict=True))
    by_thread: dict[int, list[dict[str, Any]]] = {}
    stacks: dict[int, list[tuple[int, int]]] = {}
    for frame, thread, start, duration in zip(
        spans.frames, spans.threads, spans.start_ns, spans.duration_ns, strict=True
    ):
        events = by_thread.setdefault(thread, [])
        stack = stacks.setdefault(thread, [])
        while stack and stack[-1][1] <= start:
            _close(events, stack)
        events.append({"type": "O", "at": start, "frame": frame})
        stack.append((frame, start + duration))
    for thread, stack in stacks.items():
        while stack:
            _close(by_thread[thread], stack)
    return [
        {
            "type": "evented",
            "name": _name(threads, thread),
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": end,
            "events": events,
        }
        for thread, events in by_thread.items()
    ]


def _close(events: list[dict[str, Any]], stack: list[tuple[int, int]]) -> None:
    frame, at = stack.pop()
    events.append({"type": "C", "at": at, "frame": frame})


def _sampled(tree: CallTree, threads: tuple[Thread, ...]) -> list[dict[str, Any]]:
    found: dict[int, tuple[list[list[int]], list[float]]] = {}
    for node, own in enumerate(tree.own):
        samples, weights = found.setdefault(tree.threads[node], ([], []))
        if own > 0:
            samples.append(path_of(tree, node))
            weights.append(own)
    return [
        {
            "type": "sampled",
            "name": _name(threads, thread),
            "unit": _UNITS.get(tree.unit, "none"),
            "startValue": 0,
            "endValue": sum(weights),
            "samples": samples,
            "weights": weights,
        }
        for thread, (samples, weights) in found.items()
    ]


def path_of(tree: CallTree, node: int) -> list[int]:
    """The frames that lead to a node, the outermost first."""
    path = []
    while node >= 0:
        path.append(tree.frames[node])
        node = tree.parents[node]
    return path[::-1]
