"""The processes of one replicate: one for each arm, or one for all arms together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchstone.conductor.case import Settings
from torchstone.conductor.launch import Launcher
from torchstone.conductor.patience import patience
from torchstone.conductor.state import ArmState
from torchstone.conductor.worker import ArmEnded, WorkerProcess, ended_by
from torchstone.measure.sources import changed, hash_file
from torchstone.records import ArmSpec, Outcome, UsageError

UNTOUCHED = "Measure it again, and leave it as it is until that is done."
SHARED_BY_ALL = ("python", "env", "allocator", "threads", "device", "precision", "mode")
"""What arms must have in common to run in one process: settings that hold for all of it."""


@dataclass
class Seat:
    """An arm with its process in this replicate."""

    state: ArmState
    worker: WorkerProcess
    sample_ns: int = 0
    evidence: list[tuple[Path, int]] = field(default_factory=list)


def may_share(arms: Sequence[ArmSpec]) -> str:
    """Why these arms cannot run in one process; empty where they can."""
    for name in SHARED_BY_ALL:
        if len({getattr(arm, name) for arm in arms}) > 1:
            return f"they differ in {name}"
    if any("freezing" in arm.variant.split("+") for arm in arms):
        return "+freezing is a setting of the whole process"
    return ""


@dataclass(frozen=True)
class Seating:
    """How processes of replicates are started."""

    launcher: Launcher
    settings: Settings
    forked: bool
    """From templates, where there are any."""

    def begin(
        self, states: Sequence[ArmState], index: int, together: bool, ahead: bool = False
    ) -> list[Seat]:
        """Have processes started and arms built, side by side; `built` waits for it.

        `ahead`: with the first call, which compiles. Nothing that is timed may run meanwhile.
        """
        seats: list[Seat] = []
        layout = random.Random(f"{self.settings.seed} layout {index}").randrange(2**32)
        try:
            for state in states:
                shared = seats[0].worker if together and seats else None
                try:
                    slot = index if self.forked else None
                    worker = shared or self.launcher.start(state.spec, layout=layout, slot=slot)
                except UsageError as error:  # its interpreter, which was there before
                    state.end(ended_by(error, "start"))
                    continue
                seats.append(Seat(state, worker))
                worker.tell(
                    {
                        "do": "start",
                        "arm": state.spec,
                        "loops": state.loops,
                        "probe_bits": state.probe_bits,
                        "caches": self.launcher.caches(state.spec),
                        "ahead": ahead,
                    }
                )
        except BaseException:
            kill_all(seats)
            raise
        return seats

    def built(self, seats: Sequence[Seat]) -> list[Seat]:
        """Those that are built; an arm whose process died has its outcome."""
        return [seat for seat in seats if survives(seat, self._wait)]

    def _wait(self, seat: Seat) -> None:
        seat.worker.wait(patience(self.settings))


def survives(seat: Seat, act: Callable[[Seat], object]) -> bool:
    """Do something with a worker; its death is its arm's outcome and nobody else's."""
    if seat.worker.ended:  # of another arm in the same process
        return False
    try:
        act(seat)
    except (ArmEnded, UsageError) as ended:
        seat.state.end(explained(ended, seat))
        return False
    return True


def stop_all(seats: Sequence[Seat]) -> None:
    """End them in good order."""
    for seat in seats:
        strays = 0 if seat.worker.ended else seat.worker.stop()
        if strays:
            seat.state.notes.append(f"{strays} process(es) that outlived a worker were killed")


def kill_all(seats: Sequence[Seat]) -> None:
    """End them at once."""
    with ExitStack() as stack:  # all of them, also where Ctrl-C comes once more
        for seat in seats:
            stack.callback(seat.worker.kill)


def explained(ended: ArmEnded | UsageError, seat: Seat) -> ArmEnded:
    """Code that fails now and ran before has been edited, more often than not; then say so."""
    if isinstance(ended, UsageError):
        ended = ended_by(ended, seat.worker.phase)
    sources = seat.state.sources
    edited = changed(sources, {path: hash_file(path) for path in sources})
    detail = ended.detail
    if ended.outcome is not Outcome.ERROR or not edited or detail.remedy == UNTOUCHED:
        return ended
    message = f"{file_changed(edited)} ({detail.message.rstrip('.')})"
    return ArmEnded(ended.outcome, replace(detail, message=message, remedy=UNTOUCHED))


def file_changed(names: Sequence[str]) -> str:
    """What is said of files that were edited."""
    return f"the file changed while it was measured: {', '.join(names)}"
