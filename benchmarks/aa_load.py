"""The workload's size, pinned once; and a neighbour that keeps one core busy."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aa_journal import Row

HERE = Path(__file__).resolve().parent
UNIT_STEP = 100
"""Units come in hundreds, so that every whole per cent of them is a whole number."""
LONGEST = 1.75
"""A hundred units may be longer than the step asked for, but not by more than this."""
SPIN = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@dataclass(frozen=True)
class Size:
    """How much work a step of the base arm is; the same for the whole file."""

    step: str
    threads: int
    work: str
    units: int
    size: int
    unit_s: float
    start_s: float

    @property
    def environment(self) -> dict[str, str]:
        """What `aa_targets` reads."""
        return {
            "AA_WORK": self.work,
            "AA_UNITS": str(self.units),
            "AA_SIZE": str(self.size),
            "AA_THREADS": str(self.threads),
        }

    @property
    def target(self) -> str:
        """The target file, for `target:make_5`."""
        return str(HERE / "aa_targets.py")


def calibrate(step: str, threads: int, work: str) -> Row:
    """Units for a step of about that length; the time of a start is taken on the way."""
    wanted = seconds(step)
    size = matrix_size(wanted, threads)
    env = {
        **os.environ,
        "AA_WORK": work,
        "AA_SIZE": str(size),
        "AA_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(HERE / "aa_targets.py")],
        env=env,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    unit_s = float(json.loads(done.stdout))
    units = max(1, round(wanted / unit_s / UNIT_STEP)) * UNIT_STEP
    return {
        "step": step,
        "threads": threads,
        "work": work,
        "units": units,
        "size": size,
        "unit_s": unit_s,
        "start_s": time.monotonic() - started,
    }


def fits(size: Size) -> bool:
    """Whether the step is about as long as asked for; a hundred large units may be too long."""
    return size.units * size.unit_s <= LONGEST * seconds(size.step)


def matrix_size(step_s: float, threads: int) -> int:
    """Small enough for a hundred units in a step; large enough for two threads to share."""
    if threads > 1:
        return 96
    return 4 if step_s < 1e-3 else 16


def seconds(text: str) -> float:
    """`0.2ms`, `5ms` or `1s` as seconds."""
    for unit, scale in (("ms", 1e-3), ("us", 1e-6), ("s", 1.0)):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * scale
    raise SystemExit(f"{text!r} is not a time; write 0.2ms, 5ms or 1s.")


class OthersCpu:
    """Cores that processes other than our own and our children used since this was made."""

    def __init__(self) -> None:
        self._at, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def cores(self) -> float | None:
        """None where the system does not tell."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = (busy - self._busy) - (_own_seconds() - self._own)
        return max(0.0, others / (time.monotonic() - self._at))


def _busy_seconds() -> float | None:
    """Time in user, nice, system and interrupts of all processors; not idle, not stolen."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _wait, hard, soft = map(int, words[1:8])
    return (user + nice + system + hard + soft) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Children count once they have ended and been waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@contextmanager
def busy_core(wanted: bool) -> Iterator[None]:
    """One process that does nothing but compute, not pinned to a core; gone afterwards.

    It ends by itself when its parent does, so that a killed benchmark leaves nothing behind.
    """
    if not wanted:
        yield
        return
    spinner = subprocess.Popen([sys.executable, "-S", "-c", SPIN, str(os.getpid())])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()
