"""What pages read: the store's history, comparisons of runs, and which runs live now."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar, cast

from torchstone.records import (
    CaseKey,
    CaseMetrics,
    CasePoint,
    Choices,
    FailureSpan,
    GroupPoint,
    Profile,
    Result,
    RunComparison,
    RunHead,
    Selection,
    SuiteSummary,
    TorchstoneError,
    UsageError,
)
from torchstone.show.charts import Strip, strip_of
from torchstone.show.rows import Figures, figures
from torchstone.store import Store, heartbeat
from torchstone.store.case_facts import matcher
from torchstone.store.history import stretch_start
from torchstone.track import (
    Found,
    Side,
    Terms,
    compare,
    resolve,
    stored_floors,
    stored_heads,
    stored_side,
)
from torchstone.web.query import NotFound

# Things made lately, kept for the next request.


T = TypeVar("T")


class LRUCache(Generic[T]):
    """Things made lately that never change, for all threads; the longest unused goes first."""

    def __init__(self, most: int) -> None:
        self._known: OrderedDict[object, T] = OrderedDict()
        self._most = most
        self._lock = Lock()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The thing of that key. Two threads may make it at once; either will do."""
        known = self.find(key)
        if known is None:
            known = make()
            self.put(key, known)
        return known

    def find(self, key: object) -> T | None:
        """The thing of that key, if it is kept."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: object, made: T) -> None:
        """Keep it."""
        with self._lock:
            self._known[key] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)


class Identity:
    """Stands for a large record in a key: equal to that very one alone, and quick to hash."""

    def __init__(self, of: object) -> None:
        self._of = of  # held, so that no other can be at its address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)


# Points over time whose past is kept: only the newest weeks are read at every look.


DAY_S = 86_400.0
RECENT_S = 28 * DAY_S
"""Runs begin and go on in these; an older one changes only when resumed or evaluated again."""
Stamp = Callable[[float], object]
"""Another value whenever runs until a moment, or what is shown of them, are no longer the same."""
Point = TypeVar("Point")


class HistoryCache:
    """The older parts of histories, under the state of the runs that they are of."""

    def __init__(self) -> None:
        self._known: LRUCache[object] = LRUCache(8)

    def points(
        self,
        stamp: Stamp,
        selection: Selection,
        every_s: float,
        read: Callable[[Selection], list[Point]],
    ) -> list[Point]:
        """All points of a selection, the oldest first; `read` gives those of a part of its time."""
        # Between two stretches, of each of which one run is shown; the same for all of a day.
        edge = stretch_start(time.time() - RECENT_S, every_s or DAY_S)
        if selection.since_s is not None and selection.since_s >= edge:
            return read(selection)
        if selection.until_s is not None and selection.until_s < edge:
            return read(selection)
        until = math.nextafter(edge, -math.inf)
        old = replace(selection, until_s=until)
        key = (stamp(until), old, every_s)
        known = cast("list[Point]", self._known.get(key, lambda: read(old)))
        return [*known, *read(replace(selection, since_s=edge))]


EVERYTHING = Selection()
MOST_POINTS = 5000
"""Of a suite over time; of more, the newest."""


@dataclass(frozen=True)
class About:
    """What a run's record says beside its plan."""

    command: tuple[str, ...]
    notes: tuple[str, ...]
    version: str


class PageCache:
    """What requests share: whole runs and their comparisons are expensive to read and to make."""

    def __init__(self) -> None:
        self.choices: LRUCache[Choices] = LRUCache(1)
        self.comparisons: LRUCache[RunComparison] = LRUCache(16)
        self.sides: LRUCache[Side] = LRUCache(4)
        self.plans: LRUCache[tuple[CaseKey, ...]] = LRUCache(8)
        self.abouts: LRUCache[About] = LRUCache(200)
        self.profiles: LRUCache[Profile] = LRUCache(4)
        self.of_profiles: LRUCache[object] = LRUCache(8)
        self.results: LRUCache[Result] = LRUCache(8)
        self.figures: LRUCache[tuple[Figures | None, ...]] = LRUCache(64)
        self.strips: LRUCache[tuple[Strip, ...]] = LRUCache(8)
        self.rows: LRUCache[object] = LRUCache(4096)
        self.texts: LRUCache[str] = LRUCache(4)
        self.past = HistoryCache()
        self.failures: LRUCache[list[FailureSpan]] = LRUCache(8)


class DataAccess:
    """One store as pages read it."""

    def __init__(
        self, store: Store, memory: PageCache | None = None, running: frozenset[str] | None = None
    ) -> None:
        self.store = store
        self._memory = memory or PageCache()
        self._running = running

    @property
    def name(self) -> str:
        """The database's name, without its folder: pages may be seen by others."""
        return self.store.path.name

    def running(self) -> frozenset[str]:
        """The runs that are being measured now, or were when that was asked for many pages."""
        return (
            self._running if self._running is not None else heartbeat.running_ids(self.store.path)
        )

    def heads(
        self, selection: Selection = EVERYTHING, limit: int = 200, before: str = ""
    ) -> list[RunHead]:
        """The newest runs first."""
        return self._lively(self.store.run_heads(selection, limit, before))

    def head(self, wanted: str) -> RunHead:
        """One run, by what it is called."""
        return self.named(wanted)[0]

    def named(self, word: str, beside: RunHead | None = None) -> tuple[RunHead, Found]:
        """The run that a word means, by the command's own rules, and how it was found.

        Links name runs by their ids, which are looked up; only words that people write are held
        against every run.
        """
        try:
            head = self.store.run_head(word)
        except UsageError:
            head = None
        if head is not None and head.id == word:
            return self._lively([head])[0], Found("run", head.id)
        try:
            found = resolve(word, stored_heads(self.store), beside, files=False)
        except UsageError as error:
            raise NotFound(error.message, error.remedy) from None
        return self._lively([self.store.run_head(found.run_id)])[0], found

    def row(self, head: RunHead, make: Callable[[RunHead], T]) -> T:
        """What `make` makes of a run, kept until another case of it ends or it is evaluated again.
        What else a run says never changes."""
        known = (head.id, head.state, tuple(head.outcomes.items()))
        key = (make.__module__, make.__qualname__, known)
        return cast(T, self._memory.rows.get(key, lambda: make(head)))

    def text(self, same: object, make: Callable[[], str]) -> str:
        """What `make` makes, kept as long as what it is made from is the same; see `Table.same`."""
        return make() if same is None else self._memory.texts.get(same, make)

    def choices(self) -> Choices:
        """Every value that occurs; they are those of runs and kinds of cases that never change."""
        key = (self.store.newest(), self.store.revision())
        return self._memory.choices.get(key, self.store.choices)

    def points(self, selection: Selection, every_s: float = 0.0) -> list[GroupPoint]:
        """Suites over time, at most `MOST_POINTS`.

        A run that is being measured has none yet: what it has not come to would count as failing.
        """
        running = self.running()

        def read(part: Selection) -> list[GroupPoint]:
            return self.store.group_points(part, MOST_POINTS, every_s, running)

        stamp = self._stamp("suites", running)
        found = self._memory.past.points(stamp, selection, every_s, read)
        return found[-MOST_POINTS:]

    def groups(self, head: RunHead, selection: Selection = EVERYTHING) -> list[SuiteSummary]:
        """The figures of the suites of one run."""
        side = self._memory.sides.find(self._side_key(head))
        if side is not None and selection == EVERYTHING:
            return list(side.groups)
        return self.store.run_groups(head.id, selection)

    def case_points(
        self, key: CaseKey, selection: Selection, every_s: float = 0.0
    ) -> list[CasePoint]:
        """One case over time, at most `MOST_POINTS`."""

        def read(part: Selection) -> list[CasePoint]:
            return self.store.case_points(key, part, MOST_POINTS, every_s)

        stamp = self._stamp(key, self.running())
        found = self._memory.past.points(stamp, selection, every_s, read)
        return found[-MOST_POINTS:]

    def _stamp(self, of: object, running: frozenset[str]) -> Stamp:
        """What of the past is looked at, and all that it could be another by."""
        return lambda until_s: (of, self.store.state_until(until_s), running)

    def cases(self, head: RunHead, selection: Selection = EVERYTHING) -> tuple[CaseMetrics, ...]:
        """Every planned case of a run."""
        side = self._memory.sides.find(self._side_key(head))
        if side is not None:
            fits = matcher(selection)
            return tuple(one for one in side.cases if fits(one.key))

        def keys() -> tuple[CaseKey, ...]:
            return self._memory.plans.get(head.id, lambda: self.store.planned_keys(head.id))

        return self.store.planned_cases(head.id, selection, keys)

    def failures(self, head: RunHead, selection: Selection) -> list[FailureSpan]:
        """What fails in a run, and since when, which the runs before it say; kept while they do."""
        before = self.store.state_until(math.inf if head.created_s is None else head.created_s)
        key = (head.id, head.done, selection, before, self.running())
        return self._memory.failures.get(key, lambda: self.store.failures(head.id, selection))

    def result(self, wanted: str) -> Result:
        """One result with its samples. By its whole id it is kept, until something of what was
        stored before is changed."""
        key = (wanted, self.store.revision())
        known = self._memory.results.find(key)
        if known is not None:
            return known
        try:
            found = self.store.load(wanted)
        except UsageError as error:
            raise NotFound(error.message, error.remedy) from None
        if found.id == wanted:
            self._memory.results.put(key, found)
        return found

    def figures(self, result: Result) -> tuple[Figures | None, ...]:
        """What the samples of each arm come to: they never change, but may be pruned away."""
        return self._memory.figures.get(
            _samples_of(result),
            lambda: tuple(figures(arm, result.method.alpha) for arm in result.arms),
        )

    def strips(self, result: Result) -> tuple[Strip, ...]:
        """The same samples as a chart shows them, by arm, process and turn."""
        arms = list(enumerate(zip(result.arms, self.figures(result), strict=True)))
        return self._memory.strips.get(
            _samples_of(result),
            lambda: tuple(strip_of(one, found, i) for i, (one, found) in arms if one.turns),
        )

    def profile(self, wanted: str) -> Profile:
        """A stored profile; they never change."""
        try:
            name = self.store.profile_id(wanted)
            return self._memory.profiles.get(name, lambda: self.store.load_profile(name))
        except TorchstoneError as error:
            raise NotFound(error.message, error.remedy) from None

    def made_of(self, profile: Profile, make: Callable[[Profile], T]) -> T:
        """What `make` makes of a stored profile: trees and tables take longer than a page may."""
        key = (make.__module__, make.__qualname__, profile.id)
        return cast(T, self._memory.of_profiles.get(key, lambda: make(profile)))

    def comparison(
        self,
        base: RunHead,
        new: RunHead,
        across: frozenset[str] = frozenset(),
        variants: tuple[str, str] | None = None,
    ) -> RunComparison:
        """Two whole runs; pages show a part of them, which changes no verdict."""
        terms = Terms(variants=variants, across=across)
        heads = (base.id, base.done, base.state, new.id, new.done, new.state)
        key = (heads, across, variants, self.store.revision())
        return self._memory.comparisons.get(key, lambda: self._compared(base, new, terms))

    def _compared(self, base: RunHead, new: RunHead, terms: Terms) -> RunComparison:
        return compare(self._side(base), self._side(new), terms, stored_floors(self.store))

    def _side(self, head: RunHead) -> Side:
        make = partial(stored_side, self.store, head.id)
        return replace(self._memory.sides.get(self._side_key(head), make), head=head)

    def _side_key(self, head: RunHead) -> tuple[str, int, int]:
        """Its figures are the same until another case ends, or some are derived again."""
        return head.id, head.done, self.store.revision()

    def about(self, head: RunHead) -> About:
        """What a run's record says; it never changes."""

        def read() -> About:
            run = self.store.load_run(head.id, plan=False)
            return About(run.command, run.notes, run.version)

        return self._memory.abouts.get(head.id, read)

    def version(self) -> str:
        """Changes whenever what is stored, or what is running, does."""
        parts: list[object] = [_stamp(self.store.path), _stamp(_log(self.store.path))]
        # Times of files are coarse, and the log is written before what is in it can be seen.
        parts.append(self.store.commits())
        for run in sorted(self.running()):
            progress = heartbeat.progress(self.store.path, run)
            parts.append((run, progress and [(p.done, p.case) for p in progress.parts]))
        return repr(parts)

    def _lively(self, heads: Sequence[RunHead]) -> list[RunHead]:
        if all(head.done >= head.planned for head in heads):
            return [replace(head, state="complete") for head in heads]
        running = self.running()
        return [replace(head, state=_state(head, running)) for head in heads]


def _samples_of(result: Result) -> tuple[str, bool]:
    """What tells its samples from all others."""
    return result.id, result.pruned is None


def _state(head: RunHead, running: frozenset[str]) -> str:
    if head.done >= head.planned:
        return "complete"
    return "running" if head.id in running else "interrupted"


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        known = path.stat()
    except OSError:
        return 0, 0, 0
    return known.st_ino, known.st_size, known.st_mtime_ns
