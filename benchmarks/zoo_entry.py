"""One animal of the zoo: a measurement, what must be said of it, and what was."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from torchstone.records import Check, Level, Measurement, Result, Verdict
from torchstone.validate import evaluate, withhold

LOUD = (Level.WARN, Level.FAIL)
WEATHER = ("noise", "probe", "steady", "replicates", "clock", "same-time")
"""Rules about the machine: where real arms run on a busy one, they speak with good reason."""
REAL, RECORD = "real", "record"


@dataclass(frozen=True)
class Entry:
    """A measurement, planted or honest.

    `wanted` are the rules that must speak, each with its level (`timer:fail`), or outcomes
    (`wrong_answer`); words joined by `or` are alternatives. None are wanted of an honest one.
    `also` are rules that may speak too, because the fault is theirs as well.
    """

    name: str
    make: Callable[[], Result]
    arm: str = ""
    wanted: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    kind: str = RECORD

    @property
    def honest(self) -> bool:
        """Nothing is wrong with it."""
        return not self.wanted


@dataclass(frozen=True)
class Seen:
    """What came of an entry."""

    name: str
    kind: str
    honest: bool
    wanted: tuple[str, ...]
    said: tuple[str, ...]
    """Warnings and fails, as `rule:level`, and the outcome where it is not `ok`."""
    missing: tuple[str, ...]
    alarms: tuple[str, ...]
    """Said without reason."""
    weather: tuple[str, ...]
    judge_s: float
    messages: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Caught for the right reason, or left alone."""
        return not self.missing and not self.alarms

    @property
    def word(self) -> str:
        """For the table."""
        if self.missing:
            return "MISSED"
        if self.alarms:
            return "FALSE ALARM"
        return "left alone" if self.honest else "caught"


def look(entry: Entry) -> Seen:
    """Evaluate it, as every result is evaluated, and hold what is said against what should be."""
    made = entry.make()
    checks, seconds = timed_judge(made)
    heard = [c for c in checks if c.level in LOUD and (not c.arms or _concerns(c, entry))]
    weather = [c for c in heard if entry.kind == REAL and c.rule in WEATHER]
    said = [_word(c) for c in heard if c not in weather or _word(c) in " ".join(entry.wanted)]
    arm = next((a for a in made.arms if a.arm.name == entry.arm), None)
    said += _outcome(arm)
    missing = [want for want in entry.wanted if not {*want.split(" or ")} & {*said}]
    if not missing and entry.wanted and not _withheld(made, checks, entry, said):
        missing = ["a withheld verdict"]
    expected = {word for want in (*entry.wanted, *entry.also) for word in want.split(" or ")}
    strict = entry.honest or entry.kind == RECORD
    alarms = [word for word in said if word not in expected] if strict else []
    return Seen(
        name=entry.name,
        kind=entry.kind,
        honest=entry.honest,
        wanted=entry.wanted,
        said=tuple(dict.fromkeys(said)),
        missing=tuple(missing),
        alarms=tuple(dict.fromkeys(alarms)),
        weather=tuple(dict.fromkeys(_word(c) for c in weather)),
        judge_s=seconds,
        messages=tuple(c.message for c in heard),
    )


def timed_judge(made: Result) -> tuple[tuple[Check, ...], float]:
    """The checks, and how much CPU time they took; what was evaluated already keeps its checks."""
    started = time.process_time()
    checks = evaluate(replace(made, checks=()))
    return made.checks or checks, time.process_time() - started


def _concerns(check: Check, entry: Entry) -> bool:
    return not entry.arm or entry.arm in check.arms


def _word(check: Check) -> str:
    return f"{check.rule}:{check.level.value}"


def _outcome(arm: Measurement | None) -> list[str]:
    return [arm.outcome.value] if arm is not None and arm.outcome.value != "ok" else []


def _withheld(made: Result, checks: tuple[Check, ...], entry: Entry, said: list[str]) -> bool:
    """Where the arm fails, no comparison with it may still name a ratio."""
    if not any(word.endswith(":fail") for word in said):
        return True
    mine = [c for c in withhold(made.comparisons, checks) if entry.arm in (c.base, c.new, "")]
    return all(c.verdict is Verdict.CANNOT_TELL and c.time_ratio is None for c in mine)
