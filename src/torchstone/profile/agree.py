"""The same work by several ways side by side: what each says of a function, and who disagrees.

Shares with callees are compared: by itself a function has less in a trace, which knows the ops that
it calls, than in samples, which do not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchstone.profile import trees
from torchstone.records import CallTree, Frame, FunctionCalls, Profile
from torchstone.stats.share import SHARE_LEVEL, share_interval

MOST_ROWS = 15
LEAST_SHARE = 0.02
"""Of the whole, by one of the ways; what takes less is not compared."""
CLEAR = 0.02
"""Beyond the interval by so much, a difference is worth a sentence."""

RENAMED = {"trace": (("module.py", "_wrapped_call_impl"),)}
"""By way: torch's tracer shows the call of a module under the module's own name."""

Key = tuple[str, int, str]


@dataclass(frozen=True)
class Share:
    """A function's share of the whole, its callees included; samples have an interval."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Row:
    """One function by each way; absent is a way that saw no function at all, or knows this one by
    another name."""

    name: str
    file: str
    line: int
    shares: Mapping[str, Share]
    apart: bool = False
    """The ways disagree by more than chance."""


@dataclass(frozen=True)
class SideBySide:
    """Ways in the order given, the functions that took most, and sentences on what differs."""

    ways: tuple[str, ...]
    rows: tuple[Row, ...]
    sentences: tuple[str, ...]


def side_by_side(profiles: Sequence[Profile]) -> SideBySide:
    """Compare profiles of the same work, one a way. Where one saw nothing of a function that took a
    share by another, its share is 0."""
    tables = {profile.how: _shares(profile) for profile in profiles}
    samples = {p.how: p.sampling.samples for p in profiles if p.sampling is not None}
    keys = {key for table in tables.values() for key, value in table.items() if value > LEAST_SHARE}
    chosen = sorted(keys, key=lambda key: -max(t.get(key, 0.0) for t in tables.values()))[
        :MOST_ROWS
    ]
    # Many looks find something by chance: each is given its part of the error.
    level = 1 - (1 - SHARE_LEVEL) / max(1, len(chosen))
    rows = []
    for key in chosen:
        shares = {
            how: _share(table.get(key, 0.0), samples.get(how, 0), level)
            for how, table in tables.items()
            if key in table or (table and (key[0], key[2]) not in RENAMED.get(how, ()))
        }
        rows.append(Row(key[2], key[0], key[1], shares, _apart(shares)))
    return SideBySide(
        tuple(tables), tuple(rows), tuple(_sentence(row) for row in rows if row.apart)
    )


def _share(value: float, samples: int, level: float) -> Share:
    return Share(value, share_interval(value * samples, samples, level) if samples else None)


def _apart(shares: Mapping[str, Share]) -> bool:
    """Whether two of the ways are clearly apart; a way that counts has no interval but itself."""
    ends = [share.interval or (share.value, share.value) for share in shares.values()]
    return any(
        one[0] > other[1] + CLEAR or other[0] > one[1] + CLEAR
        for one, other in itertools.combinations(ends, 2)
    )


def _sentence(row: Row) -> str:
    parts = []
    for how, share in row.shares.items():
        said = f"{how} {share.value:.0%}"
        if share.interval is not None:
            said += f" ({share.interval[0]:.0%}–{share.interval[1]:.0%})"
        parts.append(said)
    return f"{row.name} ({os.path.basename(row.file)}:{row.line}): {', '.join(parts)}."


def _shares(profile: Profile) -> dict[Key, float]:
    """Python functions of the critical thread, by what they took with their callees."""
    functions, whole = _functions(profile)
    found: dict[Key, float] = {}
    for one in functions:
        frame = profile.frames[one.of.frame]
        if frame.kind == "python" and frame.line and whole > 0 and not _starts(frame):
            key = _key(frame)
            found[key] = max(found.get(key, 0.0), one.of.total_s / whole)
    return found


def _functions(profile: Profile) -> tuple[Sequence[FunctionCalls], float]:
    several = profile.tree is not None and len(set(profile.tree.threads)) > 1
    if profile.functions and not several:
        # Where cProfile lost track, own times are less than the whole.
        own = sum(one.of.own_s for one in profile.functions)
        return profile.functions, max(own, profile.wall_s)
    if profile.tree is None:
        return (), 0.0
    critical = [i for i, thread in enumerate(profile.threads) if thread.critical]
    tree = _only(profile.tree, critical[0]) if critical else profile.tree
    whole = sum(tree.own)
    # Exact figures are of all threads together; those of one thread are in its tree alone.
    return trees.functions(tree), max(whole, profile.wall_s) if profile.functions else whole


def _only(tree: CallTree, thread: int) -> CallTree:
    """The part of one thread."""
    kept = [node for node, of in enumerate(tree.threads) if of == thread]
    place = {node: index for index, node in enumerate(kept)}
    return CallTree(
        tree.unit,
        tuple(place.get(tree.parents[node], -1) for node in kept),
        tuple(tree.frames[node] for node in kept),
        tuple(tree.own[node] for node in kept),
        (0,) * len(kept),
        tuple(tree.calls[node] for node in kept) if tree.calls else (),
    )


def _starts(frame: Frame) -> bool:
    """A function of ours or of Python's that only starts the work."""
    file = frame.file.replace(os.sep, "/")
    return "torchstone/profile/" in file or file.endswith("runpy.py") or file == "<frozen runpy>"


def _key(frame: Frame) -> Key:
    """Tools shorten paths differently; the file's name, the line and the function's stay."""
    return (os.path.basename(frame.file), frame.line, frame.name)
