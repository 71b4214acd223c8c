"""Time in which the step does nothing: it loads, reads, sleeps, or waits for another thread."""

from __future__ import annotations

from torchstone.explain.findings.base import Finding, predict
from torchstone.records import Ledger, Prediction
from torchstone.records.format import percent
from torchstone.records.ledger import OFF_CPU, PYTHON

LEAST_SHARE = 0.10
SURE, MOST = 0.3, 1.1


def _waiting(
    name: str,
    level: int,
    title: str,
    evidence: str,
    advice: str,
    why_not: str = "only a change of the code can do it",
    line: str = "",
) -> Finding:
    """One line of the ledger that no setting of ours makes shorter."""

    def look(ledger: Ledger) -> Prediction | None:
        found = ledger.line(line or name)
        if found is None:
            return None
        where = ""
        if found.parts and found.parts[0].note:
            where = f", most of it in {found.parts[0].name} called from {found.parts[0].note}"
        said = f"{percent(found.share)} of the step {evidence}{where}"
        gain = (SURE * found.seconds, MOST * found.seconds)
        return predict(ledger, said, advice, found.seconds, gain, why_not=why_not)

    return Finding(name, level, title, LEAST_SHARE, look)


data_loading = _waiting(
    "data-loading",
    PYTHON,
    "Waiting for data",
    "waits for the data loader",
    "load ahead: more workers (num_workers), a larger prefetch_factor, or cheaper samples",
    "how data are loaded is up to the target",
    line="loading",
)
files = _waiting(
    "files",
    PYTHON,
    "Files in every step",
    "reads or writes files",
    "read ahead, or keep what is read in memory",
)
network = _waiting(
    "network",
    PYTHON,
    "Network or pipes in every step",
    "waits for a socket or a pipe",
    "ask ahead, in another thread or process",
)
locks = _waiting(
    "locks",
    OFF_CPU,
    "Waiting for another thread",
    "waits for a lock, a queue or an event",
    "hold the lock for less, or hand the work over in larger pieces",
)
sleep = _waiting("sleep", OFF_CPU, "Sleeping", "sleeps", "wait for an event instead")
gil = _waiting(
    "gil",
    PYTHON,
    "Waiting for the interpreter's lock",
    "waits while other threads run Python",
    "move the other threads' work into processes, or use a free-threaded interpreter (3.13t)",
    "another interpreter must be there: compare with `torchstone bench --arm python=...`",
)
