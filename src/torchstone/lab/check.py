"""`torchstone check`: does the change make anything slower? Both revisions are measured now.

What `torchstone check` measures: named, configured, of a suite, or what tests compare.

`regressions --confirm`: two commits are measured again, interleaved, before a change is called
real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torchstone
from torchstone.conductor import Events, open_templates
from torchstone.conductor.case import Silent
from torchstone.lab.peaks import SEED_APART
from torchstone.lab.recording import Recorder, this_machine
from torchstone.lab.regressions import metric_title, note_change
from torchstone.lab.request import check_choices
from torchstone.lab.revisions import (
    BASE,
    NEW,
    Commit,
    HowToRun,
    Pairing,
    Prefixed,
    Repository,
    Side,
    Trees,
    changed_files,
    check_how,
    find_commit,
    find_repository,
    line_of,
    make_side,
    merge_base,
    missing,
    open_trees,
    rooted,
    seen_in,
    working_copy,
)
from torchstone.lab.secrets import public_words
from torchstone.machine.interpreters import resolve_interpreter
from torchstone.records import (
    CaseKey,
    CheckedTarget,
    CheckReport,
    Level,
    LevelChange,
    NotRunError,
    Outcome,
    Result,
    Revision,
    Status,
    UsageError,
)
from torchstone.records.format import count
from torchstone.show.rows import machine
from torchstone.store import open_store
from torchstone.store.limits import now
from torchstone.track import check as rules
from torchstone.track import series
from torchstone.track.check import Seen
from torchstone.track.regressions import CLOSED, CONFIRMED, REFUTED
from torchstone.workloads.suites import find_suite
from torchstone.workloads.suites.base import TIERS
from torchstone.workloads.suites.files import is_suite_file, read_suite_file, toml_library

TABLE, KEY = "torchstone", "check"
MOST_TARGETS = 1000
MOST_LETTERS = 400
LIST_VARIABLE = "TORCHSTONE_LIST_TARGETS"
"""Names the file that the pytest plug-in writes targets to."""
PLUGIN = "torchstone.lab.pytest_targets"
COLLECT_TIMEOUT_S = 600.0
_FORM = (
    'Name a target, or list some in pyproject.toml: [tool.torchstone] check = ["bench.py:make"].'
)


def configured(repository: Repository, side: Side) -> tuple[str, ...]:
    """`[tool.torchstone] check` of the revision's `pyproject.toml`; paths count from the top."""
    path = side.tree / "pyproject.toml"
    if not path.is_file():
        return ()
    try:
        content = toml_library(str(path)).loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"pyproject.toml cannot be read: {error}.") from None
    table = content.get("tool", {}).get(TABLE, {})
    listed: Any = table.get(KEY, []) if isinstance(table, dict) else None
    if not isinstance(listed, list) or len(listed) > MOST_TARGETS or not all(map(_short, listed)):
        raise UsageError(
            "[tool.torchstone] check in pyproject.toml is not a list of targets.",
            'Write check = ["bench.py:make", "pkg.bench:fn()"].',
        )
    return tuple(dict.fromkeys(rooted(repository, one, repository.top) for one in listed))


def _short(one: object) -> bool:
    return isinstance(one, str) and len(one) <= MOST_LETTERS


def of_suite(repository: Repository, side: Side, word: str) -> tuple[str, ...]:
    """The targets of a suite file in the repository, or the quick models of an installed suite."""
    if is_suite_file(word):
        path = Path(os.path.abspath(repository.here / word))
        inside = repository.top in path.parents
        found = side.tree / path.relative_to(repository.top) if inside else path
        listed = read_suite_file(str(found)).models()
        texts = [one.target for one in listed if one.target]
        return tuple(_back(repository, side, text) for text in texts)
    suite = find_suite(word)
    prefix = suite.prefix or suite.name
    scale = "@small" if "small" in suite.scales else ""
    quick = [m.name for m in suite.models() if m.tier == TIERS[0]]
    names = quick or [model.name for model in suite.models()]
    return tuple(f"{prefix}:{name}{scale}" for name in names)


def of_pytest(repository: Repository, side: Side) -> tuple[str, ...]:
    """What the tests that use the `torchstone` fixture compare; the tests measure nothing."""
    python = resolve_interpreter(side.python) if side.python else sys.executable
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        path = os.path.join(folder, "targets.jsonl")
        env = {**os.environ, **dict(side.env), LIST_VARIABLE: path}
        command = [python, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(
                command,
                cwd=side.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=COLLECT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotRunError("pytest took too long to say which tests use the fixture.") from None
        lines = Path(path).read_text("utf-8").splitlines() if os.path.exists(path) else []
    texts = [json.loads(line) for line in lines[:MOST_TARGETS]]
    found = tuple(dict.fromkeys(_back(repository, side, text) for text in texts))
    if not found:
        why = "no test uses the torchstone fixture"
        if done.returncode not in (0, 5):  # 5: no tests ran
            why = "pytest ended with exit code " + str(done.returncode)
        raise UsageError(f"There is nothing to check: no target was named, and {why}.", _FORM)
    return found


def _back(repository: Repository, side: Side, text: str) -> str:
    """A target of a tree as seen from the top."""
    inside = f"{side.tree}{os.sep}"
    if text.startswith(inside):
        return text.removeprefix(inside)
    return rooted(repository, text, repository.top / repository.inside)


def targets_of(
    repository: Repository, side: Side, asked: Sequence[str], suite: str
) -> tuple[tuple[str, ...], bool]:
    """The targets to measure, and whether a person named each of them."""
    named = tuple(dict.fromkeys(rooted(repository, one) for one in asked))
    if suite:
        return tuple(dict.fromkeys((*named, *of_suite(repository, side, suite)))), False
    if named:
        return named, True
    return configured(repository, side) or of_pytest(repository, side), False


def list_target(text: Any) -> None:
    """Write a target down for `of_pytest`; called by the plug-in."""
    with open(os.environ[LIST_VARIABLE], "a", encoding="utf-8") as file:
        file.write(json.dumps(str(text)) + "\n")


KERNEL = "torchstone.workloads.load:run()"
"""A control that no change can touch: two milliseconds of arithmetic of our own."""
KERNEL_BUDGET_S = 3.0
NEITHER = "neither revision has it"
BUSY_RULES = ("noise", "probe")
"""Checks of a result that other programs fail."""
ON_UNKNOWN = ("", "pass", "fail")


@dataclass(frozen=True)
class CheckRequest:
    """`torchstone check`, as asked. An empty `base` is the merge base with the main branch, an
    empty `new` the working copy."""

    targets: tuple[str, ...] = ()
    suite: str = ""
    base: str = ""
    new: str = ""
    on_unknown: str = ""
    how: HowToRun = field(default_factory=HowToRun)
    folder: str = "."


def check(
    request: CheckRequest, recorder: Recorder | None = None, events: Events | None = None
) -> CheckReport:
    """Check out and build both revisions, then measure every target in both, turn by turn."""
    began, events = time.monotonic(), events or Silent()
    check_choices("answer to --on-unknown", ON_UNKNOWN, request.on_unknown)
    check_how(request.how)
    repository = find_repository(request.folder)
    base, new = revisions(repository, request)
    with open_trees(repository) as trees:
        course = _Course(request, repository, recorder, events, base, new)
        report = course.run(trees)
    return replace(report, elapsed_s=round(time.monotonic() - began, 1))


def compare_revisions(base: str, head: str, target: str, how: HowToRun) -> CheckedTarget:
    """A target at two commits side by side, for whoever asks how much and not only whether."""
    how = replace(how, settings=replace(how.settings, until="precise"))
    return check(CheckRequest((target,), base=base, new=head, how=how)).targets[0]


def revisions(repository: Repository, request: CheckRequest) -> tuple[Commit, Commit]:
    """The two commits: as named, or where the working copy left the main branch."""
    new = find_commit(repository, request.new) if request.new else working_copy(repository)
    base = find_commit(repository, request.base) if request.base else merge_base(repository, new)
    if base.sha == new.sha:
        raise UsageError(
            f"There is nothing to compare: both sides are {base.short}.",
            "Name another --base, or change something.",
        )
    return base, new


@dataclass
class _Course:
    """One check on its way."""

    request: CheckRequest
    repository: Repository
    recorder: Recorder | None
    events: Events
    base: Commit
    new: Commit
    results: dict[str, list[Result]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    at: str = ""
    """The target that is being measured, for the progress line."""

    def run(self, trees: Trees) -> CheckReport:
        """Build both, then measure; what cannot be compared says why."""
        how, changed = self.request.how, changed_files(self.repository, self.base, self.new)
        sides = [
            make_side(trees, self.repository, name, commit, how, self.events)
            for name, commit in ((BASE, self.base), (NEW, self.new))
        ]
        asked, suite = self.request.targets, self.request.suite
        self.events.phase("looking for targets")
        targets, by_name = targets_of(self.repository, sides[1], asked, suite)
        absent = {one: found for one in targets if (found := _absent(sides, one, by_name))}
        if len(absent) == len(targets):
            nowhere = absent[targets[0]].reason.startswith(NEITHER)
            raise (UsageError if nowhere else NotRunError)(
                f"Nothing can be compared: {absent[targets[0]].reason}",
                "Name a target that both revisions have, or another --base.",
            )
        with open_templates() as templates:
            pairing = Pairing(
                how, self.recorder, Prefixed(self.events, self._where), templates, (), "check"
            )
            pairing.command = public_words(("torchstone", *self.command()))
            seen, again, kernels, stopped = self._measure(pairing, sides, targets, absent, changed)
        return self._report(targets, absent, seen, again, kernels, stopped, sides)

    def command(self) -> list[str]:
        """The arguments that ask for the same two revisions again."""
        request = self.request
        new = [] if self.new.dirty else ["--new", self.new.sha]
        suite = ["--suite", request.suite] if request.suite else []
        sure = ["--on-unknown", request.on_unknown] if request.on_unknown else []
        sides = ["--base", self.base.sha, *new]
        return ["check", *request.targets, *suite, *sides, *request.how.words(), *sure]

    def _where(self) -> str:
        return f"{self.at}: " if self.at else ""

    def _measure(
        self,
        pairing: Pairing,
        sides: Sequence[Side],
        targets: Sequence[str],
        absent: dict[str, CheckedTarget],
        changed: Sequence[str],
    ) -> tuple[dict[str, Seen], dict[str, Seen], list[Seen], bool]:
        """Every target once, the controls, then once more what is not settled."""
        settings, present = pairing.how.settings, [one for one in targets if one not in absent]
        seen: dict[str, Seen] = {}
        again: dict[str, Seen] = {}
        kernels: list[Seen] = []

        def look(target: str, number: str, seed: int = 0) -> Seen | None:
            self.at = f"{number} {target}"
            began = time.monotonic()
            own = replace(settings, seed=settings.seed + seed)
            if target == KERNEL:
                short = min(KERNEL_BUDGET_S, own.budget_s)
                own = replace(own, budget_s=short, check_outputs=False)
            try:
                result = pairing.measure(sides[0], sides[1], target, own)
            except UsageError as error:
                why = sides[0].without_paths(sides[1].without_paths(error.message))
                return Seen(target, Outcome.NOT_RUN, Outcome.NOT_RUN, why=why)
            finally:
                spent = time.monotonic() - began
                self.seconds[target] = self.seconds.get(target, 0.0) + spent
            if result.method.stopped_by == "interrupt":
                return None
            self.results.setdefault(target, []).append(result)
            recorder = self.recorder
            if recorder is not None and recorder.saves and not recorder.storage_warnings:
                self.kept.add(result.id)
            return seen_in(result, target, sides, changed)

        kernel = look(KERNEL, "control")
        if kernel is None:
            return seen, again, kernels, True
        kernels.append(kernel)
        for number, target in enumerate(present, 1):
            found = look(target, f"{number} of {len(present)}")
            if found is None:
                return seen, again, kernels, True
            seen[target] = found
        for target in rules.unsettled(list(seen.values()), settings.margin):
            found = look(target, "a second time:", SEED_APART)
            if found is None:
                return seen, again, kernels, True
            again[target] = found
        return seen, again, kernels, False

    def _report(
        self,
        targets: Sequence[str],
        absent: dict[str, CheckedTarget],
        seen: dict[str, Seen],
        again: dict[str, Seen],
        kernels: Sequence[Seen],
        stopped: bool,
        sides: Sequence[Side],
    ) -> CheckReport:
        margin = self.request.how.settings.margin
        looked = list(seen.values())
        rows, shift, suite = rules.evaluate(
            looked, [again.get(one.target) for one in looked], kernels, margin
        )
        found = {one.target: self._completed(one, sides[1]) for one in rows} | absent
        order = list(Status)
        kept = sorted(
            (found[t] for t in targets if t in found), key=lambda o: order.index(o.status)
        )
        return CheckReport(
            base=_revision(self.base),
            new=_revision(self.new),
            margin=margin,
            targets=tuple(kept),
            controls=tuple(self._completed(rules.control(one), sides[1]) for one in kernels),
            control_shift=shift,
            suite_shift=suite,
            corrected=shift is not None and shift.real,
            on_unknown=self.request.on_unknown,
            created=now(),
            version=torchstone.__version__,
            machine=self._machine(),
            command=public_words(("torchstone", *self.command())),
            notes=busy_notes([one for several in self.results.values() for one in several]),
            interrupted=stopped,
        )

    def _machine(self) -> str:
        """Of the last result: a target's, which knows more than the kernel's; without commits."""
        results = [one for several in self.results.values() for one in several]
        parts = machine(results[-1]) if results else []
        return " · ".join(part for part in parts if not part.startswith("git "))

    def _completed(self, row: CheckedTarget, side: Side) -> CheckedTarget:
        """With times, ids and where it is defined."""
        results = self.results.get(row.target, [])
        file, line = line_of(side, row.target)
        row = replace(
            row,
            file=file,
            line=line,
            result_ids=tuple(r.id for r in results if r.id in self.kept),
            elapsed_s=round(self.seconds.get(row.target, 0.0), 1),
        )
        if not results or row.time_ratio is None:
            return row
        base_s = _seconds(results[0])
        budgets = [c.deciding_budget_s for c in results[0].comparisons]
        return replace(
            row,
            base_s=base_s,
            new_s=None if base_s is None else base_s * row.time_ratio,
            deciding_budget_s=budgets[0] if row.status is Status.CANNOT_TELL and budgets else None,
        )


def busy_notes(results: Sequence[Result]) -> tuple[str, ...]:
    """That other work disturbed some of the measurements, where it did: why little can be told."""
    busy = sum(
        any(c.rule in BUSY_RULES and c.level in (Level.WARN, Level.FAIL) for c in one.checks)
        for one in results
    )
    if not busy:
        return ()
    return (
        f"The machine was busy with other work during {busy} of "
        f"{count(len(results), 'measurement')}: `torchstone doctor` says more.",
    )


def _seconds(result: Result) -> float | None:
    from torchstone import stats
    from torchstone.validate.base import seconds_per_call

    return seconds_per_call(result.arms[0], stats.estimator_of(result.arms[0]))


def _revision(commit: Commit) -> Revision:
    return Revision(commit.sha, commit.name, commit.subject, commit.dirty)


def _absent(sides: Sequence[Side], target: str, by_name: bool) -> CheckedTarget | None:
    """A target that one of the revisions does not have. One that is new, and that nobody named,
    has nothing to be held against; any other that is missing is not compared."""
    in_base, in_new = (missing(side, target) for side in sides)
    if not in_base and not in_new:
        return None
    if in_base and in_new:
        return CheckedTarget(target, Status.NOT_COMPARED, f"{NEITHER}: {in_new}")
    if in_base:
        status = Status.NOT_COMPARED if by_name else Status.ADDED
        reason = f"{target} is in the new revision alone: there is nothing to compare it with."
        return CheckedTarget(target, status, reason)
    reason = f"{target} is in the base alone: the change removed it."
    return CheckedTarget(target, Status.NOT_COMPARED, reason)


CompareRevisions = Callable[[str, str, str, HowToRun], CheckedTarget]
"""`compare_revisions(base, head, target, how)`."""


def confirm(
    change: LevelChange, db: str | None, measure: CompareRevisions = compare_revisions
) -> LevelChange:
    """Measure the commits before and after a change side by side, and remember what that says."""
    good, bad = change.last_good, change.first_bad
    case = _refuse_unmeasurable(change)
    with open_store(db, create=False, read_only=True) as store:
        plan = store.load_run(bad.id).plan
    target = next((one.target for one in plan if one.key == case), "")
    if not target:
        raise UsageError(f"The run {bad.id} no longer says how {case.name} was made.")
    eager = change.moved == "eager" or change.key.metric == BASE
    how = HowToRun(
        "eager" if eager else case.variant,
        case.mode,
        case.precision,
        case.device,
        case.threads or None,
        allocator=case.allocator,
    )
    found = measure(good.commit, bad.commit, target, how)
    if found.time_ratio is None or found.interval is None:
        raise NotRunError(f"{target} could not be measured at both commits. {found.reason}".strip())
    ratio, (low, high) = found.time_ratio, found.interval
    # A speed-up falls where eager alone became faster; anything else that is worse is slower.
    slower = change.worse != (eager and change.key.metric == series.SPEEDUP)
    again = low > 1.0 if slower else high < 1.0
    where = "" if change.key.machine == this_machine() else " on another machine"
    told = (
        f"{how.variant} measured again{where}, interleaved: "
        f"{ratio:.3f}× the time ({low:.3f}–{high:.3f})"
    )
    note_change(change, CONFIRMED if again else REFUTED, told, "", db)
    return replace(change, state=CONFIRMED if again else CLOSED, reason=told)


def _refuse_unmeasurable(change: LevelChange) -> CaseKey:
    """What was measured; a `UsageError` where measuring it again could not tell."""
    good, bad = change.last_good, change.first_bad
    if change.case is None:
        raise UsageError(
            f"{change.id} is a series of {change.key.tool}; only what was measured here can be "
            "measured again.",
            f"Run {change.key.tool} on {good.commit[:10]} and {bad.commit[:10]}.",
        )
    if change.key.metric not in (series.SPEEDUP, series.BASE, series.NEW):
        raise UsageError(
            f"{change.id} is a change of {metric_title(change.key.metric)}; --confirm compares "
            "the times of a step.",
            "Run both commits again with `torchstone run`.",
        )
    if not good.commit or not bad.commit:
        raise UsageError(
            f"The runs around {change.id} name no commit, so they cannot be measured again.",
            "Run suites inside a git repository, and their commits are recorded.",
        )
    if good.commit == bad.commit:
        raise UsageError(
            f"Both runs around {change.id} are of commit {bad.commit[:10]}: the code did not "
            "change between them."
        )
    return change.case
