"""Sampling from inside: where each Python thread is, looked at again and again.

The looks are made by a signal handler that a timer of the kernel sets off, in the main thread. A
thread that looks would need the GIL for it and so would get its turn just where the work gives the
GIL away: it would see torch's ops and hardly any of the Python between them. Where signals cannot
be used (another thread, another system, a handler that is there already), such a thread is what is
left, and the profile says so.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from torchstone.profile.probes import timer
from torchstone.profile.probes.base import ProbeOptions, new_profile
from torchstone.profile.probes.stacks import StackTally, caller
from torchstone.profile.probes.timer import THREAD_CPU, NoTimer, Timer
from torchstone.records import Counter, Profile, Sampling

JITTER = (0.5, 1.5)
"""Of the interval: a fixed one would march in step with work that is periodic."""
_OWN = (__file__, timer.__file__)
_LATE = 2.0
"""Intervals. A look that comes later than this stands for looks that could not be made."""

_NATIVE = (
    "Only Python functions are seen; time in native code is their caller's. py-spy or perf show "
    "native frames."
)
_DELAYED = (
    "While native code of the main thread runs, looks wait for its end, and then stand for all of "
    "that time."
)
_BIASED = (
    "Samples were taken by a thread, which needs the GIL: it sees the places where the work gives "
    "the GIL away too often, and Python between them too seldom. py-spy does not have this fault."
)
_TAKEN_OVER = (
    "The program took the signal SIGPROF for itself: sampling ended there. Use py-spy, or count."
)
_GIL = (
    "who holds the GIL cannot be told from inside the process; py-spy can tell (pip install py-spy)"
)


class SampleProbe:
    """See the module."""

    name = "sampler"
    how = "sample"

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()
        self.clock = self._options.clock
        self._interval = 1.0 / self._options.rate_hz
        self._random = random.Random()
        self._ticker: _Signals | _Thread | None = None

    def unavailable(self) -> str:
        """Wall and CPU time only."""
        if self.clock == "gil":
            return _GIL
        if self._options.native:
            return "from inside the process native functions cannot be seen"
        if self.clock == "cpu" and not hasattr(time, "pthread_getcpuclockid"):
            return "the CPU time of a thread is not to be had on this system"
        return ""

    def start(self) -> None:
        """Look from now on."""
        self._tally = StackTally(caller())
        self._lost = 0
        self._spent = 0.0
        self._cpu: dict[int, float] = {}
        if self.clock == "cpu":
            for thread in _all_frames():
                self._cpu_since(thread)
        self._ticker = _Signals.make(self) or _Thread(self)
        self._started = self._last = time.perf_counter()
        self._ticker.start()

    def stop(self) -> Profile:
        """Call paths with the time that they stand for."""
        wall, ticker = self._end()
        parts = self._tally.parts()
        notes = [_NATIVE, _DELAYED if isinstance(ticker, _Signals) else _BIASED]
        return new_profile(
            self.how,
            "sampler",
            frames=parts.frames,
            threads=parts.threads,
            tree=parts.tree,
            lines=parts.lines,
            bytecode=parts.bytecode,
            sampling=Sampling(self._tally.effective, self._interval, self.clock, self._lost),
            counters=(
                Counter("stacks seen", float(self._tally.stacks)),
                Counter("time spent looking", self._spent, "seconds"),
            ),
            wall_s=wall,
            problems=(_TAKEN_OVER,) if ticker.taken_over else (),
            notes=tuple(notes),
        )

    def discard(self) -> None:
        """Look no more."""
        self._end()

    def _end(self) -> tuple[float, _Signals | _Thread]:
        ticker, self._ticker = self._ticker, None
        assert ticker is not None
        ticker.stop()
        return time.perf_counter() - self._started, ticker

    def delay(self) -> float:
        """Until the next look."""
        return self._interval * self._random.uniform(*JITTER)

    def look(self, frame: FrameType | None, without: int = 0) -> None:
        """Look at every thread but `without`. `frame` is where the one that looks was."""
        began, began_cpu = time.perf_counter(), time.thread_time()
        elapsed = began - self._last
        here = threading.get_ident()
        try:
            frames = _all_frames()
            frames.pop(without, None)
            for thread, top in frames.items():
                weight = elapsed if self.clock == "wall" else self._cpu_since(thread)
                if weight > 0:
                    self._tally.add(thread, frame if thread == here and frame else top, weight)
            self._tally.end_look()
            if elapsed > _LATE * self._interval:
                self._lost += int(elapsed / self._interval) - 1
        except (RecursionError, MemoryError):  # at the edge of its means the work has priority
            self._lost += 1
        # What looking took is nobody's work.
        if here in self._cpu:
            self._cpu[here] += time.thread_time() - began_cpu
        self._last = time.perf_counter()
        self._spent += self._last - began

    def _cpu_since(self, thread: int) -> float:
        """CPU time that a thread has used since the last look at it."""
        try:
            now = time.clock_gettime(time.pthread_getcpuclockid(thread))
        except OSError:
            return 0.0
        before, self._cpu[thread] = self._cpu.get(thread, 0.0), now
        return now - before


def _all_frames() -> dict[int, FrameType]:
    """Where every thread is. No garbage is collected meanwhile: the interpreter holds a lock that a
    second look, or the start or end of a thread, would wait for in vain, and a collection may call
    anybody's Python. From Python 3.12 on none begins there; before, one may as soon as something is
    made. (A thread that itself switches collecting off within this microsecond would find it on.)
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        return sys._current_frames()
    try:
        gc.disable()
        return sys._current_frames()
    finally:
        gc.enable()


class _Signals:
    """Looks set off by timers, in the main thread, between two of its instructions.

    CPU time needs a timer of its own, which goes off while the thread computes: a look made by
    the wall's clock while it sleeps would put what it computed since the last look down to the
    sleep. For other threads there is only the wall's.
    """

    def __init__(self, probe: SampleProbe) -> None:
        self._probe = probe
        self._timer = Timer(signal.SIGPROF)
        self._computing = None
        if probe.clock == "cpu":
            try:
                self._computing = Timer(signal.SIGPROF, THREAD_CPU)
            except NoTimer:
                self._timer.close()
                raise
        self.taken_over = False
        self._looking = False

    @classmethod
    def make(cls, probe: SampleProbe) -> _Signals | None:
        """None where signals cannot be used, or somebody uses this one."""
        if threading.current_thread() is not threading.main_thread():
            return None
        if not hasattr(signal, "SIGPROF") or signal.getsignal(signal.SIGPROF) not in (
            signal.SIG_DFL,
            signal.SIG_IGN,
        ):
            return None
        try:
            return cls(probe)
        except NoTimer:
            return None

    def start(self) -> None:
        self._before: Any = signal.signal(signal.SIGPROF, self._handle)
        self._timer.arm(self._probe.delay())
        if self._computing is not None:
            self._computing.arm(self._probe.delay())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Where the last look was late, the next may interrupt its end: that is not the work.
        while frame is not None and frame.f_code.co_filename in _OWN:
            frame = frame.f_back
        if self._looking:  # in something that a look set off; that one winds the timers up again
            return
        self._looking = True
        due = 0.0
        try:
            if self._computing is None:
                self._probe.look(frame)
            else:
                due = self._look_at_computing(self._computing, frame)
        finally:
            self._looking = False
        if self._computing is not None:
            self._computing.arm(due or self._probe.delay())
        self._timer.arm(self._probe.delay())

    def _look_at_computing(self, computing: Timer, frame: FrameType | None) -> float:
        """CPU time left until this thread is due; 0 where it has just been looked at."""
        began = time.thread_time()
        left = computing.left
        if left > 0:  # this thread waits, or is not yet due
            self._probe.look(frame, without=threading.get_ident())
            return left + time.thread_time() - began  # looking is not what it is to go off for
        self._probe.look(frame)
        return 0.0

    def stop(self) -> None:
        self._timer.close()
        if self._computing is not None:
            self._computing.close()
        self.taken_over = signal.getsignal(signal.SIGPROF) != self._handle
        if not self.taken_over:
            signal.signal(signal.SIGPROF, self._before)


class _Thread:
    """Looks made by a thread of ours."""

    taken_over = False

    def __init__(self, probe: SampleProbe) -> None:
        self._probe = probe
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torchstone sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        me = threading.get_ident()
        while not self._enough.wait(self._probe.delay()):
            self._probe.look(None, without=me)

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()
