"""A process that runs already, looked at from outside by py-spy: in one stretch, or round by round
as `top` does."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torchstone.profile.probes.base import ProbeOptions, new_profile
from torchstone.profile.probes.pyspy import Outside, as_ours, program
from torchstone.profile.registry import read_profile
from torchstone.records import Profile, Sampling, TorchstoneError, UsageError

ROUND_S = 2.0
"""Of one look at `top`: some two hundred samples, and still lively."""
SLACK_S = 30.0
"""Beyond its time, for py-spy to find the interpreter and to write its file."""
_NOBODY = Outside(-1, (), ())
_NOTES = (
    "Threads that wait are left out; a sample stands for its interval, on every thread that ran.",
    "Only Python functions are seen; time in native code is their caller's. --native shows it.",
)
_FORBIDDEN = ("permission denied", "not permitted", "run as root")


@dataclass
class Stacks:
    """Call paths of one or more rounds, in py-spy's own text, and how long was looked."""

    counts: Counter[str]
    wall_s: float = 0.0

    @classmethod
    def none(cls) -> Stacks:
        """Nothing yet."""
        return cls(Counter())

    def add(self, other: Stacks) -> None:
        """One more round."""
        self.counts += other.counts
        self.wall_s += other.wall_s

    def profile(self, pid: int, options: ProbeOptions) -> Profile:
        """As a profile like any other."""
        interval = 1 / max(1, round(options.rate_hz))
        with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
            file = Path(folder) / "stacks.raw"
            lines = (f"{stack} {count}\n" for stack, count in self.counts.items())
            file.write_text("".join(lines), encoding="utf-8")
            read = read_profile(file, "folded")
        seen = as_ours(read, _NOBODY)
        made = new_profile(
            "sample",
            "py-spy",
            wall_s=self.wall_s,
            frames=seen.frames,
            threads=read.threads,
            tree=seen.paths.tree("seconds", scale=1 / interval),
            lines=seen.lines(interval),
            sampling=Sampling(round(sum(seen.paths.own)), interval, options.clock),
            notes=_NOTES[:1] if options.native else _NOTES,
        )
        return replace(made, facts={"pid": str(pid)})  # not of the interpreter that looks


def check_process(pid: int) -> None:
    """Refuse what cannot be looked at, with the reason."""
    if program() is None:
        raise UsageError(
            "A running process is looked at by py-spy, which is not installed.",
            "Install it: pip install 'torchstone[profile]'.",
        )
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise UsageError(f"There is no process {pid}.", "`ps -e` lists them.") from None
    except PermissionError:
        raise _forbidden(pid, "it belongs to another user") from None


def rounds(
    pid: int, options: ProbeOptions, seconds: float | None, each_s: float
) -> Iterator[Stacks]:
    """Stretches of `each_s` until the time is over or the process has ended. Ctrl-C ends the
    stretch, which still counts, and is raised after it."""
    end = None if seconds is None else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        wanted = each_s if end is None else min(each_s, end - time.monotonic())
        found, interrupted, alive = _record(pid, options, max(0.2, wanted))
        if found is not None:
            yield found
        if interrupted:
            raise KeyboardInterrupt
        if not alive:
            return


def _record(pid: int, options: ProbeOptions, seconds: float) -> tuple[Stacks | None, bool, bool]:
    """What was seen, whether Ctrl-C ended it, and whether the process is still there."""
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        file, words = Path(folder) / "stacks.raw", Path(folder) / "said.txt"
        started = time.monotonic()
        with open(words, "wb") as said:
            process = subprocess.Popen(
                _words(pid, options, file),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )
        interrupted = _wait(process, seconds)
        took = time.monotonic() - started
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        alive = Path(f"/proc/{pid}").exists() if os.path.isdir("/proc/self") else True
        if not text and alive and not interrupted:
            _refuse(pid, words.read_text(encoding="utf-8", errors="replace"))
    return (_parsed(text, took) if text else None), interrupted, alive


def _words(pid: int, options: ProbeOptions, file: Path) -> list[str]:
    words = [program() or "py-spy", "record", "--format", "raw", "--output", str(file)]
    words += ["--threads", "--full-filenames", "--rate", str(max(1, round(options.rate_hz)))]
    words += ["--gil"] if options.clock == "gil" else []
    words += ["--native"] if options.native else []
    return [*words, "--pid", str(pid)]


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Let it look for so long, then end it in peace; whether Ctrl-C came first."""
    interrupted = False
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        pass
    except KeyboardInterrupt:
        interrupted = True
    process.send_signal(signal.SIGINT)
    try:
        process.wait(SLACK_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return interrupted


def _parsed(text: str, took: float) -> Stacks:
    found: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack and count.isdigit():
            found[stack] += int(count)
    return Stacks(found, took)


def _refuse(pid: int, said: str) -> None:
    """A process that sleeps all the time has no stacks, and that is no error."""
    said = said.partition("Stack backtrace")[0]
    errors = [line for line in said.splitlines() if line.startswith("Error: ")]
    if not errors:
        return
    if any(word in said.lower() for word in _FORBIDDEN):
        raise _forbidden(pid, "the system does not permit it")
    why = errors[0].removeprefix("Error: ").strip().rstrip(".")
    raise TorchstoneError(
        f"Process {pid} cannot be looked at (py-spy: {why}).", "Is it a Python process?"
    )


def _forbidden(pid: int, why: str) -> UsageError:
    return UsageError(
        f"Process {pid} may not be looked at: {why}.",
        "Run the same command as its owner or with sudo; in a container, allow SYS_PTRACE.",
    )


def watch(
    pid: int,
    options: ProbeOptions,
    seconds: float | None,
    show: Callable[[Profile, Stacks], object] | None = None,
) -> tuple[Profile, bool]:
    """The profile of all that was seen, and whether Ctrl-C ended it. `show` is given each round's
    own profile, and all until then."""
    check_process(pid)
    whole, interrupted = Stacks.none(), False
    try:
        for one in rounds(pid, options, seconds, ROUND_S if show else seconds or ROUND_S):
            whole.add(one)
            if show is not None:
                show(one.profile(pid, options), whole)
    except KeyboardInterrupt:
        interrupted = True
    if not whole.counts:
        raise TorchstoneError(
            f"Process {pid} ran no Python while it was looked at.",
            "It waits, or runs native code only: try --native, or a longer --duration.",
        )
    return whole.profile(pid, options), interrupted
