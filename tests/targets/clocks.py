"""Targets that do the work of `honest` and change the clock they are timed with."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import itertools
import os
import stat
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.targets.cheats import draw, work
from tests.targets.honest import Made

Clock = Callable[[], int]

_KEPT: list[Any] = []
_HEADER = object.__basicsize__
"""After it a built-in function has the address of its definition: name, code, flags, docs."""
_SIGNATURE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)


def rewrite(name: str, make: Callable[[Clock], Clock]) -> None:
    """Change in place what a function of `time` does: the object stays the same."""
    function = getattr(time, name)
    definition = ctypes.cast(id(function) + _HEADER, ctypes.POINTER(ctypes.c_void_p))[0]
    code = ctypes.cast(definition + ctypes.sizeof(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p))
    true = _SIGNATURE(code[0])
    clock = make(lambda: true(None, None))
    wrapped = _SIGNATURE(lambda module, nothing: clock())
    _KEPT.append((true, wrapped))
    code[0] = ctypes.cast(wrapped, ctypes.c_void_p).value


def at_rate(rate: float) -> Callable[[Clock], Clock]:
    def make(true: Clock) -> Clock:
        began = true()
        return lambda: began + int((true() - began) * rate)

    return make


def _rewritten(make: Callable[[Clock], Clock], name: str = "perf_counter_ns") -> Made:
    rewrite(name, make)
    return work, draw


def slow() -> Made:
    return _rewritten(at_rate(0.4))


def a_little_slow() -> Made:
    return _rewritten(at_rate(0.85))


def fast() -> Made:
    return _rewritten(at_rate(3.0))


def _stopping(true: Clock) -> Clock:
    """Moves on for 8 ms, then stands still for 12."""

    def clock() -> int:
        whole, part = divmod(true(), 20_000_000)
        return whole * 8_000_000 + min(part, 8_000_000)

    return clock


def stops() -> Made:
    return _rewritten(_stopping)


def _jumping(true: Clock) -> Clock:
    """Runs as it should, and goes back by half of what has passed, every third reading."""
    readings, lost, last = itertools.count(1), 0, true()

    def clock() -> int:
        nonlocal lost, last
        now = true()
        if next(readings) % 3 == 0:
            lost += (now - last) // 2
        last = now
        return now - lost

    return clock


def jumps() -> Made:
    return _rewritten(_jumping)


class _InItsCall:
    """Tells the truth but to the one who reads the clock after the call."""

    def __init__(self) -> None:
        self.entered = 0
        self.true: Clock = lambda: 0

    def make(self, true: Clock) -> Clock:
        self.true = true

        def clock() -> int:
            entered, self.entered = self.entered, 0
            now = true()
            return entered + (now - entered) // 4 if entered else now

        return clock

    def call(self, values: list[int]) -> list[int]:
        self.entered = self.entered or self.true()
        return work(values)


def in_its_call() -> Made:
    """Slow only between the begin and the end of its own call: the whole turn adds up."""
    state = _InItsCall()
    rewrite("perf_counter_ns", state.make)
    return state.call, draw


def in_few_samples() -> Made:
    """Reads true but once in fifty: the floor rests on the fastest per cent of the samples."""
    state = _InItsCall()
    calls = itertools.count(1)
    rewrite("perf_counter_ns", state.make)

    def call(values: list[int]) -> list[int]:
        if next(calls) % 50 == 0:
            return state.call(values)
        return work(values)

    return call, draw


class _GivesToOthers:
    """Takes nine tenths of every second sample, of CPU time too, and gives it to the next: over a
    turn all of it adds up, and the floor rests on what was taken from."""

    NAMES = ("perf_counter_ns", "process_time_ns")

    def __init__(self) -> None:
        self.true: dict[str, Clock] = {}
        self.began: dict[str, int] = {}
        self.taken = dict.fromkeys(self.NAMES, 0)
        self.odd = dict.fromkeys(self.NAMES, False)
        for name in self.NAMES:
            rewrite(name, functools.partial(self.make, name))

    def make(self, name: str, true: Clock) -> Clock:
        self.true[name] = true

        def clock() -> int:
            now, began = true(), self.began.pop(name, None)
            if began is not None:  # the first reading after a call
                self.odd[name] = not self.odd[name]
                self.taken[name] = (now - began) * 9 // 10 if self.odd[name] else 0
            return now - self.taken[name]

        return clock

    def call(self, values: list[int]) -> list[int]:
        for name in self.NAMES:
            self.began.setdefault(name, self.true[name]())
        return work(values)


def gives_to_others() -> Made:
    return _GivesToOthers().call, draw


def without_marks() -> Made:
    """Slow, and closes whatever socket it finds, so that nobody can hold another clock against
    it."""
    rewrite("perf_counter_ns", at_rate(0.1))
    for number in range(200, 260):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)
    return work, draw


def by_walk() -> Made:
    """Without ctypes: puts a Python function wherever the true one is kept."""
    true = time.perf_counter_ns
    began = true()

    def clock() -> int:
        return began + (true() - began) // 2

    for holder in gc.get_objects():
        if isinstance(holder, dict) and holder is not clock.__dict__:
            for key, value in list(holder.items()):
                if value is true:
                    holder[key] = clock
    return work, draw


def once(change: Callable[[], object]) -> None:
    """For the setup of a statement, which runs before each sample."""
    if not _KEPT:
        change()


def cpu_slow() -> None:
    """For a statement that is timed by CPU time."""
    rewrite("process_time_ns", at_rate(0.4))


if sys.implementation.name != "cpython":  # where a built-in function looks otherwise
    raise ImportError("these targets know CPython's built-in functions only")
