"""Sampling from outside by py-spy, where it is installed and may attach.

A process that runs already, looked at from outside by py-spy: in one stretch, or round by round
as `top` does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import linecache
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FunctionType

from torchstone.machine.folders import own_folder
from torchstone.machine.processes import read_word
from torchstone.profile import trees
from torchstone.profile.formats.base import FrameTable, read_profile
from torchstone.profile.probes.base import (
    ProbeFailed,
    ProbeOptions,
    hottest,
    line_tables,
    new_profile,
)
from torchstone.profile.probes.sample import STARTERS, outer_calls
from torchstone.records import (
    Bytecode,
    Frame,
    LineTable,
    Profile,
    Sampling,
    TorchstoneError,
    UsageError,
)

# Stacks that were seen from outside, told by running lines, made into ours: functions by their
# first line, lines apart, and bytecode of what took most.


MODULE = "<module>"
_DROPPED = -2
"""A node that is no part of the work, and all below it."""


@dataclass(frozen=True)
class Outside:
    """What is not the work: calls around it, of one thread; files of who looked."""

    thread: int
    calls: tuple[tuple[str, str], ...]
    """File and function, the outermost first."""
    files: tuple[str, ...]


@dataclass
class Seen:
    """What is left of it: frames, one a function, call paths, and samples by function and line."""

    frames: tuple[Frame, ...] = ()
    paths: trees.TreeBuilder = field(default_factory=trees.TreeBuilder)
    _own: dict[int, float] = field(default_factory=dict)
    _hits: dict[tuple[str, int], int] = field(default_factory=dict)
    _codes: dict[int, CodeType] = field(default_factory=dict)

    def looks(self, thread: int) -> float:
        """What was seen of one thread."""
        pairs = zip(self.paths.own, self.paths.threads, strict=True)
        return sum(own for own, of in pairs if of == thread)

    def lines(self, each: float) -> tuple[LineTable, ...]:
        """By the line that ran; each sample stands for so many seconds."""
        rows = {place: (hits, each * hits) for place, hits in self._hits.items()}
        return tuple(line_tables(rows, "hits", "seconds"))

    def bytecode(self) -> tuple[Bytecode, ...]:
        """Of the functions that took most by themselves."""
        return hottest(self._own, self._codes)

    def spent(self, index: int, frame: Frame, samples: float) -> None:
        """So many samples in one function, on the line that is the frame's."""
        self._own[index] = self._own.get(index, 0.0) + samples
        if frame.line:
            place = (frame.file, frame.line)
            self._hits[place] = self._hits.get(place, 0) + round(samples)


def as_ours(read: Profile, outside: Outside) -> Seen:
    """The profile of this process as another tool wrote it, with running lines for frames; without
    what is outside of the work."""
    tree, table, seen = read.tree, FrameTable(), Seen()
    assert tree is not None
    names = [frame.name.rpartition(".")[2] or frame.name for frame in read.frames]
    functions = _functions(read.frames, names)

    def add(number: int) -> int:
        function, code = functions[number]
        index = table.add(function.name, function.file, function.line, function.kind)
        if code is not None:
            seen._codes[index] = code
        return index

    # Ours, how many of the outer calls are above, and the innermost Python frame.
    nodes: list[tuple[int, int, int]] = []
    for place, number in enumerate(tree.frames):
        frame, parent, thread = read.frames[number], tree.parents[place], tree.threads[place]
        above, depth, running = nodes[parent] if parent >= 0 else (-1, 0, -1)
        if above == _DROPPED or frame.file in outside.files or _is_bare_thread(frame):
            nodes.append((_DROPPED, 0, -1))
            continue
        if above < 0:
            outer = outside.calls[depth : depth + 1] if thread == outside.thread else ()
            if outer == ((frame.file, names[number]),):
                nodes.append((-1, depth + 1, -1))
                continue
            if outer and frame.kind == "native":  # what the interpreter does between two calls
                nodes.append((-1, depth, -1))
                continue
            if frame.file in STARTERS:
                nodes.append((-1, len(outside.calls), -1))
                continue
        running = number if frame.kind == "python" else running
        node = seen.paths.child(above, add(number), thread)
        nodes.append((node, depth, running))
        seen.paths.own[node] += tree.own[place]
        if tree.own[place] and running >= 0:  # native code that it called is the Python frame's
            seen.spent(add(running), read.frames[running], tree.own[place])
        seen.paths.calls[node] += tree.calls[place] if tree.calls else 0
    seen.frames = table.frames
    return seen


def _is_bare_thread(frame: Frame) -> bool:
    """A thread without a frame: it was only just begun."""
    return not frame.file and frame.name.startswith("thread (")


def _functions(
    frames: Sequence[Frame], names: Sequence[str]
) -> list[tuple[Frame, CodeType | None]]:
    """Ours for each of theirs: one a function, where they have one a line."""
    finder = CodeFinder({frame.file for frame in frames})
    first: dict[tuple[str, str], int] = {}
    for frame, name in zip(frames, names, strict=True):
        key = (frame.file, name)
        first[key] = min(first.get(key, frame.line), frame.line)
    found: list[tuple[Frame, CodeType | None]] = []
    for frame, name in zip(frames, names, strict=True):
        if frame.kind != "python":
            found.append((_with_symbol(frame), None))
            continue
        code = finder.find(frame.file, name, frame.line)
        line = code.co_firstlineno if code is not None else first[frame.file, name]
        found.append((Frame(name, frame.file, 1 if name == MODULE else line), code))
    return found


def _with_symbol(frame: Frame) -> Frame:
    """Addresses without a symbol are one frame a library: alone, each would tell nothing."""
    if not frame.name.startswith("0x"):
        return frame
    return replace(frame, name=f"(no symbol in {os.path.basename(frame.file) or 'memory'})")


class CodeFinder:
    """Functions by file, name and a line of theirs: those that this process has; of those that are
    gone already, what their source gives."""

    def __init__(self, files: set[str]) -> None:
        self._live = _by_place(
            code
            for code in _with_inner(
                thing.__code__ for thing in gc.get_objects() if type(thing) is FunctionType
            )
            if code.co_filename in files
        )
        self._compiled: dict[str, dict[tuple[str, str], list[CodeType]]] = {}

    def find(self, file: str, name: str, line: int) -> CodeType | None:
        """The innermost one that fits."""
        found = _fitting(self._live.get((file, name), ()), line)
        if found is None:
            if file not in self._compiled:
                self._compiled[file] = _by_place(_with_inner(_source_code(file)))
            found = _fitting(self._compiled[file].get((file, name), ()), line)
        return found


def _fitting(codes: Iterable[CodeType], line: int) -> CodeType | None:
    fitting = [code for code in codes if any(line == one for *_, one in code.co_lines())]
    return max(fitting, key=lambda code: code.co_firstlineno, default=None)


def _by_place(codes: Iterable[CodeType]) -> dict[tuple[str, str], list[CodeType]]:
    found: dict[tuple[str, str], list[CodeType]] = {}
    for code in dict.fromkeys(codes):
        found.setdefault((code.co_filename, code.co_name), []).append(code)
    return found


def _with_inner(codes: Iterable[CodeType]) -> Iterator[CodeType]:
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        yield code
        waiting.extend(inner for inner in code.co_consts if type(inner) is CodeType)


def _source_code(file: str) -> list[CodeType]:
    text = "".join(linecache.getlines(file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [compile(text, file, "exec", dont_inherit=True)] if text else []
        except (SyntaxError, ValueError):  # the file has changed since, or is no Python
            return []


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
        if program() is None:
            return "it is not installed (pip install py-spy)"
        if self._options.clock == "cpu":
            return "it samples wall time or the holder of the GIL"
        scope = read_word("/proc/sys/kernel/yama/ptrace_scope")
        if sys.platform.startswith("linux") and scope in ("2", "3") and os.geteuid() != 0:
            return f"the system forbids it to attach (kernel.yama.ptrace_scope is {scope})"
        return ""

    def start(self) -> None:
        """Have it attach, and wait until it samples."""
        self._outer = outer_calls()
        self._stack = ExitStack()
        folder = self._stack.enter_context(own_folder())
        self._file = folder / "stacks.raw"
        self._words = folder / "said.txt"
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
        self._stack.close()


def _rate(options: ProbeOptions) -> int:
    """Whole samples a second are all that it takes."""
    return max(1, round(options.rate_hz))


def _let_attach(pid: int) -> None:
    """Where the system lets only ancestors attach, this process may name another."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


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
