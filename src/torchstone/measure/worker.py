"""The worker's loop: one command in, one reply out, until told to stop or cut off."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchstone.machine.processes import die_with_parent
from torchstone.measure import loops  # bound before user code is imported
from torchstone.measure.channel import (
    ChannelClosed,
    CheckedCall,
    CountReport,
    Failure,
    Seen,
    receive,
    send,
)
from torchstone.records import ArmSpec, Memory, UsageError, from_data, to_data
from torchstone.variants import NotSupported, unsupported_backend

TRACEBACK_LINES = 12
_write = os.write  # bound before user code can patch it


class Worker:
    """Answers the conductor. Holds at most one measuring process's state."""

    def __init__(self, commands: int, replies: int, marks: int) -> None:
        self.commands = commands
        self.replies = replies
        self.marks = marks
        self.where = "start"
        self.turns: dict[str, Any] = {}
        """By arm: all those of a case may live in one process."""
        self.reference: Any = None
        self.control: socket.socket | None = None
        """Where a template is asked to fork."""
        self.built: Any = None

    def phase(self, name: str) -> None:
        """Tell the conductor where we are, so that a death can be placed and timed out."""
        self.where = name
        send(self.replies, {"phase": name})

    def mark(self) -> None:
        """The timed part of a turn begins, or ends: the kernel stamps the message with its clock,
        and the conductor, which reads it after the turn, need not wake up for it."""
        with contextlib.suppress(OSError):  # the conductor finds that one is missing
            _write(self.marks, b"m")

    def seen(self, call_ns: Sequence[int]) -> None:
        """Tell what calls took, before the pass is over: somebody waits for a first figure."""
        send(self.replies, {"seen": to_data(Seen(tuple(call_ns)))})

    def serve(self) -> None:
        """The loop."""
        handlers = self.handlers()
        while True:
            command = receive(self.commands)
            name = command.pop("do")
            if name == "stop":
                return
            try:
                _enter_folder(command)
                reply = {"reply": to_data(handlers[name](command))}
            except ChannelClosed:
                raise
            except BaseException as error:  # SystemExit and KeyboardInterrupt end an arm as well
                send(self.replies, {"failed": to_data(failure_of(error, self.where))})
                return
            send(self.replies, reply)
            if self.control is not None:
                self._be_template(self.control)
                return

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """What can be asked of it."""
        return {
            "template": self._template,
            "solo": self._solo,
            "tensors": self._tensors,
            "reference": self._reference,
            "float64": self._float64,
            "closer": self._closer,
            "count": self._count,
            "boundary": self._boundary,
            "adversarial": self._adversarial,
            "losses": self._losses,
            "metric": self._metric,
            "toolchain": self._toolchain,
            "start": self._start,
            "turn": self._turn,
            "evidence": self._evidence,
            "calibrate": self._calibrate,
        }

    def _template(self, command: dict[str, Any]) -> Any:
        self.control = socket.socket(fileno=command["control"])

    def _be_template(self, control: socket.socket) -> None:
        """From here on nothing is done in this process but imports and forks."""
        from torchstone.measure.arm import import_variant
        from torchstone.measure.template import serve_forks
        from torchstone.workloads import import_libraries

        def do_import(data: Any) -> None:
            arm = from_data(ArmSpec, data)
            import_variant(arm)
            import_libraries(arm)

        def serve_fork(commands: int, replies: int, marks: int) -> int:
            for descriptor in (self.commands, self.replies, self.marks):
                os.close(descriptor)
            return serve(type(self), _move(commands), _move(replies), _move(marks))

        serve_forks(control, do_import, serve_fork)

    def _solo(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.solo import solo

        report, self.built = solo(
            from_data(ArmSpec, command["arm"]),
            self.phase,
            command["check_seed"],
            command["evidence"],
            command["loops"],
            command["arm_env"],
            bytes.fromhex(command["salt"]),
            self.seen,
            deeper=command["deeper"],
        )
        return report

    def _tensors(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.allocations import with_tensors

        return with_tensors(self.built, self.phase, from_data(Memory, command["memory"]))

    def _reference(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.reference import make_references

        arm = from_data(ArmSpec, command["arm"])
        calls = [from_data(CheckedCall, call) for call in command["calls"]]
        report, self.reference = make_references(arm, self.phase, calls, command["folder"])
        return report

    def _float64(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.reference import make_float64

        made, self.reference = self.reference, None
        return make_float64(made, self.phase)

    def _closer(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.reference import look_closer

        call = from_data(CheckedCall, command["call"])
        look_closer(from_data(ArmSpec, command["arm"]), self.phase, call, command["path"])

    def _count(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.flops import count_flops

        return CountReport(count_flops(from_data(ArmSpec, command["arm"]), self.phase))

    def _boundary(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.evidence import boundary_behaviour

        arm = from_data(ArmSpec, command["arm"])
        return boundary_behaviour(arm, self.phase, command["cases"])

    def _adversarial(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.reference import answers, baseline_answers

        ask = baseline_answers if command["who"] == "baseline" else answers
        arm, folder = from_data(ArmSpec, command["arm"]), command["folder"]
        return ask(arm, self.phase, command["cases"], folder, command["seed"])

    def _losses(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.reference import loss_curves

        arm = from_data(ArmSpec, command["arm"])
        return loss_curves(arm, self.phase, command["seeds"], command["steps"])

    def _metric(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.reference import metric

        return metric(from_data(ArmSpec, command["arm"]), self.phase, command["name"])

    def _toolchain(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.template import warm_toolchain

        return warm_toolchain(from_data(ArmSpec, command["arm"]), self.phase)

    def _start(self, command: dict[str, Any]) -> Any:
        from torchstone.measure.turns import Turns

        arm = from_data(ArmSpec, command["arm"])
        probe_bits, caches = command["probe_bits"], command.get("caches", {})
        turns = Turns(arm, self.phase, command["loops"], probe_bits, caches)
        self.turns[arm.name] = turns
        if command.get("ahead", False):
            turns.first_call(self.phase)
        self.phase("built")
        return None

    def _turn(self, command: dict[str, Any]) -> Any:
        turns = self.turns[command.pop("arm")]
        if command.pop("warm_up", False):
            return turns.warm_up(self.phase, **command)
        self.where = "turn"
        if command.pop("one_call", False):
            return turns.one_call(self.mark, **command)
        return turns.turn(self.mark, **command)

    def _evidence(self, command: dict[str, Any]) -> Any:
        self.turns[command["arm"]].write_evidence(command["path"])

    def _calibrate(self, command: dict[str, Any]) -> Any:
        from torchstone.machine.calibrate import Request, calibrate

        return calibrate(from_data(Request, command["request"]), self.phase)


def _enter_folder(command: Mapping[str, Any]) -> None:
    """Go where the arm's processes run, before any code of it is imported."""
    arm = command.get("arm")
    folder = arm.get("folder") if isinstance(arm, Mapping) else ""
    if folder:
        os.chdir(folder)


def failure_of(error: BaseException, phase: str) -> Failure:
    """What is told of an error in the user's code, or in a request."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    tail = tuple("".join(lines).splitlines()[-TRACEBACK_LINES:])
    if isinstance(error, UsageError):
        return Failure("usage", error.message, error.remedy, phase)
    if isinstance(error, NotSupported):
        return Failure("not_supported", str(error), "", phase)
    reason = unsupported_backend(error)
    if reason is not None:
        return Failure("not_supported", reason, "", phase, tail)
    message = f"{type(error).__name__}: {_said(error)}".strip().rstrip(":")
    kind = "oom" if _is_out_of_memory(error) else "error"
    return Failure(kind, message, "", phase, tail)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error that cannot even be written must not hide itself
        return ""


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = _said(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "out of memory" in text.lower()
    )


def main(kind: type[Worker] = Worker) -> None:
    """Take over the two pipes and the socket given by number, and serve."""
    assert loops.wall_clock is not None
    # Out of the way of user code that closes or counts low descriptors, and not for grandchildren.
    commands, replies, marks = (_move(int(number)) for number in sys.argv[1:4])
    sys.argv = ["torchstone"]
    die_with_parent()
    with contextlib.suppress(Exception):  # no stderr, or one without a descriptor
        faulthandler.enable()  # a segmentation fault leaves its Python stack
    code = serve(kind, commands, replies, marks)
    # Not sys.exit: threads and atexit hooks of user code must not keep the conductor waiting.
    os._exit(code)


def serve(kind: type[Worker], commands: int, replies: int, marks: int) -> int:
    """Answer until told to stop or cut off; returns the exit code."""
    code = 0
    try:
        kind(commands, replies, marks).serve()
    except ChannelClosed:
        pass
    except BaseException:  # user code has broken the pipes or more; leave what evidence we can
        code = 1
        with contextlib.suppress(Exception):
            traceback.print_exc(file=sys.__stderr__)
    for stream in filter(None, (sys.stdout, sys.stderr, sys.__stderr__)):
        with contextlib.suppress(Exception):  # user code may have put anything in their place
            stream.flush()
    return code


def _move(descriptor: int) -> int:
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(descriptor)
    return moved
