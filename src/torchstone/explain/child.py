"""The process in which the passes of `explain` run: one request in, one report out.

Started as a worker is, in the arm's own interpreter, with nothing of ours on its path but the rooms
that travel. Its messages are JSON over two pipes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import traceback
from pathlib import Path

from torchstone.conductor import ArmEnded, Settings
from torchstone.conductor.launch import Launcher
from torchstone.conductor.run import case_folder
from torchstone.conductor.worker import Spawn, WorkerProcess, patience
from torchstone.explain.passes.report import Passes, Plan
from torchstone.machine.processes import die_with_parent
from torchstone.measure import loops  # bound before user code is imported
from torchstone.measure.channel import ChannelClosed, Failure, receive, send
from torchstone.records import (
    ArmSpec,
    NotSupported,
    TorchstoneError,
    UsageError,
    from_data,
    to_data,
)

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


# Has the passes run in a process of its own, so that this one never imports torch.


SLACK_S = 120.0
"""Between two signs of life: passes of some seconds each, on a machine that may be busy."""
_SCRIPT = """import os, sys
from torchstone.explain.child import main
code = main(sys.argv[1:])
sys.stdout.flush()
os._exit(code)
"""
_DOOR = '"""The part of the room that travels."""\n'


def run_passes_of(arm: ArmSpec, plan: Plan, settings: Settings | None = None) -> Passes:
    """All passes of one arm. A `TorchstoneError` says why there are none."""
    settings = settings or Settings()
    with case_folder() as folder:
        launcher = Launcher(folder)
        script = _add_child(folder / "payload")
        env = launcher.environment(arm, "cache-explain")
        command = [launcher.interpreter(arm), str(script)]
        worker = WorkerProcess(arm, Spawn(command), env, folder / "scratch")
        try:
            reply = worker.ask({"arm": arm, "plan": plan}, patience(settings, SLACK_S))
        except ArmEnded as ended:
            raise _as_error(arm, ended) from None
        finally:
            worker.kill()
    return from_data(Passes, reply)


def _add_child(payload: Path) -> Path:
    """The passes beside the rooms that travel."""
    home = Path(__file__).resolve().parent
    room = payload / "torchstone" / "explain"
    room.mkdir()
    (room / "__init__.py").write_text(_DOOR)
    os.symlink(home / "child.py", room / "child.py")
    os.symlink(home / "passes", room / "passes")
    script = payload / "explain.py"
    script.write_text(_SCRIPT)
    return script


def _as_error(arm: ArmSpec, ended: ArmEnded) -> TorchstoneError:
    """The request was sound and the target did not do its work: exit code 1, as elsewhere."""
    detail = ended.detail
    last = detail.stderr[-1].strip() if detail.stderr else ""
    more = f" ({last})" if last and last not in detail.message else ""
    return TorchstoneError(
        f"{arm.target} under {arm.variant} cannot be explained: {ended.outcome.value} in "
        f"{detail.phase or 'start'}: {detail.message}{more}.",
        detail.remedy or "See whether `torchstone bench` runs it.",
    )
