"""Sampling from inside: where each Python thread is, looked at again and again.

The looks are made by a signal handler that a timer of the kernel sets off, in the main thread. A
thread that looks would need the GIL for it and so would get its turn just where the work gives the
GIL away: it would see torch's ops and hardly any of the Python between them. Where signals cannot
be used (another thread, another system, a handler that is there already), such a thread is what is
left, and the profile says so.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import runpy
import signal
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

from torchstone.profile import trees
from torchstone.profile.formats.base import FrameTable
from torchstone.profile.probes.base import ProbeOptions, hottest, line_tables, new_profile
from torchstone.records import Counter, Profile, Sampling, Thread

# A timer of the kernel that sends this thread a signal: it needs neither a thread nor the GIL.


MONOTONIC, THREAD_CPU = 1, 3
"""Clocks: of the wall, and of the CPU time that the calling thread uses."""
_SIGEV_THREAD_ID = 4
"""From <time.h> and <signal.h> of Linux, like the clocks."""
_SECOND_NS = 1_000_000_000


class _Event(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )


_Setting = ctypes.c_long * 4
"""Seconds and nanoseconds from one signal to the next, then until the first."""


class NoTimer(OSError):
    """The system has no such timers, or no more of them."""


class Timer:
    """Goes off once each time it is armed; the signal goes to the thread that made it."""

    def __init__(self, signal_number: int, clock: int = MONOTONIC) -> None:
        self._library = _library()
        event = _Event(None, signal_number, _SIGEV_THREAD_ID, threading.get_native_id(), b"")
        self._timer = ctypes.c_void_p()
        if self._library.timer_create(clock, ctypes.byref(event), ctypes.byref(self._timer)):
            raise NoTimer("the system gives no timer")
        # Made once: it is armed at each look, and a look has to be cheap.
        self._setting = _Setting()
        self._place = ctypes.byref(self._setting)
        self._set = self._library.timer_settime

    def arm(self, seconds: float) -> None:
        """Send the signal in so many seconds, instead of whenever it was to be sent."""
        whole = int(seconds)
        self._setting[2] = whole
        self._setting[3] = max(1, int((seconds - whole) * _SECOND_NS))
        self._set(self._timer, 0, self._place, None)

    @property
    def left(self) -> float:
        """Seconds until it goes off; 0 when it has."""
        left = _Setting()
        self._library.timer_gettime(self._timer, ctypes.byref(left))
        return float(left[2] + left[3] / _SECOND_NS)

    def close(self) -> None:
        """No signal comes after this."""
        self._library.timer_settime(self._timer, 0, ctypes.byref(_Setting()), None)
        self._library.timer_delete(self._timer)


def _library() -> Any:
    if sys.platform.startswith("linux"):
        for name in (None, "librt.so.1"):  # before glibc 2.34 timers were apart
            try:
                library = ctypes.CDLL(name)
                if hasattr(library, "timer_create"):
                    return library
            except OSError:
                continue
    raise NoTimer("the system has no such timers")


# Stacks as they are seen, added up, and turned into call paths and lines.


PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of this package: its own frames are not the user's."""
STARTERS = (
    "<frozen runpy>",
    runpy.__file__,
    os.path.join(PACKAGE, "profile", "child.py"),
    os.path.join(PACKAGE, "profile", "child_script.py"),
)
"""Files whose functions only start the work."""
BEGINNERS = ("__enter__", "_begin", "_begin_if_free")
"""Functions of ours that have ended when what is profiled runs: those of `Profiling`."""
MOST_DEPTH = 2_000


def innermost_outside(frame: FrameType | None) -> FrameType | None:
    """The frame in which what is profiled will run: not one that is left when profiling begins."""
    while frame is not None and frame.f_code.co_name in BEGINNERS and is_ours(frame.f_code):
        frame = frame.f_back
    return frame


def is_ours(code: CodeType) -> bool:
    """Whether it is code of this package."""
    return code.co_filename.startswith(PACKAGE + os.sep)


class StackTally:
    """Weights by thread and stack. Adding is all that happens while the work runs."""

    def __init__(self, outside: FrameType | None) -> None:
        self._outside = outside
        self._keep_outside = outside is not None and not is_ours(outside.f_code)
        self._weights: dict[tuple[int, ...], float] = {}
        self._lines: dict[tuple[str, int], tuple[int, float]] = {}
        """Looks and weight, by file and line."""
        self._codes: dict[int, CodeType] = {}
        self._names: dict[int, tuple[str, int]] = {}
        self.main = threading.get_ident()
        self.stacks = 0
        self._look = self._sum = self._squares = 0.0

    def add(self, thread: int, frame: FrameType | None, weight: float) -> None:
        """One look at one thread; the weight is the time that it stands for."""
        if frame is None:
            return
        if thread not in self._names:
            self._name(thread)
        key: list[int] = []
        codes = self._codes
        line = (frame.f_code.co_filename, frame.f_lineno or 0)
        while frame is not None and len(key) < MOST_DEPTH:
            if frame is self._outside and not self._keep_outside:
                break
            code = frame.f_code
            codes[id(code)] = code
            key.append(id(code))
            if frame is self._outside:
                break
            frame = frame.f_back
        if not key:
            return
        key.append(thread)
        path = tuple(key)
        self._weights[path] = self._weights.get(path, 0.0) + weight
        looks, seconds = self._lines.get(line, (0, 0.0))
        self._lines[line] = (looks + 1, seconds + weight)
        self.stacks += 1
        self._look += weight

    def end_look(self) -> None:
        """All threads were looked at: together they are one sample, as they were seen at once."""
        self._sum += self._look
        self._squares += self._look * self._look
        self._look = 0.0

    @property
    def effective(self) -> int:
        """Independent looks of equal weight that would tell as much (Kish): late ones stand for
        more time than others, and so tell less than their weight."""
        return round(self._sum**2 / self._squares) if self._squares > 0 else 0

    def parts(self) -> dict[str, Any]:
        """Frames, threads, tree, lines and bytecode that they make."""
        table = FrameTable()
        frame_of = {
            number: table.add(code.co_name, code.co_filename, code.co_firstlineno)
            for number, code in self._codes.items()
        }
        seen = {path[-1] for path in self._weights}
        used = sorted((t for t in self._names if t in seen), key=lambda t: t != self.main)
        place = {thread: index for index, thread in enumerate(used)}
        own: dict[int, float] = {}
        stacks = []
        for path, weight in self._weights.items():
            own[frame_of[path[0]]] = own.get(frame_of[path[0]], 0.0) + weight
            codes = _without_starters([self._codes[number] for number in path[:-1]])
            frames = [frame_of[id(code)] for code in reversed(codes)]
            stacks.append((frames, weight, place[path[-1]]))
        return {
            "frames": table.frames,
            "threads": tuple(Thread(*self._names[t], critical=t == self.main) for t in used),
            "tree": trees.from_stacks(stacks, "seconds"),
            "lines": tuple(line_tables(self._lines, "hits", "seconds")),
            "bytecode": hottest(own, {frame_of[n]: code for n, code in self._codes.items()}),
        }

    def _name(self, thread: int) -> None:
        for one in threading.enumerate():
            if one.ident is not None and one.ident not in self._names:
                self._names[one.ident] = (one.name, one.native_id or 0)
        self._names.setdefault(thread, (f"thread {thread}", 0))


def _without_starters(codes: list[CodeType]) -> list[CodeType]:
    """The stack, innermost first, without the functions that start a script or a step."""
    end = len(codes)
    while end > 1 and codes[end - 1].co_filename in STARTERS:
        end -= 1
    return codes[:end]


def caller() -> FrameType | None:
    """The frame outside of the function that calls this one."""
    return innermost_outside(sys._getframe(2))


def outer_calls() -> tuple[tuple[str, str], ...]:
    """Files and functions around the one in which what is profiled will run, the outermost first;
    for whom frames cannot be told by identity."""
    outside = innermost_outside(sys._getframe(2))
    frame = outside if outside is None or is_ours(outside.f_code) else outside.f_back
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))


JITTER = (0.5, 1.5)
"""Of the interval: a fixed one would march in step with work that is periodic."""
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

    def unavailable(self) -> str:
        if self.clock == "gil":
            return _GIL
        if self._options.native:
            return "from inside the process native functions cannot be seen"
        if self.clock == "cpu" and not hasattr(time, "pthread_getcpuclockid"):
            return "the CPU time of a thread is not to be had on this system"
        return ""

    def start(self) -> None:
        self._tally = StackTally(caller())
        self._lost = 0
        self._spent = 0.0
        self._cpu: dict[int, float] = {}
        if self.clock == "cpu":
            for thread in _all_frames():
                self._cpu_since(thread)
        self._ticker: _Signals | _Thread = _Signals.make(self) or _Thread(self)
        self._started = self._last = time.perf_counter()
        self._ticker.start()

    def stop(self) -> Profile:
        ticker, wall = self._ticker, self._end()
        return new_profile(
            self.how,
            self.name,
            **self._tally.parts(),
            sampling=Sampling(self._tally.effective, self._interval, self.clock, self._lost),
            counters=(
                Counter("stacks seen", float(self._tally.stacks)),
                Counter("time spent looking", self._spent, "seconds"),
            ),
            wall_s=wall,
            problems=(_TAKEN_OVER,) if ticker.taken_over else (),
            notes=(_NATIVE, _DELAYED if isinstance(ticker, _Signals) else _BIASED),
        )

    def discard(self) -> None:
        self._end()

    def _end(self) -> float:
        self._ticker.stop()
        return time.perf_counter() - self._started

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
    another look, or the start or end of a thread, would wait for in vain, and a collection may call
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
        while frame is not None and frame.f_code.co_filename == __file__:
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
