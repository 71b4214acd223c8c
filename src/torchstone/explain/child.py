"""The process in which the passes of `explain` run: one request in, one report out.

Started as a worker is, in the arm's own interpreter, with nothing of ours on its path but the
packages that are sent to it. Its messages are JSON over two pipes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import traceback

from torchstone.explain.passes.report import Plan
from torchstone.machine.processes import die_with_parent
from torchstone.measure import loops  # bound before user code is imported
from torchstone.measure.channel import ChannelClosed, Failure, receive, send
from torchstone.records import ArmSpec, NotSupported, UsageError, from_data, to_data

TRACEBACK_LINES = 12
HIGH_DESCRIPTOR = 200
"""Out of the way of user code that closes or counts low ones."""


def main(words: list[str]) -> int:
    """Serve one request on the two pipes given by number."""
    assert loops.wall_clock is not None
    commands, replies = (_move(int(number)) for number in words[:2])
    sys.argv = ["torchstone"]
    die_with_parent()
    where = ["start"]

    def phase(name: str) -> None:
        where[0] = name
        send(replies, {"phase": name})

    try:
        request = receive(commands)
        from torchstone.explain.passes.run import run_passes

        arm, plan = from_data(ArmSpec, request["arm"]), from_data(Plan, request["plan"])
        send(replies, {"reply": to_data(run_passes(arm, plan, phase))})
    except ChannelClosed:
        return 1
    except BaseException as error:  # SystemExit of user code ends an arm as well
        with contextlib.suppress(ChannelClosed):
            send(replies, {"failed": to_data(_failure(error, where[0]))})
        return 1
    return 0


def _move(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
    os.close(descriptor)
    return moved


def _failure(error: BaseException, phase: str) -> Failure:
    if isinstance(error, UsageError):
        return Failure("usage", error.message, error.remedy, phase)
    if isinstance(error, NotSupported):
        return Failure("not_supported", str(error), "", phase)
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    tail = tuple("".join(lines).splitlines()[-TRACEBACK_LINES:])
    kind = "oom" if isinstance(error, MemoryError) else "error"
    return Failure(kind, f"{type(error).__name__}: {error}".rstrip(": "), "", phase, tail)
