"""Sampling from outside by py-spy, where it is installed and may attach."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from torchstone.machine.files import read_text
from torchstone.profile.doors import read_profile
from torchstone.profile.probes.base import ProbeOptions, new_profile
from torchstone.records import Profile, Sampling, TorchstoneError

PROGRAM = "py-spy"
READY_S = 20.0
"""Patience until it has attached and until it has written its file."""
_READY = b"Sampling process"
_PR_SET_PTRACER = 0x59616D61
"""From <sys/prctl.h>: whom this process lets attach to it."""


class PySpyFailed(TorchstoneError):
    """It could not attach, or wrote nothing."""


class PySpyProbe:
    """Runs `py-spy record` on this process. All threads, without the GIL."""

    name = "py-spy"
    how = "sample"

    def __init__(self, options: ProbeOptions | None = None) -> None:
        self._options = options or ProbeOptions()

    def unavailable(self) -> str:
        """Not installed, or the system does not let it attach."""
        if shutil.which(PROGRAM) is None:
            return "it is not installed (pip install py-spy)"
        if self._options.clock == "cpu":
            return "it samples wall time or the holder of the GIL"
        scope = (read_text("/proc/sys/kernel/yama/ptrace_scope") or "0").strip()
        if sys.platform.startswith("linux") and scope in ("2", "3") and os.geteuid() != 0:
            return f"the system forbids it to attach (kernel.yama.ptrace_scope is {scope})"
        return ""

    def start(self) -> None:
        """Have it attach, and wait until it samples."""
        self._folder = tempfile.TemporaryDirectory(prefix="torchstone-")
        self._file = Path(self._folder.name) / "stacks.raw"
        words = [PROGRAM, "record", "--format", "raw", "--output", str(self._file), "--threads"]
        words += ["--rate", f"{self._options.rate_hz:g}", "--pid", str(os.getpid())]
        words += ["--gil"] if self._options.clock == "gil" else ["--idle"]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _let_attach(self._process.pid)
        self._said = b""
        if not self._wait_until_ready():
            self._kill()
            said = self._said.decode(errors="replace").strip().splitlines()
            raise PySpyFailed(
                f"py-spy could not attach: {said[-1] if said else 'it said nothing'}.",
                "Use --how sampler, or give it the right to attach.",
            )
        self._started = time.perf_counter()

    def stop(self) -> Profile:
        """Its stacks."""
        wall = time.perf_counter() - self._started
        self._process.send_signal(signal.SIGINT)
        try:
            _, rest = self._process.communicate(timeout=READY_S)
            read = read_profile(self._file, "folded")
        except (subprocess.TimeoutExpired, TorchstoneError):
            raise PySpyFailed("py-spy wrote no profile.", "Use --how sampler.") from None
        finally:
            self._kill()
        weight = sum(read.tree.own) if read.tree is not None else 0.0
        late = b"behind in sampling" in self._said + rest
        return replace(
            new_profile(self.how, self.name, wall_s=wall),
            frames=read.frames,
            threads=read.threads,
            tree=read.tree,
            lines=read.lines,
            sampling=Sampling(round(weight), 1 / self._options.rate_hz, self._options.clock),
            problems=("py-spy fell behind: use a lower --rate.",) if late else (),
            notes=("Threads that wait are counted too.",) if self._options.clock == "wall" else (),
        )

    def discard(self) -> None:
        """Let it go."""
        self._kill()

    def _wait_until_ready(self) -> bool:
        assert self._process.stderr is not None
        descriptor, limit = self._process.stderr.fileno(), time.monotonic() + READY_S
        while _READY not in self._said and time.monotonic() < limit:
            ready, _, _ = select.select([descriptor], [], [], limit - time.monotonic())
            chunk = os.read(descriptor, 4096) if ready else b""
            if not chunk:
                return False
            self._said += chunk
        return _READY in self._said

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._folder.cleanup()


def _let_attach(pid: int) -> None:
    """Where the system lets only ancestors attach, this process may name another."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
