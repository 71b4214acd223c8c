"""The profilers that are compared, each as something that can be started and ended around work.

Ours are the probes themselves. A tool is asked for the least of its usual use: to record, and in
the end to write what it recorded to a file.
"""

from __future__ import annotations

import cProfile
import importlib
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torchstone.profile import write_profile
from torchstone.profile.probes import ProbeOptions, known_probes
from torchstone.profile.probes.base import Marks, Probe, ProbeFailed
from torchstone.profile.probes.pyspy import program
from torchstone.records import TorchstoneError

ATTACH_S = 20.0
PY_SPY_HZ = 100.0
"""Its own default."""


class Tool(Protocol):
    """A profiler around work, as often as wanted."""

    def unavailable(self) -> str:
        """Why it cannot be used here."""

    def wrap(self, step: Callable[[], object]) -> Callable[[], object]:
        """The step that it looks at: as it is, or marked, or a function that was chosen."""

    def start(self) -> None:
        """Record from now on."""

    def end(self, keep: Path | None) -> None:
        """Record no more; write it to the file where one is given."""


@dataclass(frozen=True)
class Entry:
    """A tool by name: what it does, whom it stands in for, and how it is made."""

    name: str
    way: str
    make: Callable[[Callable[..., object]], Tool]
    """Of the function whose lines are looked at, where lines are."""
    stands_for: tuple[str, ...] = ()
    """Of ours: the tools that need not be used beside it."""

    @property
    def ours(self) -> bool:
        return self.name.startswith("torchstone ")


class Plain:
    """What tools have in common."""

    module = ""

    def unavailable(self) -> str:
        found = not self.module or importlib.util.find_spec(self.module)
        return "" if found else "not installed"

    def wrap(self, step: Callable[[], object]) -> Callable[[], object]:
        return step


class Ours(Plain):
    """One of our probes by its name."""

    def __init__(self, name: str, options: ProbeOptions | None = None) -> None:
        self._name, self._options = name, options or ProbeOptions()

    def _made(self) -> Probe:
        made: Probe = known_probes()[self._name].load()(self._options)
        return made

    def unavailable(self) -> str:
        if self._name not in known_probes():
            return "not installed"
        self._probe = self._made()
        return self._probe.unavailable()

    def wrap(self, step: Callable[[], object]) -> Callable[[], object]:
        return self._probe.around(step) if isinstance(self._probe, Marks) else step

    def start(self) -> None:
        self._probe = self._made()
        self._probe.start()

    def end(self, keep: Path | None) -> None:
        if keep is None:
            self._probe.discard()
        else:
            write_profile(self._probe.stop(), keep, "torchstone")


class CProfile(Plain):
    """The standard library's."""

    def start(self) -> None:
        self._profile = cProfile.Profile()
        self._profile.enable()

    def end(self, keep: Path | None) -> None:
        self._profile.disable()
        if keep is not None:
            self._profile.dump_stats(keep)


class Pyinstrument(Plain):
    """In-process sampling; its own default is a look a millisecond."""

    module = "pyinstrument"

    def __init__(self, interval_s: float) -> None:
        self._interval = interval_s

    def start(self) -> None:
        from pyinstrument import Profiler

        self._profiler = Profiler(interval=self._interval)
        self._profiler.start()

    def end(self, keep: Path | None) -> None:
        session = self._profiler.stop()
        if keep is not None:
            session.save(str(keep))


class PySpy(Plain):
    """`py-spy record` on this process, at its own rate."""

    def unavailable(self) -> str:
        return "" if program() else "not installed"

    def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._out = Path(self._folder.name) / "stacks.raw"
        said = Path(self._folder.name) / "said.txt"
        found = program() or "py-spy"
        words = [found, "record", "-f", "raw", "-o", str(self._out), "-p", str(os.getpid())]
        with open(said, "wb") as file:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        limit = time.monotonic() + ATTACH_S
        while "Sampling process" not in said.read_text(errors="replace"):
            if self._process.poll() is not None:
                lines = said.read_text(errors="replace").strip().splitlines()
                raise CannotStart(f"may not attach here ({lines[-1] if lines else 'no word'})")
            if time.monotonic() > limit:  # a busy machine, perhaps: the next round may do better
                raise ProbeFailed(f"it did not attach within {ATTACH_S:g} s")
            time.sleep(0.01)

    def end(self, keep: Path | None) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(ATTACH_S)
        if keep is not None:
            shutil.copyfile(self._out, keep)
        self._folder.cleanup()


class Memray(Plain):
    """Every allocation to a file."""

    module = "memray"

    def start(self) -> None:
        memray: Any = importlib.import_module("memray")
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "memory.bin"
        self._tracker = memray.Tracker(self._file)
        self._tracker.__enter__()

    def end(self, keep: Path | None) -> None:
        self._tracker.__exit__(None, None, None)
        if keep is not None:
            shutil.copyfile(self._file, keep)
        self._folder.cleanup()


class MemoryProfiler(Plain):
    """Resident memory line by line of one function."""

    module = "memory_profiler"

    def __init__(self, chosen: Callable[..., object]) -> None:
        self._chosen = chosen

    def start(self) -> None:
        self._module: Any = importlib.import_module("memory_profiler")
        self._profiler = self._module.LineProfiler(backend="psutil")
        self._profiler.add_function(self._chosen)
        self._profiler.enable()

    def end(self, keep: Path | None) -> None:
        self._profiler.disable()
        if keep is not None:
            text = io.StringIO()
            self._module.show_results(self._profiler, stream=text)
            keep.write_text(text.getvalue(), encoding="utf-8")


class TorchProfiler(Plain):
    """Ops with their times; with Python functions where stacks are asked for."""

    module = "torch"

    def __init__(self, stacks: bool) -> None:
        self._stacks = stacks

    def start(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        self._profiler = profile(activities=[ProfilerActivity.CPU], with_stack=self._stacks)
        self._profiler.start()

    def end(self, keep: Path | None) -> None:
        self._profiler.stop()
        if keep is not None:
            self._profiler.export_chrome_trace(str(keep))


class CannotStart(TorchstoneError):
    """A tool that is installed and may not be used."""


def _lines(chosen: Callable[..., object]) -> ProbeOptions:
    return ProbeOptions(functions=(chosen.__name__,))


ENTRIES = (
    Entry("torchstone count", "count", lambda _: Ours("cprofile"), ("cProfile",)),
    Entry("cProfile", "count", lambda _: CProfile()),
    Entry(
        "torchstone sample",
        "sample",
        lambda _: Ours("sampler"),
        ("pyinstrument", "pyinstrument, 5 ms", "py-spy"),
    ),
    Entry(
        "torchstone sample, by py-spy",
        "sample",
        lambda _: Ours("py-spy", ProbeOptions(rate_hz=PY_SPY_HZ)),
        ("py-spy",),
    ),
    Entry("pyinstrument", "sample", lambda _: Pyinstrument(0.001)),
    Entry("pyinstrument, 5 ms", "sample", lambda _: Pyinstrument(0.005)),
    Entry("py-spy", "sample", lambda _: PySpy()),
    Entry("torchstone trace", "trace", lambda _: Ours("torch"), ("torch.profiler, stacks",)),
    Entry("torch.profiler", "trace", lambda _: TorchProfiler(False)),
    Entry("torch.profiler, stacks", "trace", lambda _: TorchProfiler(True)),
    Entry(
        "torchstone memory",
        "memory",
        lambda chosen: Ours("memory", _lines(chosen)),
        ("memory_profiler",),
    ),
    Entry("memory_profiler", "memory", MemoryProfiler),
    Entry("torchstone memory, by memray", "memory", lambda _: Ours("memray"), ("memray",)),
    Entry("memray", "memory", lambda _: Memray()),
)
"""In the order of the table."""
