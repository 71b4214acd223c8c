"""How a worker is started: its payload, its interpreter, its environment, its caches.

Where it can, it is forked from a template: a process that has imported the arm's libraries. A
template belongs to an interpreter, an environment and a list of libraries, and outlives a case, so
that a suite imports each library once. Where one cannot be had, workers start by themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone.conductor.case import CaseProgress, Events, Settings, Silent
from torchstone.conductor.state import Live
from torchstone.conductor.worker import Spawn, Started, WorkerProcess
from torchstone.machine.folders import own_folder
from torchstone.machine.interpreters import resolve_interpreter
from torchstone.machine.memory import allocator_environment
from torchstone.machine.processes import memory_available
from torchstone.measure.bootstrap import VARIABLE as LAYOUT_VARIABLE
from torchstone.measure.template import FORK_LAYOUT, REQUEST_LIMIT
from torchstone.records import ArmSpec, TorchstoneError, to_data
from torchstone.workloads import libraries_ahead

# The folder that a worker has on its path: our stdlib-only packages and nothing else of ours.
#
# Links, not copies, so that the interpreter's compiled files are found.

PACKAGES = ("records", "machine", "workloads", "variants", "measure")


def make_payload(folder: Path) -> Path:
    """Lay out the payload in `folder`; returns the script to start."""
    package = Path(__file__).resolve().parent.parent
    inside = folder / "torchstone"
    inside.mkdir(parents=True)
    (inside / "__init__.py").symlink_to(package / "__init__.py")
    for name in PACKAGES:
        _link_package(package / name, inside / name)
    # A copy: Python would take the folder behind a link for the script's own.
    return Path(shutil.copy(package / "measure" / "bootstrap.py", folder / "worker.py"))


def _link_package(source: Path, link: Path) -> None:
    """`machine/calibrate` needs torch and stays at home; other packages go whole."""
    if not (source / "calibrate").exists() and not (source / "calibrate.py").exists():
        os.symlink(source, link)
        return
    link.mkdir()
    for entry in source.iterdir():
        if not entry.name.startswith("calibrate"):
            os.symlink(entry, link / entry.name)


SLOTS = 2
"""Templates of one kind, with different layouts and hash seeds; replicates take turns with them."""
MOST_TEMPLATES = 4
"""Each holds some 400 MB."""
LAYOUT_PAGES = 65_536
"""Reserved pages that move a layout: up to 256 MiB of addresses, and no memory."""
ROOM = 6 * 2**30
"""Free memory below which nothing is imported ahead."""

Key = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...]]
"""Interpreter, environment, and the libraries that may be imported ahead."""


def with_layout(env: dict[str, str], layout: int) -> dict[str, str]:
    """For a process whose memory is laid out, and whose strings hash, by this number."""
    env[LAYOUT_VARIABLE] = str(1 + layout % LAYOUT_PAGES)
    env.setdefault("PYTHONHASHSEED", str(layout % 2**32))
    return env


class Forked:
    """A forked worker: not our child, so its template tells how it ended."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status = status
        self.returncode: int | None = None
        self._told = False

    def poll(self) -> int | None:
        """Its exit code; None while it lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises as `subprocess.Popen.wait` does."""
        if not self._told:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0.0)
            code = os.read(self._status, 16)
            os.close(self._status)
            self._told = True
            # Nothing is told where the template is gone: the kernel then killed its forks.
            self.returncode = int(code) if code else -9
        assert self.returncode is not None
        return self.returncode


@dataclass
class Template:
    """One process that forks."""

    worker: WorkerProcess
    control: socket.socket
    imported: set[str] = field(default_factory=set)
    """The libraries that its forks have, by what a suite calls them."""
    usable: bool = True

    def begin_import(self, arms: Sequence[ArmSpec]) -> None:
        """Have it import these arms' libraries; `end_import` waits for it."""
        self.imported |= {library_of(arm) for arm in arms}
        with contextlib.suppress(OSError):  # its death is found by `end_import`
            self.control.send(json.dumps({"import": to_data(list(arms))}).encode())

    def end_import(self, timeout_s: float) -> None:
        """Whether it may be forked now. An arm whose import fails will say so by itself."""
        self.control.settimeout(timeout_s)
        try:
            reply = self.control.recv(REQUEST_LIMIT)
        except OSError:
            reply = b""
        self.control.settimeout(None)
        if not reply or json.loads(reply)["unsafe"]:
            self.close()

    def start(self, env: Mapping[str, str], stderr: int, pipes: tuple[int, ...]) -> Started:
        """Fork a worker with these variables besides its own."""
        status, told = os.pipe()
        try:
            request = json.dumps({"env": dict(env)}).encode()
            socket.send_fds(self.control, [request], [*pipes, stderr, told])
            reply, passed, _, _ = socket.recv_fds(self.control, REQUEST_LIMIT, 1)
        except OSError:
            reply, passed = b"", []
        finally:
            os.close(told)
        if not reply:
            os.close(status)
            self.close()
            raise TorchstoneError("The process that imports libraries ahead is gone.")
        return Forked(int(json.loads(reply)["pid"]), status), passed[0]

    def close(self) -> None:
        """End it, and with it whatever it has forked."""
        self.usable = False
        self.control.close()
        self.worker.kill()


def library_of(arm: ArmSpec) -> str:
    """What is imported ahead for an arm."""
    return f"{arm.target} {arm.variant}"


def _nameless(arm: ArmSpec) -> ArmSpec:
    """The arm without what differs from case to case."""
    return replace(arm, name="", seed=0)


@dataclass
class Templates:
    """All templates of a case or of a run."""

    folder: Path
    compile_once: bool = False
    """An arm that is in several cases finds what it compiled in the first one."""
    _script: Path = field(init=False)
    _known: dict[tuple[Key, int], Template] = field(default_factory=dict)
    _alike: dict[ArmSpec, ArmSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._script = make_payload(self.folder / "payload")
        (self.folder / "scratch").mkdir()

    def prepare(
        self, arms: Sequence[tuple[Key, ArmSpec]], timeout_s: float, slots: int = SLOTS
    ) -> None:
        """Have templates import, side by side, what these arms need and is not there yet."""
        if not hasattr(os, "pidfd_open") or memory_available() < ROOM:
            return
        kinds: dict[Key, list[ArmSpec]] = {}
        for key, arm in arms:
            if key[2]:
                kinds.setdefault(key, []).append(arm)
        if not self.fits(kinds):
            return
        busy = []
        for key, specs in kinds.items():
            for slot in range(slots):
                template = self._find(key, slot, kinds)
                wanted = [arm for arm in specs if library_of(arm) not in template.imported]
                if template.usable and wanted:
                    template.begin_import(wanted)
                    busy.append(template)
        for template in busy:
            template.end_import(timeout_s)

    @staticmethod
    def fits(kinds: Iterable[Key]) -> bool:
        """Whether so many kinds may be there at once."""
        return len({key for key in kinds if key[2]}) * SLOTS <= MOST_TEMPLATES

    def of(self, key: Key, arm: ArmSpec, slot: int) -> Template | None:
        """A template that has imported the arm's libraries, if there is one."""
        found = self._known.get((key, slot % SLOTS))
        ready = found is not None and found.usable and library_of(arm) in found.imported
        return found if ready else None

    def compiled(self, arm: ArmSpec) -> Path | None:
        """The compile cache that the arm has in all cases, whatever it is called there."""
        if not self.compile_once:
            return None
        named = _nameless(arm)
        same = json.dumps(to_data(self._alike.get(named, named)))
        return self.folder / f"compiled-{hashlib.sha256(same.encode()).hexdigest()[:16]}"

    def compile_alike(self, arm: ArmSpec, other: ArmSpec) -> None:
        """Let an arm find what another one compiled: both come to the same code."""
        self._alike[_nameless(arm)] = _nameless(other)

    def close(self) -> None:
        """End all of them."""
        with ExitStack() as stack:  # all of them, also where one fails
            while self._known:
                stack.callback(self._known.popitem()[1].close)

    def _find(self, key: Key, slot: int, kept: Mapping[Key, object]) -> Template:
        if (key, slot) not in self._known:
            others = [one for one in self._known if one[0] not in kept]
            if len(self._known) >= MOST_TEMPLATES and others:
                self._known.pop(others[0]).close()
            self._known[key, slot] = self._start(key, slot)
        return self._known[key, slot]

    def _start(self, key: Key, slot: int) -> Template:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        python, variables, _ = key
        # Each has a part of the range to itself: large libraries begin at multiples of 2 MiB, and
        # layouts that differ by less than that may put them at one address.
        part = LAYOUT_PAGES // SLOTS
        layout = slot * part + random.Random(f"template {slot}").randrange(part // 2)
        env = with_layout(dict(variables), layout)
        with theirs:
            worker = WorkerProcess(
                ArmSpec("template"),
                Spawn([python, str(self._script)], (theirs.fileno(),)),
                env,
                self.folder / "scratch",
            )
            worker.tell({"do": "template", "control": theirs.fileno()})
        return Template(worker, ours)


@contextmanager
def open_templates(
    ready: Templates | None = None, *, compile_once: bool = False
) -> Iterator[Templates]:
    """For one case or for all cases of a run; gone afterwards. Those that are `ready` serve too."""
    if ready is not None:
        yield ready
        return
    with own_folder() as folder:
        templates = Templates(folder, compile_once)
        try:
            yield templates
        finally:
            templates.close()


FIRST_CALL = "first-call-ns"
"""A file in a compile cache: it is whole, and what filling it took."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class Launcher:
    """Starts workers for one case. `folder` is the case's own and goes when the case is over."""

    folder: Path
    templates: Templates | None = None
    until: float | None = None
    """When everything must be over, by `time.monotonic`."""
    _script: Path = field(init=False)
    _interpreters: dict[str, str] = field(default_factory=dict)
    salt: str = field(default_factory=lambda: os.urandom(16).hex())
    """For hashes of hidden variables: comparable between the arms of this case, and no further."""

    def __post_init__(self) -> None:
        self._script = make_payload(self.folder / "payload")
        (self.folder / "scratch").mkdir()

    def start(
        self,
        arm: ArmSpec,
        cache: str | None = None,
        layout: int | None = None,
        slot: int | None = 0,
    ) -> WorkerProcess:
        """A process for the arm. `cache` names its compile cache, by default its own.

        Processes with the same `layout` have their memory laid out alike and hash alike. It is
        forked from the template in `slot`, where there is one; None: always a new program.
        """
        scratch = self.folder / "scratch"
        template = None if slot is None else self._template(arm, slot)
        if template is not None:
            own = self.caches(arm, cache)
            if layout is not None:
                own[FORK_LAYOUT] = str(layout)
            with contextlib.suppress(TorchstoneError):  # the template is gone: do without
                return WorkerProcess(arm, template, own, scratch, self.until)
        env = self.environment(arm, cache)
        if layout is not None:
            env = with_layout(env, layout)
        spawn = Spawn([self.interpreter(arm), str(self._script)])
        return WorkerProcess(arm, spawn, env, scratch, self.until)

    def import_ahead(self, arms: Sequence[ArmSpec], timeout_s: float, slots: int = SLOTS) -> None:
        """Have the arms' libraries imported in templates, side by side; nothing runs afterwards."""
        if self.templates is None:
            return
        if self.until is not None:
            timeout_s = min(timeout_s, max(0.1, self.until - time.monotonic()))
        self.templates.prepare([(self._key(arm), arm) for arm in arms], timeout_s, slots)

    def import_first(self, arms: Sequence[ArmSpec], timeout_s: float) -> None:
        """Only what the first arm needs, where all arms will be forked: else none is."""
        if self.templates is not None and self.templates.fits(map(self._key, arms)):
            self.import_ahead(arms[:1], timeout_s, slots=1)

    def _template(self, arm: ArmSpec, slot: int) -> Template | None:
        if self.templates is None:
            return None
        return self.templates.of(self._key(arm), arm, slot)

    def _key(self, arm: ArmSpec) -> Key:
        variables = {**os.environ, **arm_environment(arm)}
        return self.interpreter(arm), tuple(sorted(variables.items())), libraries_ahead(arm)

    def interpreter(self, arm: ArmSpec) -> str:
        """The arm's interpreter, found once."""
        if arm.python is None:
            return sys.executable
        if arm.python not in self._interpreters:
            self._interpreters[arm.python] = resolve_interpreter(arm.python)
        return self._interpreters[arm.python]

    def environment(self, arm: ArmSpec, cache: str | None = None) -> dict[str, str]:
        """Ours, the allocator's, the threads', the caches', and last the arm's own."""
        return {**os.environ, **arm_environment(arm), **self.caches(arm, cache)}

    def caches(self, arm: ArmSpec, cache: str | None = None) -> dict[str, str]:
        """The variables that differ from worker to worker, where the arm does not set them."""
        shared = None if cache else self._kept_cache(arm)
        folder = shared or self.folder / _safe(cache or f"cache-{arm.name}")
        env = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "NUMBA_CACHE_DIR": str(folder / "numba"),
            "TORCHSTONE_SCRATCH": str(self.folder / "scratch"),
        }
        return {**env, **{name: value for name, value in arm.env if name in env}}

    def _kept_cache(self, arm: ArmSpec) -> Path | None:
        return self.templates.compiled(arm) if self.templates is not None else None

    def begin_cold(self, arm: ArmSpec) -> None:
        """Before the arm's pass alone: forget what an interrupted one left half compiled."""
        shared = self._kept_cache(arm)
        if shared is not None and not (shared / FIRST_CALL).exists():
            shutil.rmtree(shared, ignore_errors=True)

    def cold_first_call(self, arm: ArmSpec, seen_ns: int) -> int:
        """Nanoseconds of the arm's first call with nothing compiled: as seen just now, or as seen
        in the case that compiled it."""
        shared = self._kept_cache(arm)
        if shared is None:
            return seen_ns
        note = shared / FIRST_CALL
        if not note.exists():
            shared.mkdir(exist_ok=True)
            note.write_text(str(seen_ns))
        return int(note.read_text())


@dataclass(frozen=True)
class CaseContext:
    """What every part of a case needs: how workers start, how to measure, whom to tell."""

    launcher: Launcher
    settings: Settings
    events: Events = field(default_factory=Silent)
    progress: CaseProgress = field(default_factory=CaseProgress)
    live: Live = field(default_factory=Live)


def arm_environment(arm: ArmSpec) -> Mapping[str, str]:
    """The variables that the arm's own settings stand for."""
    env = dict(allocator_environment(arm.allocator))
    if arm.threads is not None:
        env.update(dict.fromkeys(_THREAD_VARIABLES, str(arm.threads)))
    return {**env, **dict(arm.env)}


def _safe(name: str) -> str:
    """A file name for any arm name; the hash keeps names apart that look the same when cleaned."""
    clean = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:40]
    return f"{clean}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
