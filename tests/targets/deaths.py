"""Targets that die, each in its own way. None needs torch."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.targets.honest import Made, draw, squares

GIB = 1 << 30


def _dying(die: Callable[[], Any]) -> Made:
    def call(values: list[int]) -> int:
        sys.stderr.write("last words before the end\n")
        sys.stderr.flush()
        die()
        return squares(values)

    return call, draw


def segfault() -> Made:
    return _dying(lambda: ctypes.string_at(0))


def abort() -> Made:
    return _dying(os.abort)


def illegal() -> Made:
    return _dying(lambda: os.kill(os.getpid(), signal.SIGILL))


def hard_exit() -> Made:
    return _dying(lambda: os._exit(3))


def soft_exit() -> Made:
    return _dying(lambda: sys.exit(3))


def interrupts() -> Made:
    def die() -> NoReturn:
        raise KeyboardInterrupt

    return _dying(die)


def kills_itself() -> Made:
    return _dying(lambda: os.kill(os.getpid(), signal.SIGKILL))


def memory_error() -> Made:
    def die() -> bytearray:
        resource.setrlimit(resource.RLIMIT_AS, (GIB, GIB))
        return bytearray(4 * GIB)

    return _dying(die)


def cgroup_oom() -> Made:
    """Joins the memory group that the test made, and takes more than it allows."""

    def die() -> None:
        Path(os.environ["TEST_CGROUP"], "cgroup.procs").write_text(str(os.getpid()))
        kept = []
        for _ in range(64):
            kept.append(bytearray(os.urandom(1 << 20) * 8))

    return _dying(die)


def raises_in_build() -> Made:
    raise RuntimeError("broken while building")


def raises_at_once() -> Made:
    def call(values: list[int]) -> int:
        raise RuntimeError("broken at the first call")

    return call, draw


def raises_with_strange_text() -> Made:
    class Strange(Exception):
        def __str__(self) -> str:
            return "a lone surrogate \udcff and a \x1b[31mcolour" + "x" * 100_000

    def call(values: list[int]) -> int:
        raise Strange

    return call, draw


def raises_without_text() -> Made:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    def call(values: list[int]) -> int:
        raise Mute

    return call, draw


def _in_a_turn(die: Callable[[], Any]) -> Made:
    """Well in the solo pass and in warm-up; ends in a timed turn, seen by the ring's seeds.

    Only turns (and warm-up, which uses 16 inputs) draw from seeds that the conductor picks at
    random, so the seventeenth distinct large seed belongs to a turn.
    """
    seeds: set[int] = set()

    def call(values: list[int]) -> int:
        if len(seeds) > 40:
            die()
        return squares(values)

    def inputs(seed: int) -> tuple[list[int]]:
        if seed > 100_000:
            seeds.add(seed)
        return draw(seed)

    return call, inputs


def raises_in_a_turn() -> Made:
    def die() -> NoReturn:
        raise RuntimeError("broken in a timed turn")

    return _in_a_turn(die)


def segfault_in_a_turn() -> Made:
    return _in_a_turn(lambda: ctypes.string_at(0))


def hangs_in_a_turn() -> Made:
    return _in_a_turn(lambda: time.sleep(600))


def _hangs_late(hang: Callable[[], Any]) -> Made:
    calls = 0

    def call(values: list[int]) -> int:
        nonlocal calls
        calls += 1
        if calls > 2:  # the first call has the time-out of building, later ones that of a step
            hang()
        return squares(values)

    return call, draw


def raises_in_the_thousandth_call() -> Made:
    calls = 0

    def call(values: list[int]) -> int:
        nonlocal calls
        calls += 1
        if calls == 1000:
            raise RuntimeError("broken in the thousandth call")
        return squares(values)

    return call, draw


def endless_with_family() -> Made:
    """Leaves a child, and a grandchild in a session of its own, then never returns."""

    def hang() -> NoReturn:
        note = Path(os.environ["TEST_PIDS"])
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(sleeper)
        lost = subprocess.Popen(sleeper, start_new_session=True)
        bare = subprocess.Popen(sleeper, env={})
        note.write_text(f"{child.pid} {lost.pid} {bare.pid}")
        while True:
            pass

    return _hangs_late(hang)


def deadlock() -> Made:
    lock = threading.Lock()
    return _hangs_late(lambda: (lock.acquire(), lock.acquire()))


def leaves_a_child() -> Made:
    """A forked child holds our pipes open and outlives its parent, which dies."""

    def die() -> None:
        if os.fork() == 0:
            time.sleep(600)
        os._exit(7)

    return _dying(die)
