"""The thread looked at from outside, by a process that needs no lock of ours.

`/proc/PID/task/TID/syscall` says whether a thread runs, and else in which system call it sleeps,
on which address. The interpreter's lock has an address: two threads that fight for it show it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from torchstone.explain.passes.blocked import other_python_threads
from torchstone.explain.passes.report import Watched
from torchstone.measure.arm import Phase
from torchstone.measure.loops import wall_clock

PAUSE_S = 0.0005
LOCK_SECONDS = 0.15
NEAR = 256
"""Bytes: the lock's condition variables and mutexes lie side by side."""
LEAST_SEEN = 3
_PR_SET_PTRACER = 0x59616D61
_NUMBERS = {
    "x86_64": {"futex": 202, "sleep": (35, 230), "read": (0, 17, 19, 45, 47, 7, 23, 232, 281)},
    "aarch64": {"futex": 98, "sleep": (101, 115), "read": (63, 67, 65, 207, 212, 73, 72, 22)},
}
"""From the kernel's tables of system calls."""
_POOLS = ("libgomp", "libiomp", "libomp")

WATCHER = """
import json, sys, time
pid, pause = int(sys.argv[1]), float(sys.argv[2])
files = []
for tid in sys.argv[3:]:
    try:
        files.append(open(f"/proc/{pid}/task/{tid}/syscall", "rb", buffering=0))
    except FileNotFoundError:  # a thread that has ended
        continue
print("ready", flush=True)
end = time.monotonic() + float(sys.stdin.readline())
found = [[0, {}] for _ in files]
while time.monotonic() < end:
    time.sleep(pause)
    for one, file in zip(found, files):
        try:
            file.seek(0)
            text = file.read(200).decode()
        except OSError:
            continue
        words = text.split()
        key = " ".join((words[0], words[1], words[-1])) if len(words) > 8 else "running"
        one[1][key] = one[1].get(key, 0) + 1
        one[0] += 1
print(json.dumps(found))
"""


def watched_pass(block: Callable[[], object], seconds: float, phase: Phase) -> Watched:
    """Run the block for so long while another process looks at this thread, and at the other
    Python threads of the process as far as the interpreter's lock is concerned."""
    phase("passes")
    numbers: Any = _NUMBERS.get(platform.machine())
    if numbers is None or not os.path.exists("/proc/self/task"):
        return Watched(reason="the system does not show what a thread waits for")
    try:
        lock = _lock_addresses(numbers["futex"])
        others = sorted(other_python_threads())
        watcher = _Watcher([threading.get_native_id(), *others])
    except (OSError, ValueError) as error:
        return Watched(reason=f"threads cannot be looked at here: {error}")
    watcher.go(seconds)
    end = wall_clock() + int(seconds * 1e9)
    while wall_clock() < end:
        block()
    (looks, seen), *rest = watcher.result()
    sleeps = Sleeps(numbers, lock, _pool_ranges())
    found = [classify(times, keys, sleeps) for times, keys in rest]
    return replace(
        classify(looks, seen, sleeps),
        others=len(others),
        others_looks=sum(one.looks for one in found),
        others_gil=sum(one.asleep.get("gil", 0) for one in found),
    )


@dataclass(frozen=True)
class Sleeps:
    """How to tell what a thread sleeps in."""

    numbers: Any
    """Of system calls."""
    lock: Set[int]
    """Addresses of the interpreter's lock."""
    pools: Sequence[tuple[int, int]]
    """Address ranges of OpenMP's code."""

    def kind(self, number: int, first: int, place: int) -> str:
        """By the system call, its first argument and where it was called."""
        if number in self.numbers["sleep"]:
            return "sleep"
        if number in self.numbers["read"]:
            return "network"
        if number != self.numbers["futex"]:
            return "other"
        if any(abs(first - address) <= NEAR for address in self.lock):
            return "gil"
        return "pool" if any(start <= place < end for start, end in self.pools) else "locks"


def classify(looks: int, seen: Mapping[str, int], sleeps: Sleeps) -> Watched:
    """Looks counted by what the thread slept in; a thread that runs shows no call."""
    asleep: Counter[str] = Counter()
    for key, times in seen.items():
        words = key.split()
        if len(words) == 3:
            number, first, place = int(words[0]), int(words[1], 16), int(words[2], 16)
            asleep[sleeps.kind(number, first, place)] += times
    return Watched(looks, dict(asleep))


class _Watcher:
    """The process that looks."""

    def __init__(self, threads: list[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WATCHER, str(os.getpid()), str(PAUSE_S)]
            + [str(thread) for thread in threads],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        _allow(self._process.pid)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self._process.kill()
            self._process.communicate()
            raise OSError("the system does not allow it")

    def go(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def result(self) -> list[tuple[int, dict[str, int]]]:
        """Looks, and what they saw, thread by thread."""
        text, _ = self._process.communicate(timeout=60)
        return [
            (int(looks), {str(key): int(value) for key, value in seen.items()})
            for looks, seen in json.loads(text or "[[0, {}]]")
        ]


def _allow(pid: int) -> None:
    """Some systems let only a parent look; a process may allow another one by name."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, pid, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _lock_addresses(futex: int) -> set[int]:
    """Where threads sleep that wait for the interpreter's lock; empty where there is none."""
    if getattr(sys, "_is_gil_enabled", lambda: True)() is False:
        return set()
    stop = False

    def spin() -> None:
        while not stop:
            pass

    threads = [threading.Thread(target=spin, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        watcher = _Watcher([thread.native_id for thread in threads if thread.native_id])
        watcher.go(LOCK_SECONDS)
        time.sleep(LOCK_SECONDS)
        both = watcher.result()
    finally:
        stop = True
        for thread in threads:
            thread.join()
    found: Counter[int] = Counter()
    for key, times in (item for _, seen in both for item in seen.items()):
        words = key.split()
        if len(words) == 3 and int(words[0]) == futex:
            found[int(words[1], 16)] += times
    return {address for address, times in found.items() if times >= LEAST_SEEN}


def _pool_ranges() -> list[tuple[int, int]]:
    """Addresses of the code of OpenMP runtimes."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if any(name in line for name in _POOLS) and " r-x" in line:
                start, _, end = line.split()[0].partition("-")
                found.append((int(start, 16), int(end, 16)))
    return found
