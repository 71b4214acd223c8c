"""Call paths of a profile, wherever they come from, and the functions that took most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.profile.trees import from_spans
from torchstone.records import CallTree, Frame, Profile, Spans, UsageError

UNKNOWN = Frame("?", kind="native")
"""Stands where a record names a frame that it does not have."""


@dataclass(frozen=True)
class FunctionRow:
    """What one function took, in the unit of the profile's tree; `calls` is None if not counted."""

    frame: Frame
    own: float
    total: float
    calls: int | None = None


def call_tree(profile: Profile) -> CallTree | None:
    """The profile's tree, or one gathered from its spans; None where there is neither.

    A tree that is not one (a parent after its child, columns of unequal length) is refused.
    """
    if profile.tree is not None:
        check_tree(profile.tree, len(profile.frames))
        return profile.tree
    if profile.spans is None or not profile.spans.frames:
        return None
    check_spans(profile.spans, len(profile.frames))
    return from_spans(profile.spans)


def check_tree(tree: CallTree, frames: int) -> None:
    """Refuse what no viewer could draw."""
    count = len(tree.parents)
    lengths = {len(tree.frames), len(tree.own), len(tree.threads)}
    lengths |= {len(tree.calls)} if tree.calls else set()
    if lengths - {count}:
        raise _broken("its columns are of unequal length")
    if any(not -1 <= parent < node for node, parent in enumerate(tree.parents)):
        raise _broken("a parent does not come before its child")
    if count and not (min(tree.frames) >= 0 and max(tree.frames) < frames):
        raise _broken("it names a frame that is not there")
    if count and min(tree.threads) < 0:
        raise _broken("it names a thread that is not there")


def check_spans(spans: Spans, frames: int) -> None:
    """Refuse spans that no viewer could draw."""
    count = len(spans.frames)
    if {len(spans.threads), len(spans.start_ns), len(spans.duration_ns)} - {count}:
        raise _broken("the columns of its spans are of unequal length")
    if count and not (min(spans.frames) >= 0 and max(spans.frames) < frames):
        raise _broken("a span names a frame that is not there")
    if count and min(spans.threads) < 0:
        raise _broken("a span names a thread that is not there")


def _broken(why: str) -> UsageError:
    return UsageError(
        f"The profile cannot be shown: {why}.", "Read it again from the file that it was made from."
    )


def unit_of(profile: Profile, tree: CallTree | None) -> str:
    """What the figures of `top_functions` are counted in."""
    return "seconds" if profile.functions or tree is None else tree.unit


def whole_of(profile: Profile, tree: CallTree | None) -> float:
    """What all functions together took: the denominator of shares."""
    if profile.functions:
        return sum(entry.of.own_s for entry in profile.functions)
    return sum(tree.own) if tree is not None else 0.0


def top_functions(
    profile: Profile, tree: CallTree | None, most: int = 20
) -> tuple[FunctionRow, ...]:
    """The functions that took most by themselves: exact figures where there are some, else the
    tree's."""
    if profile.functions:
        counted = sorted(profile.functions, key=lambda entry: -entry.of.own_s)[:most]
        return tuple(
            FunctionRow(frame_at(profile, e.of.frame), e.of.own_s, e.of.total_s, e.of.calls)
            for e in counted
        )
    return _top_of_tree(profile, tree, most) if tree is not None else ()


def frame_at(profile: Profile, index: int) -> Frame:
    """A frame by its number, or a stand-in."""
    return profile.frames[index] if 0 <= index < len(profile.frames) else UNKNOWN


def _top_of_tree(profile: Profile, tree: CallTree, most: int) -> tuple[FunctionRow, ...]:
    own = _summed(tree.frames, tree.own, len(profile.frames))
    counted = _summed(tree.frames, tree.calls, len(profile.frames)) if tree.calls else None
    best = sorted(set(tree.frames), key=lambda frame: (-own[frame], frame))[:most]
    totals = _totals(tree, best)
    return tuple(
        FunctionRow(
            profile.frames[frame],
            own[frame],
            totals[rank],
            None if counted is None else round(counted[frame]),
        )
        for rank, frame in enumerate(best)
    )


def _summed(frames: Sequence[int], values: Sequence[float], count: int) -> list[float]:
    sums = [0.0] * count
    for frame, value in zip(frames, values, strict=True):
        sums[frame] += value
    return sums


def _totals(tree: CallTree, chosen: Sequence[int]) -> list[float]:
    """What was taken beneath each chosen frame, a recursion counted once."""
    bits = {frame: 1 << rank for rank, frame in enumerate(chosen)}
    above: list[int] = []
    sums: dict[int, float] = {}
    for parent, frame, own in zip(tree.parents, tree.frames, tree.own, strict=True):
        # One bit a chosen frame says which of them lie on the path: no walk up, no double count.
        path = (above[parent] if parent >= 0 else 0) | bits.get(frame, 0)
        above.append(path)
        sums[path] = sums.get(path, 0.0) + own
    return [
        sum(value for path, value in sums.items() if path >> rank & 1)
        for rank in range(len(chosen))
    ]
