"""Time in which the step does nothing: it loads, reads, sleeps, or waits for somebody."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.explain.findings.base import percent, ratio
from torchstone.records import Ledger, LedgerLine, Prediction
from torchstone.records.ledger import OFF_CPU, PYTHON

LEAST_SHARE = 0.10
SURE, MOST = 0.3, 1.1


@dataclass(frozen=True)
class Waiting:
    """One line of the ledger that no setting of ours makes shorter."""

    name: str
    line: str
    level: int
    title: str
    evidence: str
    advice: str
    why_not: str

    def look(self, ledger: Ledger) -> Prediction | None:
        """The line, where it is long enough to matter."""
        found = ledger.line(self.line)
        if found is None or found.share < LEAST_SHARE:
            return None
        return Prediction(
            name=self.name,
            level=self.level,
            title=self.title,
            evidence=f"{percent(found.share)} of the step {self.evidence}{_where(found)}",
            advice=self.advice,
            at_stake_s=found.seconds,
            time_ratio=ratio(ledger, MOST * found.seconds, SURE * found.seconds),
            why_not=self.why_not,
        )


def _where(line: LedgerLine) -> str:
    if not line.parts or not line.parts[0].note:
        return ""
    return f", most of it in {line.parts[0].name} called from {line.parts[0].note}"


_AUTHOR = "only a change of the code can do it"
LOADING = Waiting(
    "data-loading",
    "loading",
    PYTHON,
    "Waiting for data",
    "waits for the data loader",
    "load ahead: more workers (num_workers), a larger prefetch_factor, or cheaper samples",
    "how data are loaded is the target's own affair",
)
FILES = Waiting(
    "files",
    "files",
    PYTHON,
    "Files in every step",
    "reads or writes files",
    "read ahead, or keep what is read in memory",
    _AUTHOR,
)
NETWORK = Waiting(
    "network",
    "network",
    PYTHON,
    "Network or pipes in every step",
    "waits for a socket or a pipe",
    "ask ahead, in another thread or process",
    _AUTHOR,
)
LOCKS = Waiting(
    "locks",
    "locks",
    OFF_CPU,
    "Waiting for another thread",
    "waits for a lock, a queue or an event",
    "hold the lock for less, or hand the work over in larger pieces",
    _AUTHOR,
)
SLEEP = Waiting(
    "sleep", "sleep", OFF_CPU, "Sleeping", "sleeps", "wait for an event instead", _AUTHOR
)
GIL = Waiting(
    "gil",
    "gil",
    PYTHON,
    "Waiting for the interpreter's lock",
    "waits while other threads run Python",
    "move the other threads' work into processes, or use a free-threaded interpreter (3.13t)",
    "another interpreter must be there: compare with `torchstone bench --arm python=...`",
)
