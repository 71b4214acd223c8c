"""`torchstone validate`: judge stored results by the rules of today, without measuring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import torchstone
from torchstone.lab.figures import figures_of
from torchstone.lab.judging import judge_again
from torchstone.records import (
    CaseFigures,
    Check,
    Judgement,
    Level,
    PlannedCase,
    Result,
    RunView,
    UsageError,
)
from torchstone.store import open_store


@dataclass(frozen=True)
class Rejudged:
    """A stored result before and after."""

    before: Result
    after: Result

    @property
    def skipped(self) -> bool:
        """Its samples were removed, so that it keeps what was said of it."""
        return self.before.thinned is not None

    @property
    def changes(self) -> tuple[str, ...]:
        """What is said now and was not, and the other way round; one line each."""
        old, new = _levels(self.before.checks), _levels(self.after.checks)
        lines = [
            f"{rule}{_of(arms)}: {old.get(key, 'not said')} → {new.get(key, 'not said')}"
            for key in dict.fromkeys((*old, *new))
            for rule, arms in [key]
            if old.get(key) != new.get(key)
        ]
        pairs = zip(self.before.comparisons, self.after.comparisons, strict=True)
        lines += [
            f"{was.new} against {was.base}: {was.verdict.value} → {now.verdict.value}"
            for was, now in pairs
            if was.verdict is not now.verdict
        ]
        return tuple(lines)

    @property
    def failed(self) -> bool:
        """Whether a rule says that a number is not to be believed."""
        return any(check.level is Level.FAIL for check in self.after.checks)


def validate_stored(wanted: str, db: str | None, *, save: bool) -> list[Rejudged]:
    """Judge the result, or every result of the run, anew; what changed is kept beside it."""
    with open_store(db, create=False, read_only=True) as store:
        found = store.find(wanted)
        if isinstance(found, RunView):
            stored = [store.load(one) for one in store.result_ids(found.run.id)]
        else:
            stored = [found]
    if stored and all(result.thinned for result in stored):
        raise _thinned(wanted, stored[0])
    judged = [Rejudged(one, one if one.thinned else judge_again(one)) for one in stored]
    changed = [one for one in judged if one.after != one.before]
    if save and changed:
        with open_store(db) as store:
            for one in changed:
                store.add_judgement(one.after, _judgement(one.after), _derive)
    return judged


def _thinned(wanted: str, result: Result) -> UsageError:
    when = result.thinned.created[:10] if result.thinned else ""
    return UsageError(
        f"The samples of {wanted} were removed on {when} (`torchstone db thin`), and without them "
        "it cannot be judged anew.",
        f"What was said of it then stands: torchstone show {wanted}. To measure it again: "
        f"torchstone repro {result.id}.",
    )


def _judgement(result: Result) -> Judgement:
    return Judgement(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=torchstone.__version__,
        checks=result.checks,
        comparisons=result.comparisons,
    )


def _derive(result: Result, planned: PlannedCase, arm: str) -> CaseFigures:
    """The store puts back the command that was printed."""
    return figures_of(result, planned, arm, ())


def _levels(checks: Sequence[Check]) -> dict[tuple[str, tuple[str, ...]], str]:
    """The worst level of each rule for each arm or pair of arms."""
    order = list(Level)
    worst: dict[tuple[str, tuple[str, ...]], Level] = {}
    for check in checks:
        key = (check.rule, check.arms)
        worst[key] = max(worst.get(key, check.level), check.level, key=order.index)
    return {key: level.value for key, level in worst.items()}


def _of(arms: tuple[str, ...]) -> str:
    return f" ({', '.join(arms)})" if arms else ""
