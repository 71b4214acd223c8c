"""Sampling from outside by py-spy, where it is installed and may attach."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from torchstone.machine.files import read_text
from torchstone.profile.doors import read_profile
from torchstone.profile.probes.base import ProbeFailed, ProbeOptions, new_profile
from torchstone.profile.probes.spied import Outside, as_ours
from torchstone.profile.probes.stacks import outer_calls
from torchstone.records import Profile, Sampling, TorchstoneError

PROGRAM = "py-spy"
READY_S = 20.0
"""Patience until it has attached and until it has written its file."""
LOOK_S = 0.01
_READY = "Sampling process"
_PR_SET_PTRACER = 0x59616D61
"""From <sys/prctl.h>: whom this process lets attach to it."""

_NATIVE = (
    "Only Python functions are seen; time in native code is their caller's. --native shows it."
)
_UNWOUND = (
    "Native functions are seen in threads that run Python; a pool of workers that native code "
    "keeps for itself has none."
)
_WAITING = "Threads that wait are counted too."


def program() -> str | None:
    """Where it is: on the path, or beside this interpreter, whose environment may not be active."""
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path=os.path.dirname(sys.executable))


class PySpyProbe:
    """Runs `py-spy record` on this process. All threads, without the GIL."""

    name = "py-spy"
    how = "sample"

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()

    def unavailable(self) -> str:
        """Not installed, or the system does not let it attach."""
        if program() is None:
            return "it is not installed (pip install py-spy)"
        if self._options.clock == "cpu":
            return "it samples wall time or the holder of the GIL"
        scope = (read_text("/proc/sys/kernel/yama/ptrace_scope") or "0").strip()
        if sys.platform.startswith("linux") and scope in ("2", "3") and os.geteuid() != 0:
            return f"the system forbids it to attach (kernel.yama.ptrace_scope is {scope})"
        return ""

    def start(self) -> None:
        """Have it attach, and wait until it samples."""
        self._outer = outer_calls()
        self._folder = tempfile.TemporaryDirectory(prefix="torchstone-")
        self._file = Path(self._folder.name) / "stacks.raw"
        self._words = Path(self._folder.name) / "said.txt"
        words = [program() or PROGRAM, "record", "--format", "raw", "--output", str(self._file)]
        words += ["--threads", "--full-filenames", "--rate", str(_rate(self._options))]
        words += ["--gil"] if self._options.clock == "gil" else ["--idle"]
        words += ["--native"] if self._options.native else []
        # What it says goes to a file: a pipe that nobody reads would stop it when it is full.
        with open(self._words, "wb") as said:
            self._process = subprocess.Popen(
                [*words, "--pid", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        _let_attach(self._process.pid)
        if not self._wait_until_ready():
            lines = self._said().strip().splitlines()
            self._end()
            raise ProbeFailed(
                f"py-spy could not attach: {lines[-1].strip() if lines else 'it said nothing'}.",
                "Use --how sampler, or give it the right to attach.",
            )
        self._started = time.perf_counter()

    def stop(self) -> Profile:
        """Its stacks."""
        wall = time.perf_counter() - self._started
        try:
            self._interrupt()
            read = read_profile(self._file, "folded")
            late = "behind in sampling" in self._said()
        except (subprocess.TimeoutExpired, TorchstoneError):
            raise ProbeFailed(
                "py-spy wrote no profile: it saw nothing.", "Use --how sampler, or more steps."
            ) from None
        finally:
            self._end()
        return self._profile(read, wall, late)

    def discard(self) -> None:
        """Let it go."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._interrupt()
        self._end()

    def _profile(self, read: Profile, wall: float, late: bool) -> Profile:
        here = threading.get_native_id()
        threads = tuple(replace(one, critical=one.id == here) for one in read.threads)
        critical = next((i for i, one in enumerate(threads) if one.critical), -1)
        interval = 1 / _rate(self._options)
        wall_clock = self._options.clock == "wall"
        # Every look sees every thread, so those of one thread divide the whole time.
        seen = as_ours(read, Outside(critical, self._outer, (__file__,)))
        looks = seen.looks(critical)
        each = wall / looks if wall_clock and looks else interval
        return new_profile(
            self.how,
            self.name,
            wall_s=wall,
            frames=seen.frames,
            threads=threads,
            tree=seen.paths.tree("seconds", scale=1 / each),
            lines=seen.lines(each),
            bytecode=seen.bytecode(),
            sampling=Sampling(
                round(looks if wall_clock else sum(seen.paths.own)),
                interval,
                self._options.clock,
                max(0, round(wall / interval - looks)) if wall_clock else 0,
            ),
            problems=("py-spy fell behind: use a lower --rate.",) if late else (),
            notes=(
                _UNWOUND if self._options.native else _NATIVE,
                *((_WAITING,) if wall_clock else ()),
            ),
        )

    def _wait_until_ready(self) -> bool:
        limit = time.monotonic() + READY_S
        while _READY not in self._said():
            if self._process.poll() is not None or time.monotonic() > limit:
                return False
            time.sleep(LOOK_S)
        return True

    def _said(self) -> str:
        return self._words.read_text(encoding="utf-8", errors="replace")

    def _interrupt(self) -> None:
        """End it in peace. Killed while it holds this process, it might leave it stopped."""
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGINT)
        self._process.wait(READY_S)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def _rate(options: ProbeOptions) -> int:
    """Whole samples a second are all that it takes."""
    return max(1, round(options.rate_hz))


def _let_attach(pid: int) -> None:
    """Where the system lets only ancestors attach, this process may name another."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
