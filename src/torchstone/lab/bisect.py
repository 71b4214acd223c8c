"""`torchstone bisect`: which commit made a target slower (or faster), and how sure that is.

What was measured is kept in `torchstone/` of the repository's git folder, after every probe: the
same command goes on where the last one ended, however that was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchstone.conductor import Events, Settings, open_templates
from torchstone.conductor.case import Silent
from torchstone.lab.output_files import write_file
from torchstone.lab.recording import Recorder, this_machine
from torchstone.lab.revisions import (
    BUDGET_S,
    MARGIN,
    WITHIN,
    Commit,
    HowToRun,
    Pairing,
    Prefixed,
    Repository,
    Side,
    Trees,
    check_how,
    find_commit,
    find_repository,
    make_side,
    missing,
    open_trees,
    rooted,
    seen_in,
)
from torchstone.lab.secrets import public_words
from torchstone.records import (
    BisectReport,
    Culprit,
    NotRunError,
    ProbedCommit,
    Revision,
    UsageError,
)
from torchstone.track import check as rules

GOOD, NEXT = "good", "next"
"""Trees of equal length."""
MOST_COMMITS = 20_000
STATE_SCHEMA = 1
MOST_STATE_BYTES = 1 << 22
MOST_LIKELY = 5
"""Commits that are listed where none is certain."""


@dataclass(frozen=True)
class BisectRequest:
    """`torchstone bisect`, as asked."""

    good: str
    bad: str
    target: str
    confidence: float = 0.95
    most_probes: int | None = None
    restart: bool = False
    how: HowToRun = field(
        default_factory=lambda: HowToRun(settings=Settings(BUDGET_S, WITHIN, MARGIN))
    )
    folder: str = "."


def bisect(
    request: BisectRequest, recorder: Recorder | None = None, events: Events | None = None
) -> BisectReport:
    """Probe commits against GOOD until one is certain enough."""
    began, events = time.monotonic(), events or Silent()
    if not 0.5 < request.confidence < 1.0:
        raise UsageError("--confidence must lie between 50 % and 100 %.", "Write 95%.")
    check_how(request.how)
    repository = find_repository(request.folder)
    good, bad = find_commit(repository, request.good), find_commit(repository, request.bad)
    search = _Search(request, repository, good, bad, history(repository, good, bad), events)
    search.recorder = recorder
    search.resume()
    with open_trees(repository) as trees, contextlib.suppress(KeyboardInterrupt):
        search.interrupted = True
        search.run(trees)
        search.interrupted = False
    return replace(search.report(), elapsed_s=round(time.monotonic() - began, 1))


def history(repository: Repository, good: Commit, bad: Commit) -> list[Commit]:
    """The commits after GOOD up to BAD, along first parents; a merge stands for its branch."""
    if repository.ask("merge-base", "--is-ancestor", good.sha, bad.sha) is None:
        fork = repository.ask("merge-base", good.sha, bad.sha)
        shallow = " This clone is shallow: git fetch --unshallow." if repository.shallow else ""
        raise UsageError(
            f"{good.name} is not an ancestor of {bad.name}.",
            f"Start from their merge base: {fork[:10]}."
            if fork
            else f"Name another GOOD.{shallow}",
        )
    text = repository.need(
        *("log", "--first-parent", "--reverse", "--format=%H %s"),
        f"--max-count={MOST_COMMITS + 1}",
        f"{good.sha}..{bad.sha}",
    )
    found = [Commit(line[:40], "", line[41:]) for line in text.splitlines()]
    if not found:
        raise UsageError("GOOD and BAD are the same commit.", "Name two that differ in time.")
    if len(found) > MOST_COMMITS:
        raise UsageError(f"There are more than {MOST_COMMITS:,} commits between them.")
    return found


@dataclass
class _Search:
    """One search on its way. Commits count from GOOD, which is 0."""

    request: BisectRequest
    repository: Repository
    good: Commit
    bad: Commit
    commits: list[Commit]
    events: Events
    recorder: Recorder | None = None
    probes: list[rules.Probe] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    resumed: int = 0
    interrupted: bool = False
    at: str = ""

    @property
    def target(self) -> str:
        """As seen from the top."""
        return rooted(self.repository, self.request.target)

    @property
    def most_probes(self) -> int:
        """As asked, else twice what the size of the history asks for and a dozen."""
        return self.request.most_probes or 2 * len(self.commits).bit_length() + 12

    def run(self, trees: Trees) -> None:
        """Measure until the answer is certain enough, or no more may or can be measured."""
        side: Side | None = None
        while len(self.probes) < self.most_probes:
            found = rules.posterior(len(self.commits), self.probes)
            if self.probes and rules.answer(found, self.request.confidence, self.skipped):
                return
            commit = rules.next_probe(len(self.commits), self.probes, self.skipped)
            if commit is None:
                return
            if side is None:
                side = self._good_side(trees)
            self._probe(trees, side, commit)
            self._write()

    def _good_side(self, trees: Trees) -> Side:
        how = self.request.how
        try:
            side = make_side(trees, self.repository, GOOD, self.good, how, self.events)
        except NotRunError as error:
            raise NotRunError(f"GOOD cannot be measured. {error.message}", error.remedy) from None
        why = missing(side, self.target)
        if why:
            raise NotRunError(
                f"GOOD does not have the target: {why}",
                "Put the target in a file outside the repository: it then serves every commit.",
            )
        return side

    def _probe(self, trees: Trees, good: Side, number: int) -> None:
        """Measure one commit against GOOD, or note why it cannot be."""
        commit = self.commits[number - 1]
        again = sum(probe.commit == number for probe in self.probes)
        self.at = f"probe {len(self.probes) + 1}, {commit.short}" + (" again" if again else "")
        events = Prefixed(self.events, lambda: f"{self.at}: ")
        how = self.request.how
        settings = replace(how.settings, seed=how.settings.seed + again)
        try:
            side = make_side(trees, self.repository, NEXT, commit, how, events)
            why = missing(side, self.target)
            if why:
                raise UsageError(why)
            # A template has imported the tree's modules: the next commit needs its own.
            with open_templates() as templates:
                pairing = Pairing(how, self.recorder, events, templates, self._command(), "bisect")
                result = pairing.measure(good, side, self.target, settings)
        except (UsageError, NotRunError) as error:
            self.skipped[number] = error.message
            return
        if result.method.stopped_by == "interrupt":
            raise KeyboardInterrupt
        seen = seen_in(result, self.target, (good, side), ("?",))
        if not seen.base.comparable:
            raise NotRunError(f"GOOD cannot be measured: it ended as {seen.base.words}. {seen.why}")
        if seen.change is None or seen.change.error is None:
            reason = seen.why or (seen.said.reason if seen.said else "no ratio")
            self.skipped[number] = f"{seen.new.words}: {reason}" if seen.why else reason
            return
        size, freedom = seen.change.error
        self.probes.append(rules.Probe(number, -seen.change.log, size, freedom))
        self.ids[len(self.probes) - 1] = result.id

    def _command(self) -> tuple[str, ...]:
        words = ["torchstone", "bisect", self.good.sha, self.bad.sha, self.request.target]
        return public_words((*words, *self.request.how.words()))

    # What is kept between two commands.

    @property
    def path(self) -> Path:
        """The file of this very search: revisions, target and how it is run."""
        common = Path(self.repository.need("rev-parse", "--git-common-dir"))
        how = replace(self.request.how, settings=Settings())
        said = json.dumps([self.good.sha, self.bad.sha, self.target, repr(how)])
        name = hashlib.sha256(said.encode()).hexdigest()[:16]
        return self.repository.top / common / "torchstone" / f"bisect-{name}.json"

    def resume(self) -> None:
        """Take up what an earlier command measured, on this machine."""
        if self.request.restart:
            self.path.unlink(missing_ok=True)
        try:
            with open(self.path, "rb") as file:
                kept = json.loads(file.read(MOST_STATE_BYTES))
            if kept["schema"] != STATE_SCHEMA:
                raise ValueError("another version")
            places = {commit.sha: i for i, commit in enumerate(self.commits, 1)}
            probes = [_probe_from(one, places) for one in kept["probes"]]
            skipped = {places[sha]: str(why)[:500] for sha, why in kept["skipped"].items()}
            machine = kept["machine"]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"What an earlier search left cannot be read ({self.path}).",
                "Add --restart to begin again.",
            ) from None
        if machine != this_machine():
            raise UsageError(
                "This search was begun on another machine, whose times do not mix with this one's.",
                "Go on there, or add --restart.",
            )
        self.probes, self.skipped, self.resumed = probes, skipped, len(probes)

    def _write(self) -> None:
        kept = {
            "schema": STATE_SCHEMA,
            "machine": this_machine(),
            "probes": [
                {
                    "commit": self.commits[probe.commit - 1].sha,
                    "log_ratio": probe.log_ratio,
                    "error": probe.error,
                    "freedom": probe.freedom,
                }
                for probe in self.probes
            ],
            "skipped": {self.commits[i - 1].sha: why for i, why in self.skipped.items()},
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(str(self.path), json.dumps(kept))

    def report(self) -> BisectReport:
        """The answer, as far as it is known."""
        found = rules.posterior(len(self.commits), self.probes)
        told = rules.answer(found, self.request.confidence, self.skipped) if self.probes else ""
        if not self.probes and self.skipped and not self.interrupted:
            last = self.skipped.get(len(self.commits), next(iter(self.skipped.values())))
            raise NotRunError(f"No commit could be measured: {last}", "Check --build and TARGET.")
        return BisectReport(
            good=_revision(self.good),
            bad=_revision(self.bad),
            target=self.request.target,
            confidence=self.request.confidence,
            answer=told,
            culprits=self._culprits(found, told),
            commits=len(self.commits),
            none=found.none,
            two=found.two,
            probes=tuple(self._probed()),
            skipped=tuple(
                ProbedCommit(_revision(self.commits[i - 1]), reason=why)
                for i, why in sorted(self.skipped.items())
            ),
            resumed=self.resumed,
            interrupted=self.interrupted,
            command=self._command(),
        )

    def _culprits(self, found: rules.Posterior, told: str) -> tuple[Culprit, ...]:
        """Those that are named, or the likeliest ones where none is certain."""
        if told == "none" or not self.probes:
            return ()
        number = {"one": 1, "two": 2}.get(told, MOST_LIKELY)
        places: Sequence[int] = found.best(number)
        if told == "range":
            first, last = rules.neighbours(places[0], len(self.commits), self.skipped)
            places = range(first, last + 1)
        return tuple(
            Culprit(
                _revision(self.commits[j - 1]),
                found.culprit[j],
                found.effect.get(j, 0.0),
                self._is_merge(j),
            )
            for j in places
        )

    def _is_merge(self, number: int) -> bool:
        parents = self.repository.ask("log", "-1", "--format=%P", self.commits[number - 1].sha)
        return len((parents or "").split()) > 1

    def _probed(self) -> list[ProbedCommit]:
        variances = rules.variances_of(self.probes)
        return [
            ProbedCommit(
                _revision(self.commits[probe.commit - 1]),
                probe.commit,
                probe.log_ratio,
                variance**0.5,
                self.ids.get(place, ""),
            )
            for place, (probe, variance) in enumerate(zip(self.probes, variances, strict=True))
        ]


def _probe_from(kept: Mapping[str, Any], places: Mapping[str, int]) -> rules.Probe:
    numbers = [kept["log_ratio"], kept["error"], kept["freedom"]]
    if not all(isinstance(one, (int, float)) and abs(one) < 1e9 for one in numbers):
        raise ValueError("not a probe")
    return rules.Probe(places[kept["commit"]], *map(float, numbers))


def _revision(commit: Commit) -> Revision:
    return Revision(commit.sha, commit.name, commit.subject)
