"""A group of ranks under torchrun: started, asked all at once, and never left behind.

A rank that dies, fails or stays silent ends the group, and is named: the one whose connection
closes without a word; else the one that is still silent when the others' collectives have timed
out; else the one that has come least far, or whose stack is not inside a collective.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from typing import Any

from torchstone.conductor.launch import arm_environment, make_payload
from torchstone.conductor.worker import signal_name, without_ours
from torchstone.machine.folders import own_folder
from torchstone.machine.processes import kill_tree
from torchstone.machine.redact import redact_text, tail
from torchstone.measure.channel import TAG, ChannelClosed, Failure, receive, send
from torchstone.records import ArmSpec, Outcome, OutcomeDetail, UsageError, from_data, to_data
from torchstone.records.scaling import PLAIN

SETTLE_S = 2.0
"""After the first failure: how long others may take to tell theirs, so that the cause is found."""
VICTIM = ("connection closed", "connection reset", "timed out", "timeout", "broken pipe", "peer")
"""In what a rank says that lost another one."""
STACK_S = 0.2
"""For a signal's handler to write a stack."""
COLLECTIVE_SHARE = 0.5
"""Of our time-out, the process group's: victims report before we give up; the cause is silent."""
WAITING = re.compile(r"/torch/(distributed|autograd|_functorch)/")
"""In the file of the innermost frame of a rank that waits for another one."""
_TORCHRUN = (
    "from torchstone.machine.processes import die_with_parent; die_with_parent(); "
    "from torch.distributed.run import main; main()"
)
"""torchrun, which goes when we are killed; its ranks go with it."""


class GroupEnded(Exception):
    """The group is gone; `rank` is the one at fault, None where that is not known."""

    def __init__(self, outcome: Outcome, detail: OutcomeDetail, rank: int | None) -> None:
        super().__init__(detail.message)
        self.outcome, self.detail, self.rank = outcome, detail, rank


class RankGroup:
    """The processes of one arm."""

    def __init__(self, arm: ArmSpec, kind: str, ranks: int, timeout_s: float) -> None:
        self.arm, self.kind, self.ranks, self.timeout_s = arm, kind, ranks, timeout_s
        self.phase = "start"
        self.tag = uuid.uuid4().hex
        self._own = ExitStack()
        self.folder = self._own.enter_context(own_folder())
        self._connections: dict[int, socket.socket] = {}
        self._pids: dict[int, int] = {}
        self._stderr = open(self.folder / "stderr", "w+b")  # noqa: SIM115 - closed by `close`
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.folder / "ranks"))
        self._server.listen(ranks)
        make_payload(self.folder / "payload")
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, (f"{self.folder}/payload", os.getenv("PYTHONPATH"))))
        env = {**os.environ, **arm_environment(self.arm), "PYTHONPATH": path, TAG: self.tag}
        script = ["-m", "torchstone.measure.ranks", str(self.folder)]
        if self.kind != PLAIN:
            torchrun = ["-c", _TORCHRUN, "--standalone", "--max-restarts=0"]
            logs = f"--log-dir={self.folder}/logs"  # its own folder would outlive a kill
            script = [*torchrun, f"--nproc-per-node={self.ranks}", logs, *script]
        return subprocess.Popen(
            [sys.executable, *script],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,
        )

    def connect(self, timeout_s: float) -> None:
        """Wait for every rank."""
        until = time.monotonic() + timeout_s
        self._server.settimeout(0.5)
        while len(self._connections) < self.ranks:
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                if self._process.poll() is None and time.monotonic() < until:
                    continue
                missing = sorted(set(range(self.ranks)) - set(self._connections))
                said = f"rank {missing[0]} did not start"
                outcome = Outcome.CRASH if self._process.poll() is not None else Outcome.TIMEOUT
                raise self._ended(outcome, said, missing[0]) from None
            connection.setblocking(True)
            hello = receive(connection.fileno())
            rank = int(hello["rank"])
            self._connections[rank], self._pids[rank] = connection, int(hello["pid"])

    def build(self, weak: bool) -> list[Any]:
        """Have every rank join the group and make its part."""
        how = {"arm": self.arm, "kind": self.kind, "weak": weak}
        timeout_s = COLLECTIVE_SHARE * self.timeout_s
        return self.ask({"do": "build", **how, "timeout_s": timeout_s}, self.timeout_s)

    def ask(self, command: dict[str, Any], timeout_s: float) -> list[Any]:
        """The same of every rank; their replies by rank."""
        self.phase = str(command["do"])
        for connection in self._connections.values():
            with contextlib.suppress(ChannelClosed):  # found, with its cause, below
                send(connection.fileno(), to_data(command))
        replies: dict[int, Any] = {}
        failures: dict[int, Failure] = {}
        dead: list[int] = []
        until = time.monotonic() + timeout_s
        waiting = dict(self._connections)
        while waiting and time.monotonic() < until:
            by_number = {one.fileno(): rank for rank, one in waiting.items()}
            ready, _, _ = select.select(list(by_number), [], [], max(0, until - time.monotonic()))
            for number in ready:
                rank = by_number[number]
                waiting.pop(rank)
                try:
                    message = receive(number)
                except (ChannelClosed, OSError, struct.error, json.JSONDecodeError):
                    dead.append(rank)
                else:
                    if "reply" in message:
                        replies[rank] = message["reply"]
                    else:
                        failures[rank] = from_data(Failure, message["failed"])
            if dead or failures:
                until = min(until, time.monotonic() + SETTLE_S)
        if len(replies) < self.ranks:
            self._blame(dead, failures, sorted(waiting), timeout_s)
        return [replies[rank] for rank in range(self.ranks)]

    def _blame(
        self, dead: list[int], failures: dict[int, Failure], silent: list[int], timeout_s: float
    ) -> None:
        usage = next((one for one in failures.values() if one.kind == "usage"), None)
        if usage is not None:
            self.close()
            raise UsageError(usage.message, usage.remedy)
        own = {
            rank: one
            for rank, one in failures.items()
            if not any(word in one.message.lower() for word in VICTIM)
        }
        if dead:
            code = self._exit_code(dead[0])
            raise self._ended(Outcome.CRASH, f"rank {dead[0]} {code}", dead[0])
        if own:
            failed, one = next(iter(own.items()))
            kinds = {"not_supported": Outcome.NOT_SUPPORTED, "oom": Outcome.OOM}
            outcome = kinds.get(one.kind, Outcome.ERROR)
            told = (
                one.message if outcome is Outcome.NOT_SUPPORTED else f"rank {failed}: {one.message}"
            )
            raise self._ended(outcome, told, None if outcome is Outcome.NOT_SUPPORTED else failed)
        rank, where = self._hung(silent)
        who = "no rank that can be named" if rank is None else f"rank {rank}"
        said = f"{who} did not answer within {timeout_s:g} s"
        raise self._ended(Outcome.TIMEOUT, f"{said}; it is at {where}" if where else said, rank)

    def _hung(self, silent: list[int]) -> tuple[int | None, str]:
        """The one that the others wait for, and the line it is at, where they can be told."""
        steps = {rank: self._steps(rank) for rank in silent}
        stacks = {rank: self._stack(rank) for rank in silent}
        least = [rank for rank in silent if steps[rank] == min(steps.values())]
        busy = [rank for rank in least if stacks[rank] and not WAITING.search(stacks[rank][0])]
        named = next((one[0] for one in (least, busy) if len(one) == 1), None)
        lines = [] if named is None else stacks[named]
        return named, next((line for line in lines if "/torch" not in line), "")

    def _stack(self, rank: int) -> list[str]:
        """`file:line in function` of a rank's main thread, the innermost first."""
        with contextlib.suppress(OSError):
            os.kill(self._pids[rank], signal.SIGUSR1)
            time.sleep(STACK_S)
            text = (self.folder / f"stack-{rank}").read_text(errors="replace")
            found = re.findall(r'File "([^"]*)", line (\d+) in (.*)', text)
            return [f"{file}:{line} in {function}" for file, line, function in found]
        return []

    def _exit_code(self, rank: int) -> str:
        """How a rank ended, by torchrun's own report."""
        limit = time.monotonic() + SETTLE_S
        while time.monotonic() < limit and self._process.poll() is None:
            time.sleep(0.05)
        text = self._errors()
        for line in text.splitlines():
            if f"local_rank: {rank} " in line and "exitcode:" in line:
                code = line.split("exitcode:")[1].split(")")[0].strip()
                if code.startswith("-"):
                    return f"was killed by {signal_name(-int(code))}"
                return f"exited with code {code}"
        return "died"

    def _steps(self, rank: int) -> int:
        try:
            return int.from_bytes((self.folder / f"steps-{rank}").read_bytes()[:8], "little")
        except OSError:
            return 0

    def _errors(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def _ended(self, outcome: Outcome, message: str, rank: int | None) -> GroupEnded:
        text = redact_text(without_ours(self._errors()), dict(os.environ))
        self.close()
        remedy = "Raise --timeout." if outcome is Outcome.TIMEOUT else ""
        detail = OutcomeDetail(message, self.phase, remedy, stderr=tuple(tail(text)))
        return GroupEnded(outcome, detail, rank)

    def close(self) -> None:
        """End all of them."""
        if self._server.fileno() == -1:
            return
        kill_tree(self._process.pid, TAG, self.tag)
        self._process.wait()
        for one in (*self._connections.values(), self._server):
            one.close()
        self._stderr.close()
        self._own.close()
