"""What pages read: the store's history, comparisons of runs, and which runs live now."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

from torchstone.monitor.journal import monitors_writing
from torchstone.records import (
    OURS,
    CaseChange,
    CaseKey,
    CaseMetrics,
    CasePoint,
    ChangeReport,
    Choices,
    FailureSpan,
    GroupPoint,
    Profile,
    Result,
    Run,
    RunComparison,
    RunHead,
    Selection,
    SeriesKey,
    SuiteSummary,
    TorchstoneError,
    UsageError,
)
from torchstone.show.charts import Strip, strip_of
from torchstone.show.page import Link
from torchstone.show.rows import Figures, figures
from torchstone.store import Store
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
from torchstone.web.query import NotFound, outside

if TYPE_CHECKING:
    from torchstone.stats.series import Lines

T = TypeVar("T")
EVERYTHING = Selection()
MOST_POINTS = 5000
"""Of a suite over time; of more, the newest."""
DAY_S = 86_400.0
LEAST_CHANGE = 0.03
"""Of a level, as `torchstone regressions` tells of it."""
MOST_IMPORTED_BYTES = 4_000_000
"""Of imported values that a page looks at for changes: about 300,000 of them, a few seconds."""
LONGEST_NUMBER = 15
RECENT_S = 28 * DAY_S
"""Runs begin and go on in these; an older one changes only when resumed or evaluated again."""
KEPT = {
    "answer": 32,
    "packed": 32,
    "choices": 1,
    "comparison": 16,
    "side": 4,
    "about": 200,
    "profile": 4,
    "of profile": 8,
    "result": 8,
    "samples": 8,
    "row": 4096,
    "text": 4,
    "past": 8,
    "failures": 8,
    "changes": 2,
    "heads": 64,
    "by key": 4,
}
"""How many things of each kind are kept from one request to the next."""


class PageCache:
    """What requests share, in all threads: things made lately, of each kind those used last.

    Nothing is ever removed because it is out of date: whatever a thing could be another by is in
    its key, above all the store's revision and the heads of its runs (see `DataAccess`).
    """

    def __init__(self) -> None:
        self._known: dict[str, OrderedDict[object, object]] = {one: OrderedDict() for one in KEPT}
        self._lock = Lock()

    def get(self, kind: str, key: object, make: Callable[[], T]) -> T:
        """The thing of that key. Two threads may make it at once; either will do."""
        known = self.find(kind, key)
        if known is None:
            known = make()
            self.put(kind, key, known)
        return cast(T, known)

    def find(self, kind: str, key: object) -> Any:
        """The thing of that key; None if it is not kept."""
        with self._lock:
            of_kind = self._known[kind]
            if key in of_kind:
                of_kind.move_to_end(key)
            return of_kind.get(key)

    def put(self, kind: str, key: object, made: object) -> None:
        """Keep it; the longest unused of its kind goes."""
        with self._lock:
            of_kind = self._known[kind]
            of_kind[key] = made
            while len(of_kind) > KEPT[kind]:
                of_kind.popitem(last=False)


class Identity:
    """Stands for a large record in a key: equal to that very one alone, and quick to hash."""

    def __init__(self, of: object) -> None:
        self._of = of  # held, so that no other can be at its address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self._of is other._of

    def __hash__(self) -> int:
        return id(self._of)


class DataAccess:
    """One store as pages read it, for one request."""

    def __init__(
        self,
        store: Store,
        cache: PageCache | None = None,
        running: frozenset[str] | None = None,
        repository: str = "",
    ) -> None:
        self.store = store
        self._cache = cache or PageCache()
        self._running = running
        self._repository = repository.rstrip("/")

    @property
    def name(self) -> str:
        """The database's name, without its folder: pages may be seen by others."""
        return self.store.location.name

    @property
    def exported(self) -> bool:
        """Whether pages are written to files: each thing once, and nothing of this moment."""
        return self._running is not None

    @cached_property
    def _revision(self) -> int:
        """Another number whenever stored figures, samples or thresholds are no longer the same."""
        return self.store.revision()

    def _kept(self, kind: str, key: object, make: Callable[[], T]) -> T:
        return self._cache.get(kind, (self._revision, key), make)

    def running(self) -> frozenset[str]:
        """The runs that are being measured now, or were when that was asked for many pages."""
        if self._running is not None:
            return self._running
        return self.store.running_ids()

    def monitored(self) -> int:
        """Trainings and services that are monitored on this machine now; a site has none."""
        return 0 if self.exported else monitors_writing()

    def heads(
        self, selection: Selection = EVERYTHING, limit: int = 200, before: str = ""
    ) -> list[RunHead]:
        """The newest runs first."""

        def read() -> list[RunHead]:
            return self._with_states(self.store.run_heads(selection, limit, before))

        # All files are made from one state, and every page asks for the same runs.
        return self._kept("heads", (selection, limit, before), read) if self.exported else read()

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
            return self._with_states([head])[0], Found("run", head.id)
        try:
            found = resolve(word, stored_heads(self.store), beside, files=False)
        except UsageError as error:
            raise NotFound(error.message, error.remedy) from None
        return self._with_states([self.store.run_head(found.run_id)])[0], found

    def row(self, head: RunHead, make: Callable[[RunHead], T]) -> T:
        """What `make` makes of a run, kept until another case of it ends or it is evaluated again.
        What else a run says never changes."""
        state = (head.id, head.state, tuple(head.outcomes.items()))
        return self._kept("row", (make.__module__, make.__qualname__, state), lambda: make(head))

    def text(self, same: object, make: Callable[[], str]) -> str:
        """What `make` makes, kept as long as what it is made from is the same; see `Table.same`."""
        return make() if same is None else self._kept("text", same, make)

    def choices(self) -> Choices:
        """Every value that occurs; they are those of runs and kinds of cases that never change."""
        return self._kept("choices", self.store.newest(), self.store.choices)

    def points(self, selection: Selection, every_s: float = 0.0) -> list[GroupPoint]:
        """Suites over time, at most `MOST_POINTS`.

        A run that is being measured has none yet: what it has not come to would count as failing.
        """
        running = self.running()

        def read(part: Selection) -> list[GroupPoint]:
            return self.store.group_points(part, MOST_POINTS, every_s, running)

        return self._over_time(("suites", running), selection, every_s, read)

    def case_points(
        self, key: CaseKey, selection: Selection, every_s: float = 0.0
    ) -> list[CasePoint]:
        """One case over time, at most `MOST_POINTS`."""

        def read(part: Selection) -> list[CasePoint]:
            return self.store.case_points(key, part, MOST_POINTS, every_s)

        return self._over_time(key, selection, every_s, read)

    def _over_time(
        self,
        of: object,
        selection: Selection,
        every_s: float,
        read: Callable[[Selection], list[T]],
    ) -> list[T]:
        """All points of a selection, the oldest first; `read` gives those of a part of its time.
        Only the newest weeks are read at every look: what is older is kept."""
        # Between two stretches, of each of which one run is shown; the same for all of a day.
        edge = stretch_start(time.time() - RECENT_S, every_s or DAY_S)
        since, until = selection.since_s, selection.until_s
        all_old, all_new = until is not None and until < edge, since is not None and since >= edge
        if self.exported or all_new or all_old:
            return read(selection)
        before = math.nextafter(edge, -math.inf)
        old = replace(selection, until_s=before)
        state = self.store.state_until(before)
        known = self._cache.get("past", (of, state, old, every_s), lambda: read(old))
        return [*known, *read(replace(selection, since_s=edge))][-MOST_POINTS:]

    def groups(self, head: RunHead, selection: Selection = EVERYTHING) -> list[SuiteSummary]:
        """The figures of the suites of one run."""
        side = self._known_side(head)
        if side is not None and selection == EVERYTHING:
            return list(side.groups)
        return self.store.run_groups(head.id, selection)

    def cases(self, head: RunHead, selection: Selection = EVERYTHING) -> tuple[CaseMetrics, ...]:
        """Every planned case of a run."""
        side = self._known_side(head)
        if side is not None:
            fits = matcher(selection)
            return tuple(one for one in side.cases if fits(one.key))
        planned = partial(self.store.planned_keys, head.id)
        return self.store.planned_cases(head.id, selection, planned)

    def failures(self, head: RunHead, selection: Selection) -> list[FailureSpan]:
        """What fails in a run, and since when, which the runs before it say; kept while they do."""
        before = self.store.state_until(math.inf if head.created_s is None else head.created_s)
        key = (head.id, head.done, selection, before, self.running())
        make = partial(self.store.failures, head.id, selection)
        return self._cache.get("failures", key, make)

    def changes(self, look: bool = True) -> tuple[ChangeReport, bool] | None:
        """All changes of level, and whether imported series were looked at too; None where there
        is no series, or (without `look`) where nobody has asked for them yet."""
        key = (self._revision, self.store.series_state())
        known: tuple[ChangeReport, bool] | None = self._cache.find("changes", key)
        if known is None and look:
            from torchstone.lab.regressions import SeriesRequest, regressions_of

            whole = self.store.imported_bytes() <= MOST_IMPORTED_BYTES
            request = SeriesRequest(tool="" if whole else OURS)
            try:
                known = (regressions_of(self.store, request, LEAST_CHANGE), whole)
            except UsageError:
                return None
            self._cache.put("changes", key, known)
        return known

    def series(self, ident: str) -> Lines:
        """One imported series, by its number after an `i`."""
        from torchstone.track.series import imported_lines

        number = ident[1:]
        known = ident.startswith("i") and number.isascii() and number.isdigit()
        if not known or len(number) > LONGEST_NUMBER:
            raise NotFound("There is no such series.", "See the list of imported series.")
        found = imported_lines(self.store, wanted=[int(number)])
        if not found.lines:
            raise NotFound("There is no such series.", "See the list of imported series.")
        return found

    def series_like(self, key: SeriesKey) -> Lines:
        """The series of that key, ours or imported, and those beside it."""
        from torchstone.track.series import imported_lines, own_lines

        if key.tool == OURS:
            wanted = Selection(suite=key.suite, model=key.name)
            return own_lines(self.store, wanted, (key.metric,))
        return imported_lines(self.store, key.title, key.tool)

    def result(self, wanted: str) -> Result:
        """One result with its samples. By its whole id it is kept, until something of what was
        stored before is changed."""
        key = (self._revision, wanted)
        known: Result | None = self._cache.find("result", key)
        if known is not None:
            return known
        try:
            found = self.store.load(wanted)
        except UsageError as error:
            raise NotFound(error.message, error.remedy) from None
        if found.id == wanted:
            self._cache.put("result", key, found)
        return found

    def figures(self, result: Result) -> tuple[Figures | None, ...]:
        """What the samples of each arm come to."""
        return self._samples(result)[0]

    def strips(self, result: Result) -> tuple[Strip, ...]:
        """The same samples as a chart shows them, by arm, process and turn."""
        return self._samples(result)[1]

    def _samples(self, result: Result) -> tuple[tuple[Figures | None, ...], tuple[Strip, ...]]:
        def make() -> tuple[tuple[Figures | None, ...], tuple[Strip, ...]]:
            found = tuple(figures(arm, result.method.alpha) for arm in result.arms)
            arms = enumerate(zip(result.arms, found, strict=True))
            return found, tuple(strip_of(arm, made, i) for i, (arm, made) in arms if arm.turns)

        return self._kept("samples", result.id, make)

    def profile(self, wanted: str) -> Profile:
        """A stored profile; they never change."""
        try:
            name = self.store.profile_id(wanted)
            return self._kept("profile", name, lambda: self.store.load_profile(name))
        except TorchstoneError as error:
            raise NotFound(error.message, error.remedy) from None

    def profiled(self, ident: str) -> str:
        """The id of the result that a profile is of; empty for one by itself."""
        return self.store.profile_result(ident)

    def made_of(self, profile: Profile, make: Callable[[Profile], T]) -> T:
        """What `make` makes of a stored profile: trees and tables take longer than a page may."""
        key = (make.__module__, make.__qualname__, profile.id)
        return self._kept("of profile", key, lambda: make(profile))

    def comparison(
        self,
        base: RunHead,
        new: RunHead,
        across: frozenset[str] = frozenset(),
        variants: tuple[str, str] | None = None,
    ) -> RunComparison:
        """Two whole runs; pages show a part of them, which changes no verdict."""

        def make() -> RunComparison:
            terms = Terms(variants=variants, across=across)
            before, now = (replace(self._side(head), head=head) for head in (base, new))
            return compare(before, now, terms, stored_floors(self.store))

        heads = tuple((head.id, head.done, head.state) for head in (base, new))
        return self._kept("comparison", (heads, across, variants), make)

    def change(self, found: RunComparison, key: CaseKey) -> CaseChange | None:
        """How one case of a comparison moved."""
        known = self._kept("by key", Identity(found), lambda: {c.key: c for c in found.cases})
        return known.get(key)

    def _side(self, head: RunHead) -> Side:
        """Its figures are the same until another case ends, or some are derived again."""
        return self._kept("side", (head.id, head.done), lambda: stored_side(self.store, head.id))

    def _known_side(self, head: RunHead) -> Side | None:
        found: Side | None = self._cache.find("side", (self._revision, (head.id, head.done)))
        return found

    def about(self, head: RunHead) -> Run:
        """A run's record without its plan; it never changes."""
        return self._kept("about", head.id, lambda: self.store.load_run(head.id, plan=False))

    def links(self, head: RunHead) -> Mapping[str, str]:
        """Addresses of a run's repository, pull request and CI job, as far as they are known."""
        known = self.about(head).links
        return {**known, "repository": self._repository} if self._repository else known

    def commit_link(self, head: RunHead | None, since: RunHead | None = None) -> Link | None:
        """Where a run's commit is to be read, or all since that of another run."""
        repository = self.links(head).get("repository", "") if head and head.commit else ""
        if head is None or not repository:
            return None
        if since is not None and since.commit and since.commit != head.commit:
            return outside(f"{repository}/compare/{quote(since.commit)}...{quote(head.commit)}")
        return outside(f"{repository}/commit/{quote(head.commit)}")

    def _with_states(self, heads: Sequence[RunHead]) -> list[RunHead]:
        whole = all(head.done >= head.planned for head in heads)
        running = frozenset[str]() if whole else self.running()
        return [replace(head, state=_state(head, running)) for head in heads]


def _state(head: RunHead, running: frozenset[str]) -> str:
    if head.done >= head.planned:
        return "complete"
    return "running" if head.id in running else "interrupted"
