"""A process that has imported an arm's libraries, and is forked for every worker that needs them.

Importing torch, its compiler and a model library takes most of a short case. A forked worker has
them from its first moment, in memory of its own from the first write on. Nothing of the user's is
imported before the fork, and no thread may run that a fork would lose: only those of OpenBLAS do,
which ends its threads before a fork and starts them again when it needs them.

What a fork cannot change is where libraries lie and how strings hash. So there are templates with
another layout and another hash seed, and every fork moves its own memory (`vary_memory`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from torchstone.machine.processes import die_with_parent, list_numbers, read_text
from torchstone.measure.arm import Phase, set_threads
from torchstone.measure.channel import TAG
from torchstone.measure.loops import wall_clock
from torchstone.records import ArmSpec

REQUEST_LIMIT = 1 << 20
DESCRIPTORS = 5
"""Of a request: commands in, replies out, standard error, and where the exit code goes."""
FORK_LAYOUT = "TORCHSTONE_FORK_LAYOUT"
"""The variable with the number that the memory of a fork is laid out by."""
HEAP_PAGES = 4096
"""The heap of a fork begins up to 16 MiB further on; the pages are never touched."""

Serve = Callable[[int, int, int], int]
"""The worker's loop over its two pipes; returns the exit code."""


@dataclass(frozen=True)
class _Child:
    pid: int
    status: int


def unsafe_threads() -> str:
    """Why this process must not be forked; empty where it may be."""
    if threading.active_count() > 1:
        names = ", ".join(t.name for t in threading.enumerate()[1:])
        return f"its libraries have started Python threads ({names})"
    native = len(list_numbers("/proc/self/task")) - 1
    # Each copy of the library (numpy's, scipy's) has one thread fewer than there are cores.
    known = _openblas_copies() * ((os.cpu_count() or 1) - 1)
    return "" if native <= known else f"its libraries have started {native} threads"


def _openblas_copies() -> int:
    maps = read_text("/proc/self/maps") or ""
    return len({line.split()[-1] for line in maps.splitlines() if "openblas" in line})


def serve_forks(control: socket.socket, do_import: Callable[[Any], None], serve: Serve) -> None:
    """Import what is asked for and fork a worker for every request, until the other side is gone;
    tell how each one ended."""
    children: dict[int, _Child] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != control.fileno():
                poll.unregister(descriptor)
                _tell_end(descriptor, children.pop(descriptor))
                continue
            request, passed, _, _ = socket.recv_fds(control, REQUEST_LIMIT, DESCRIPTORS)
            if not request:
                return
            asked = json.loads(request)
            if "import" in asked:
                for arm in asked["import"]:
                    do_import(arm)
                control.send(json.dumps({"unsafe": unsafe_threads()}).encode())
                continue
            others = [*children, *(child.status for child in children.values())]
            opened, child = _fork(control, asked, passed, others, serve)
            children[opened] = child
            poll.register(opened, select.POLLIN)


def _fork(
    control: socket.socket,
    request: dict[str, Any],
    passed: list[int],
    others: list[int],
    serve: Serve,
) -> tuple[int, _Child]:
    """A worker on the descriptors that were passed; `others` are those of workers before it."""
    *pipes, stderr, status = passed
    told, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        for descriptor in (*others, status, told):
            os.close(descriptor)
        _become_worker(control, request, (*pipes, stderr, ready), serve)
    for descriptor in (*pipes, stderr, ready):
        os.close(descriptor)
    os.read(told, 1)  # until it can be found by its session and its tag, or is dead
    os.close(told)
    opened = os.pidfd_open(pid)
    # With the process itself, not only its number: it cannot be mistaken for another one later.
    socket.send_fds(control, [json.dumps({"pid": pid}).encode()], [opened])
    return opened, _Child(pid, status)


def _tell_end(descriptor: int, child: _Child) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    with contextlib.suppress(OSError):  # nobody is interested any more
        os.write(child.status, str(code).encode())
    os.close(child.status)
    os.close(descriptor)


def _become_worker(
    control: socket.socket,
    request: dict[str, Any],
    descriptors: Sequence[int],
    serve: Serve,
) -> NoReturn:
    code = 1
    try:
        template = os.getppid()
        os.setsid()
        die_with_parent(template)
        *pipes, stderr, ready = descriptors
        os.dup2(stderr, 2)
        os.close(stderr)
        control.close()
        env = request["env"]
        _carry_tag(env[TAG])
        os.environ.update(env)
        os.close(ready)
        _stretches = vary_memory(int(env.get(FORK_LAYOUT, "0")))
        signal.set_wakeup_fd(-1)
        commands, replies, marks = pipes
        code = serve(commands, replies, marks)
    finally:
        os._exit(code)


def _carry_tag(value: str) -> None:
    """Write the fork's own tag over the template's, where /proc shows it to whoever looks for
    processes that were left behind. Both have the same length."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(TAG.encode())
    if address and len(os.environ.get(TAG, "")) == len(value):
        ctypes.memmove(address, value.encode(), len(value))


def vary_memory(layout: int) -> tuple[mmap.mmap, int | None]:
    """Move what this process will map and what it will take from the heap; nothing is touched."""
    stretch = mmap.mmap(-1, (1 + layout % HEAP_PAGES) * mmap.PAGESIZE, prot=mmap.PROT_READ)
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    pages, lines = divmod(layout // HEAP_PAGES, mmap.PAGESIZE // 64)
    return stretch, malloc(ctypes.c_size_t((pages % HEAP_PAGES) * mmap.PAGESIZE + lines * 64 + 64))


# The compiler's own one-time cost: what a machine's first compilation pays for all later ones.

AHEAD_OF_TIME = "aoti"


def warm_toolchain(arm: ArmSpec, phase: Phase) -> int:
    """Compile something trivial; precompiled headers are left behind. Nanoseconds."""
    phase("import")
    import torch

    set_threads(arm)
    phase("first call")
    started = wall_clock()
    if arm.backend == AHEAD_OF_TIME:
        _compile_ahead(torch, arm.device)
    else:
        torch.compile(lambda x: x * 2 + 1, backend="inductor")(torch.ones(64))
    return wall_clock() - started


def _compile_ahead(torch: Any, device: str) -> None:
    """AOTInductor has headers of its own, another for each kind of device."""

    class Trivial(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 + 1

    exported = torch.export.export(Trivial(), (torch.ones(64, device=device),))
    folder = tempfile.mkdtemp(prefix="toolchain-", dir=os.environ.get("TORCHSTONE_SCRATCH"))
    torch._inductor.aoti_compile_and_package(
        exported, package_path=os.path.join(folder, "trivial.pt2")
    )
